"""The plots of the page: paired samples of a comparison, rooflines of a session, what one case took over time."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Sequence

from markupsafe import Markup

from pytest_cgins.core.measurement import Comparison, Roofline
from pytest_cgins.core.number_text import change, percent, ratio, scaled, slowdown, time_ns
from pytest_cgins.core.session_report import Evaluation, SwappedKernel
from pytest_cgins.core.text import counted
from pytest_cgins.gate.timing_verdict import interval
from pytest_cgins.report.html import axes
from pytest_cgins.report.html.markup import element, join
from pytest_cgins.report.times import share_of_peak
from pytest_cgins.report.trend import Segment, Trend
from pytest_cgins.report.trend_table import LEAST_SPAN


def paired(comparison: Comparison, title: str) -> Markup:
    """A figure of a comparison; nothing where it has no block.

    Upwards is ln(kernel / other), written as a change: above the band the kernel is slower.
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
        beside=f"time vs {comparison.against} (>1 slower)",
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
    """Round ratios, at the places of their logarithms."""
    found = axes.ticks(math.expm1(up.low), math.expm1(up.high), most=5)
    return [(math.log1p(one), slowdown(1 + one)) for one in found if one > -1]


_NAMES = 70
"""Characters below a picture."""
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
            axes.marks_up(up, [(n, scaled(10.0**n)) for n in _whole(up)]),
            axes.marks_across(across, [(n, f"{10.0**n:g}") for n in _whole(across)]),
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


MOST_OPS = 12
"""Ops of a model that are drawn: beyond them bars would be too thin."""


def op_times(kernels: Sequence[SwappedKernel]) -> Markup:
    """A figure: what each op of a model takes in a run without kernels, and with them. Those that take longest come first."""
    timed = sorted(
        (one for one in kernels if one.torch_ns_per_run), key=lambda one: one.torch_ns_per_run, reverse=True
    )[:MOST_OPS]
    if not timed:
        return Markup()
    up = axes.upwards(0.0, max(max(one.torch_ns_per_run, one.kernel_ns_per_run) for one in timed))
    across = axes.across(0.0, len(timed))
    bars = []
    for place, one in enumerate(timed):
        for shift, class_, ns in (
            (0.1, "torch", one.torch_ns_per_run),
            (0.5, "kernel", one.kernel_ns_per_run),
        ):
            said = element("title", f"{one.op}, {class_}: {time_ns(ns)} a run")
            x, y = across.at(place + shift), up.at(ns)
            width = across.at(place + shift + 0.4) - x
            bars.append(element("rect", said, class_=class_, x=x, y=y, width=width, height=up.at(0.0) - y))
    title = f"Time of each op in a run of the model: {counted(len(timed), 'op')}"
    drawn = axes.picture(
        title,
        axes.marks_up(up, [(tick, time_ns(tick)) for tick in axes.ticks(0.0, up.high, most=4)]),
        axes.marks_across(across, [(n + 0.5, str(n + 1)) for n in range(len(timed))]),
        *bars,
        below=", ".join(f"{n} {one.kernel.partition('/')[0]}" for n, one in enumerate(timed, 1))[:_NAMES],
        beside="time a run",
    )
    legend = axes.legend([("torch", "without kernels"), ("kernel", "with them")])
    return element("figure", element("figcaption", title), drawn, legend)


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
