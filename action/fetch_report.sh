#!/usr/bin/env bash
# The report of another run, out of its artifact: bounded, one file, never trusted. Nothing where that run left none.
set -euo pipefail
target=$1
archive_limit=$((64 << 20))

IFS=' ' read -r id nbytes < <(
  gh api --method GET "repos/$GITHUB_REPOSITORY/actions/runs/$RUN_ID/artifacts" -f name="$ARTIFACT" -f per_page=1 \
    --jq '.artifacts[0] | "\(.id // "-") \(.size_in_bytes // 0)"'
) || true
if ! [[ ${id:-} =~ ^[0-9]+$ ]]; then
  echo "::notice title=pytest-cgins::that run left no report: there is nothing to comment"
  exit 0
fi
if ! [[ $nbytes =~ ^[0-9]+$ ]] || ((nbytes > archive_limit)); then
  echo '::error title=pytest-cgins::the artifact is larger than any report'
  exit 1
fi
mkdir -p "$target"
gh api "repos/$GITHUB_REPOSITORY/actions/artifacts/$id/zip" >"$target/report.zip"
python3 "$(dirname "$0")/unpack_report.py" "$target/report.zip" "$target/report.json"
