"""Builds of `--cgins-compile-only` as numbers and messages for a person."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator

from pytest_cgins.core.case import KernelResources
from pytest_cgins.core.session_report import Compilation
from pytest_cgins.core.verdict import Status
from pytest_cgins.gate import correctness_verdict as gate
from pytest_cgins.report.failure import headline, node_id
from pytest_cgins.report.summary import file, rank

SHOWN_OPCODES = 6


def arch_order(arch: str) -> tuple[int, str]:
    """By number: `sm_90a` before `sm_100`."""
    digits = re.search(r"\d{1,6}", arch)
    return int(digits[0]) if digits else 0, arch


FIGURES = (
    ("registers", "registers_per_thread"),
    ("spills", "spill_nbytes_per_thread"),
    ("stack", "stack_nbytes_per_thread"),
    ("shared", "static_shared_nbytes_per_block"),
)
"""Heading of a column, and the number in it: the greatest over the functions."""


def function_figures(function: KernelResources) -> tuple[int, ...]:
    """Those of one function."""
    return (
        function.registers_per_thread,
        gate.spilled_nbytes(function),
        function.stack_nbytes_per_thread,
        function.static_shared_nbytes_per_block,
    )


def message(compilation: Compilation, *, command: str) -> str:
    """All that a person needs to start: the verdict, opcodes that changed, and how to build it again."""
    parts = [headline(compilation)]
    rest = compilation.verdict.message.partition("\n")[2]
    changed = "\n".join(opcodes(compilation))
    return "\n\n".join([*parts, *filter(None, [rest, changed]), f"again   {command}"])


def opcodes(compilation: Compilation) -> Iterator[str]:
    """Of each function that fails, the opcodes whose number changed most."""
    if compilation.verdict.status is not Status.RESOURCES:
        return
    for now, then in gate.match(compilation.resources, compilation.base).pairs:
        grew = gate.spilled_nbytes(now) > gate.spilled_nbytes(then)
        grew = grew or now.registers_per_thread > then.registers_per_thread
        if not grew or now.instructions is None or then.instructions is None:
            continue
        difference = Counter(dict(now.instructions))
        difference.subtract(dict(then.instructions))
        most = sorted(difference.items(), key=lambda pair: (-abs(pair[1]), pair[0]))[:SHOWN_OPCODES]
        shown = ", ".join(f"{opcode} {number:+d}" for opcode, number in most if number)
        if shown:
            yield f"opcodes {shown}: {now.function}"


def command(compilation: Compilation) -> str:
    """Shell command that builds it again, from the folder where pytest began."""
    base = [f"--cgins-baseline={compilation.base_revision}"] * bool(compilation.base_revision)
    node = node_id(file(compilation), compilation.name)
    return shlex.join(
        ["pytest", "--cgins", "--cgins-compile-only", f"--cgins-arch={compilation.arch}", *base, node]
    )


def worst_first(compilations: Iterable[Compilation]) -> list[Compilation]:
    """By status, then by spilled bytes that came."""

    def order(compilation: Compilation) -> tuple[int, float, str]:
        numbers, name = compilation.verdict.numbers, "spill_nbytes_per_thread"
        grown = numbers.get(name, 0.0) - numbers.get(f"base_{name}", 0.0)
        return rank(compilation.verdict.status), -grown, compilation.name

    return sorted(compilations, key=order)


def reasons(compilations: Iterable[Compilation], status: Status) -> tuple[tuple[str, int], ...]:
    """First lines of the messages of builds with a status, and how many have each, most frequent first."""
    counts = Counter(
        compilation.verdict.message.partition("\n")[0]
        for compilation in compilations
        if compilation.verdict.status is status and compilation.verdict.message
    )
    return tuple(counts.most_common())


def notes(compilations: Iterable[Compilation]) -> tuple[tuple[str, int], ...]:
    """What builds want known, and how many of them, most frequent first."""
    return tuple(Counter(note for compilation in compilations for note in compilation.notes).most_common())


def revisions(compilations: Iterable[Compilation]) -> tuple[str, ...]:
    """Commits that were compared with."""
    return tuple(
        dict.fromkeys(compilation.base_revision for compilation in compilations if compilation.base_revision)
    )
