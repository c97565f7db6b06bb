"""Run `pytest --cgins`; the exit code becomes an output, since the summary comes first. Standard library only."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path

from shielded import run
from workflow import set_output


def command(environment: Mapping[str, str]) -> list[str]:
    """The gate's command line."""
    words = [environment["CGINS_PYTHON"], "-m", "pytest", "--cgins"]
    words += [f"--cgins-json={environment['CGINS_REPORT']}", f"--cgins-device={environment['INPUT_DEVICE']}"]
    words += ["--cgins-strict"] if environment["INPUT_STRICT"] == "true" else []
    words += ["--cgins-no-timing"] if environment["INPUT_TIMING"] == "false" else []
    words += [f"--cgins-seed={environment['INPUT_SEED']}"] if environment["INPUT_SEED"] else []
    words += ["--cgins-allow-weaker"] if environment["CGINS_ALLOW_WEAKER"] == "true" else []
    if environment["INPUT_COMPILE_ONLY"] == "true":
        words += ["--cgins-compile-only"]
        words += [f"--cgins-arch={environment['INPUT_ARCHS']}"] if environment["INPUT_ARCHS"] else []
    words += [f"--cgins-baseline={environment['CGINS_BASELINE']}"] if environment["CGINS_BASELINE"] else []
    words += [f"--cgins-history={environment['INPUT_HISTORY']}"] if environment["INPUT_HISTORY"] else []
    words += [f"{option}={environment['CGINS_STORE']}" for option in environment["CGINS_STORE_USE"].split()]
    return words + shlex.split(environment["INPUT_PYTEST_ARGS"])


def main() -> int:
    """Run the gate and tell its exit code; 0 as far as it ran at all."""
    # A report that came with the checkout must not pass for one of this run.
    Path(os.environ["CGINS_REPORT"]).unlink(missing_ok=True)
    # In a container the checkout is mostly another user's, and git would look at nothing.
    number = int(os.environ.get("GIT_CONFIG_COUNT", "0"))
    os.environ[f"GIT_CONFIG_KEY_{number}"] = "safe.directory"
    os.environ[f"GIT_CONFIG_VALUE_{number}"] = os.environ.get("GITHUB_WORKSPACE", os.environ["CGINS_FOLDER"])
    os.environ["GIT_CONFIG_COUNT"] = str(number + 1)
    code = run(command(os.environ), folder=os.environ["CGINS_FOLDER"])
    set_output("exit-code", str(code))
    return 0


if __name__ == "__main__":
    sys.exit(main())
