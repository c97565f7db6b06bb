"""Builds of `--cgins-compile-only` as numbers, tables and messages for a person."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from rich.table import Table
from rich.text import Text

from pytest_cgins.core.figures import time_ns
from pytest_cgins.core.model import Compilation, KernelResources, Status
from pytest_cgins.core.text import counted
from pytest_cgins.gate import verdict as gate
from pytest_cgins.report import console
from pytest_cgins.report.failure import headline
from pytest_cgins.report.summary import rank

SHOWN_OPCODES = 6
EXPLAINED = (Status.PASSED, Status.NEW, Status.SKIPPED)
"""Statuses of builds that are no failure, and whose messages tell what was not compared or built."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildRow:
    """One kernel implementation over its architectures, or on one."""

    kernel: str
    """Kernel name."""
    implementation: str
    """Implementation name."""
    archs: tuple[str, ...]
    """What it was built for, by number."""
    statuses: tuple[tuple[Status, int], ...]
    """How many builds ended how, worst first."""
    resources: tuple[KernelResources, ...]
    """Of all functions of all builds."""
    base: tuple[KernelResources, ...]
    """The same at the base revision."""
    build_seconds: float
    """Sum of the builds' wall times; 0 from the cache."""


def rows(compilations: Iterable[Compilation], *, each: bool = False) -> tuple[BuildRow, ...]:
    """One row an implementation, or one a build, in the order of their first builds."""
    groups: dict[tuple[str, ...], list[Compilation]] = {}
    for one in compilations:
        key = (one.kernel, one.implementation, one.arch if each else "")
        groups.setdefault(key, []).append(one)
    return tuple(_row(members) for members in groups.values())


def _row(members: Sequence[Compilation]) -> BuildRow:
    counts = Counter(member.verdict.status for member in members)
    return BuildRow(
        kernel=members[0].kernel,
        implementation=members[0].implementation,
        archs=tuple(sorted({member.arch for member in members}, key=_arch_order)),
        statuses=tuple(sorted(counts.items(), key=lambda pair: rank(pair[0]))),
        resources=tuple(function for member in members for function in member.resources),
        base=tuple(function for member in members for function in member.base),
        build_seconds=sum(member.build_seconds for member in members),
    )


def _arch_order(arch: str) -> tuple[int, str]:
    """By number: `sm_90a` before `sm_100`."""
    digits = re.search(r"\d{1,6}", arch)
    return int(digits[0]) if digits else 0, arch


def changed(now: float | None, then: float | None) -> str:
    """A number, with what it was where that differs: `48 (40)`; `-` for none."""
    if now is None:
        return "-"
    return f"{now:.0f}" if then is None or then == now else f"{now:.0f} ({then:.0f})"


FIGURES = (
    ("registers", "registers_per_thread"),
    ("spills", "spill_nbytes_per_thread"),
    ("stack", "stack_nbytes_per_thread"),
    ("shared", "static_shared_nbytes_per_block"),
)
"""Heading of a column, and the number in it: the greatest over the functions."""


def figures(row: BuildRow) -> tuple[str, ...]:
    """The cells of `FIGURES`."""
    numbers = gate.resource_numbers(row.resources, row.base)
    return tuple(changed(numbers.get(name), numbers.get(f"base_{name}")) for _, name in FIGURES)


def message(compilation: Compilation, *, command: str) -> str:
    """All that a person needs to start: the verdict, opcodes that changed, and how to build it again."""
    parts = [headline(compilation)]
    rest = compilation.verdict.message.partition("\n")[2]
    opcodes = "\n".join(_opcodes(compilation))
    return "\n\n".join([*parts, *filter(None, [rest, opcodes]), f"again   {command}"])


def _opcodes(compilation: Compilation) -> Iterator[str]:
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
    config = compilation.config or "cgins.yaml"
    # A path that began with a dash would be an option.
    place = f"{'./' if config.startswith('-') else ''}{config}::{compilation.name}"
    base = [f"--cgins-baseline={compilation.base_revision}"] * bool(compilation.base_revision)
    return shlex.join(
        ["pytest", "--cgins", "--cgins-compile-only", f"--cgins-arch={compilation.arch}", *base, place]
    )


def failures(compilations: Iterable[Compilation]) -> tuple[Compilation, ...]:
    """Those that fail the session or end in an error, worst first: by status, then by spilled bytes that came."""
    chosen = [one for one in compilations if one.verdict.status.outcome in ("fail", "error")]
    return tuple(sorted(chosen, key=lambda one: (rank(one.verdict.status), -_grown(one), one.name)))


def _grown(compilation: Compilation) -> float:
    numbers = compilation.verdict.numbers
    name = "spill_nbytes_per_thread"
    return numbers.get(name, 0.0) - numbers.get(f"base_{name}", 0.0)


def reasons(compilations: Iterable[Compilation], status: Status) -> tuple[tuple[str, int], ...]:
    """First lines of the messages of builds with a status, and how many have each, most frequent first."""
    counts = Counter(
        one.verdict.message.partition("\n")[0]
        for one in compilations
        if one.verdict.status is status and one.verdict.message
    )
    return tuple(counts.most_common())


def notes(compilations: Iterable[Compilation]) -> tuple[tuple[str, int], ...]:
    """What builds want known, and how many of them, most frequent first."""
    return tuple(Counter(note for one in compilations for note in one.notes).most_common())


def revisions(compilations: Iterable[Compilation]) -> tuple[str, ...]:
    """Commits that were compared with."""
    return tuple(dict.fromkeys(one.base_revision for one in compilations if one.base_revision))


# ---- as text


def table(compilations: Iterable[Compilation], *, colour: bool, each: bool) -> Table:
    """Implementations, or builds, with the most that a function of theirs takes; the base's in brackets."""
    found = console.table(colour=colour)
    found.add_column("kernel")
    found.add_column("implementation")
    found.add_column("arch")
    found.add_column("status")
    for heading, _ in FIGURES:
        found.add_column(heading, justify="right")
    found.add_column("built in", justify="right")
    for row in rows(compilations, each=each):
        status = Text(", ".join(_count(*pair) for pair in row.statuses))
        for one, number in row.statuses:
            status.highlight_words([_count(one, number)], console.style(one))
        built = time_ns(row.build_seconds * 1e9) if row.build_seconds else "-"
        found.add_row(
            row.kernel, row.implementation, ", ".join(row.archs), status, *figures(row), built
        )  # fmt: skip
    return found


def _count(status: Status, number: int) -> str:
    return status.value if number == 1 else f"{number} {status.value}"


def opcode_table(compilations: Iterable[Compilation], *, colour: bool) -> Table:
    """Each function with what it takes and its most frequent opcodes."""
    found = console.table(colour=colour)
    found.add_column("build")
    for heading in ("registers", "spills", "stack", "shared"):
        found.add_column(heading, justify="right")
    found.add_column("opcodes")
    found.add_column("function")
    for one in compilations:
        for function in one.resources:
            mix = function.instructions or ()
            found.add_row(
                one.name,
                str(function.registers_per_thread),
                str(gate.spilled_nbytes(function)),
                str(function.stack_nbytes_per_thread),
                str(function.static_shared_nbytes_per_block),
                ", ".join(f"{opcode} {number}" for opcode, number in mix[:SHOWN_OPCODES]) or "-",
                Text(function.function),
            )
    return found


def lines(compilations: Sequence[Compilation], *, brief: bool = False) -> Iterator[Text]:
    """What was not compared or built, notes unless it is to be `brief`, and what building took."""
    for status in EXPLAINED:
        for reason, count in reasons(compilations, status):
            yield Text(f"{status.value} {_builds(count)}: {reason}", style=console.style(status))
    for note, count in notes(compilations) if not brief else ():
        yield Text(f"note, {_builds(count)}: {note}")
    seconds = sum(one.build_seconds for one in compilations)
    built = (
        f"builds took {time_ns(seconds * 1e9)} in all, side by side" if seconds else "nothing had to be built"
    )
    compared = ", ".join(commit[:10] for commit in revisions(compilations))
    yield Text(f"compared with {compared}; {built}" if compared else built)


def _builds(count: int) -> str:
    return f"{counted(count, 'build')}"
