"""Trends as text: a table a case, with a line where what was measured with became another."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

from rich.table import Table
from rich.text import Text

from pytest_cgins.core.number_text import change, ratio, time_ns
from pytest_cgins.report import console
from pytest_cgins.report.escape import visible
from pytest_cgins.report.history import HistoryEntry
from pytest_cgins.report.trend import Segment, Trend

BARS = "▁▂▃▄▅▆▇█"
SHOWN = 32
"""Latest entries that a line of bars has."""
LEAST_SPAN = 0.1
"""The bars' height stands for this share of the median at least: noise must not look like a mountain."""


def render(trends: Iterable[Trend], *, last: int, colour: bool) -> str:
    """The text of trends, ending in a newline; "" without one."""
    return "\n".join("".join(_trend(trend, last, colour)) for trend in trends)


def bars(values: Sequence[float]) -> str:
    """The latest values as a line of bars."""
    shown = values[-SHOWN:]
    low, high = min(shown), max(shown)
    span = max(high - low, LEAST_SPAN * statistics.median(shown))
    bottom = (low + high - span) / 2
    return "".join(BARS[min(int((one - bottom) / span * len(BARS)), len(BARS) - 1)] for one in shown)


def break_line(segment: Segment) -> str:
    """What changed before a segment; "" for the first. Double lines: not even the times are comparable."""
    said = visible(", ".join((*segment.hard_changes, *segment.soft_changes)))
    mark = "══" if segment.hard_changes else "──"
    return f"{mark} {said} {mark}" if said else ""


def _trend(trend: Trend, last: int, colour: bool) -> Iterator[str]:
    yield console.text(
        Text.assemble((visible(trend.case), "bold"), f"  {visible(trend.config)}"), colour=colour
    )
    for first, segment in enumerate(trend.segments):
        if line := break_line(segment):
            style = "yellow" if segment.hard_changes else "cyan"
            yield console.text(Text(f"  {line}", style=style), colour=colour)
        yield console.text(_segment(segment, last, headed=first == 0), colour=colour)
    latest = trend.segments[-1]
    yield console.text(Text(f"  {_told(latest)}", style="dim"), colour=colour)


def _told(segment: Segment) -> str:
    """Both keys, without what nobody told."""
    parts = {**segment.hard.parts, **segment.soft.parts}
    told = (f"{name} {value}" for name, value in parts.items() if value not in ("none", "unknown"))
    return visible(" · ".join(told))


def _segment(segment: Segment, last: int, *, headed: bool) -> Table:
    table = Table(box=None, pad_edge=False, show_edge=False, padding=(0, 2, 0, 0), show_header=headed)
    table.add_column("", width=0)
    columns = {
        "from": 10, "to": 10, ">runs": 5, "trend": SHOWN, ">now": 8, f">last {last}": 9, ">of base": 8,
        ">of torch": 8, "status": 13, "commit": 11,
    }  # fmt: skip
    # Widths are fixed, so that the tables of a case's segments stand below each other.
    for heading, width in columns.items():
        justify: Literal["left", "right"] = "right" if heading.startswith(">") else "left"
        table.add_column(heading.removeprefix(">"), justify=justify, min_width=width, no_wrap=True)
    latest = segment.latest
    table.add_row(
        "",
        segment.entries[0].time[:10],
        latest.time[:10],
        str(len(segment.entries)),
        bars([entry.kernel_ns for entry in segment.entries]),
        time_ns(latest.kernel_ns),
        change(segment.change) if segment.change is not None else "",
        ratio(latest.ratio_to_base.ratio) if latest.ratio_to_base else "",
        ratio(latest.ratio_to_torch.ratio),
        Text(latest.status.value, style=console.style(latest.status)),
        _commit(latest),
    )
    return table


def _commit(entry: HistoryEntry) -> str:
    """The commit, with a star where tracked files were edited."""
    return visible(entry.head.commit[:10]) + ("*" if entry.head.dirty else "")
