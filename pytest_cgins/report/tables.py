"""The tables of a report, made once: what a cell says, and the number behind it. Each format draws them its own way."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import median

from pytest_cgins.core.number_text import percent, ratio, relative, slowdown, speedup, time_ns
from pytest_cgins.core.session_report import SAME_BITS, Compilation, Evaluation, SessionReport
from pytest_cgins.core.text import counted
from pytest_cgins.core.verdict import Status
from pytest_cgins.gate import correctness_verdict as gate
from pytest_cgins.gate.timing_verdict import interval
from pytest_cgins.report import compiled, summary, times

NOTHING = "–"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One cell."""

    text: str
    number: float | None = None
    """What it is sorted by; None for its text."""
    more: str = ""
    """The end of the text that a narrow column has on a line of its own."""


EMPTY = Cell(text=NOTHING)


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """Heading of a column, and what its cells are."""

    name: str
    figure: bool = False
    """Whether its cells are figures and other words of ours; else they are anybody's text."""
    optional: bool = False
    """Whether it is left out where all of its cells are empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Rows of cells below columns."""

    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    note: str = ""
    """A sentence below it."""

    def shown(self) -> Table:
        """Without optional columns that are empty."""
        kept = [
            index
            for index, column in enumerate(self.columns)
            if not column.optional or any(row[index].text != NOTHING for row in self.rows)
        ]
        return replace(
            self,
            columns=tuple(self.columns[index] for index in kept),
            rows=tuple(tuple(row[index] for index in kept) for row in self.rows),
        )


_FIGURES = (
    "cases", "builds", "failures", "status", "error / allowed", "time vs base", "95%", "speed vs torch", "quartiles", "kernel time",
    "base", "torch", "speed vs torch.compile", "share of peak", "timed by", "cache", "blocks", "would pass too",
    "worst error / allowed", "built in", "compile time", "library", "registers", "spills", "memory", *(name for name, _ in compiled.FIGURES),
)  # fmt: skip
_OPTIONAL = (
    "time vs base", "95%", "base", "speed vs torch.compile", "share of peak", "again", "failures", "built in",
    "compile time", "library", "registers", "spills", "memory",
)  # fmt: skip

_HEADINGS = {
    "kernel time": "kernel",
    "time vs base": "time vs base (>1 slower)",
    "speed vs torch": "speed vs torch (>1 faster)",
    "speed vs torch.compile": "speed vs torch.compile (>1 faster)",
}
"""What columns say that are not headed by their names; a ratio's heading says which way it goes."""


def column(name: str) -> Column:
    """A column by its name, which means the same in every table."""
    return Column(name=_HEADINGS.get(name, name), figure=name in _FIGURES, optional=name in _OPTIONAL)


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]], *, note: str = "") -> Table:
    """A table of cells and texts."""
    cells = tuple(
        tuple(cell if isinstance(cell, Cell) else Cell(text=str(cell)) for cell in row) for row in rows
    )
    return Table(title=title, columns=tuple(map(column, columns)), rows=cells, note=note if cells else "")


def figure(value: float | None, words: Callable[[float], str]) -> Cell:
    """A number, or that there is none."""
    return EMPTY if value is None else Cell(text=words(value), number=value)


def count(value: int) -> Cell:
    """A number of things."""
    return figure(value, lambda number: f"{number:,}")


def statuses(results: Iterable[Evaluation | Compilation]) -> Cell:
    """How many ended how, worst first."""
    counts = summary.status_counts(results)
    return Cell(text=", ".join(f"{number:,} {status.value}" for status, number in counts))


# ---- kernels

KERNELS = (
    "kernel", "implementation", "cases", "status", "worst error / allowed", "time vs base", "speed vs torch",
    "speed vs torch.compile", "share of peak",
)  # fmt: skip


def kernels(report: SessionReport) -> Table:
    """A row a kernel implementation, in the order of their first cases."""
    groups = summary.by_implementation(report.evaluations)
    return table("Kernels", KERNELS, (_kernel(*key, members) for key, members in groups.items()))


def _kernel(
    kernel: str, implementation: str, device: str, members: Sequence[Evaluation]
) -> tuple[object, ...]:
    correctness = [member.correctness for member in members if member.correctness is not None]
    shares = [one.share for one in correctness if one.share is not None]
    bases = [test.ratio for member in members if (test := times.comparison(member)) is not None]
    timed = [member.measurement for member in members if member.measurement is not None]
    peaks = [peak for member in members if (peak := times.share_of_peak(member.measurement)) is not None]
    return (
        kernel,
        Cell(text=f"{implementation} ({device})", more=f" ({device})"),
        count(len(members)),
        statuses(members),
        figure(max(shares, default=None), ratio),
        _median(bases, slowdown, lambda: f"worst {slowdown(max(bases))}"),
        _speed([one.speedup_vs_torch for one in timed]),
        _speed([one.speedup_vs_compile for one in timed if one.speedup_vs_compile is not None]),
        figure(median(peaks) if peaks else None, percent),
    )


def _speed(values: Sequence[float]) -> Cell:
    return _median(values, speedup, lambda: f"{ratio(min(values))}..{ratio(max(values))}")


def _median(values: Sequence[float], words: Callable[[float], str], extremes: Callable[[], str]) -> Cell:
    """The median, and of several values the extremes."""
    if not values:
        return EMPTY
    more = f" ({extremes()})" if len(values) > 1 else ""
    return Cell(text=words(median(values)) + more, number=median(values), more=more)


# ---- cases


def figures(evaluation: Evaluation, columns: Sequence[str]) -> tuple[Cell, ...]:
    """What is known of a case in numbers, below the names of columns."""
    correctness, timing, test = evaluation.correctness, evaluation.measurement, times.comparison(evaluation)
    found = {"error / allowed": figure(correctness.share if correctness is not None else None, ratio)}
    if test is not None:
        found["time vs base"] = figure(test.ratio, slowdown)
        found["95%"] = Cell(
            text=f"{relative(test.ratio_low)}..{relative(test.ratio_high)}", number=test.ratio_low
        )
    if timing is not None:
        quartiles = f"{ratio(timing.speedup_low)}..{ratio(timing.speedup_high)}"
        arms = (("kernel time", timing.kernel), ("base", timing.base), ("torch", timing.torch))
        found |= {
            "speed vs torch": figure(timing.speedup_vs_torch, speedup),
            "quartiles": Cell(text=quartiles, number=timing.speedup_low),
            **{name: figure(arm.median_ns_per_call, time_ns) for name, arm in arms if arm is not None},
            "speed vs torch.compile": figure(timing.speedup_vs_compile, speedup),
            "share of peak": figure(times.share_of_peak(timing), percent),
            "timed by": Cell(text=timing.method),
            "cache": Cell(text=timing.cache),
        }
    return tuple(found.get(name, EMPTY) for name in columns)


# ---- builds

BUILDS = (
    "kernel", "implementation", "architectures", "status", *(name for name, _ in compiled.FIGURES), "built in"
)  # fmt: skip


def builds(compilations: Iterable[Compilation], *, each: bool = False) -> Table:
    """A row an implementation, or a build, with the most that a function takes; the base's in brackets."""
    groups: dict[tuple[str, ...], list[Compilation]] = {}
    for one in compilations:
        groups.setdefault((one.kernel, one.implementation, one.arch if each else ""), []).append(one)
    rows = (
        (
            kernel,
            implementation,
            ", ".join(sorted({member.arch for member in members}, key=compiled.arch_order)),
            members[0].verdict.status.value if each else statuses(members),
            *_build_figures(members),
            figure(
                sum(member.build_seconds for member in members) or None,
                lambda seconds: time_ns(seconds * 1e9),
            ),
        )
        for (kernel, implementation, _), members in groups.items()
    )
    return table("Builds", BUILDS, rows)


def _build_figures(members: Sequence[Compilation]) -> tuple[Cell, ...]:
    """The cells of `compiled.FIGURES`."""
    resources = tuple(function for member in members for function in member.resources)
    numbers = gate.resource_numbers(
        resources, tuple(function for member in members for function in member.base)
    )

    def cell(name: str) -> Cell:
        now, then = numbers.get(name), numbers.get(f"base_{name}")
        before = "" if then is None or then == now else f" ({then:.0f})"
        return figure(now, lambda number: f"{number:.0f}{before}")

    return tuple(cell(name) for _, name in compiled.FIGURES)


# ---- what else is to be known


ENVIRONMENTS = (
    "kernel", "implementation", "other environment", "answers", "compile time", "library", "registers", "spills", "memory",
)  # fmt: skip


OTHER_SOURCES = " (sources of the base revision)"


def environments(report: SessionReport) -> Table:
    """A row an implementation that was compared in two environments: what it takes there, and here."""
    groups = summary.by_implementation(one for one in report.evaluations if one.environments is not None)
    return table(
        "Two environments",
        ENVIRONMENTS,
        (_in_both(*key, members) for key, members in groups.items()),
        note="Pairs are of the other environment and of the one under test.",
    )


def _in_both(
    kernel: str, implementation: str, device: str, members: Sequence[Evaluation]
) -> tuple[object, ...]:
    both = [one.environments for one in members if one.environments is not None]
    differing = sorted({one.drift for one in both} - {"", SAME_BITS})
    wrong = sorted({one.base_status for one in both} - {"PASSED", "WEAK", ""})
    answers = differing[0] if differing else SAME_BITS if any(one.drift for one in both) else NOTHING
    if len(differing) > 1:
        answers += f" (and {counted(len(differing) - 1, 'other case')})"
    return (
        kernel,
        f"{implementation} ({device})",
        ", ".join(sorted({one.base + OTHER_SOURCES * (not one.same_sources) for one in both})),
        ", ".join([*(f"{status} there" for status in wrong), answers]),
        _pair((one.compile_seconds for one in both), lambda seconds: time_ns(1e9 * seconds)),
        _pair((one.library_nbytes for one in both), _nbytes),
        _pair((one.registers_per_thread for one in both), str),
        _pair((one.spill_nbytes for one in both), _nbytes),
        _pair((one.peak_nbytes for one in both), _nbytes),
    )


def _pair(pairs: Iterable[tuple[float, float] | None], words: Callable[[float], str]) -> Cell:
    """What grew most from the other environment to the one under test."""
    worst = max((pair for pair in pairs if pair is not None), key=_growth, default=None)
    return EMPTY if worst is None else Cell(text=" → ".join(map(words, worst)), number=_growth(worst))


def _nbytes(value: float) -> str:
    return f"{value:,.0f} B" if value < 1024 else f"{value / 1024:,.1f} KiB"


def _growth(pair: tuple[float, float]) -> float:
    return (pair[1] + 1) / (pair[0] + 1)


def remarks(report: SessionReport) -> tuple[Table, ...]:
    """Times that are open, weak cases, and what was left out, with the number of cases."""
    evaluations, compilations = report.evaluations, report.compilations
    name = summary.names(report)
    weak = [] if report.strict else summary.weak(evaluations)
    excused = [(one.kernel, one.probe, count(one.cases), one.reason) for one in summary.excused(evaluations)]
    open_times = (
        ("Slower, but passed", times.let_pass(evaluations)),
        ("Undecided times", times.undecided(evaluations)),
    )
    found = (
        environments(report).shown(),
        *(
            table(title, ("case", "what"), ((name(case), said(case)) for case in cases))
            for title, cases in open_times
        ),
        table(
            "Probably slower",
            ("case", "time vs base", "blocks"),
            (
                (name(one), interval(test), count(len(test.log_ratios)))
                for one in times.probably_slower(evaluations)
                if (test := times.comparison(one)) is not None
            ),
            note=f"{times.LIKELY[0].upper()}{times.LIKELY[1:]}.",
        ),
        table(
            "Weak cases",
            ("case", "would pass too"),
            ((name(one), ", ".join(forgeries) or "a forged answer") for one, forgeries in weak),
        ),
        reasons("Skipped", "cases", summary.skips(evaluations)),
        table("Excused from probes", ("kernel", "probe", "cases", "why"), excused),
        reasons("Notes", "cases", summary.notes(evaluations)),
        reasons("Functions without a counterpart", "builds", compiled.reasons(compilations, Status.PASSED)),
        reasons("Not compared", "builds", compiled.reasons(compilations, Status.NEW)),
        reasons("Not built", "builds", compiled.reasons(compilations, Status.SKIPPED)),
        reasons("Notes on builds", "builds", compiled.notes(compilations)),
    )
    return tuple(one for one in found if one.rows)


def reasons(title: str, what: str, found: Iterable[tuple[str, int]]) -> Table:
    """Reasons, and how many cases or builds have each."""
    return table(title, (what, "reason"), ((count(number), reason) for reason, number in found))


def said(evaluation: Evaluation) -> str:
    """Reason and message of a verdict on one line, without remedies."""
    verdict = evaluation.verdict
    lines = [line for line in verdict.message.splitlines() if not line.startswith("→")]
    return f"{verdict.reason.value}: {'; '.join(lines)}"
