#!/usr/bin/env bash
# Pull requests of earlier runs: closed where nobody needs them any more, labelled where they are stale. Runs no kernel.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)

# Branches may have names that a runner would take for commands.
token=$(head -c 16 /dev/urandom | od -An -tx1 | tr -d ' \n')
echo "::stop-commands::$token"
trap 'printf "\n::%s::\n" "$token"' EXIT

cd "$FOLDER"
cgins() {
  # Not the `pytest_cgins` of the repository, if it has one: -P leaves the folder out, PYTHONPATH names ours.
  PYTHONPATH=$here/.. python3 -P -c 'import sys; from pytest_cgins.app.cli import main; sys.exit(main())' "$@"
}
failed=0
cgins pull-request close --moot || failed=1
cgins pull-request status --mark || failed=1
exit "$failed"
