#!/usr/bin/env bash
# Each proposal of this run as a pull request, MOST of them at most. Runs no kernel; a proposal that is refused does not
# stop the others. One that is stale, or whose branch a person has committed on, is told, and is no failure.
set -euo pipefail
target=$1
if ! [[ $MOST =~ ^[0-9]{1,4}$ ]]; then
  echo '::error title=pytest-cgins::most-pull-requests: give a whole number, 9999 or less'
  exit 2
fi
here=$(cd "$(dirname "$0")" && pwd)

mkdir -p "$target"
ARTIFACT=cgins-proposals bash "$here/fetch_artifact.sh" "$target/proposals.zip"
if ! [[ -f $target/proposals.zip ]]; then
  echo '::notice title=pytest-cgins::there are no proposals'
  exit 0
fi
python3 "$here/unpack_proposals.py" "$target/proposals.zip" "$target/files"
files=()
while IFS= read -r -d '' file; do
  files+=("$file")
done < <(find "$target/files" -name proposal.json -type f -print0 | sort -z)
left=$((${#files[@]} - 10#$MOST))
if ((left > 0)); then
  echo "::warning title=pytest-cgins::more proposals than most-pull-requests allows: $left are left, in the artifact cgins-proposals"
fi
# What is wrong with a proposal is told in its own words, which are no commands.
token=$(head -c 16 /dev/urandom | od -An -tx1 | tr -d ' \n')
echo "::stop-commands::$token"
trap 'printf "\n::%s::\n" "$token"' EXIT

cd "$FOLDER"
failed=0
for file in "${files[@]:0:10#$MOST}"; do
  # Not the `pytest_cgins` of the repository, if it has one: -P leaves the folder out, PYTHONPATH names ours.
  code=0
  PYTHONPATH=$here/.. python3 -P -c 'import sys; from pytest_cgins.app.cli import main; sys.exit(main())' \
    pull-request open --proposal "$(dirname "$file")" || code=$?
  ((code <= 1)) || failed=1
done
exit "$failed"
