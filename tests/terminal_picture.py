"""`make picture`: run the example project's gate and draw its terminal output as `.github/terminal.svg`."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path

from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).resolve().parents[1]
WIDTH = 116


def main() -> None:
    command = [sys.executable, "-m", "pytest", "--cgins", "example_project", "-q", "-r", "fE", "--color=yes"]
    environment = {"COLUMNS": str(WIDTH), "TERM": "xterm-256color"}
    run = subprocess.run(
        ["env", *(f"{name}={value}" for name, value in environment.items()), *command],
        cwd=ROOT,
        check=False,
        capture_output=True,
        text=True,
    )
    console = Console(record=True, width=WIDTH, file=io.StringIO())
    console.print(Text("$ python -m pytest --cgins example_project -q", style="bold"))
    console.print(Text.from_ansi(run.stdout.strip()))
    console.save_svg(str(ROOT / ".github/terminal.svg"), title="pytest-cgins")


if __name__ == "__main__":
    main()
