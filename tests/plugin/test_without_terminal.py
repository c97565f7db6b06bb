"""Output that no terminal shows is not folded, and what a terminal shows is not cut."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.forked_python import CGINS

pytestmark = pytest.mark.exam

LONG = "a_kernel_whose_name_is_much_longer_than_any_column_of_a_table_in_a_narrow_terminal"
COMMANDS = ["traces ls traces", "traces show traces/tiny", "cache ls", "doctor"]


@pytest.fixture
def long_names(project: Path) -> Path:
    """The project with a kernel of a long name alone."""
    (project / "cgins.yaml").write_text(
        f"version: 1\ntraces: [traces/tiny]\nkernels:\n  {LONG}:\n    op: torch.nn.functional.threshold\n"
        "    source: kernels/threshold.cpp\n"
    )
    return project


@pytest.fixture
def printed(
    long_names: Path, cgins: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> Callable[[str, int], str]:
    """What a command prints where the environment says how wide lines are."""
    monkeypatch.setenv("CGINS_CACHE_DIR", str(long_names / "builds"))

    def printed(command: str, columns: int) -> str:
        done = cgins(long_names, *command.split(), columns=columns)
        return re.sub(r"[\d.]+ (s|min|ms|[KMGT]iB)\b", "-", done.stdout + done.stderr)

    return printed


@pytest.mark.parametrize("command", COMMANDS)
def test_what_a_command_prints_to_a_log_is_folded_nowhere(
    printed: Callable[[str, int], str], command: str
) -> None:
    """Each name and each remedy can be searched for, however wide the environment says that lines are."""
    if command == "cache ls":
        printed("build", 80)
        assert LONG in printed(command, 40)
    assert printed(command, 40) == printed(command, 100_000)


def test_the_section_of_a_run_without_a_terminal_is_folded_nowhere(
    long_names: Path, run: Callable[..., Any]
) -> None:
    """The whole name of a kernel is in the table of kernels, on one line."""
    done = run(long_names, "--cgins", "--cgins-no-timing", "--cgins-seed=1", env={"COLUMNS": "80"})
    (row,) = [line for line in done.lines if line.startswith(f"{LONG} ")]
    assert re.search(r"cpp \(cpu\) +1 +1 WEAK", row)


def test_a_terminal_shows_the_whole_name(long_names: Path) -> None:
    """What has no room in a column goes on in the next line."""
    environment = {**os.environ, "COLUMNS": "40", "TERM": "xterm"}
    shown, end = pty.openpty()
    command = [sys.executable, *CGINS, "traces", "show", "traces/tiny"]
    with subprocess.Popen(command, cwd=long_names, env=environment, stdout=end, stderr=end) as process:
        process.wait(timeout=60)
    os.close(end)
    text = re.sub(r"\x1b\[\d*m", "", os.read(shown, 100_000).decode())
    os.close(shown)
    assert "…" not in text
    head, *rows = text.splitlines()
    assert "torch.nn.functional.threshold" in "".join(row[: head.index("s")].strip() for row in rows)
