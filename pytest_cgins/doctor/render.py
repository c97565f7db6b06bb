"""The report as text: grouped, folded to the terminal's width, with a remedy where one is needed."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Iterator

from rich.console import Console
from rich.text import Text

from pytest_cgins.doctor.findings import DoctorReport, Finding

NARROWEST = 60
STATE_WIDTH = 10
NAME_WIDTH = 20
_STYLES = {"ok": "green", "missing": "yellow", "too-old": "red", "unusable": "red", "unknown": "magenta"}


def render(report: DoctorReport, *, width: int, colour: bool) -> str:
    """The text, ending in a newline; `width` in columns, taken as at least 60."""
    width = max(width, NARROWEST)
    out = io.StringIO()
    console = Console(
        file=out,
        width=10 * width,
        force_terminal=colour,
        color_system="standard" if colour else None,
        no_color=not colour,
        highlight=False,
        emoji=False,
        markup=False,
        legacy_windows=False,
        _environ={},
    )
    for line in _lines(report, width):
        console.print(line, soft_wrap=True)
    return out.getvalue()


def _lines(report: DoctorReport, width: int) -> Iterator[Text]:
    yield Text(f"pytest-cgins {report.cgins} on {report.platform}")
    group = ""
    for finding in report.findings:
        if finding.group != group:
            group = finding.group
            yield Text()
            yield Text(group, style="bold")
        yield from _finding(finding, width)
    yield Text()
    yield from _verdict(report, width)


def _finding(finding: Finding, width: int) -> Iterator[Text]:
    """State, name and what was seen; below it, for what is not well, what that costs and what to do."""
    margin = 2 + STATE_WIDTH + NAME_WIDTH
    parts = [finding.version, finding.detail, finding.where]
    said = ", ".join(part for part in parts if part)
    folded = _fold(said, width - margin)
    state = Text(f"{finding.state:{STATE_WIDTH}}", style=_STYLES[finding.state])
    yield Text("  ") + state + Text(f"{finding.name:{NAME_WIDTH}}{folded[0] if folded else ''}".rstrip())
    for line in folded[1:]:
        yield Text(" " * margin + line)
    if finding.state == "ok":
        return
    indent = " " * (2 + STATE_WIDTH)
    for mark, words in (("disables ", finding.disables), ("→ ", finding.remedy)):
        for index, line in enumerate(_fold(words, width - len(indent) - len(mark))):
            yield Text(f"{indent}{mark if index == 0 else ' ' * len(mark)}{line}", style="dim")


def _fold(text: str, width: int) -> list[str]:
    """Lines of at most `width` columns; a path longer than that stands whole on its own, to be copied."""
    return textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False)


def _verdict(report: DoctorReport, width: int) -> Iterator[Text]:
    missing = [one.name for one in report.findings if one.required and one.state not in ("ok", "unknown")]
    if missing:
        text = f"Not ready: {', '.join(missing)} is needed for everything."
        yield from (Text(line, style="red") for line in _fold(text, width))
        return
    optional = [one for one in report.findings if one.state != "ok"]
    text = "Ready." if not optional else (
        f"Ready. {len(optional)} of {len(report.findings)} parts are not there or not known; "
        "each says what that disables."
    )  # fmt: skip
    yield from (Text(line, style="green") for line in _fold(text, width))
