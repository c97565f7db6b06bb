"""The report as text: grouped, folded to the terminal's width, with a remedy where one is needed."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Iterator

from pytest_cgins.core.text import counted
from pytest_cgins.doctor.findings import DoctorReport, Finding

NARROWEST = 60
STATE_WIDTH = 10
NAME_WIDTH = 20
Line = list[tuple[str, str]]
"""Pieces of a line, each with its style."""

_STYLES = {"ok": "green", "missing": "yellow", "too-old": "red", "unusable": "red", "unknown": "magenta"}


def render(report: DoctorReport, *, width: int, colour: bool) -> str:
    """The text, ending in a newline; `width` in columns, taken as at least 60."""
    lines = list(_lines(report, max(width, NARROWEST)))
    if not colour:
        return "".join("".join(text for text, _ in line).rstrip() + "\n" for line in lines)
    # Imported only here: the doctor must work where a package that we need is missing.
    from rich.console import Console
    from rich.text import Text

    out = io.StringIO()
    console = Console(file=out, force_terminal=True, color_system="standard", highlight=False, _environ={})
    for line in lines:
        console.print(Text.assemble(*line), soft_wrap=True)
    return out.getvalue()


def _lines(report: DoctorReport, width: int) -> Iterator[Line]:
    yield [(f"pytest-cgins {report.cgins} on {report.platform}", "")]
    group = ""
    for finding in report.findings:
        if finding.group != group:
            group = finding.group
            yield []
            yield [(group, "bold")]
        yield from _finding(finding, width)
    yield []
    yield from _verdict(report, width)


def _finding(finding: Finding, width: int) -> Iterator[Line]:
    """State, name and what was seen; below it, for what is not well, what that costs and what to do."""
    margin = 2 + STATE_WIDTH + NAME_WIDTH
    parts = [finding.version, finding.detail, finding.where]
    said = ", ".join(part for part in parts if part)
    folded = _fold(said, width - margin)
    state = (f"  {finding.state:{STATE_WIDTH}}", _STYLES[finding.state])
    yield [state, (f"{finding.name:{NAME_WIDTH}}{folded[0] if folded else ''}", "")]
    for line in folded[1:]:
        yield [(" " * margin + line, "")]
    if finding.state == "ok":
        return
    indent = " " * (2 + STATE_WIDTH)
    for mark, words in (("disables ", finding.disables), ("→ ", finding.remedy)):
        for index, line in enumerate(_fold(words, width - len(indent) - len(mark))):
            yield [(f"{indent}{mark if index == 0 else ' ' * len(mark)}{line}", "dim")]


def _fold(text: str, width: int) -> list[str]:
    """Lines of at most `width` columns; a path longer than that stands whole on its own, to be copied."""
    return textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False)


def _verdict(report: DoctorReport, width: int) -> Iterator[Line]:
    if report.unmet:
        text = f"Not ready: {', '.join(report.unmet)} is needed for everything."
        yield from ([(line, "red")] for line in _fold(text, width))
        return
    optional = [finding for finding in report.findings if finding.state != "ok"]
    text = "Ready." if not optional else (
        f"Ready. {len(optional)} of {counted(len(report.findings), 'part is', 'parts are')} not there or not known; "
        "each says what that disables."
    )  # fmt: skip
    yield from ([(line, "green")] for line in _fold(text, width))
