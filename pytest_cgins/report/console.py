"""Tables and styled lines as text, for pytest's terminal and for the command line."""

from __future__ import annotations

import io

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from pytest_cgins.model import Status

_UNLIMITED = 100_000
"""Width at which nothing is folded; tables take only what they need."""
GAP = 2
"""Blanks between columns."""
OUTCOME_STYLES = {"pass": "green", "fail": "red", "error": "magenta", "skip": "yellow"}


def text(part: Table | Text, *, colour: bool) -> str:
    """Lines of a part, each ending in a newline and without trailing blanks."""
    out = io.StringIO()
    # Whether there is colour and how wide the terminal is, pytest has settled: the environment is not asked.
    console = Console(
        file=out,
        width=_UNLIMITED,
        force_terminal=colour,
        color_system="standard" if colour else None,
        no_color=not colour,
        highlight=False,
        emoji=False,
        markup=False,
        legacy_windows=False,
        _environ={},
    )
    console.print(part)
    return "".join(f"{line.rstrip()}\n" for line in out.getvalue().splitlines())


def table(*, colour: bool) -> Table:
    """An empty table; a drawn one has a blank of its own between columns."""
    padding = (0, GAP - 1 if colour else GAP, 0, 0)
    return Table(box=box.SIMPLE_HEAD if colour else None, pad_edge=False, show_edge=False, padding=padding)


def style(status: Status) -> str:
    """Colour of a status."""
    return "yellow" if status in (Status.WEAK, Status.INCONCLUSIVE) else OUTCOME_STYLES[status.outcome]
