"""Evidence as tables and lines for a terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from pytest_cgins.core.console import new_table
from pytest_cgins.core.number_text import scaled, time_ns
from pytest_cgins.core.text import counted
from pytest_cgins.regenerate.profiling import evidence_documents

if TYPE_CHECKING:
    from rich.table import Table

SHOWN_OPCODES = 12
NAME_WIDTH = 72
NO_FIGURE = "-"


def environment(made: evidence_documents.EnvironmentEvidence) -> list[Table | str]:
    """What is there, then what that disables."""
    table = new_table("what", "state", "version", "where")
    for finding in made.findings:
        table.add_row(
            finding.name, finding.state, finding.version or NO_FIGURE, finding.where or finding.detail
        )
    parts: list[Table | str] = [table]
    parts.append(f"counters by ncu: {_yes(made.counters)}; machine code: {_yes(made.sass)}")
    parts += _degraded(made.degraded)
    if made.preflight:
        table = new_table("case", "status", "message")
        for checked in made.preflight:
            table.add_row(checked.case, checked.status, checked.message)
        parts += ["", table]
    return parts


def roofline(made: evidence_documents.RooflineEvidence) -> list[Table | str]:
    """A row a case, then what is missing."""
    table = new_table(
        "case", "status", ">time", ">bytes", ">flops", ">of bandwidth", ">of compute", ">Δc", ">Δm", ">Δl", "by",
        "near peak",
    )  # fmt: skip
    for row in made.rows:
        found, gaps = row.roofline, row.gaps
        work: tuple[str, ...] = (NO_FIGURE,) * 4
        gap = work
        if found:
            shares = (f"{share:.0%}" for share in (found.share_of_bandwidth, found.share_of_compute))
            work = (scaled(found.nbytes), scaled(found.flops), *shares)
        if gaps:
            latency = f"{gaps.latency:.2f}" if gaps.latency_known else "no data"
            gap = (f"{gaps.compute:.2f}", f"{gaps.memory:.2f}", latency, gaps.source)
        near = NO_FIGURE if row.near_peak is None else _yes(row.near_peak)
        table.add_row(row.case, row.status, _time(row.median_ns_per_call), *work, *gap, near)
    messages = [f"{row.case}: {row.message}" for row in made.rows if row.message]
    return [table, *messages, *_degraded(made.degraded)]


def sass(made: evidence_documents.SassEvidence) -> list[Table | str]:
    """A row a function, then signatures."""
    table = new_table("implementation", "function", "arch", ">instructions", "opcodes")
    lines = []
    for row in made.rows:
        for function in row.functions:
            total = sum(count for _, count in function.opcodes)
            name, code = _short(function.function), opcodes(function.opcodes)
            table.add_row(row.implementation, name, function.arch, str(total), code)
        lines += _signatures(row)
        lines += [f"{row.implementation}: {line}" for line in _degraded(row.degraded)]
    return [table, *lines]


def _signatures(row: evidence_documents.SassRow) -> list[str]:
    """Methods that left their mark, and how many did not."""
    if not row.signatures:
        return []
    present = [f"{check.method} ({check.arch})" for check in row.signatures if check.state == "present"]
    counts = Counter(check.state for check in row.signatures)
    told = f"methods in the code: {', '.join(present) or 'none'}"
    return [f"{row.implementation}: {told}; {counts['absent']} absent, {counts['unknown']} unknown"]


def tidy(made: evidence_documents.TidyEvidence) -> list[Table | str]:
    """A line a finding."""
    lines = [f"{one.file}:{one.line}: {one.level}: {one.message} [{one.check}]" for one in made.findings]
    if made.clang_tidy and not lines:
        lines = [f"clang-tidy {made.clang_tidy}: nothing found in {counted(len(made.files), 'file')}"]
    return [*lines, *_degraded(made.degraded)]


def bench(made: evidence_documents.BenchEvidence) -> list[Table | str]:
    """A row a case; ratios with their intervals."""
    table = new_table(
        "case", "status", ">kernel", ">torch/kernel", ">compile/kernel", ">base/kernel", "cache"
    )
    by_note: dict[str, list[str]] = {}
    for row in made.rows:
        by_arm = {ratio.against: ratio for ratio in row.ratios}
        table.add_row(
            row.case, row.status, _time(row.ns_per_call), _ratio(by_arm.get("torch")), _ratio(by_arm.get("compile")),
            _ratio(by_arm.get("base")), row.cache or NO_FIGURE,
        )  # fmt: skip
        for note in dict.fromkeys((row.message, *row.notes)):
            by_note.setdefault(note, []).append(row.case)
    lines = [f"{_cases(cases, len(made.rows))}: {note}" for note, cases in by_note.items() if note]
    return [table, "above 1 the kernel is faster; intervals hold the median at 95%", *lines]


def _cases(some: Sequence[str], count: int) -> str:
    """What a note is about: notes of all cases are told once."""
    return "all cases" if len(some) == count > 1 else ", ".join(some)


def attribution(made: evidence_documents.AttributionEvidence) -> list[Table | str]:
    """A row a method and case."""
    table = new_table(
        "method", "state", "case", ">champion", ">without it", ">attribution", "interval", "test"
    )
    lines = []
    for method in made.methods:
        lines.append(f"{method.method}: {method.state}: {method.message}")
        for case in method.cases:
            known = case.attribution_ms is not None
            interval = f"[{case.low_ms:+.6f}, {case.high_ms:+.6f}] ms" if known else NO_FIGURE
            table.add_row(
                method.method, method.state, case.case, _time(case.champion_ns_per_call), _time(case.without_ns_per_call),
                f"{case.attribution_ms:+.6f} ms" if known else NO_FIGURE, interval, case.outcome,
            )  # fmt: skip
    return [table, *lines]


def _degraded(lines: Iterable[str]) -> list[str]:
    return [f"not available: {line}" for line in lines]


def _ratio(one: evidence_documents.Ratio | None) -> str:
    return NO_FIGURE if one is None else f"{one.ratio:.3f} [{one.low:.3f}, {one.high:.3f}]"


def opcodes(found: Sequence[tuple[str, int]]) -> str:
    """The most frequent ones, with their counts."""
    return " ".join(f"{name}:{count}" for name, count in found[:SHOWN_OPCODES])


def _time(ns: float | None) -> str:
    return NO_FIGURE if ns is None else time_ns(ns)


def _short(name: str) -> str:
    return name if len(name) <= NAME_WIDTH else f"{name[: NAME_WIDTH - 1]}…"


def _yes(known: bool) -> str:
    return "yes" if known else "no"
