"""A session's report as JUnit XML: a suite a kernel, a test case a case.

The elements are those of the schema that Jenkins' xUnit plugin and pytest's own tests use (`junit-10.xsd`). It has no
properties of test cases, so those of a case are lines `[[PROPERTY|name=value]]` of its `system-out`, as Testmo's
description of the format has them; what holds for all cases of a kernel is a property of its suite.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

from pytest_cgins.core.call_text import case_line
from pytest_cgins.core.session_report import Compilation, Evaluation, SessionReport
from pytest_cgins.report import compiled, failure, notices, summary
from pytest_cgins.report.escape import cut, xml
from pytest_cgins.report.exit_code import settled
from pytest_cgins.report.presentation import present
from pytest_cgins.report.results import Result

if TYPE_CHECKING:
    from junit_xml import TestCase

MESSAGE_LENGTH = 1000
"""Characters of an attribute; viewers show it as a heading."""
TEXT_LENGTH = 20_000
"""Characters of what a failure says at length."""
WHOLE = "cgins"
"""Suite of what speaks against the report as a whole, with a test case for each missing one."""

_BRACKETS = re.compile(r"\](?=\]|\Z)|\[(?=\[)")
"""Those that would be two in a row; the last one of a value stands before its property's own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Entry:
    """One test case; texts may still have characters that XML forbids."""

    suite: str
    group: str
    name: str
    seconds: float
    outcome: str
    reason: str
    message: str
    text: str
    properties: Mapping[str, str]


def render(report: SessionReport) -> str:
    """The document as text, to be written as UTF-8. Characters that XML 1.0 has no place for are left out."""
    presented = present(report)
    several = summary.several_configs([*report.evaluations, *report.compilations])
    results = [
        *_in_order(report.evaluations, presented.cases),
        *_in_order(report.compilations, presented.builds),
    ]
    entries = [*(_entry(result, report, several=several) for result in results), *_whole(report)]
    suites: dict[str, list[_Entry]] = {}
    for entry in entries:
        suites.setdefault(entry.suite, []).append(entry)
    root = ET.Element("testsuites", {"name": WHOLE})
    root.extend(_suite(name, members, report) for name, members in suites.items())
    for count in ("tests", "failures", "errors"):
        root.set(count, str(sum(int(suite.get(count, "0")) for suite in root)))
    root.set("time", _seconds(entries))
    ET.indent(root)
    return f'<?xml version="1.0" encoding="utf-8"?>\n{ET.tostring(root, encoding="unicode")}\n'


def _suite(name: str, entries: Sequence[_Entry], report: SessionReport) -> ET.Element:
    from junit_xml import TestSuite

    counted = Counter(entry.properties["status"] for entry in entries if "status" in entry.properties)
    told = _session(report) | {f"cases_{status}": str(number) for status, number in sorted(counted.items())}
    suite = TestSuite(
        xml(name),
        [_test_case(entry) for entry in entries],
        timestamp=xml(report.started_at),
        properties={key: xml(value) for key, value in told.items()},
    )
    element: ET.Element = suite.build_xml_doc()
    # The schema knows no disabled tests, and three digits of a second.
    del element.attrib["disabled"]
    element.set("time", _seconds(entries))
    for entry, case in zip(entries, element.iter("testcase"), strict=True):
        case.set("time", _seconds([entry]))
        for skipped in case.iter("skipped"):
            skipped.set("type", xml(entry.reason))
    return element


def _test_case(entry: _Entry) -> TestCase:
    from junit_xml import TestCase

    lines = [f"[[PROPERTY|{_name(name)}={_value(value)}]]" for name, value in entry.properties.items()]
    case = TestCase(xml(entry.name), xml(entry.group), stdout="\n".join(lines))
    message, text = xml(cut(entry.message, MESSAGE_LENGTH)), xml(cut(entry.text, TEXT_LENGTH))
    reason = xml(entry.reason)
    if entry.outcome == "fail":
        case.add_failure_info(message, text, reason)
    elif entry.outcome == "error":
        case.add_error_info(message, text, reason)
    elif entry.outcome == "skip":
        case.add_skipped_info(message, text)
    return case


def _value(text: str) -> str:
    """One line that neither ends its property nor begins another one."""
    return _BRACKETS.sub(r"\g<0> ", " ".join(xml(text).split()))


def _name(text: str) -> str:
    """The same, and not taken for a name and the beginning of a value."""
    return _value(text).replace("=", ":")


def _seconds(entries: Iterable[_Entry]) -> str:
    return f"{sum(entry.seconds for entry in entries):.3f}"


# ---- what is told


def _in_order(sources: Iterable[Evaluation | Compilation], results: Iterable[Result]) -> list[Result]:
    """Results in the order of the report."""
    by_source = {id(result.source): result for result in results}
    return [by_source[id(source)] for source in sources]


def _entry(one: Result, report: SessionReport, *, several: bool) -> _Entry:
    """A case or a build; behind its `cgins.yaml` where there are several."""
    source = one.source
    if isinstance(source, Evaluation):
        kernel, told = source.case.kernel, properties(source, report)
    else:
        kernel, told = source.kernel, _build_properties(source)
    group, _, name = summary.label(source).removeprefix(f"{kernel}/").partition("/")
    place = f"{summary.file(source)}::" if several else ""
    if one.in_common:
        told["failing_cases_have_in_common"] = one.in_common
    return _Entry(
        suite=f"{place}{kernel}",
        group=f"{place}{kernel}.{group}",
        name=name,
        seconds=source.seconds,
        outcome=one.outcome,
        reason=source.verdict.reason.value,
        message=one.headline,
        text=one.message if one.failed else source.verdict.message,
        properties=told,
    )


def properties(evaluation: Evaluation, report: SessionReport) -> dict[str, str]:
    """What a case's `system-out` tells, numbers with all their digits; times are in nanoseconds."""
    case, verdict = evaluation.case, evaluation.verdict
    timing, tested = evaluation.measurement, evaluation.tested
    # Of a case that was not tested, a report of several runs does not say with which seed.
    seeds = (tested.seed,) if tested is not None else summary.seeds(report)
    found = {
        "status": verdict.status.value,
        "reason": verdict.reason.value,
        "device": case.device,
        "device_name": summary.device_name(evaluation, report),
        "op": case.op,
        "call": case_line(case),
        "dtype": case.dtype,
        "seed": str(seeds[0]) if len(seeds) == 1 else "",
        "sources": tested.sources if tested is not None else evaluation.kernel_digest,
        "config": evaluation.config,
        "again": failure.command(evaluation, report),
        "stored": str(evaluation.stored or ""),
    }
    worst = _worst_tolerance(evaluation)
    if worst is not None:
        found["tolerance_at_worst_element"] = repr(worst)
    if timing is not None:
        found |= {"timed_by": timing.method, "cache": timing.cache, "base_revision": timing.base_revision}
    return _with_numbers(found, verdict.numbers)


def _with_numbers(found: Mapping[str, str], numbers: Mapping[str, float]) -> dict[str, str]:
    """Properties that have a value, with those of a verdict's numbers, none of which takes another one's name."""
    told = {name: value for name, value in found.items() if value}
    for name, number in numbers.items():
        if _name(name):
            told.setdefault(_name(name), repr(number))
    return told


def _worst_tolerance(evaluation: Evaluation) -> float | None:
    """What was allowed where the error is the greatest share of it."""
    checks = evaluation.correctness.checks if evaluation.correctness is not None else ()
    shares = [(check.share, check.worst.tolerance) for check in checks if check.share and check.worst]
    return max(shares)[1] if shares else None


def _build_properties(one: Compilation) -> dict[str, str]:
    verdict = one.verdict
    found = {
        "status": verdict.status.value,
        "reason": verdict.reason.value,
        "arch": one.arch,
        "again": compiled.command(one),
        "base_revision": one.base_revision,
    }
    return _with_numbers(found, verdict.numbers)


def _session(report: SessionReport) -> dict[str, str]:
    seeds = summary.seeds(report)
    found = {
        "pytest_cgins": report.cgins,
        "seed": str(seeds[0]) if len(seeds) == 1 else "",
        "exit_status": str(report.exit_status),
        "base_revision": report.base_revision,
        "strict": str(report.strict).lower(),
    }
    for number, one in enumerate(report.environments, start=1):
        versions = {"torch": one.torch, "CUDA": one.cuda, "driver": one.driver, "Triton": one.triton}
        known = [f"{name} {version}" for name, version in versions.items() if version]
        found[f"environment_{number}"] = ", ".join([f"{one.device}: {one.device_name}", *known])
    return {name: value for name, value in found.items() if value}


def _whole(report: SessionReport) -> Iterator[_Entry]:
    """Missing cases, stale evidence, an empty run and what no case gates, as failures where they make the run fail."""

    def entry(name: str, reason: str, message: str, *, fails: bool) -> _Entry:
        return _Entry(
            suite=WHOLE, group=f"{WHOLE}.{reason}", name=name, seconds=0.0, outcome="fail" if fails else "skip",
            reason=reason, message=message, text="", properties={},
        )  # fmt: skip

    clear = replace(report, missing=(), stale=(), empty=False, unread=False, weaker=())

    def alone(name: str, field: str, message: str, value: Any) -> _Entry:
        """It fails where it would fail the run by itself."""
        return entry(name, field, message, fails=bool(settled(replace(clear, **{field: value}), 0)))

    for line in report.weaker:
        yield alone(line, "weaker", notices.weaker_line(report), (line,))
    if said := notices.unread(report):
        yield alone("base", "unread", f"BASE NOT READ: {said}", True)
    for name in report.missing:
        told = f"{name} of {report.base_revision} is no longer there: {notices.remedy(report)}"
        yield alone(name, "missing", told, (name,))
    for change in report.stale:
        yield alone(change, "stale", f"{change} after it was tested: run again", (change,))
    if report.empty and not report.compilations:
        yield alone("nothing gated", "empty", notices.empty(report), True)
    for one in summary.ungated(report.evaluations):
        name = f"{one.kernel}/{one.implementation} ({one.device})"
        yield entry(name, "ungated", notices.ungated(one), fails=report.strict)
