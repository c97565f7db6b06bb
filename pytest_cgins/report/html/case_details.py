"""All that a report says of one case."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pytest_cgins.core.call_text import case_line
from pytest_cgins.core.figures import change, percent, ratio, speedup, time_ns
from pytest_cgins.core.measurement import Comparison, Measurement, Roofline
from pytest_cgins.core.model import Check, Correctness, Evaluation, SessionReport
from pytest_cgins.core.text import counted
from pytest_cgins.gate import timing_verdict
from pytest_cgins.gate.timing_verdict import interval
from pytest_cgins.report import markdown
from pytest_cgins.report.html.history_plot import history
from pytest_cgins.report.html.listing import NOTHING, plain_table
from pytest_cgins.report.html.markup import Markup, code, element, join, lines
from pytest_cgins.report.html.paired_plot import paired
from pytest_cgins.report.trend import Trend

REMEDY = "→ "
"""Beginning of the line of a message that says what to do."""


def details(
    evaluation: Evaluation, report: SessionReport, trend: Trend | None, *, in_common: str = ""
) -> Markup:
    """Verdict and remedy first, then the call, and what the verdict rests on.

    Args:
        evaluation: of the case.
        report: that has it.
        trend: of its times; None without a history.
        in_common: what it has in common with the kernel's other failing cases.
    """
    parts = [
        *verdict(evaluation.verdict.reason.value, evaluation.verdict.message),
        element("p", element("strong", "Call: "), code(case_line(evaluation.case))),
        *((element("p", element("strong", "In common: "), in_common),) if in_common else ()),
        *_again(markdown.reproduction(evaluation, report)),
        *(_correctness(evaluation.correctness) if evaluation.correctness is not None else ()),
        *(_times(evaluation.measurement) if evaluation.measurement is not None else ()),
        *((history(trend),) if trend is not None else ()),
        *_output(evaluation.output),
        *_numbers(evaluation.verdict.numbers),
        *_origin(evaluation),
    ]
    return join(parts)


def verdict(reason: str, message: str) -> Iterator[Markup]:
    """Reason code, message, and what to do."""
    said = [line for line in message.splitlines() if not line.startswith(REMEDY)]
    remedies = [line.removeprefix(REMEDY) for line in message.splitlines() if line.startswith(REMEDY)]
    yield element("p", "Reason: ", code(reason))
    if said:
        yield lines("\n".join(said))
    yield from (element("p", element("strong", "What to do: "), one) for one in remedies)


def _again(command: str) -> Iterator[Markup]:
    yield element("p", element("strong", "Again: "), element("code", command, class_="command"))


def _correctness(found: Correctness) -> Iterator[Markup]:
    headings = ("rule", "inputs", "held", "reason", "error / allowed", "wrong", "compared")
    yield heading("Checks")
    yield plain_table("Checks", headings, [_check(one) for one in found.checks], caption_hidden=True)
    for check in found.checks:
        if not check.passed:
            yield from _failed(check)
    tripped = [one for one in found.probes if one.outcome != "held"]
    held = [one.name for one in found.probes if one.outcome == "held"]
    if found.probes:
        yield heading("Probes")
        rows = [(one.name, one.outcome, code(one.reason.value), one.message) for one in tripped]
        yield plain_table(
            "Probes that did not hold", ("probe", "outcome", "reason", "what"), rows, caption_hidden=True
        )
        yield element("p", f"Held: {', '.join(held) or 'none'}.")
    if found.power:
        missed = [one.forgery for one in found.power if not one.caught]
        caught = [one.forgery for one in found.power if one.caught]
        passed = f" Not refused: {', '.join(missed)}." if missed else ""
        yield element("p", f"Forged answers refused: {', '.join(caught) or 'none'}.{passed}")
    yield from notes(found.notes)


def _check(check: Check) -> tuple[str, ...]:
    return (
        check.rule,
        check.inputs,
        "yes" if check.passed else "no",
        code(check.reason.value),
        NOTHING if check.share is None else ratio(check.share),
        f"{check.wrong:,}",
        f"{check.compared:,}",
    )


def _failed(check: Check) -> Iterator[Markup]:
    """Where, and by how much."""
    if check.message:
        yield lines(f"{check.rule} rule on {check.inputs} inputs: {check.message}")
    if check.worst is not None:
        worst = check.worst
        yield facts(
            [
                ("Worst element", f"output {worst.output} at {list(worst.index)}"),
                ("Expected", code(worst.expected)),
                ("Got", code(worst.got)),
                ("Allowed", f"±{worst.tolerance:.3g}"),
            ]
        )
    if check.map:
        yield lines(check.map)


def _times(found: Measurement) -> Iterator[Markup]:
    yield heading("Times")
    rows = [
        (arm.name, time_ns(arm.median_ns_per_call), time_ns(arm.iqr_ns_per_call), f"{arm.calls_per_batch:,}")
        for arm in (found.kernel, found.base, found.torch, found.compiled)
        if arm is not None
    ]
    headings = ("arm", "median a call", "interquartile range", "calls a batch")
    yield plain_table("Times", headings, rows, caption_hidden=True)
    said = [
        ("Timed by", f"{found.method}, {found.cache} cache"),
        (
            "Speed vs torch",
            f"{speedup(found.speedup_vs_torch)} (quartiles {ratio(found.speedup_low)}..{ratio(found.speedup_high)})",
        ),
    ]
    if found.speedup_vs_compile is not None:
        said.append(("Speed vs torch.compile", speedup(found.speedup_vs_compile)))
    if found.base_revision:
        said.append(("Base revision", code(found.base_revision)))
    if found.roofline is not None:
        said += _roofline(found.roofline)
    yield facts(said)
    drawn = [
        _comparison(comparison, process)
        for process, one in (("", found), (", in a fresh process", found.confirmation))
        for comparison in (one.comparisons if one is not None else ())
    ]
    if drawn:
        yield element("div", *drawn, class_="plots")
    yield from notes(found.notes)


def _comparison(one: Comparison, process: str) -> Markup:
    proof = timing_verdict.log_threshold(one)
    said = [
        ("Time", interval(one)),
        ("Evidence of slower", f"ln E = {one.log_e_slower:.6g}; proven from {proof:.6g} on"),
        ("Noise of a block", percent(one.power.sigma)),
    ]
    if (sums := one.sums) is not None:
        taken = counted(len(sums.log_ratios), "sum")
        calls = counted(sums.calls, "call", grouped=True)
        said.append((f"Sums of {calls}", f"{change(sums.ratio)} in {taken}: {sums.outcome}"))
    if one.outcome == "inconclusive":
        said.append(("What could be seen", timing_verdict.seen(one)))
    return element("div", paired(one, title=f"Time vs {one.against}{process}"), facts(said))


def _roofline(found: Roofline) -> list[tuple[str, str]]:
    source = "declared in cgins.yaml" if found.source == "declared" else "from the op's signature"
    said = [
        ("Work", f"{counted(found.nbytes, 'byte', grouped=True)}, {found.flops:,} FLOP, {source}"),
        ("Share of bandwidth", percent(found.share_of_bandwidth)),
    ]
    if found.flops and found.peak_flops_per_s:
        said.append(("Share of compute", percent(found.share_of_compute)))
    return [*said, ("Bound by", found.bound)]


def _output(output: str) -> Iterator[Markup]:
    if output.strip():
        yield heading("Output")
        yield lines(output)


def _numbers(numbers: dict[str, float]) -> Iterator[Markup]:
    """As the JSON has them."""
    if numbers:
        yield heading("Numbers of the verdict")
        yield facts((name, repr(value)) for name, value in numbers.items())


def _origin(evaluation: Evaluation) -> Iterator[Markup]:
    case, tested = evaluation.case, evaluation.tested
    said = [
        ("Op", code(case.op)),
        ("Trace", code(f"{case.pack} {case.trace_id}")),
        ("Type", case.dtype),
        ("Took", f"{time_ns(evaluation.seconds * 1e9)}, build {time_ns(evaluation.build_seconds * 1e9)}"),
    ]
    if tested is not None:
        said.append(("Tested", code(f"sources {tested.sources[:12]}, build {tested.build[:12]}")))
    yield heading("What was tested")
    yield facts(said)


def heading(text: str) -> Markup:
    """Of a part of the details."""
    return element("h3", text)


def facts(pairs: Iterable[tuple[str, str]]) -> Markup:
    """Names and what they are."""
    return element("dl", *(join([element("dt", name), element("dd", value)]) for name, value in pairs))


def notes(said: Iterable[str]) -> Iterator[Markup]:
    """What a reader must know."""
    yield from (element("p", f"Note: {one}", class_="note") for one in said)
