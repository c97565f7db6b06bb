"""A session's report as all formats show it, made once: results by cause, tables, and what must be known first."""

from __future__ import annotations

from dataclasses import dataclass

from pytest_cgins.core.session_report import Environment, SessionReport
from pytest_cgins.core.text import counted
from pytest_cgins.report import results, tables
from pytest_cgins.report.common_traits import CommonTraits, common_traits
from pytest_cgins.report.notices import Notice, notices
from pytest_cgins.report.results import Cause, Result, causes, sentence
from pytest_cgins.report.summary import counts


@dataclass(frozen=True, slots=True, kw_only=True)
class Presentation:
    """What is shown of a report."""

    report: SessionReport
    title: str
    """Counts in words: `2 failed, 1 passed`."""
    sentence: str
    """What the failures come from; "" for none."""
    notices: tuple[Notice, ...]
    """What speaks against trusting the rest, then what gating times came to."""
    kernels: tables.Table
    """A row an implementation."""
    cases: tuple[Result, ...]
    """Those that fail, worst first, then the others."""
    builds: tuple[Result, ...]
    """The same of `--cgins-compile-only`."""
    causes: tuple[Cause, ...]
    """Of failing cases."""
    build_causes: tuple[Cause, ...]
    """Of failing builds."""
    common_traits: tuple[CommonTraits, ...]
    """What tells the failing cases of kernels from those that pass."""
    remarks: tuple[tables.Table, ...]


def present(report: SessionReport) -> Presentation:
    """Made from the report alone."""
    common = common_traits(report)
    cases, builds = results.cases(report, common), results.builds(report)
    of_cases, of_builds = causes(cases), causes(builds)
    return Presentation(
        report=report,
        title=_title(report),
        sentence=sentence((*of_cases, *of_builds)),
        notices=notices(report),
        kernels=tables.kernels(report).shown(),
        cases=cases,
        builds=builds,
        causes=of_cases,
        build_causes=of_builds,
        common_traits=common,
        remarks=tables.remarks(report),
    )


def environment(one: Environment) -> str:
    """Device and versions, one line."""
    versions = {
        "Python": one.python,
        "torch": one.torch,
        "CUDA": one.cuda,
        "driver": one.driver,
        "Triton": one.triton,
    }
    known = [f"{name} {version}" for name, version in versions.items() if version]
    return ", ".join([f"{one.device}: {one.device_name}", *known])


def _title(report: SessionReport) -> str:
    found = counts(report)
    parts = [
        (found.failed, f"{found.failed:,} failed"),
        (found.errors, counted(found.errors, "error", grouped=True)),
        (found.skipped, f"{found.skipped:,} skipped"),
    ]
    present = [text for number, text in parts if number]
    weak = f" ({found.weak:,} weak)" if found.weak else ""
    return ", ".join([*present, f"{found.passed:,} passed{weak}"])
