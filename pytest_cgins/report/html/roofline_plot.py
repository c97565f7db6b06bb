"""Rooflines of a session: what cases compute a second over what they compute a byte, below their device's peaks."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence

from markupsafe import Markup

from pytest_cgins.core.figures import percent, ratio
from pytest_cgins.core.measurement import Roofline
from pytest_cgins.core.model import Evaluation
from pytest_cgins.core.text import counted
from pytest_cgins.report.html import axes
from pytest_cgins.report.html.markup import element, join
from pytest_cgins.report.times import share_of_peak

_PREFIXES = ("", "k", "M", "G", "T", "P", "E")
MOST_NAMED = 300
"""Points that say whose they are: more would hide each other, and make the page slow."""
Peaks = tuple[str, float, float]
Place = tuple[Evaluation, Roofline]
Names = Callable[[Evaluation], str]
"""What a reader knows cases by."""


def rooflines(evaluations: Iterable[Evaluation], names: Names) -> Markup:
    """A figure for each device and pair of peaks, with the cases of which both work and peaks are known."""
    groups: dict[Peaks, list[Place]] = {}
    for evaluation in evaluations:
        found = evaluation.measurement.roofline if evaluation.measurement is not None else None
        if found is not None and _can_be_drawn(found):
            key = (
                evaluation.device_name or evaluation.case.device,
                found.peak_bytes_per_s,
                found.peak_flops_per_s,
            )
            groups.setdefault(key, []).append((evaluation, found))
    return join(_figure(peaks, members, names) for peaks, members in groups.items())


def _can_be_drawn(found: Roofline) -> bool:
    numbers = (found.nbytes, found.flops, found.peak_bytes_per_s, found.peak_flops_per_s, _rate(found))
    return all(math.isfinite(number) and number > 0 for number in numbers)


def _rate(found: Roofline) -> float:
    """Operations a second that were reached."""
    return found.share_of_compute * found.peak_flops_per_s


def _figure(peaks: Peaks, members: Sequence[Place], names: Names) -> Markup:
    device, bandwidth, compute = peaks
    knee = compute / bandwidth
    xs = [math.log10(found.flops / found.nbytes) for _, found in members]
    ys = [math.log10(_rate(found)) for _, found in members]
    left, right = min(*xs, math.log10(knee)) - 0.5, max(*xs, math.log10(knee)) + 0.5
    across = axes.across(left, right)
    up = axes.upwards(min(*ys, math.log10(compute)) - 0.3, max(*ys, math.log10(compute)) + 0.3)
    dtypes = ", ".join(sorted({evaluation.case.dtype for evaluation, _ in members}))
    cases = counted(len(members), "case", grouped=True)
    said = f"{device}, {dtypes}: {cases}; peaks {scaled(bandwidth)}B/s and {scaled(compute)}FLOP/s"
    return element(
        "figure",
        element("figcaption", said),
        axes.picture(
            f"Roofline of {said}; each case's shares are in its details",
            axes.marks_up(up, _decades(up)),
            axes.marks_across(across, [(n, _power(n)) for n in _whole(across)]),
            _roof(across, up, math.log10(bandwidth), math.log10(compute)),
            _points([(across.at(x), up.at(y)) for x, y in zip(xs, ys, strict=True)], members, names),
            below="FLOP per byte",
            beside="FLOP/s",
        ),
        axes.legend([("roof", "peak that bounds"), ("dots", "one case")]),
    )


def _roof(across: axes.Axis, up: axes.Axis, bandwidth: float, compute: float) -> Markup:
    """All numbers are logarithms. The slope begins where it enters the picture, by the left or the lower edge."""
    start = max(across.low, up.low - bandwidth)
    corners = [(start, start + bandwidth), (compute - bandwidth, compute), (across.high, compute)]
    path = "L".join(f"{across.at(x):.1f} {up.at(y):.1f}" for x, y in corners)
    return element("path", class_="roof", d=f"M{path}")


def _points(places: Sequence[tuple[float, float]], members: Sequence[Place], names: Names) -> Markup:
    if len(members) > MOST_NAMED:
        return axes.dots(places, class_="dots")
    return join(_point(*place, *member, names) for place, member in zip(places, members, strict=True))


def _point(x: float, y: float, evaluation: Evaluation, found: Roofline, names: Names) -> Markup:
    share = share_of_peak(evaluation.measurement)
    of_peak = "" if share is None else f"{percent(share)} of its peak, "
    said = f"{names(evaluation)}: {of_peak}{ratio(found.flops / found.nbytes)} FLOP per byte"
    return element("circle", element("title", said), cx=round(x, 1), cy=round(y, 1), r=3)


def _whole(axis: axes.Axis) -> list[float]:
    """Powers of ten, or of a hundred or more where they would crowd."""
    return [tick for tick in axes.ticks(axis.low, axis.high, most=5) if tick == int(tick)]


def _decades(axis: axes.Axis) -> Iterator[tuple[float, str]]:
    for one in _whole(axis):
        yield one, scaled(10.0**one)


def _power(exponent: float) -> str:
    return f"{10.0**exponent:g}"


def scaled(value: float) -> str:
    """A rate with a prefix of thousands, three significant digits: `4.02 T`."""
    value = float(f"{value:.3g}")  # else what rounds up to 1000 has the prefix below
    index = max(0, min(int(math.log10(value) // 3), len(_PREFIXES) - 1)) if value > 0 else 0
    return f"{value / 1000.0**index:.3g} {_PREFIXES[index]}"
