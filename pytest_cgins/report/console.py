"""Tables and styled lines as text, for pytest's terminal and for the command line."""

from __future__ import annotations

import io
from itertools import accumulate

from rich import box
from rich.console import Console, RenderableType
from rich.style import StyleType
from rich.table import Table
from rich.text import Span, Text

from pytest_cgins.core.text import UNLIMITED
from pytest_cgins.core.verdict import Status
from pytest_cgins.report import escape

GAP = 2
"""Blanks between columns."""
OUTCOME_STYLES = {"pass": "green", "fail": "red", "error": "magenta", "skip": "yellow"}


def text(part: Table | Text, *, colour: bool) -> str:
    """Lines of a part, each ending in a newline and without trailing blanks.

    Texts of the part may be anybody's: characters that control a terminal are spelled out, lines after the first are
    indented, and none is a command to a runner that reads it in a log.
    """
    out = io.StringIO()
    # Whether there is colour and how wide the terminal is, pytest has settled: the environment is not asked.
    console = Console(
        file=out,
        width=UNLIMITED,
        force_terminal=colour,
        color_system="standard" if colour else None,
        no_color=not colour,
        highlight=False,
        emoji=False,
        markup=False,
        legacy_windows=False,
        _environ={},
    )
    console.print(_harmless(part, newline="\n  ") if isinstance(part, Text) else part)
    *lines, _ = out.getvalue().split("\n")
    return "".join(f"{escape.no_command(line.rstrip())}\n" for line in lines)


def table(*columns: str, colour: bool) -> Table:
    """An empty table, whose columns with a > before their title are flush right; a drawn one has a blank between columns."""
    padding = (0, GAP - 1 if colour else GAP, 0, 0)
    table = _Table(box=box.SIMPLE_HEAD if colour else None, pad_edge=False, show_edge=False, padding=padding)
    for column in columns:
        table.add_column(column.removeprefix(">"), justify="right" if column.startswith(">") else "left")
    return table


def style(status: Status) -> str:
    """Colour of a status."""
    return "yellow" if status in (Status.WEAK, Status.INCONCLUSIVE) else OUTCOME_STYLES[status.outcome]


class _Table(Table):
    """A table whose cells are texts, not what a terminal obeys; they may have several lines."""

    def add_row(
        self, *cells: RenderableType | None, style: StyleType | None = None, end_section: bool = False
    ) -> None:
        shown = (
            _harmless(Text(cell) if isinstance(cell, str) else cell, newline="\n")
            if isinstance(cell, str | Text)
            else cell
            for cell in cells
        )
        super().add_row(*shown, style=style, end_section=end_section)


def _harmless(part: Text, *, newline: str) -> Text:
    """The text with its styles, where characters that control a terminal are spelled out."""
    if part.plain.isprintable():
        return part
    kept = {"\n": newline, "\t": "\t"}
    pieces = [kept.get(character) or escape.visible(character) for character in part.plain]
    places = [0, *accumulate(map(len, pieces))]
    shown = part.blank_copy("".join(pieces))
    shown.spans = [Span(places[span.start], places[span.end], span.style) for span in part.spans]
    return shown
