#!/usr/bin/env bash
# The reports of a matrix of runners, fetched from their artifacts and merged; one that is missing is an error.
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
  ARTIFACT="cgins-shard-$name" bash "$here/fetch_report.sh" "$target/$name"
  if ! [[ -f $target/$name/report.json ]]; then
    echo "::error title=pytest-cgins::there is no report of $name"
    exit 1
  fi
  reports+=("$target/$name/report.json")
done

cgins() { (cd "$here/.." && python3 -c 'import sys; from pytest_cgins.cli import main; sys.exit(main())' "$@"); }
cgins merge "${reports[@]}" --out "$target/report.json"
cgins summary --max-bytes=1000000 "$target/report.json" >>"$GITHUB_STEP_SUMMARY"
