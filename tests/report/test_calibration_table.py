"""A calibration as a table, and what is said below it."""

from __future__ import annotations

from dataclasses import replace

from pytest_cgins.core.environment_key import key_of
from pytest_cgins.gate.calibration import Calibration, SizeClass
from pytest_cgins.report.calibration_table import remarks, render

ONE = SizeClass(
    name="3-to-30us", cases=("a", "b"), processes=10, blocks=64, longer=1.0, spread=0.0051, spread_upper=0.0088,
    sigma=0.0123, rho=0.012, rho_error=0.04, offset=0.001,
)  # fmt: skip


def made(*classes: SizeClass) -> Calibration:
    key = key_of({"device": "T"})
    return Calibration(version=1, key=key, cgins="0.1", measured_at_s=1e9, seconds=60.0, classes=classes)


def test_a_row_has_the_numbers_of_its_class() -> None:
    """In per cent, and what they come to: 2.5 times the upper bound is extra tolerance."""
    head, row = render(made(ONE), colour=False).splitlines()
    assert head.split() == ["calls", "cases", "processes", "blocks", "tau", "tau,", "95%", "below", "sigma", "rho", "batches", "extra", "tolerance"]  # fmt: skip
    assert row.split() == ["3-to-30us", "2", "10", "64", "0.51%", "0.88%", "1.23%", "+0.01", "1x", "+2.2%"]


def test_classes_without_a_kernel_are_named() -> None:
    """With what is taken for them; nothing is said of a class that is in order."""
    found = list(remarks(made(ONE)))
    assert [line.partition(":")[0] for line in found] == ["under-3us", "30-to-150us", "over-150us"]
    assert found[0] == "under-3us: no kernel has calls of that length; the noise of 3-to-30us is assumed"
    assert found[1] == found[0].replace("under-3us", "30-to-150us")


def test_blocks_that_hang_on_each_other_are_warned_of() -> None:
    """Also after batches became as long as they may; where longer ones helped, that is told."""
    first = next(iter(remarks(made(replace(ONE, longer=2.0)))))
    assert first == "3-to-30us: batches are 2 times as long from now on, because shorter ones are correlated"
    first = next(iter(remarks(made(replace(ONE, longer=8.0, rho=0.2)))))
    assert first.startswith(
        "WARNING 3-to-30us: blocks are correlated even at 8 times their length: rho = 0.20"
    )
    assert first.endswith("(if something else uses the device, calibrate again on a quiet machine)")


def test_a_spread_that_hides_slowdowns_is_warned_of() -> None:
    """A calibration of a busy machine would have the gate pass anything."""
    first = next(iter(remarks(made(replace(ONE, spread=0.05, spread_upper=0.06)))))
    assert first == (
        "WARNING 3-to-30us: slowdowns up to gate.tolerate + 15% will pass: processes differ by tau = 5%, or up to "
        "6% (95%, 10 processes). Run `cgins calibrate` again on a quiet machine; more --processes tighten the bound"
    )


def test_twins_that_always_differ_are_warned_of() -> None:
    """Two builds of the same sources whose times differ in every process: no spread, and yet noise."""
    first = next(iter(remarks(made(replace(ONE, offset=0.024)))))
    assert first == (
        "WARNING 3-to-30us: a kernel and its second build differ by 2.4% in every process: smaller slowdowns may "
        "come from the placement of code in memory (set gate.tolerate in cgins.yaml above it)"
    )
