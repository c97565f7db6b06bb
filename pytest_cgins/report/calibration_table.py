"""A calibration as text: a row a size class, and what is to be known of it."""

from __future__ import annotations

from collections.abc import Iterator

from pytest_cgins.core.number_text import percent
from pytest_cgins.core.text import counted
from pytest_cgins.gate.calibration import BOUNDS_NS, COMMAND, Calibration, SizeClass, stands_in
from pytest_cgins.report import console
from pytest_cgins.timing.sequential import slack

MUCH = 0.1
"""A slowdown that should not go unseen: where noise hides it, that is said."""

MUCH_APART = 0.02
"""What the gate lets pass by default: a difference between two builds beyond it would be called slower."""


def render(calibration: Calibration, *, colour: bool) -> str:
    """The text of a table, ending in a newline."""
    table = console.table(
        "calls", ">cases", ">processes", ">blocks", ">tau", ">tau, 95% below", ">sigma", ">rho", ">batches",
        ">extra tolerance", colour=colour,
    )  # fmt: skip
    for one in calibration.classes:
        table.add_row(
            one.name,
            str(len(one.cases)),
            str(one.processes),
            str(one.blocks),
            percent(one.spread),
            percent(one.spread_upper),
            percent(one.sigma),
            f"{one.rho:+.2f}",
            f"{one.longer:g}x",
            f"+{percent(slack(one.spread_upper))}",
        )
    return console.text(table, colour=colour)


def remarks(calibration: Calibration) -> Iterator[str]:
    """Warnings, and which classes have no kernel; a line each."""
    names = [one.name for one in calibration.classes]
    for one in calibration.classes:
        yield from _warnings(one)
    for name in BOUNDS_NS:
        if name not in names:
            other = stands_in(calibration, name).name
            yield f"{name}: no kernel has calls of that length; the noise of {other} is assumed"


def _warnings(one: SizeClass) -> Iterator[str]:
    if one.alarming:
        yield (
            f"WARNING {one.name}: blocks are correlated even at {one.longer:g} times their length: rho = "
            f"{one.rho:.2f}, and false alarms are bounded only below 0.05 (if something else uses the device, "
            "calibrate again on a quiet machine)"
        )
    elif one.longer > 1:
        yield f"{one.name}: batches are {one.longer:g} times as long from now on, because shorter ones are correlated"
    if slack(one.spread_upper) > MUCH:
        yield (
            f"WARNING {one.name}: slowdowns up to gate.tolerate + {percent(slack(one.spread_upper))} will pass: "
            f"processes differ by tau = {percent(one.spread)}, or up to {percent(one.spread_upper)} (95%, "
            f"{counted(one.processes, 'process', 'processes')}). Run `{COMMAND}` again on a quiet machine; more --processes tighten the bound"
        )
    if one.offset > MUCH_APART and one.offset > slack(one.spread_upper):
        yield (
            f"WARNING {one.name}: a kernel and its second build differ by {percent(one.offset)} in every process: "
            "smaller slowdowns may come from the placement of code in memory (set gate.tolerate in cgins.yaml above it)"
        )
