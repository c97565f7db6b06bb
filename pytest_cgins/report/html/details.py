"""What the details of a case or build have in tables and lists, for the page's templates."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from pytest_cgins.core.call_text import case_line
from pytest_cgins.core.case import KernelResources
from pytest_cgins.core.measurement import Comparison, Measurement, Roofline
from pytest_cgins.core.number_text import percent, ratio, slowdown, speedup, time_ns
from pytest_cgins.core.session_report import Compilation, Evaluation, PlainTimes, SwappedKernel
from pytest_cgins.core.text import counted
from pytest_cgins.core.verdict import Check, Probe, WorstElement
from pytest_cgins.gate import timing_verdict
from pytest_cgins.report import compiled, tables
from pytest_cgins.report.html.markup import code

REMEDY = "→ "
"""Beginning of the line of a message that says what to do."""
Facts = list[tuple[str, str]]


def without_remedies(message: str) -> str:
    """The lines of a message that say what is wrong."""
    return "\n".join(line for line in message.splitlines() if not line.startswith(REMEDY))


def remedies(message: str) -> list[str]:
    """Those that say what to do."""
    return [line.removeprefix(REMEDY) for line in message.splitlines() if line.startswith(REMEDY)]


# ---- correctness


def checks_table(checks: Iterable[Check]) -> tables.Table:
    """A row a comparison."""
    headings = ("rule", "inputs", "held", "reason", "error / allowed", "wrong", "compared")
    rows = (
        (
            check.rule,
            check.inputs,
            "yes" if check.passed else "no",
            check.reason.value,
            tables.figure(check.share, ratio),
            tables.count(check.wrong),
            tables.count(check.compared),
        )
        for check in checks
    )
    return tables.table("Checks", headings, rows)


def place(worst: WorstElement) -> Facts:
    """Where the error is worst, and by how much."""
    return [
        ("Worst element", f"output {worst.output} at {list(worst.index)}"),
        ("Expected", code(worst.expected)),
        ("Got", code(worst.got)),
        ("Allowed", f"±{worst.tolerance:.3g}"),
    ]


def probes_table(probes: Iterable[Probe]) -> tables.Table:
    """The probes of a case that did not hold: failed, excused, or not run."""
    rows = (
        (probe.name, probe.outcome, probe.reason.value, probe.message)
        for probe in probes
        if probe.outcome != "held"
    )
    return tables.table("Probes failed, excused or not run", ("probe", "outcome", "reason", "what"), rows)


# ---- times


def times_table(found: Measurement) -> tables.Table:
    """A row an arm."""
    rows = (
        (
            arm.name,
            time_ns(arm.median_ns_per_call),
            time_ns(arm.iqr_ns_per_call),
            tables.count(arm.calls_per_batch),
        )
        for arm in (found.kernel, found.base, found.torch, found.compiled)
        if arm is not None
    )
    return tables.table("Times", ("arm", "median a call", "interquartile range", "calls a batch"), rows)


def timing(found: Measurement) -> Facts:
    """How it was timed, and what came of it."""
    quartiles = f"{ratio(found.speedup_low)}..{ratio(found.speedup_high)}"
    told = [
        ("Timed by", f"{found.method}, {found.cache} cache"),
        ("Speed vs torch (>1 faster)", f"{speedup(found.speedup_vs_torch)} (quartiles {quartiles})"),
    ]
    if found.speedup_vs_compile is not None:
        told.append(("Speed vs torch.compile (>1 faster)", speedup(found.speedup_vs_compile)))
    if found.base_revision:
        told.append(("Base revision", code(found.base_revision)))
    return [*told, *(_roofline(found.roofline) if found.roofline is not None else ())]


def _roofline(found: Roofline) -> Facts:
    source = "declared in cgins.yaml" if found.source == "declared" else "from the op's signature"
    told = [
        ("Work", f"{counted(found.nbytes, 'byte', grouped=True)}, {found.flops:,} FLOP, {source}"),
        ("Share of bandwidth", percent(found.share_of_bandwidth)),
    ]
    if found.flops and found.peak_flops_per_s:
        told.append(("Share of compute", percent(found.share_of_compute)))
    return [*told, ("Bound by", found.bound)]


def comparisons(found: Measurement) -> list[tuple[Comparison, str]]:
    """Those of both processes, with words for the second."""
    again = found.confirmation.comparisons if found.confirmation is not None else ()
    return [(comparison, "") for comparison in found.comparisons] + [
        (one, ", in a fresh process") for one in again
    ]


def ops_table(kernels: Iterable[SwappedKernel]) -> tables.Table:
    """A row an op that a kernel replaces in a model."""
    headings = ("kernel", "op", "calls", "left to torch", "torch a run", "kernel a run", "why torch")
    rows = (
        (
            one.kernel,
            one.op,
            tables.count(one.calls),
            tables.count(sum(one.left.values())),
            time_ns(one.torch_ns_per_run) if one.torch_ns_per_run else "",
            time_ns(one.kernel_ns_per_run) if one.kernel_ns_per_run else "",
            "; ".join(one.left),
        )
        for one in kernels
    )
    return tables.table("Ops of the model", headings, rows)


def plain_times(found: PlainTimes) -> Facts:
    """The mean of ten runs, each by itself."""
    base = [("With the base's", time_ns(found.base_ns))] if found.base_ns is not None else []
    return [
        ("Mean of ten runs, with kernels", time_ns(found.kernel_ns)),
        *base,
        ("Without", time_ns(found.torch_ns)),
    ]


_DIRECTIONS = {"base": "Time vs base (>1 slower)", "torch": "Speed vs torch (>1 faster)"}


def evidence(one: Comparison) -> Facts:
    """What the verdict on a comparison rests on."""
    proof = timing_verdict.log_threshold(one)
    told = [
        (_DIRECTIONS[one.against], timing_verdict.interval(one)),
        ("Evidence of slower", f"ln E = {one.log_e_slower:.6g}; proven from {proof:.6g} on"),
        ("Noise of a block", percent(one.power.sigma)),
    ]
    if (sums := one.sums) is not None:
        taken = counted(len(sums.log_ratios), "sum")
        calls = counted(sums.calls, "call", grouped=True)
        told.append((f"Sums of {calls}", f"{slowdown(sums.ratio)} in {taken}: {sums.outcome}"))
    if one.outcome == "inconclusive":
        told.append(("Detectable slowdown", timing_verdict.seen(one)))
    return told


# ---- what was tested


def exact(numbers: Mapping[str, float]) -> Facts:
    """As the JSON has them."""
    return [(name, repr(value)) for name, value in numbers.items()]


def origin(evaluation: Evaluation) -> Facts:
    """Trace, sources and how long it took."""
    case, tested = evaluation.case, evaluation.tested
    took = f"{time_ns(evaluation.seconds * 1e9)}, build {time_ns(evaluation.build_seconds * 1e9)}"
    told = [
        ("Made by" if case.check == "model" else "Op", code(case.op)),
        *([("Trace", code(f"{case.pack} {case.trace_id}")), ("Type", case.dtype)] if case.pack else []),
        ("Took", took),
    ]
    if evaluation.stored is not None:
        told.append(("Not run again", f"{evaluation.stored}; {evaluation.stored.environment}"))
    if tested is not None:
        told.append(("Tested", code(f"sources {tested.sources[:12]}, build {tested.build[:12]}")))
    return told


# ---- builds


def opcodes(compilation: Compilation) -> str:
    """The parts of the message that the verdict does not have: opcodes whose number changed."""
    return "\n".join(
        line for line in compiled.opcodes(compilation) if line not in compilation.verdict.message
    )


def functions_table(functions: Iterable[KernelResources], title: str) -> tables.Table:
    """What each function takes."""
    headings = ("function", *(name for name, _ in compiled.FIGURES))
    rows = (
        (function.function, *map(tables.count, compiled.function_figures(function))) for function in functions
    )
    return tables.table(title, headings, rows)


FILTERS: dict[str, Callable[..., Any]] = {
    "call": case_line,
    **{
        one.__name__: one
        for one in (
            without_remedies, remedies, checks_table, place, probes_table, times_table, timing, comparisons, evidence,
            exact, origin, opcodes, functions_table, ops_table, plain_times,
        )
    },
}  # fmt: skip
"""By the names that templates call them."""
