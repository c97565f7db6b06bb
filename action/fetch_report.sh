#!/usr/bin/env bash
# The report of another run, out of its artifact: bounded, one file, never trusted. Nothing where that run left none, or
# none since SINCE.
set -euo pipefail
target=$1
here=$(cd "$(dirname "$0")" && pwd)

bash "$here/fetch_artifact.sh" "$target/report.zip"
if ! [[ -f $target/report.zip ]]; then
  echo '::warning title=pytest-cgins::that run left no report: a comment of an earlier run is withdrawn'
  exit 0
fi
python3 "$here/unpack_report.py" "$target/report.zip" "$target/report.json"
