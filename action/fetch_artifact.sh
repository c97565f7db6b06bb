#!/usr/bin/env bash
# The newest artifact of a run as an archive: bounded, and not unpacked. No file where that run left none; what keeps
# GitHub from saying so is a failure.
set -euo pipefail
archive=$1
archive_limit=$((64 << 20))
here=$(cd "$(dirname "$0")" && pwd)

unanswered() {
  echo '::error title=pytest-cgins::GitHub did not give the artifact: the lines above say why; the job needs actions: read'
  exit 1
}

# An assignment has the exit status of its command, which a process substitution hides.
listed=$(gh api --method GET "repos/$GITHUB_REPOSITORY/actions/runs/$RUN_ID/artifacts" \
  -f name="$ARTIFACT" -f per_page=100) || unanswered
found=$(python3 "$here/find_artifact.py" "$ARTIFACT" ${SINCE:+"$SINCE"} <<<"$listed") || {
  echo "::error title=pytest-cgins::GitHub's list of artifacts cannot be read"
  exit 2
}
[[ -n $found ]] || exit 0
read -r id nbytes <<<"$found"
if ! [[ $id =~ ^[0-9]+$ && $nbytes =~ ^[0-9]+$ ]] || ((nbytes > archive_limit)); then
  echo '::error title=pytest-cgins::the artifact is larger than any that is expected'
  exit 1
fi
mkdir -p "$(dirname "$archive")"
gh api "repos/$GITHUB_REPOSITORY/actions/artifacts/$id/zip" >"$archive" || unanswered
