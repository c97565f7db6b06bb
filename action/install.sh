#!/usr/bin/env bash
# Install pytest-cgins into $CGINS_PYTHON, or check that it is there.
set -euo pipefail
cd "$CGINS_FOLDER"

pip_install() {
  "$CGINS_PYTHON" "$GITHUB_ACTION_PATH/shielded.py" \
    "$CGINS_PYTHON" -m pip install --disable-pip-version-check "$@"
}

if [[ $INPUT_INSTALL == pip ]]; then
  constraints=()
  [[ -z $INPUT_CONSTRAINTS ]] || constraints=(-c "$INPUT_CONSTRAINTS")
  # First and by itself: a second index for all packages would let it offer others than torch.
  if [[ -n $INPUT_TORCH_INDEX ]]; then
    pip_install --index-url "$INPUT_TORCH_INDEX" "${constraints[@]}" torch
  fi
  # The gate is then as old as the action: a pinned action pins both.
  arguments=("${INPUT_PACKAGE:-${GITHUB_ACTION_PATH%/}/..${INPUT_EXTRAS:+[$INPUT_EXTRAS]}}")
  [[ -z $INPUT_REQUIREMENTS ]] || arguments+=(-r "$INPUT_REQUIREMENTS")
  pip_install "${arguments[@]}" "${constraints[@]}"
fi

# From here, `pytest_cgins` in the repository under test would be imported instead.
cd "$GITHUB_ACTION_PATH"
if ! "$CGINS_PYTHON" -c 'import pytest_cgins; print("pytest-cgins", pytest_cgins.__version__)'; then
  echo "::error title=pytest-cgins::the interpreter has no pytest-cgins: set the input install to pip, or install it in an earlier step"
  exit 2
fi
