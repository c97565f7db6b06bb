#!/usr/bin/env bash
# The reports of a matrix of runners, fetched from their artifacts and merged; one that is missing is an error. Ends with
# the exit code of a gate over all cases, after the summary of what failed.
set -euo pipefail
target=$1
here=$(cd "$(dirname "$0")" && pwd)

mapfile -t names < <(python3 -c 'import json, os; [print(one["name"]) for one in json.loads(os.environ["RUNNERS"])]')
reports=()
for name in "${names[@]}"; do
  if ! [[ $name =~ ^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$ ]]; then
    echo '::error title=pytest-cgins::runners: names are letters, digits, dots, dashes and underscores'
    exit 2
  fi
  ARTIFACT="cgins-shard-$name" bash "$here/fetch_report.sh" "$target/shards/$name"
  if ! [[ -f $target/shards/$name/report.json ]]; then
    echo "::error title=pytest-cgins::there is no report of $name"
    exit 1
  fi
  reports+=("$target/shards/$name/report.json")
done

# What is wrong with a report is told in its own words, which are no commands.
token=$(head -c 16 /dev/urandom | od -An -tx1 | tr -d ' \n')
echo "::stop-commands::$token"
trap 'printf "\n::%s::\n" "$token"' EXIT

cgins() { (cd "$here/.." && python3 -c 'import sys; from pytest_cgins.app.cli import main; sys.exit(main())' "$@"); }
code=0
cgins merge "${reports[@]}" --out "$target/report.json" || code=$?
# A kernel that failed is what the summary is for.
if [[ -f $target/report.json ]]; then
  cgins summary --max-bytes=1000000 "$target/report.json" >>"$GITHUB_STEP_SUMMARY"
fi
exit "$code"
