"""Paired samples of one comparison as a plot: a point a block, the interval of their median, what is tolerated."""

from __future__ import annotations

import math

from markupsafe import Markup

from pytest_cgins.core.figures import change, percent
from pytest_cgins.core.measurement import Comparison
from pytest_cgins.core.text import counted
from pytest_cgins.gate.timing_verdict import interval
from pytest_cgins.report.html import axes
from pytest_cgins.report.html.markup import element


def paired(comparison: Comparison, title: str) -> Markup:
    """A figure. Upwards is ln(kernel / other), written as a change: above the band the kernel is slower.

    Args:
        comparison: with at least one block; of others there is nothing to draw, and the result is empty.
        title: what it is of.
    """
    values = comparison.log_ratios
    if not values:
        return Markup()
    # A floor is a shifted test: its limits lie where the shifted ratio is tolerated.
    tolerated = math.log1p(comparison.tolerate)
    low, high = -tolerated - comparison.shift, tolerated - comparison.shift
    catch = math.log1p(comparison.catch) - comparison.shift
    ends = math.log(comparison.ratio_low), math.log(comparison.ratio_high)
    least, most = min(*values, *ends, low, 0.0), max(*values, *ends, catch, 0.0)
    room = 0.05 * (most - least)
    up = axes.upwards(least - room, most + room)
    across = axes.across(0.5, len(values) + 0.5)
    said = f"{title}: {interval(comparison)} in {counted(len(values), 'block', grouped=True)}, {comparison.outcome}"
    drawn = axes.picture(
        f"{said}; tolerated are {percent(comparison.tolerate)}",
        axes.band(up, low, high, class_="tolerated"),
        axes.band(up, *ends, class_="interval"),
        axes.marks_up(up, _marks(up)),
        axes.marks_across(across, [(n, f"{n:.0f}") for n in _blocks(len(values))]),
        axes.level(up, 0.0, class_="same"),
        axes.level(up, catch, class_="catch"),
        axes.level(up, math.log(comparison.ratio), class_="median"),
        axes.dots(((across.at(n), up.at(value)) for n, value in enumerate(values, 1)), class_="dots"),
        below="block",
        beside=f"time vs {comparison.against}",
    )
    legend = axes.legend(
        [
            ("dots", "one block"),
            ("median", "median"),
            ("interval", "its interval, 95%"),
            ("tolerated", f"tolerated, {percent(comparison.tolerate)}"),
            ("catch", f"must be found, {percent(comparison.catch)}"),
        ]
    )
    return element("figure", element("figcaption", said), drawn, legend)


def _blocks(count: int) -> list[float]:
    return [float(n) for n in axes.ticks(1, count) if n == int(n) and n >= 1] or [1.0]


def _marks(up: axes.Axis) -> list[tuple[float, str]]:
    """Round changes in percent, at the places of their logarithms."""
    found = axes.ticks(math.expm1(up.low), math.expm1(up.high), most=5)
    return [(math.log1p(one), change(1 + one)) for one in found if one > -1]
