"""A session's report as markdown for a job summary or a comment, within a limit of bytes."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from typing import Any

from pytest_cgins.core.figures import change, percent, ratio, speedup, time_ns
from pytest_cgins.core.measurement import Measurement
from pytest_cgins.core.model import Compilation, Environment, Evaluation, SessionReport, Status
from pytest_cgins.core.text import counted
from pytest_cgins.gate.timing_verdict import interval
from pytest_cgins.report import compiled, coverage, in_common, summary, time_lines, times
from pytest_cgins.report.causes import Cause, build_causes, causes, sentence
from pytest_cgins.report.counts import Counts, counts
from pytest_cgins.report.escape import block, code, cut
from pytest_cgins.report.failure import headline, message
from pytest_cgins.report.in_common import InCommon
from pytest_cgins.report.limited import LimitedPage, row

STEP_SUMMARY_LIMIT_NBYTES = 1 << 20
"""GitHub drops a step's summary that is larger."""
LEAST_LIMIT_NBYTES = 1 << 14
"""Room for the heading, the environments and the beginnings of all tables."""
NAME_LENGTH = 200
HEADLINE_LENGTH = 300
MESSAGE_LENGTH = 6000
MESSAGES = 20
"""Failures whose whole message is shown."""
ENVIRONMENTS = 8


def render(report: SessionReport, *, limit_nbytes: int = STEP_SUMMARY_LIMIT_NBYTES) -> str:
    """Totals, failures worst first, and times; what does not fit is counted.

    Args:
        report: as `--cgins-json` wrote it; none of its texts is trusted.
        limit_nbytes: most bytes of UTF-8, at least `LEAST_LIMIT_NBYTES`.

    Raises:
        ValueError: the limit is too small.
    """
    if limit_nbytes < LEAST_LIMIT_NBYTES:
        raise ValueError(
            f"{counted(limit_nbytes, 'byte is', 'bytes are')} fewer than the {LEAST_LIMIT_NBYTES} that a summary needs"
        )
    page = LimitedPage(limit_nbytes)
    page.add(heading(report, counts(report)))
    add_coverage(page, report)
    add_kernels(page, report)
    add_time_totals(page, report)
    evaluations, name = report.evaluations, summary.names(report)
    if report.compilations:
        add_builds(page, report.compilations)
    found = causes(report)
    failed = [_failure(one.first, name(one.first), reproduction(one.first, report), one) for one in found]
    add_figures(page, "Failures", _FAILURES, failed, share=0.4)
    shared = in_common.in_common(report)
    add_in_common(page, shared)
    shown = [failure_message(one.first, report, name(one.first), shared) for one in found[:MESSAGES]]
    page.elements(shown, total=len(found), share=0.5)
    add_rest(page, found, report, share=0.3)
    let_pass = [_let_pass(one, name(one)) for one in times.let_pass(evaluations)]
    page.table("Slower, and let pass", _UNDECIDED, let_pass, share=0.4)
    undecided = [_undecided(one, name(one)) for one in times.undecided(evaluations)]
    page.table("Undecided times", _UNDECIDED, undecided, share=0.4)
    likely = [_likely(one, name(one)) for one in times.probably_slower(evaluations)]
    page.table("Probably slower", _LIKELY, likely, share=0.4)
    if likely:
        page.add(f"<p>{time_lines.LIKELY[0].upper()}{time_lines.LIKELY[1:]}.</p>\n")
    add_figures(page, "Times", _TIMES, _times(evaluations, name), share=0.6)
    if not report.strict:
        weak = [_weak(name(one), forgeries) for one, forgeries in summary.weak(evaluations)]
        page.table("Weak cases", _WEAK, weak, share=0.4)
    page.table("Skipped", _REASONS, [_reason(*one) for one in summary.skips(evaluations)], share=0.5)
    page.table(
        "Excused from probes", _EXCUSES, [_excuse(one) for one in summary.excused(evaluations)], share=0.4
    )
    page.table("Notes", _REASONS, [_reason(*one) for one in summary.notes(evaluations)], share=0.9)
    return page.text()


def add_coverage(page: LimitedPage, report: SessionReport) -> None:
    """What speaks against trusting the rest."""
    if report.weaker:
        page.add(
            f"\n<p><strong>Weaker gate</strong>: {code(coverage.weaker(report), length=HEADLINE_LENGTH)}</p>\n"
        )
        page.elements(
            [f"<p>{code(line, length=HEADLINE_LENGTH)}</p>\n" for line in report.weaker],
            total=len(report.weaker),
            share=0.3,
        )
    if report.empty and not report.compilations:
        page.add(f"\n**Nothing was gated**: {coverage.empty(report)}.\n")
    if report.missing:
        said = f"{coverage.headline(report)}: {coverage.remedy(report)}."
        page.add(f"\n<p><strong>Missing cases</strong>: {code(said, length=HEADLINE_LENGTH)}</p>\n")
    if said := coverage.unread(report):
        page.add(f"\n<p><strong>{code(said, length=HEADLINE_LENGTH)}</strong></p>\n")
    elif report.coverage_note and report.ci:
        said = f"nothing is held against the base revision: {report.coverage_note}"
        page.add(f"\n<p>{code(said, length=HEADLINE_LENGTH)}</p>\n")
    found = summary.ungated(report.evaluations)
    title = f"Not gated{', which fails under --cgins-strict' * report.strict}"
    page.table(title, _UNGATED, [_ungated(one) for one in found], share=0.2)
    missing = [row(code(name, length=NAME_LENGTH)) for name in report.missing]
    page.table("Missing cases", ("case",), missing, share=0.2)
    stale = [row(code(change, length=HEADLINE_LENGTH)) for change in report.stale]
    page.table("Changed after it was tested", ("what",), stale, share=0.2)


_UNGATED = ("kernel", "implementation", "why")


def _ungated(one: summary.Ungated) -> str:
    return row(
        code(one.kernel, length=NAME_LENGTH),
        code(f"{one.implementation} ({one.device})", length=NAME_LENGTH),
        code(coverage.ungated(one), length=HEADLINE_LENGTH),
    )


def add_time_totals(page: LimitedPage, report: SessionReport) -> None:
    """What gating times came to, and why some gate nothing."""
    gate = times.time_gate(report)
    if gate is not None:
        page.add(f"\n<p>{code(time_lines.gate_line(gate), length=HEADLINE_LENGTH)}</p>\n")
    lines = [
        row(str(one.cases), code(one.reason, length=HEADLINE_LENGTH))
        for one in times.not_held(report.evaluations)
    ]
    page.table("Times that gate nothing", _REASONS, lines, share=0.1)
    clocks = times.clock_notes(report.evaluations)
    if clocks is not None:
        said = [row(code(line, length=HEADLINE_LENGTH)) for line in time_lines.clock_lines(clocks)]
        page.table("Clocks", ("what",), said, share=0.1)


def add_builds(page: LimitedPage, compilations: Sequence[Compilation]) -> None:
    """Builds of `--cgins-compile-only`: failures, figures, what was not compared or built."""
    found = build_causes(compilations)
    failed = [_failure(one.first, one.first.name, compiled.command(one.first), one) for one in found]
    add_figures(page, "Failed builds", _BUILD_FAILURES, failed, share=0.4)
    page.elements([_build_message(one.first) for one in found[:MESSAGES]], total=len(found), share=0.5)
    more = [
        row(code(one.name, length=NAME_LENGTH), code(headline(one), length=HEADLINE_LENGTH))
        for cause in found
        for one in cause.rest
    ]
    page.table("More builds of the same causes", ("build", "what"), more, share=0.3)
    page.table("Builds", _BUILDS, [_build(one) for one in compiled.rows(compilations)], share=0.6)
    for title, status in (
        ("Functions without a counterpart", Status.PASSED),
        ("Not compared", Status.NEW),
        ("Not built", Status.SKIPPED),
    ):
        reasons = [_reason(*one) for one in compiled.reasons(compilations, status)]
        page.table(title, _BUILD_REASONS, reasons, share=0.5)
    page.table(
        "Notes on builds", _BUILD_REASONS, [_reason(*one) for one in compiled.notes(compilations)], share=0.5
    )


def reproduction(evaluation: Evaluation, report: SessionReport) -> str:
    """Shell command that runs a case again on the same inputs, in the folder where the session ran."""
    options = ["--cgins-strict"] * report.strict
    timing = evaluation.measurement
    if timing is not None and timing.base_revision and evaluation.verdict.status in _ABOUT_TIME:
        options.append(f"--cgins-baseline={timing.base_revision}")
    config = evaluation.config or "cgins.yaml"
    # Runs that were merged had seeds of their own.
    seed = report.seed if evaluation.tested is None else evaluation.tested.seed
    # A path that began with a dash would be an option.
    place = f"{'./' if config.startswith('-') else ''}{config}::{evaluation.case.name}"
    return shlex.join(["pytest", "--cgins", f"--cgins-seed={seed}", *options, place])


_ABOUT_TIME = (Status.SLOWER, Status.BELOW_FLOOR, Status.INCONCLUSIVE)


def heading(report: SessionReport, found: Counts) -> str:
    """Counts, exit code, seed and devices."""
    parts = [
        (found.failed, f"{found.failed} failed"),
        (found.errors, counted(found.errors, "error")),
        (found.skipped, f"{found.skipped} skipped"),
    ]
    present = [text for number, text in parts if number]
    weak = f" ({found.weak} weak)" if found.weak else ""
    title = f"## cgins: {', '.join([*present, f'{found.passed} passed{weak}'])}\n\n"
    shown = report.environments[:ENVIRONMENTS]
    places = "".join(f"<br>{_environment(environment)}" for environment in shown)
    seed = "" if report.compilations else _seeds(report)
    compared = ", ".join(code(commit[:10], length=10) for commit in compiled.revisions(report.compilations))
    seed += f" compared with {compared};" if compared else ""
    told = sentence(report)
    told = f"<p>{code(told, length=2 * HEADLINE_LENGTH)}</p>\n" if told else ""
    return (
        f"{title}<p>Exit code {report.exit_status};{seed}"
        f" {report.seconds:.1f} s; pytest-cgins {code(report.cgins, length=40)}{places}</p>\n{told}"
    )


def _seeds(report: SessionReport) -> str:
    seeds = summary.seeds(report)
    if len(seeds) < 2:
        return f" seed <code>{report.seed}</code> (<code>--cgins-seed={report.seed}</code> repeats the fresh inputs);"
    return f" {counted(len(seeds), 'seed')}, as {counted(len(report.merged), 'run was', 'runs were')} merged;"


def _environment(environment: Environment) -> str:
    versions = [
        ("Python", environment.python),
        ("torch", environment.torch),
        ("CUDA", environment.cuda),
        ("driver", environment.driver),
        ("Triton", environment.triton),
    ]
    known = [f"{name} {cut(version, 40)}" for name, version in versions if version]
    device = f"{cut(environment.device, 20)}: {cut(environment.device_name, 100)}"
    return code(", ".join([device, *known]), length=500)


NOTHING = "–"


def add_figures(
    page: LimitedPage, title: str, columns: Sequence[str], rows: Sequence[tuple[str, ...]], *, share: float
) -> None:
    """A table without those of the columns of figures that are empty."""
    kept = [
        index
        for index, name in enumerate(columns)
        if name not in _OPTIONAL or any(cells[index] != NOTHING for cells in rows)
    ]
    lines = [row(*(cells[index] for index in kept)) for cells in rows]
    page.table(title, [columns[index] for index in kept], lines, share=share)


_OPTIONAL = (
    "base",
    "time vs base",
    "95%",
    "speed vs torch.compile",
    "share of peak",
    "again",
    "cases",
    "builds",
)
_KERNELS = (
    "kernel", "implementation", "cases", "status", "worst error / allowed", "time vs base", "speed vs torch",
    "share of peak",
)  # fmt: skip


def add_kernels(page: LimitedPage, report: SessionReport) -> None:
    """The table of implementations."""
    rows = [_kernel(one) for one in summary.rows(report.evaluations)]
    add_figures(page, "Kernels", _KERNELS, rows, share=0.25)


def _kernel(found: summary.KernelRow) -> tuple[str, ...]:
    """Cells below `_KERNELS`."""
    base, speed = found.base, found.speed
    worst = "" if base is None or base.cases == 1 else f" (worst {change(base.worst)})"
    spread = "" if speed is None or speed.cases == 1 else f" ({ratio(speed.low)}..{ratio(speed.high)})"
    return (
        code(found.kernel, length=NAME_LENGTH),
        code(f"{found.implementation} ({found.device})", length=NAME_LENGTH),
        str(found.cases),
        ", ".join(f"{count} {status.value}" for status, count in found.statuses),
        NOTHING if found.share is None else ratio(found.share),
        NOTHING if base is None else f"{change(base.median)}{worst}",
        NOTHING if speed is None else f"{speedup(speed.median)}{spread}",
        NOTHING if found.peak is None else percent(found.peak),
    )


_FAILURES = ("case", "what", "cases", "again")
_BUILD_FAILURES = ("build", "what", "builds", "again")


def _failure(failed: Evaluation | Compilation, name: str, command: str, cause: Cause[Any]) -> tuple[str, ...]:
    return (
        code(name, length=NAME_LENGTH),
        code(headline(failed), length=HEADLINE_LENGTH),
        cases_of(cause),
        code(command, length=2 * NAME_LENGTH),
    )


def cases_of(cause: Cause[Any]) -> str:
    """How many failures a cause has; nothing of a single one."""
    return f"{len(cause.failures):,}" if cause.rest else NOTHING


def add_rest(
    page: LimitedPage, found: Sequence[Cause[Evaluation]], report: SessionReport, *, share: float
) -> None:
    """The failures whose cause an example has shown already, a row each."""
    name = summary.names(report)
    rows = [
        row(
            code(name(one), length=NAME_LENGTH),
            code(headline(one), length=HEADLINE_LENGTH),
            code(reproduction(one, report), length=2 * NAME_LENGTH),
        )
        for cause in found
        for one in cause.rest
    ]
    page.table("More cases of the same causes", ("case", "what", "again"), rows, share=share)


_IN_COMMON = ("kernel", "implementation", "what")


def add_in_common(page: LimitedPage, found: Sequence[InCommon]) -> None:
    """What tells the failing cases of kernels from those that pass."""
    rows = [
        row(
            code(one.kernel, length=NAME_LENGTH),
            code(f"{one.implementation} ({one.device})", length=NAME_LENGTH),
            code(one.words, length=2 * HEADLINE_LENGTH),
        )
        for one in found
    ]
    page.table("What failing cases have in common", _IN_COMMON, rows, share=0.2)


def failure_message(
    evaluation: Evaluation, report: SessionReport, name: str, shared: Sequence[InCommon]
) -> str:
    """All that is told of a failure, below its name."""
    words = in_common.of_case(shared, evaluation, report)
    text = message(evaluation, command=reproduction(evaluation, report), in_common=words)
    heading = code(name, length=NAME_LENGTH)
    return f"<details><summary>{heading}</summary>{block(text, length=MESSAGE_LENGTH)}</details>\n"


_TIMES = (
    "case", "kernel", "base", "torch", "time vs base", "95%", "speed vs torch", "quartiles",
    "speed vs torch.compile", "share of peak", "timed by", "cache",
)  # fmt: skip


def _times(evaluations: Sequence[Evaluation], name: Callable[[Evaluation], str]) -> list[tuple[str, ...]]:
    """Slowest against the base first, then slowest against torch, so that these are there if not all fit."""

    def order(pair: tuple[Evaluation, Measurement]) -> tuple[float, float]:
        test = times.comparison(pair[0])
        return -(test.ratio if test is not None else 0.0), pair[1].speedup_vs_torch

    timed = [(one, one.measurement) for one in evaluations if one.measurement is not None]
    return [_time(one, timing, name(one)) for one, timing in sorted(timed, key=order)]


def _time(evaluation: Evaluation, timing: Measurement, name: str) -> tuple[str, ...]:
    test, peak = times.comparison(evaluation), times.share_of_peak(timing)
    compiled_speed = timing.speedup_vs_compile
    return (
        code(name, length=NAME_LENGTH),
        time_ns(timing.kernel.median_ns_per_call),
        NOTHING if timing.base is None else time_ns(timing.base.median_ns_per_call),
        time_ns(timing.torch.median_ns_per_call),
        NOTHING if test is None else change(test.ratio),
        NOTHING if test is None else f"{change(test.ratio_low)}..{change(test.ratio_high)}",
        speedup(timing.speedup_vs_torch),
        f"{ratio(timing.speedup_low)}..{ratio(timing.speedup_high)}",
        NOTHING if compiled_speed is None else speedup(compiled_speed),
        NOTHING if peak is None else percent(peak),
        timing.method,
        timing.cache,
    )


_UNDECIDED = ("case", "what")
_LIKELY = ("case", "time vs base", "blocks")


def _undecided(evaluation: Evaluation, name: str) -> str:
    said = " ".join(evaluation.verdict.message.splitlines())
    return row(
        code(name, length=NAME_LENGTH),
        code(f"{evaluation.verdict.reason.value}: {said}", length=2 * HEADLINE_LENGTH),
    )


def _let_pass(evaluation: Evaluation, name: str) -> str:
    return row(code(name, length=NAME_LENGTH), code(headline(evaluation), length=HEADLINE_LENGTH))


def _likely(evaluation: Evaluation, name: str) -> str:
    test = times.comparison(evaluation)
    assert test is not None
    return row(code(name, length=NAME_LENGTH), interval(test), f"{len(test.log_ratios):,}")


_WEAK = ("case", "would pass too")


def _weak(name: str, forgeries: tuple[str, ...]) -> str:
    return row(code(name, length=NAME_LENGTH), ", ".join(forgeries) or "a forged answer")


_REASONS = ("cases", "reason")


def _reason(text: str, count: int) -> str:
    return row(str(count), code(text, length=HEADLINE_LENGTH))


_EXCUSES = ("kernel", "probe", "cases", "why")


def _excuse(one: summary.Excused) -> str:
    return row(
        code(one.kernel, length=NAME_LENGTH),
        code(one.probe, length=NAME_LENGTH),
        str(one.cases),
        code(one.reason, length=HEADLINE_LENGTH),
    )


_BUILD_REASONS = ("builds", "reason")
_BUILDS = ("kernel", "implementation", "architectures", "status", *(name for name, _ in compiled.FIGURES))


def _build(found: compiled.BuildRow) -> str:
    return row(
        code(found.kernel, length=NAME_LENGTH),
        code(found.implementation, length=NAME_LENGTH),
        code(", ".join(found.archs), length=NAME_LENGTH),
        ", ".join(f"{count} {status.value}" for status, count in found.statuses),
        *compiled.figures(found),
    )


def _build_message(compilation: Compilation) -> str:
    text = compiled.message(compilation, command=compiled.command(compilation))
    name = code(compilation.name, length=NAME_LENGTH)
    return f"<details><summary>{name}</summary>{block(text, length=MESSAGE_LENGTH)}</details>\n"
