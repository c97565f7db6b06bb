"""Every figure on time that is printed is one of the JSON document, within the rounding that is printed."""

from __future__ import annotations

import html
import json
import math
import re
from dataclasses import replace
from statistics import median
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from reports import report_of
from timings import LABEL, RULE, compared, measured

from pytest_cgins.config import TimingGate
from pytest_cgins.core import documents
from pytest_cgins.core.case import Case
from pytest_cgins.core.measurement import Clocks, Comparison, Measurement, Roofline
from pytest_cgins.core.session_report import Evaluation, SessionReport
from pytest_cgins.core.verdict import Check, Correctness, Reason, Status, Verdict
from pytest_cgins.gate.timing_verdict import decide_timing
from pytest_cgins.report import failure, markdown, terminal
from pytest_cgins.report.html.page import render

UNITS = {"ns": 1.0, "us": 1e3, "ms": 1e6, "s": 1e9}
Json = dict[str, Any]

nanoseconds = st.floats(0.3, 1e11)
log_ratios = st.one_of(
    st.lists(st.floats(-3, 3), min_size=1, max_size=12),
    # As a kernel that is slower, the same or faster would give them.
    st.builds(lambda middle, n: [middle + 1e-3 * (i % 3) for i in range(n)], st.sampled_from([-0.1, 0.0, 0.1]), st.integers(8, 30)),
)  # fmt: skip
shares = st.floats(1e-5, 3.0)


@st.composite
def measurements(draw: st.DrawFn) -> Measurement:
    """With or without a base, a fresh process, peaks and clocks."""
    tests: list[Comparison] = []
    again: list[Comparison] | None = None
    if draw(st.booleans()):
        tests.append(compared("base", draw(log_ratios)))
        if tests[0].outcome == "slower" and draw(st.integers(0, 3)):
            second = draw(st.just([0.08 + 1e-3 * (i % 3) for i in range(20)]) | log_ratios)
            again = [compared("base", second, rule=replace(RULE, tests=1))]
    one = measured(
        *tests,
        kernel_ns=draw(nanoseconds),
        base_ns=draw(nanoseconds),
        torch_ns=draw(nanoseconds),
        again=again,
    )
    if draw(st.booleans()):
        roofline = Roofline(
            nbytes=10, flops=10, source="signature", peak_bytes_per_s=1e12, peak_flops_per_s=1e13,
            share_of_bandwidth=draw(shares), share_of_compute=draw(shares),
            bound=draw(st.sampled_from(["memory", "compute"])),
        )  # fmt: skip
        one = replace(one, roofline=roofline)
    clocks = Clocks(sm_mhz=(1980,), redone=("moved",) * draw(st.integers(0, 2)), throttled=("sw-power-cap",))
    return replace(one, clocks=clocks) if draw(st.booleans()) else one


@st.composite
def reports(draw: st.DrawFn) -> SessionReport:
    """Of up to six cases of two kernels, judged as the gate judges them."""
    evaluations = []
    for index in range(draw(st.integers(1, 6))):
        timing = draw(measurements())
        right = Verdict(status=Status.PASSED, reason=Reason.OK, message="", numbers={})
        fail_on = draw(st.sampled_from(["regression", "inconclusive", "never"]))
        verdict = decide_timing(
            right,
            timing,
            base_state=draw(st.sampled_from(["new", "unchanged", "none"])),
            base_note="no git",
            gate=TimingGate(fail_on=fail_on),
            base_label=LABEL,
        )
        check = Check(rule="gold", inputs="recorded", passed=True, reason=Reason.OK, message="", share=0.5)
        case = Case(
            kernel=draw(st.sampled_from(["scale", "norm"])), implementation="cuda", device="cuda:0", op="f",
            pack="p", pack_path="/p", trace_id="0" * 16, signature=f"s{index}", dtype="float32",
        )  # fmt: skip
        evaluations.append(
            Evaluation(
                case=case,
                verdict=verdict,
                kernel_digest="",
                correctness=Correctness(checks=(check,), power=()),
                measurement=timing,
                build_seconds=0.0,
                seconds=0.0,
                fail_on=fail_on,
            )
        )
    return report_of(*evaluations, environments=(), base_revision=LABEL)


# ---- how printed figures are read


def is_time(cell: str, value: float) -> bool:
    number, unit = cell.split(" ")
    return math.isclose(float(number) * UNITS[unit], value, rel_tol=0.00501)


def is_ratio(cell: str, value: float) -> bool:
    return math.isclose(float(cell.removesuffix("x")), value, rel_tol=0.00501)


def is_percent(cell: str, value: float) -> bool:
    assert cell.endswith("%")
    return math.isclose(float(cell[:-1]), 100 * value, rel_tol=0.00501)


def is_change(cell: str, ratio: float) -> bool:
    """Of a ratio of times: with four decimals near 1, where a digit of the tolerance's size counts."""
    value = float(cell.removesuffix("x"))
    near = abs(ratio - 1) < 0.0999
    return abs(value - ratio) <= 0.501e-4 if near else math.isclose(value, ratio, rel_tol=0.00501)


def is_none(cell: str, value: object) -> bool:
    return cell in ("-", "–") and value is None


def same(check: Any, cell: str, value: float | None) -> bool:
    return is_none(cell, value) if value is None else check(cell, value)


# ---- what the document says


def of_base(one: Json) -> Json | None:
    tests = one["measurement"]["comparisons"]
    return next((test for test in tests if test["against"] == "base"), None)


def peak_of(one: Json) -> float | None:
    roofline = one["measurement"]["roofline"]
    if roofline is None:
        return None
    return roofline["share_of_bandwidth" if roofline["bound"] == "memory" else "share_of_compute"]


def ratio_of(one: Json) -> float | None:
    test = of_base(one)
    return None if test is None else test["ratio"]


def base_ns(one: Json) -> float | None:
    base = one["measurement"]["base"]
    return None if base is None else base["median_ns_per_call"]


def name_of(one: Json) -> str:
    case = one["case"]
    return f"{case['kernel']}/cuda/p/{case['signature']}"


def table(lines: list[str], heading: str) -> list[dict[str, str]]:
    """Rows of a table of the section, by the texts of its headings, up to the first line of another shape."""
    start = next(i for i, line in enumerate(lines) if line.startswith(heading))
    columns = re.split(r" {2,}", lines[start])
    found = []
    for line in lines[start + 1 :]:
        cells = re.split(r" {2,}", line)
        if len(cells) != len(columns):
            break
        found.append(dict(zip(columns, cells, strict=True)))
    return found


def pages(text: str, title: str) -> list[dict[str, str]]:
    """Rows of a table of the markdown."""
    _, _, rest = text.partition(f"\n### {title}\n\n<table>\n")
    lines = rest.partition("</table>")[0].splitlines()
    columns = re.findall(r"<th>(.*?)</th>", lines[0])
    return [
        dict(zip(columns, (html.unescape(re.sub("<.*?>", "", cell)) for cell in cells), strict=True))
        for cells in (re.findall(r"<td>(.*?)</td>", line) for line in lines[1:])
    ]


def cells_of_page(page: str) -> dict[str, dict[str, tuple[str, str]]]:
    """Rows of the HTML page's table of cases: by name and heading what is shown, and what it is sorted by."""
    table = page.partition('<section data-list="cases"')[2].partition("</table>")[0]
    head, _, body = table.partition("</thead>")
    columns = [html.unescape(name) for name in re.findall(r"<th scope=\"col\".*?>(.*?)</th>", head)]
    found = {}
    for row in re.findall(r"<tr .*?</tr>", body):
        cells = re.findall(r"<t[hd](?: [^>]*?data-n=\"(.*?)\")?[^>]*>(.*?)</t[hd]>", row)
        shown = [(html.unescape(re.sub("<.*?>", "", text)), number) for number, text in cells]
        found[shown[0][0]] = dict(zip(columns, shown, strict=True))
    return found


relaxed = settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])


@pytest.mark.exam
@relaxed
@given(reports())
def test_each_case_is_printed_as_it_is_written(report: SessionReport) -> None:
    """-v: times of three arms with their units, change against the base, speed, share of peak; `-` where there is none."""
    data = json.loads(documents.dump(report))["evaluations"]
    lines = terminal.render(report, width=400, colour=False, verbosity=1).splitlines()
    rows = {row["case"]: row for row in table(lines, "case ")}
    assert set(rows) == {name_of(one) for one in data}
    for one in data:
        row, timing = rows[name_of(one)], one["measurement"]
        assert row["status"] == one["verdict"]["status"]
        assert is_time(row["kernel"], timing["kernel"]["median_ns_per_call"]), row
        assert is_time(row["torch"], timing["torch"]["median_ns_per_call"]), row
        assert same(is_time, row.get("base", "-"), base_ns(one)), row
        assert same(is_change, row.get("vs base (>1 slower)", "-"), ratio_of(one)), row
        assert is_ratio(row["speed (>1 faster)"], timing["speedup_vs_torch"]), row
        assert same(is_percent, row.get("of peak", "-"), peak_of(one)), row


@pytest.mark.exam
@relaxed
@given(reports())
def test_each_kernel_is_printed_as_its_cases_are_written(report: SessionReport) -> None:
    """Medians and extremes over a kernel's cases, in the terminal and on the page, are those of the document."""
    data = json.loads(documents.dump(report))["evaluations"]
    lines = terminal.render(report, width=400, colour=False, verbosity=0).splitlines()
    page = pages(markdown.render(report), "Kernels")
    for kernel in sorted({one["case"]["kernel"] for one in data}):
        members = [one for one in data if one["case"]["kernel"] == kernel]
        ratios = [value for value in map(ratio_of, members) if value is not None]
        peaks = [value for value in map(peak_of, members) if value is not None]
        speeds = [one["measurement"]["speedup_vs_torch"] for one in members]
        for rows, peak in ((table(lines, "kernel "), "of peak"), (page, "share of peak")):
            (row,) = [row for row in rows if row["kernel"] == kernel]
            assert int(row["cases"]) == len(members)
            counted = re.findall(r"(\d+) ([A-Z_]+)", row["status"])
            statuses = [one["verdict"]["status"] for one in members]
            assert {status: int(n) for n, status in counted} == {s: statuses.count(s) for s in statuses}
            shown = re.findall(r"[\d.e+-]+", row["speed vs torch (>1 faster)"].replace("..", " "))
            expected = [median(speeds), *([min(speeds), max(speeds)] if len(speeds) > 1 else [])]
            assert all(is_ratio(*pair) for pair in zip(shown, expected, strict=True)), row
            base = row.get("time vs base (>1 slower)", "-")
            if ratios:
                expected = [median(ratios), *([max(ratios)] if len(ratios) > 1 else [])]
                changes = re.findall(r"[\d.e+-]+x", base)
                assert all(is_change(*pair) for pair in zip(changes, expected, strict=True)), row
            else:
                assert base in ("-", "–")
            assert same(is_percent, row.get(peak, "-"), median(peaks) if peaks else None), row


@pytest.mark.exam
@relaxed
@given(reports())
def test_the_page_has_each_case_as_it_is_written(report: SessionReport) -> None:
    """The markdown's table of times, its intervals too."""
    data = {name_of(one): one for one in json.loads(documents.dump(report))["evaluations"]}
    rows = pages(markdown.render(report), "Times")
    assert [row["case"] for row in rows if row["case"] in data] == [row["case"] for row in rows]
    assert len(rows) == len(data)
    for row in rows:
        one = data[row["case"]]
        timing, test = one["measurement"], of_base(one)
        assert is_time(row["kernel"], timing["kernel"]["median_ns_per_call"])
        assert is_time(row["torch"], timing["torch"]["median_ns_per_call"])
        assert same(is_time, row.get("base", "–"), base_ns(one))
        assert same(is_change, row.get("time vs base (>1 slower)", "–"), ratio_of(one))
        assert same(is_percent, row.get("share of peak", "–"), peak_of(one))
        if test is not None:
            low, high = row["95%"].split("..")
            assert is_change(low, test["ratio_low"])
            assert is_change(high, test["ratio_high"])
        low, high = row["quartiles"].split("..")
        assert is_ratio(low, timing["speedup_low"])
        assert is_ratio(high, timing["speedup_high"])


@pytest.mark.exam
@relaxed
@given(reports())
def test_the_html_table_has_each_case_as_it_is_written(report: SessionReport) -> None:
    """What is shown is rounded; what a column is sorted by is the document's own number."""
    data = {name_of(one): one for one in json.loads(documents.dump(report))["evaluations"]}
    rows = cells_of_page(render(report))
    assert set(rows) == set(data)
    for name, row in rows.items():
        one = data[name]
        timing, test = one["measurement"], of_base(one)
        speed = timing["speedup_vs_torch"]
        assert row["status"][0] == one["verdict"]["status"]
        assert row["reason"][0] == one["verdict"]["reason"]
        for heading, check, value in (
            ("error / allowed", is_ratio, 0.5),
            ("kernel", is_time, timing["kernel"]["median_ns_per_call"]),
            ("torch", is_time, timing["torch"]["median_ns_per_call"]),
            ("base", is_time, base_ns(one)),
            ("time vs base (>1 slower)", is_change, ratio_of(one)),
            ("speed vs torch (>1 faster)", is_ratio, speed),
            ("share of peak", is_percent, peak_of(one)),
        ):
            shown, number = row.get(heading, ("–", ""))
            assert same(check, shown, value), (heading, row)
            assert number == ("" if value is None else repr(value)), (heading, row)
        if test is not None:
            low, high = row["95%"][0].split("..")
            assert is_change(low, test["ratio_low"])
            assert is_change(high, test["ratio_high"])


@pytest.mark.exam
@relaxed
@given(reports())
def test_html_details_have_the_numbers_of_the_verdict(report: SessionReport) -> None:
    """Under the names and with all the digits that the document has."""
    data = {name_of(one): one for one in json.loads(documents.dump(report))["evaluations"]}
    parts = re.findall(r'<span class="name">(.*?)</span>(.*?)</noscript>', render(report), re.DOTALL)
    assert {name for name, _ in parts} == set(data)
    for name, part in parts:
        numbers = part.partition("Numbers of the verdict")[2].partition("</dl>")[0]
        shown = dict(re.findall(r"<dt>(.*?)</dt><dd>(.*?)</dd>", numbers))
        assert {key: float(value) for key, value in shown.items()} == data[name]["verdict"]["numbers"]
        for shown_share, kind in (
            (r"Share of bandwidth</dt><dd>(.*?)<", "bandwidth"),
            (r"Share of compute</dt><dd>(.*?)<", "compute"),
        ):
            roofline = data[name]["measurement"]["roofline"]
            found = re.search(shown_share, part)
            assert (found is None) == (roofline is None)
            assert found is None or is_percent(found[1], roofline[f"share_of_{kind}"])


def outcome_of(one: Json) -> str:
    """Of a case that has a test, with its confirmation."""
    test, again = of_base(one), one["measurement"]["confirmation"]
    assert test is not None
    if test["outcome"] != "slower":
        return str(test["outcome"])
    return "slower" if again is not None and again["comparisons"][0]["outcome"] == "slower" else "unconfirmed"


@pytest.mark.exam
@relaxed
@given(reports())
def test_the_line_of_the_gate_counts_what_is_written(report: SessionReport) -> None:
    """Same, faster, slower and undecided add up to the cases with a test, and are told alike in both places."""
    data = json.loads(documents.dump(report))["evaluations"]
    outcomes = [outcome_of(one) for one in data if of_base(one) is not None]
    text = terminal.render(report, width=100, colour=False, verbosity=-1)
    found = re.search(
        r"^(\d+) cases? timed against (.+): (\d+) same, (\d+) faster, (\d+) slower, (\d+) undecided; false alarms in the "
        r"whole suite: at most 1%$",
        text,
        re.MULTILINE,
    )
    assert (found is None) == (not outcomes)
    if found is not None:
        assert found[2] == LABEL
        open_ones = outcomes.count("inconclusive") + outcomes.count("unconfirmed")
        counts = [outcomes.count(word) for word in ("clean", "faster", "slower")]
        assert [int(found[i]) for i in (1, 3, 4, 5, 6)] == [len(outcomes), *counts, open_ones]
        assert found[0] in markdown.render(report)


@pytest.mark.exam
@relaxed
@given(reports())
def test_the_message_of_a_slowdown_has_the_figures_that_are_written(report: SessionReport) -> None:
    """Ratio, interval, medians, blocks and threshold of both processes."""
    data = {name_of(one): one for one in json.loads(documents.dump(report))["evaluations"]}
    for evaluation in report.evaluations:
        if evaluation.verdict.status is not Status.SLOWER:
            continue
        timing = data[evaluation.case.name]["measurement"]
        lines = failure.message(evaluation, command="again").splitlines()
        start = next(i for i, line in enumerate(lines) if "time vs base (95%)" in line)
        for line, one in zip(lines[start + 1 : start + 3], (timing, timing["confirmation"]), strict=True):
            _, ratios, kernel, base, blocks, noise = re.split(r" {2,}", line)
            (test,) = one["comparisons"]
            shown = re.findall(r"[\d.e+-]+", ratios.replace("..", " "))
            assert all(
                is_ratio(*pair)
                for pair in zip(shown, (test["ratio"], test["ratio_low"], test["ratio_high"]), strict=True)
            )
            assert is_time(kernel, one["kernel"]["median_ns_per_call"])
            assert is_time(base, one["base"]["median_ns_per_call"])
            assert int(blocks) == len(test["log_ratios"])
            assert noise.endswith(f"1 in {test['tests'] / test['alpha']:,.0f} proves it")


@pytest.mark.exam
def test_reports_have_what_the_tests_look_at() -> None:
    """The strategy makes every outcome: else the tests above would hold of nothing."""
    seen: set[str] = set()

    @settings(deadline=None, max_examples=600, database=None, derandomize=True)
    @given(reports())
    def collect(report: SessionReport) -> None:
        data = json.loads(documents.dump(report))["evaluations"]
        seen.update(outcome_of(one) for one in data if of_base(one) is not None)
        seen.update(one["verdict"]["status"] for one in data)

    collect()
    assert {"slower", "unconfirmed", "clean", "faster", "inconclusive"} <= seen
    assert {"SLOWER", "INCONCLUSIVE", "SAME", "FASTER", "NEW", "PASSED"} <= seen


@pytest.mark.parametrize(
    ("cell", "ratio", "right"),
    [
        ("1.0812x", 1.0812, True),
        ("1.0814x", 1.0812, False),
        ("0.9188x", 1.0812, False),
        ("1.0000x", 1.0, True),
        ("1.0000x", 1.01, False),
        ("2.49x", 2.488, True),
    ],
)
def test_the_reader_tells_wrong_figures(cell: str, ratio: float, right: bool) -> None:
    """A digit, a sign or a unit that is off is seen."""
    assert is_change(cell, ratio) is right
    assert is_time("1.15 us", 1145.0)
    assert not is_time("1 ns", 1145.0)
    assert not is_time("1.15 ms", 1145.0)
