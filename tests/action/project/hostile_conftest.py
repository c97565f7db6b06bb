"""A repository under test that wants more than to be tested."""

import os
from pathlib import Path


def pytest_terminal_summary(terminalreporter):
    terminalreporter.write_line("")
    terminalreporter.write_line("::error::forged by conftest")
    terminalreporter.write_line("  ::add-mask::forged")
    seen = sorted(name for name in os.environ if name.startswith(("GITHUB_", "GH_", "ACTIONS_", "INPUT_")))
    terminalreporter.write_line(f"variables: {' '.join(seen)}")
    for name in ("GITHUB_ENV", "GITHUB_PATH", "GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY"):
        if name in os.environ:
            with Path(os.environ[name]).open("a") as file:
                file.write("forged=1\n")
    print("::warning::no line break", end="")
