"""Builds of `--cgins-compile-only` as rows, worst first."""

from __future__ import annotations

from collections.abc import Iterator

from pytest_cgins.core.figures import time_ns
from pytest_cgins.core.model import Compilation, KernelResources, SessionReport
from pytest_cgins.gate import verdict as gate
from pytest_cgins.report import compiled, failure
from pytest_cgins.report.html.case_details import facts, heading, notes, verdict
from pytest_cgins.report.html.listing import EMPTY, Cell, Column, Listing, Row, plain_table
from pytest_cgins.report.html.markup import Markup, code, element, join, lines
from pytest_cgins.report.summary import rank

COLUMNS = (
    Column(name="reason", numbers=False),
    Column(name="architecture", numbers=False),
    *(Column(name=name) for name, _ in compiled.FIGURES),
    Column(name="built in", optional=True),
)


def builds(report: SessionReport) -> Listing:
    """All builds."""
    failed = compiled.failures(report.compilations)
    first = {id(one) for one in failed}
    others = [one for one in report.compilations if id(one) not in first]
    others.sort(key=lambda one: (rank(one.verdict.status), one.name))
    return Listing(
        id="builds",
        title="Builds",
        device="architecture",
        columns=COLUMNS,
        rows=[_row(one) for one in (*failed, *others)],
    )


def _row(one: Compilation) -> Row:
    return Row(
        name=one.name,
        status=one.verdict.status,
        outcome=one.verdict.status.outcome,
        kernel=one.kernel,
        device=one.arch,
        cells=_cells(one),
        headline=failure.headline(one),
        details=_details(one),
    )


def _cells(one: Compilation) -> tuple[Cell, ...]:
    """Below `COLUMNS`; what it was at the base revision stands in brackets."""
    numbers = gate.resource_numbers(one.resources, one.base)
    figures = [
        EMPTY
        if numbers.get(name) is None
        else Cell(text=compiled.changed(numbers[name], numbers.get(f"base_{name}")), number=numbers[name])
        for _, name in compiled.FIGURES
    ]
    built = Cell(text=time_ns(one.build_seconds * 1e9), number=one.build_seconds)
    return (
        Cell(text=one.verdict.reason.value),
        Cell(text=one.arch),
        *figures,
        built if one.build_seconds else EMPTY,
    )


def _details(one: Compilation) -> Markup:
    command = compiled.command(one)
    parts = [
        *verdict(one.verdict.reason.value, one.verdict.message),
        *_opcodes(one, command),
        element("p", element("strong", "Again: "), element("code", command, class_="command")),
        *_functions("Functions", one.resources),
        *_functions("Functions at the base revision", one.base),
        *notes(one.notes),
        *((facts([("Compared with", code(one.base_revision))]),) if one.base_revision else ()),
    ]
    return join(parts)


def _opcodes(one: Compilation, command: str) -> Iterator[Markup]:
    """The parts of the message that the verdict does not have: opcodes whose number changed."""
    found = [
        line
        for line in compiled.message(one, command=command).splitlines()
        if line.startswith("opcodes ") and line not in one.verdict.message
    ]
    if found:
        yield lines("\n".join(found))


def _functions(title: str, found: tuple[KernelResources, ...]) -> Iterator[Markup]:
    if not found:
        return
    yield heading(title)
    headings = ("function", "registers", "spills", "stack", "shared")
    rows = [
        (
            code(one.function),
            f"{one.registers_per_thread:,}",
            f"{gate.spilled_nbytes(one):,}",
            f"{one.stack_nbytes_per_thread:,}",
            f"{one.static_shared_nbytes_per_block:,}",
        )
        for one in found
    ]
    yield plain_table(title, headings, rows, caption_hidden=True)
