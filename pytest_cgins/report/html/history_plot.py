"""What one case took over time as a plot: a line a segment, so that nothing is joined over a break."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from markupsafe import Markup

from pytest_cgins.core.figures import change, time_ns
from pytest_cgins.core.text import counted
from pytest_cgins.report.html import axes
from pytest_cgins.report.html.markup import element, join
from pytest_cgins.report.trend import Segment, Trend
from pytest_cgins.report.trend_table import LEAST_SPAN


def history(trend: Trend) -> Markup:
    """A figure: times of the kernel over dates, with what changed between the lines."""
    entries = [entry for segment in trend.segments for entry in segment.entries]
    days = [entry.when.timestamp() / 86_400 for entry in entries]
    across = axes.across(min(days), max(days))
    up = axes.upwards(*_range([entry.kernel_ns for entry in entries]))
    latest = trend.segments[-1]
    changed = "" if latest.change is None else f", {change(latest.change)} against the runs before"
    said = f"History: {time_ns(latest.latest.kernel_ns)} now{changed}; {counted(len(entries), 'run', grouped=True)}"
    first, last = (min(entries, key=lambda one: one.when), max(entries, key=lambda one: one.when))
    dates = [(across.low, first.time[:10]), (across.high, last.time[:10])]
    drawn = axes.picture(
        said,
        axes.marks_up(up, [(tick, time_ns(tick)) for tick in axes.ticks(up.low, up.high, most=4)]),
        axes.marks_across(across, dates if first.time[:10] != last.time[:10] else dates[:1]),
        *(_line(segment, across, up) for segment in trend.segments),
        below="start of the run, UTC",
        beside="time of a call",
    )
    breaks = [_break(segment) for segment in trend.segments]
    return element("figure", element("figcaption", said), drawn, *(one for one in breaks if one))


def _range(times_ns: Sequence[float]) -> tuple[float, float]:
    """As of the terminal's bars: noise must not look like a mountain."""
    low, high = min(times_ns), max(times_ns)
    span = 1.1 * max(high - low, LEAST_SPAN * statistics.median(times_ns))
    return (low + high - span) / 2, (low + high + span) / 2


def _line(segment: Segment, across: axes.Axis, up: axes.Axis) -> Markup:
    places = [
        (across.at(entry.when.timestamp() / 86_400), up.at(entry.kernel_ns)) for entry in segment.entries
    ]
    path = "L".join(f"{x:.1f} {y:.1f}" for x, y in places)
    return join([element("path", class_="trend", d=f"M{path}"), axes.dots(places, class_="dots")])


def _break(segment: Segment) -> Markup:
    """What became another before a segment; "" for the first."""
    changes = ", ".join((*segment.hard_changes, *segment.soft_changes))
    if not changes:
        return Markup()
    limit = "Times are not comparable" if segment.hard_changes else "Times may move without the kernel"
    return element("p", f"{limit} from {segment.entries[0].time[:10]} on: {changes}", class_="note")
