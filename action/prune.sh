#!/usr/bin/env bash
# Keep the cache small before it is saved: what no run has used for a month goes, and the longest unused beyond 1 GB.
set -euo pipefail

# Not in the repository under test: a `pytest_cgins` of its own would be imported instead.
cd "$GITHUB_ACTION_PATH"
if ! "$CGINS_PYTHON" -c 'import sys; from pytest_cgins.app.cli import main; sys.exit(main())' \
  cache prune --older-than 30d --max-size 1GB; then
  echo "::warning title=pytest-cgins::the cache of built kernels could not be pruned"
fi
