"""Numbers as text: three significant digits, and never on the other side of a limit than the number."""

from __future__ import annotations

import math

NO_TOLERANCE = 1e300
"""What stands in documents, which have no infinity, for an error where none is tolerated, as of integers."""
_PREFIXES = ("", "k", "M", "G", "T", "P", "E")
_TIME_UNITS = ((1e9, "s"), (1e6, "ms"), (1e3, "us"), (1.0, "ns"))


def ratio(value: float) -> str:
    """A ratio to a limit or to a rival, such as `0.313`, `1.0004` or `2.4e-05`.

    Rounding never carries it over 1: 1.0004 is over the limit and must read so.
    """
    if not math.isfinite(value):
        return str(value)
    if value >= NO_TOLERANCE:
        return "inf"
    for digits in range(3, 18):
        text = _significant(value, digits)
        if (float(text) > 1) == (value > 1) and (float(text) < 1) == (value < 1):
            return text
    return repr(value)


def speedup(value: float) -> str:
    """How many times as fast: `1.23x`."""
    return f"{ratio(value)}x"


def relative(ratio_of_times: float) -> str:
    """One time over another: above 1 is slower; to a ten-thousandth near 1, as changes that matter are small."""
    if not 0.1 <= ratio_of_times < 1.9995:
        return ratio(ratio_of_times)
    return f"{ratio_of_times:.{4 if abs(ratio_of_times - 1) < 0.09995 else 3}f}"


def slowdown(ratio_of_times: float) -> str:
    """How many times as long: `1.0812x`."""
    return f"{relative(ratio_of_times)}x"


def percent(share: float) -> str:
    """A share of something: `8.12%`, three significant digits."""
    return f"{_significant(100 * share, 3)}%"


def gflops(value: float) -> str:
    """A rate of floating-point operations, given in GFLOP/s: `1.23 GFLOP/s`."""
    return f"{_significant(value, 3)} GFLOP/s"


def change(ratio_of_times: float) -> str:
    """How much longer a time is than an earlier one: `+8.12%`, `-0.31%`; of a millionth or less `0%`."""
    more = 100 * (ratio_of_times - 1)
    if not math.isfinite(more):
        return str(ratio_of_times)
    digits = 2 if abs(more) < 9.995 else 1 if abs(more) < 99.95 else 0
    text = f"{more:+,.{digits}f}"
    return "0%" if float(text.replace(",", "")) == 0 else f"{text}%"


def time_ns(value: float) -> str:
    """A time given in nanoseconds, in the unit that leaves one to three digits before the point: `1.15 us`."""
    for scale, unit in _TIME_UNITS:
        # The value is rounded before the unit is chosen, so that 999,999 ns reads 1 ms and not 1000 us.
        if float(f"{abs(value):.3g}") >= scale:
            return f"{_significant(value / scale, 3)} {unit}"
    return f"{_significant(value, 3)} ns"


def scaled(value: float) -> str:
    """A number with a prefix of thousands, three significant digits: `4.02 T`."""
    value = float(f"{value:.3g}")  # else what rounds up to 1000 has the prefix below
    index = max(0, min(int(math.log10(value) // 3), len(_PREFIXES) - 1)) if value > 0 else 0
    return f"{value / 1000.0**index:.3g} {_PREFIXES[index]}"


def _significant(value: float, digits: int) -> str:
    """Plain notation where it is short, an exponent where it is not."""
    text = f"{value:.{digits}g}"
    if "e" in text and 1e-4 <= abs(value) < 1e6:
        return f"{value:.0f}" if abs(value) >= 1 else text
    return text
