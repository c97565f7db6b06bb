"""Axes of plots: from numbers to places in a picture, with ticks where people expect them."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from markupsafe import Markup

from pytest_cgins.report.html.markup import element, join

WIDTH, HEIGHT = 360.0, 200.0
"""Units of a picture: on a phone one is a pixel, so that its letters can be read there."""
LEFT, RIGHT, TOP, BOTTOM = 48.0, 8.0, 18.0, 30.0
"""Margins of the part that has the points."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """A range of numbers, `low` to `high`, on a range of places, `start` to `end`."""

    low: float
    high: float
    start: float
    end: float

    def at(self, value: float) -> float:
        """The place of a number; those outside lie on the edge."""
        share = (value - self.low) / (self.high - self.low)
        return self.start + min(max(share, 0.0), 1.0) * (self.end - self.start)


def across(low: float, high: float) -> Axis:
    """An axis along the lower edge."""
    return _axis(low, high, LEFT, WIDTH - RIGHT)


def upwards(low: float, high: float) -> Axis:
    """An axis along the left edge."""
    return _axis(low, high, HEIGHT - BOTTOM, TOP)


def _axis(low: float, high: float, start: float, end: float) -> Axis:
    if not high > low:
        low, high = low - 0.5, high + 0.5
    return Axis(low=low, high=high, start=start, end=end)


def ticks(low: float, high: float, *, most: int = 6) -> list[float]:
    """Round numbers within a range: steps of 1, 2 or 5 times a power of ten."""
    span = high - low
    if not (span > 0 and math.isfinite(span)):
        return [low]
    power = 10.0 ** math.floor(math.log10(span / most))
    step = next(power * factor for factor in (1, 2, 5, 10) if span / (power * factor) <= most)
    first = math.ceil(low / step)
    return [step * number for number in range(first, math.floor(high / step) + 1)]


def level(axis: Axis, value: float, *, class_: str) -> Markup:
    """A line across the picture at a number of the upward axis."""
    y = axis.at(value)
    return element("path", class_=class_, d=f"M{LEFT:.1f} {y:.1f}H{WIDTH - RIGHT:.1f}")


def band(axis: Axis, low: float, high: float, *, class_: str) -> Markup:
    """The part of the picture between two numbers of the upward axis."""
    top, bottom = axis.at(high), axis.at(low)
    return element(
        "rect", class_=class_, x=LEFT, y=top, width=WIDTH - RIGHT - LEFT, height=max(bottom - top, 0.75)
    )


def dots(places: Iterable[tuple[float, float]], *, class_: str) -> Markup:
    """All points as one path of strokes without length: thousands of elements would make a page slow."""
    return element("path", class_=class_, d="".join(f"M{x:.1f} {y:.1f}h0" for x, y in places))


def marks_up(axis: Axis, marks: Iterable[tuple[float, str]]) -> Markup:
    """Lines and numbers of the upward axis."""
    return join(
        level(axis, value, class_="grid")
        + element("text", text, x=LEFT - 4, y=axis.at(value) + 3, class_="end")
        for value, text in marks
    )


def marks_across(axis: Axis, marks: Iterable[tuple[float, str]]) -> Markup:
    """Numbers below the picture."""
    return join(
        element("text", text, x=axis.at(value), y=HEIGHT - BOTTOM + 12, class_="middle")
        for value, text in marks
    )


def picture(label: str, *parts: str, below: str, beside: str) -> Markup:
    """An inline SVG: parts from back to front, and the names of the axes `below` and `beside` it.

    Who cannot see it is told the label.
    """
    upward = element("text", beside, x=4, y=TOP - 7)
    name = element("text", below, x=(LEFT + WIDTH - RIGHT) / 2, y=HEIGHT - 4, class_="middle")
    view = f"0 0 {WIDTH:.0f} {HEIGHT:.0f}"
    return element("svg", *parts, upward, name, viewBox=view, role="img", aria_label=label, class_="plot")


def legend(entries: Iterable[tuple[str, str]]) -> Markup:
    """What stands for what: pairs of a class of the style sheet and words."""
    keys = [element("span", words, class_=f"key {class_}") for class_, words in entries]
    return element("p", *keys, class_="legend")
