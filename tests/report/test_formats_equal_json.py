"""Comments, pull requests and JUnit: every number is one of the JSON document, within the rounding that is printed."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from reports import report_of
from timings import compared, measured

from pytest_cgins.core import documents
from pytest_cgins.core.session_report import SessionReport
from pytest_cgins.report import formats
from tests.report.test_table_equals_json import (
    Json,
    base_ns,
    is_change,
    is_ratio,
    name_of,
    of_base,
    pages,
    ratio_of,
    relaxed,
    reports,
    same,
)


def error_of(one: Json) -> float | None:
    shares = [check["share"] for check in one["correctness"]["checks"] if check["share"] is not None]
    return max(shares, default=None)


def markdown_verdicts(text: str) -> dict[str, dict[str, str]]:
    """Rows of the table of a comment or pull request, by case."""
    return {row["case"]: row for row in pages(text, "Verdicts")} if "### Verdicts" in text else {}


def check_verdict(row: dict[str, str], one: Json) -> None:
    timing, test = one["measurement"], of_base(one)
    assert row["verdict"].startswith(f"{one['verdict']['status']} ({one['verdict']['reason']})")
    assert same(is_ratio, row["error / allowed"], error_of(one))
    assert same(is_change, row.get("time vs base (>1 slower)", "–"), ratio_of(one))
    assert is_ratio(row["speed vs torch (>1 faster)"], timing["speedup_vs_torch"])
    if test is not None:
        low, high = row["95%"].split("..")
        assert is_change(low, test["ratio_low"])
        assert is_change(high, test["ratio_high"])


@pytest.mark.exam
@relaxed
@given(reports())
def test_a_pull_request_and_a_comment_have_what_is_written(report: SessionReport) -> None:
    """Each row's error, change with its interval, and speed; the pull request has every case."""
    data = {name_of(one): one for one in json.loads(documents.dump(report))["evaluations"]}
    whole = markdown_verdicts(formats.FORMATS["pull-request"](report))
    assert set(whole) == set(data)
    some = markdown_verdicts(formats.FORMATS["comment"](report))
    assert set(some) <= set(data)
    noticed = {
        name for name, one in data.items() if one["verdict"]["status"] in ("SLOWER", "INCONCLUSIVE", "FASTER")
    }
    assert noticed <= set(some)
    for name, row in [*whole.items(), *some.items()]:
        check_verdict(row, data[name])


@pytest.mark.exam
@relaxed
@given(reports())
def test_junit_has_what_is_written_to_the_last_digit(report: SessionReport) -> None:
    """Every number of a verdict is a property of its case, as the JSON has it; medians are in nanoseconds."""
    data = {name_of(one): one for one in json.loads(documents.dump(report))["evaluations"]}
    found = ET.fromstring(formats.FORMATS["junit"](report).encode())
    cases = {
        f"{case.get('classname').replace('.', '/')}/{case.get('name')}": case
        for case in found.iter("testcase")
    }
    assert set(cases) == set(data)
    for name, one in data.items():
        told = dict(
            re.findall(r"^\[\[PROPERTY\|(.+?)=(.*)\]\]$", cases[name].findtext("system-out"), re.MULTILINE)
        )
        numbers = one["verdict"]["numbers"]
        assert {key: float(told[key]) for key in numbers} == numbers
        assert float(told["kernel_median_ns_per_call"]) == one["measurement"]["kernel"]["median_ns_per_call"]
        assert same(is_same, told.get("base_median_ns_per_call", "-"), base_ns(one))
        assert same(is_same, told.get("ratio_to_base", "-"), ratio_of(one))
        assert (told["status"], told["reason"]) == (one["verdict"]["status"], one["verdict"]["reason"])
        assert float(cases[name].get("time")) == pytest.approx(one["seconds"], abs=5e-4)


def is_same(cell: str, value: float) -> bool:
    return float(cell) == value


def test_a_time_is_not_printed_in_another_unit(make_evaluation: Any) -> None:
    """1,145 ns are 1.15 us in each format that prints times for a person, and 1145.0 in those for programs."""
    timing = measured(compared("base", [0.0] * 30), kernel_ns=1145.0, base_ns=1145.0, torch_ns=2290.0)
    one = make_evaluation(timing=timing)
    one = replace(one, verdict=replace(one.verdict, numbers={"kernel_median_ns_per_call": 1145.0}))
    report = report_of(one, environments=())
    printed = {"terminal": "1.15 us", "markdown": "<td>1.15 us</td><td>1.15 us</td><td>2.29 us</td>"}
    exact = {"junit": "kernel_median_ns_per_call=1145.0]]", "json": '"median_ns_per_call": 1145.0'}
    for name, figure in (printed | exact).items():
        assert figure in formats.FORMATS[name](report), name
