"""What ncu prints as CSV, in the shapes of its versions from 2020 to 2025."""

from __future__ import annotations

import csv
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_cgins.regenerate.profiling import ncu
from pytest_cgins.regenerate.profiling.metrics import Reading, understood
from tests.regenerate.profiling.outputs import DETAILS_2025, LONG_2020, RAW_2022, RAW_2025


def values(text: str, at: int = 0) -> dict[str, float]:
    return {one.name: one.value for one in understood(ncu.parse_csv(text)[at].columns)}


def test_a_column_a_metric() -> None:
    """Each launch has a row; units stand in one of their own; what the chip does not count is not there."""
    first, second = ncu.parse_csv(RAW_2025)
    assert first.name == "void map_packs<float, Gelu>(Pack<float> *, const Pack<float> *, long, Gelu)"
    assert (first.grid, first.block) == ("(384, 1, 1)", "(256, 1, 1)")
    assert first.columns["gpu__time_duration.sum"] == Reading(4096, "ns")
    assert second.columns["dram__bytes_read.sum"] == Reading(256, "byte")
    assert values(RAW_2025) == {"sm_pct": 22.1, "dram_pct": 61.43, "stall_long_scoreboard_pct": 60.0}


def test_older_units_and_columns() -> None:
    """Microseconds and megabytes become nanoseconds and bytes; another column before the metrics does not matter."""
    (launch,) = ncu.parse_csv(RAW_2022)
    assert launch.columns == {
        "gpu__time_duration.sum": Reading(1205e3, "ns"),
        "dram__bytes_read.sum": Reading(1234.5e6, "byte"),
        "dram__throughput.avg.pct_of_peak_sustained_elapsed": Reading(88.25, "%"),
    }


def test_a_row_a_metric() -> None:
    """The oldest layout gives the same figures under ours names; of two that are named alike the share counts."""
    assert values(LONG_2020) == {
        "sm_pct": 12.5, "dram_pct": 70.0, "memory_pct": 71.0, "occupancy_pct": 43.21,
        "stall_long_scoreboard_pct": 61.0,
    }  # fmt: skip
    assert ncu.parse_csv(LONG_2020)[0].columns["Duration"] == Reading(2500, "ns")


def test_advice_is_what_rules_say_of_a_launch() -> None:
    """With the speedup that a rule estimates; what merely describes is no advice."""
    first, second = ncu.parse_csv(DETAILS_2025)
    assert first.suggested == [
        "The kernel is short of warps: use smaller blocks, <b>or</b> fewer registers. (estimated speedup: 34.6%)"
    ]
    assert second.suggested == ["The grid is too small to fill the device."]
    assert all(one.suggested == [] for one in ncu.parse_csv(LONG_2020))


def test_a_unit_in_the_name() -> None:
    """`metric [unit]` in the header is taken apart."""
    text = '"ID","Kernel Name","gpu__time_duration.sum [us]"\n"0","k","1.5"\n'
    assert ncu.parse_csv(text)[0].columns == {"gpu__time_duration.sum": Reading(1500, "ns")}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1,234", 1234), ("1,234,567.25", 1234567.25), ("0.31", 0.31), ("4.0e-05", 4e-5), ("-3", -3), (" 7 ", 7),
    ],
)  # fmt: skip
def test_numbers(text: str, value: float) -> None:
    """Digits may be grouped."""
    assert ncu.number(text) == value


@pytest.mark.parametrize(
    "text", ["", "n/a", "nan", "inf", "(!) nan", "0x10", "-", "1e999", "(256, 1, 1)", "9-0", "1.2.3"]
)
def test_what_is_no_number(text: str) -> None:
    """It is left out, and never 0."""
    assert ncu.number(text) is None


@given(st.floats(min_value=-1e15, max_value=1e15, allow_nan=False))
def test_grouped_numbers_come_back(value: float) -> None:
    """Whatever ncu writes in its usual way is read as it was."""
    text = f"{value:,.6f}"
    assert ncu.number(text) == float(text.replace(",", ""))


@given(st.text(alphabet='"IDKernl Name,Mtic Vau0123.%n/a\n=', max_size=400))
def test_no_text_makes_it_fail(text: str) -> None:
    """A foreign text has launches or none, and is no exception."""
    for launch in ncu.parse_csv(text):
        understood(launch.columns)


NAMES = st.text(alphabet=st.characters(codec="utf-8", exclude_categories=["C", "Z"]), min_size=1, max_size=40)


@pytest.mark.exam
@given(st.lists(st.tuples(NAMES, st.floats(0, 1e12)), min_size=1, max_size=6), st.booleans())
def test_tables_come_back(rows: list[tuple[str, float]], chatter: bool) -> None:
    """Names with commas and quotes, and as many launches as there are, whatever is printed around them."""
    out = io.StringIO()
    writer = csv.writer(out, quoting=csv.QUOTE_ALL, lineterminator="\n")
    writer.writerow(["ID", "Kernel Name", "Grid Size", "gpu__time_duration.sum", "smsp__x.sum"])
    writer.writerow(["", "", "", "ns", ""])
    for index, (name, value) in enumerate(rows):
        writer.writerow([str(index), name, "(1, 2, 3)", f"{value:,.3f}", "n/a"])
    text = f"hello\n==PROF== x\n{out.getvalue()}bye, bye\n" if chatter else out.getvalue()
    found = ncu.parse_csv(text)
    assert [one.name for one in found] == [name for name, _ in rows]
    assert [one.grid for one in found] == ["(1, 2, 3)"] * len(rows)
    for launch, (_, value) in zip(found, rows, strict=True):
        assert launch.columns == {"gpu__time_duration.sum": Reading(round(value, 3), "ns")}
