"""Methods taken out of a kernel one by one, each variant gated and timed against the champion.

A variant takes the place of the kernel's main source in a copy of the project, whose base revision is the champion: so
it is judged exactly as a slower edit would be, in interleaved blocks and by the sequential test.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from statistics import fmean
from typing import Literal

from pytest_cgins.building.revision.merge_base import NONE
from pytest_cgins.config import Config
from pytest_cgins.core import documents, scratch
from pytest_cgins.core.case import Case
from pytest_cgins.core.measurement import Comparison
from pytest_cgins.core.session_report import Evaluation
from pytest_cgins.core.text import counted
from pytest_cgins.core.verdict import Reason, Status
from pytest_cgins.gate.calibration import Calibrations
from pytest_cgins.gate.evaluate import Evaluator
from pytest_cgins.gate.timing_stage import TimingOptions
from pytest_cgins.regenerate.profiling import bench, evidence_documents
from pytest_cgins.regenerate.profiling.selection import label
from pytest_cgins.regenerate.project_copy import INCUMBENT, ProjectCopy
from pytest_cgins.run.pool import WorkerPool
from pytest_cgins.run.sandbox.sandbox import Sandbox
from pytest_cgins.timing.sequential import median_interval

State = Literal["contributes", "no-gain", "essential", "not-ablated", "undecided"]
_WRONG = (Status.INCORRECT, Status.SUSPECT)
_BROKEN = (Status.BUILD_ERROR, Status.RUNTIME_ERROR, Status.TIMEOUT)
_UNTRIED = (Status.SKIPPED, Status.INFRASTRUCTURE, Status.TRACE_DRIFT)


def attribute(method: str, evaluations: Sequence[Evaluation]) -> evidence_documents.Attribution:
    """What the variant without a method says of the method.

    Args:
        method: its name.
        evaluations: of the variant on each case, timed with the champion as its base; () if it was not tried.
    """
    state, message = _state(evaluations)
    cases, contributes = tuple(map(_case, evaluations)), state in ("contributes", "essential")
    return evidence_documents.Attribution(
        method=method, state=state, contributes=contributes, message=message, cases=cases
    )


def _state(evaluations: Sequence[Evaluation]) -> tuple[State, str]:
    """A wrong answer in one case is enough, as is a proven loss; what only some cases show is told."""
    broken = [evaluation for evaluation in evaluations if evaluation.verdict.status in _BROKEN]
    if broken:  # a variant that was not finished says nothing of the method
        return "not-ablated", _said(broken[0])
    wrong = [evaluation for evaluation in evaluations if evaluation.verdict.status in _WRONG]
    if wrong:
        return "essential", f"without it {wrong[0].case.name} is {_said(wrong[0])}"
    tried = [one for one in evaluations if one.verdict.status not in _UNTRIED]
    of_all = f"of {counted(len(evaluations), 'case')}"
    if slower := [one for one in tried if _is_slower(one)]:
        return "contributes", f"proven slower without it in {len(slower)} {of_all}"
    if tried and all(one.verdict.reason is Reason.UNCHANGED for one in tried):
        return "not-ablated", "the variant is the champion's own build: nothing was taken out"
    tested = [found for one in tried if (found := _comparison(one)) is not None]
    if not tested:
        why = _said(evaluations[0]) if evaluations else "no case was tried"
        return "not-ablated", f"it was not timed against the champion: {why}"
    if all(found.outcome in ("clean", "faster") for found in tested):
        return "no-gain", f"proven not slower without it in {len(tested)} {of_all}"
    return "undecided", "noise hides what it is worth: the blocks were used up, and neither is proven"


def _is_slower(one: Evaluation) -> bool:
    """Proven twice; or once, where a floor that it misses too is what the verdict tells."""
    found, again = _comparison(one), one.measurement.confirmation if one.measurement else None
    twice = [found, again.against("base") if again is not None else None]
    return one.verdict.status is Status.SLOWER or all(test and test.outcome == "slower" for test in twice)


def _comparison(one: Evaluation) -> Comparison | None:
    return one.measurement.against("base") if one.measurement is not None else None


def _case(one: Evaluation) -> evidence_documents.CaseAttribution:
    measured, found = one.measurement, _comparison(one)
    low = middle = high = champion = None
    if measured is not None and measured.base is not None:
        champion = measured.base.median_ns_per_call
        # Within blocks, where drift cancels, and not the difference of two medians.
        lost = [fmean(without) - fmean(base) for without, base in bench.pairs(measured, "base")]
        low, middle, high = (ns / 1e6 for ns in median_interval(lost))
    return evidence_documents.CaseAttribution(
        case=one.case.name,
        status=one.verdict.status.value,
        message=one.verdict.message.partition("\n")[0],
        champion_ns_per_call=champion,
        without_ns_per_call=measured.kernel.median_ns_per_call if measured is not None else None,
        attribution_ms=middle,
        low_ms=low,
        high_ms=high,
        outcome=found.outcome if found is not None else "none",
    )


def _said(one: Evaluation) -> str:
    return f"{one.verdict.status.value}: {one.verdict.message.partition(chr(10))[0]}"


ENDS = (*_WRONG, *_BROKEN)
"""What one case says of a method for all."""


def ablate(
    config: Config,
    implementation: tuple[str, str, str],
    variants: Sequence[tuple[str, str]],
    *,
    seed: int,
    sandbox: Sandbox | None,
    text: str,
    say: Callable[[str], object] = lambda _: None,
) -> evidence_documents.AttributionEvidence:
    """What each method is worth.

    Args:
        config: the project's file: the champion is what it names.
        implementation: names of kernel and implementation, and device type.
        variants: methods, each with the champion's main source without it. All of their tests share the chance of a
            false alarm.
        seed: of the inputs.
        sandbox: around the variants; None trusts them.
        text: only cases with this in their names.
        say: takes a line of progress.

    Raises:
        RegenerateError: the kernel's sources cannot be copied.
    """
    kernel, name, device = implementation
    with scratch.folder() as folder, WorkerPool() as reference:
        copy = ProjectCopy(config, implementation, folder / "project", baseline=NONE)
        methods = []
        for method, source in variants:
            copy.put({**copy.incumbent(), copy.files[0]: source})
            cases: list[Case] = []
            options = TimingOptions(
                baseline=INCUMBENT,
                noise=Calibrations().noise,
                tests=lambda cases=cases: max(1, 2 * len(cases) * len(variants)),  # type: ignore[misc]
            )
            evaluator = Evaluator(
                copy.with_implementation(alone=True), seed=seed, timing_options=options,
                sandbox=sandbox, reference=reference, trusted_root=config.root,
            )  # fmt: skip
            found: list[Evaluation] = []
            with closing(evaluator):
                cases += [case for case in evaluator.cases() if text in case.name]
                for number, case in enumerate(cases, 1):
                    say(f"without {method}: {case.name} ({number} of {len(cases)})")
                    found.append(evaluator.evaluate(case))
                    if found[-1].verdict.status in ENDS:
                        break
            methods.append(attribute(method, found))
        made = evidence_documents.AttributionEvidence(
            version=evidence_documents.EVIDENCE_VERSION,
            kernel=kernel,
            implementation=label(name, device),
            seed=seed,
            methods=tuple(methods),
        )
        # The copy is gone when somebody reads this: its files have the project's names.
        return documents.renamed(made, {f"{copy.top}/": ""})
