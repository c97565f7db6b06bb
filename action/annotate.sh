#!/usr/bin/env bash
# Annotations on the sources of kernels that failed: the only lines of a report that the runner takes as commands.
set -euo pipefail

annotations=$(mktemp "$RUNNER_TEMP/annotations.XXXXXX")
token=$(head -c 16 /dev/urandom | od -An -tx1 | tr -d ' \n')
# What is wrong with a report is told in its own words, which are no commands.
echo "::stop-commands::$token"
# Not in the repository under test: a `pytest_cgins` of its own would be imported instead.
cd "$GITHUB_ACTION_PATH"
"$CGINS_PYTHON" -c 'import sys; from pytest_cgins.app.cli import main; sys.exit(main())' \
  annotate --folder "$CGINS_FOLDER" --root "$GITHUB_WORKSPACE" "$CGINS_REPORT" >"$annotations" || : >"$annotations"
printf '\n::%s::\n' "$token"
cat "$annotations"
