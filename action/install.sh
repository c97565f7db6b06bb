#!/usr/bin/env bash
# Install pytest-cgins into $CGINS_PYTHON, or check that it is there.
set -euo pipefail
cd "$CGINS_FOLDER"

if [[ $INPUT_INSTALL == pip ]]; then
  # The gate is then as old as the action: a pinned action pins both.
  arguments=("${INPUT_PACKAGE:-${GITHUB_ACTION_PATH%/}/..}")
  [[ -z $INPUT_REQUIREMENTS ]] || arguments+=(-r "$INPUT_REQUIREMENTS")
  [[ -z $INPUT_CONSTRAINTS ]] || arguments+=(-c "$INPUT_CONSTRAINTS")
  "$CGINS_PYTHON" "$GITHUB_ACTION_PATH/shielded.py" \
    "$CGINS_PYTHON" -m pip install --disable-pip-version-check "${arguments[@]}"
fi

# From here, `pytest_cgins` in the repository under test would be imported instead.
cd "$GITHUB_ACTION_PATH"
if ! "$CGINS_PYTHON" -c 'import pytest_cgins; print("pytest-cgins", pytest_cgins.__version__)'; then
  echo "::error title=pytest-cgins::the interpreter has no pytest-cgins: set the input install to pip, or install it in an earlier step"
  exit 2
fi
