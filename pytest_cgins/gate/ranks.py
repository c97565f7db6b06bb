"""One case of several ranks: processes that call the kernel together, each with inputs of its own, judged and timed as one.

It is a path of its own beside `verification_stage`: there, one process is asked again and again as its answers suggest, which
ranks would have to agree on each time. What judges, decides and reports is the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

from pytest_cgins.core.case import Case, CompiledKernel
from pytest_cgins.core.device import device_of
from pytest_cgins.core.errors import InfrastructureError
from pytest_cgins.core.session_report import Evaluation
from pytest_cgins.core.text import counted, numbered
from pytest_cgins.core.verdict import Check, Correctness, ForgeryCheck, Probe, Reason, Status
from pytest_cgins.gate import correctness_verdict as gate
from pytest_cgins.gate.case_timing import Timed
from pytest_cgins.gate.reference_requests import ReferenceRequests
from pytest_cgins.gate.reference_worker import REFERENCE_TIMEOUT_S, ReferenceWorker
from pytest_cgins.gate.timing_stage import ReadyCase, TimingStage
from pytest_cgins.run import kernel_timing
from pytest_cgins.run.early_verdict import EndedError, ended_by, forged
from pytest_cgins.run.kernel_run import KernelRuns, Pair
from pytest_cgins.run.pool import WorkerPool
from pytest_cgins.run.process import Reply
from pytest_cgins.run.rank_workers import RankPool, rank_devices
from pytest_cgins.verify.messages import (
    CaseRequest,
    EmptyMessage,
    JudgeAnswers,
    Judgement,
    KernelAnswers,
    PreparedCase,
    RunKernel,
)
from pytest_cgins.verify.timing_messages import JudgeTiming, TimingJudgement

T = TypeVar("T")


class RankStage:
    """Evaluates the cases of several ranks of one `cgins.yaml`."""

    def __init__(
        self,
        requests: ReferenceRequests,
        runs: KernelRuns,
        reference: ReferenceWorker,
        timing: TimingStage,
        *,
        trusted: WorkerPool,
        import_root: str,
    ) -> None:
        """Nothing is started yet; `trusted` has the workers of the reference, all else is as of the other stages."""
        self._requests, self._runs, self._reference = requests, runs, reference
        self._timing, self._trusted, self._import_root = timing, trusted, import_root
        self._references: dict[tuple[str, ...], RankPool] = {}

    def evaluate(self, result: Evaluation, compiled: CompiledKernel, *, timing: bool) -> Evaluation:
        """What is found of a case.

        Raises:
            EndedError: a rank failed before there was anything to compare, or there are fewer devices than ranks.
        """
        case = result.case
        devices = tuple(rank_devices(case.device, self._requests.entry(case).ranks.count))
        self._require(case, len(devices))
        asked = self._requests.for_case(case)
        requests = [
            replace(asked, rank=rank, case=replace(case, device=device))
            for rank, device in enumerate(devices)
        ]
        reference = self._references.setdefault(
            devices, RankPool(self._trusted, devices, REFERENCE_TIMEOUT_S)
        )
        with ExitStack() as opened:
            # Ranks that another case left may have left something in files and memory that they share.
            workers = opened.enter_context(closing(RankPool(self._runs.pool, devices, self._runs.timeout_s)))
            ranked = _RankedCase(self._import_root, compiled, requests, workers, reference)
            with ExitStack() as locks:
                for device in dict.fromkeys(devices):
                    locks.enter_context(self._reference.verification_lock(device))
                pairs = ranked.prepared(opened)
                correctness, output = ranked.verified(pairs)
            verdict = gate.decide(correctness, None)
            verified = replace(result, correctness=correctness, verdict=verdict, output=output)
            if not (timing and correctness.passed and self._requests.is_timed(case)):
                return verified
            workers.inputs = [[buffer for _, buffer in own[:1]] for own in pairs]
            return self._timed(verified, ranked, pairs[0][:1])

    def close(self) -> None:
        """End the ranks of the reference."""
        for references in self._references.values():
            references.close()

    def _require(self, case: Case, count: int) -> None:
        kind, pool = device_of(case.device), self._runs.pool
        if pool.is_local or pool.is_wrapped:
            how = "without --cgins-isolation=none" if pool.is_local else "outside of the sandbox"
            raise EndedError(
                Status.INFRASTRUCTURE,
                Reason.TOOL_MISSING,
                f"{counted(count, 'rank')} are processes that must reach each other\n→ gate this kernel {how}",
            )
        if kind.is_accelerator and (there := self._reference.count(kind.name)) < count:
            why = f"{counted(count, 'rank')} need a {kind.name} device each, and {counted(there, 'is', 'are')} visible"
            raise EndedError(Status.SKIPPED, Reason.DEVICE_ABSENT, why)

    def _timed(self, verified: Evaluation, ranked: _RankedCase, pairs: list[Pair]) -> Evaluation:
        pool: Any = ranked.workers  # a role stands for all its ranks
        ready = ReadyCase(case=verified.case, compiled=ranked.compiled, role="timed-ranks", pairs=pairs)
        try:
            outcome = self._timing.run(
                ready, ranked.requests[0], runs=KernelRuns(pool, seed=0, timeout_s=self._runs.timeout_s),
                devices=ranked.workers.devices, judge=partial(ranked.judged, name=pairs[0][0].name),
            )  # fmt: skip
        except EndedError as end:
            verdict = replace(end.verdict, message=f"right, but while it was timed: {end.verdict.message}")
            return replace(verified, verdict=verdict, output=end.output)
        except InfrastructureError as error:
            raise EndedError(Status.INFRASTRUCTURE, Reason.DEVICE_BUSY, f"not timed: {error}") from error
        assert verified.correctness is not None
        correctness = verified.correctness.with_probes(outcome.judged.probes)
        verdict = self._timing.decide(gate.decide(correctness, outcome.measurement), verified.case, outcome)
        fail_on = self._requests.entry(verified.case).timing.fail_on
        return replace(
            verified, correctness=correctness, measurement=outcome.measurement, verdict=verdict, fail_on=fail_on
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class _RankedCase:
    """A case, and the processes that are asked of it; `requests` are one a rank."""

    import_root: str
    compiled: CompiledKernel
    requests: Sequence[CaseRequest]
    workers: RankPool
    reference: RankPool

    def prepared(self, opened: ExitStack) -> list[list[Pair]]:
        """Each rank's sets of inputs, closed with the stack."""
        prepared = self._referred("prepare", self.requests, PreparedCase)
        for reply in prepared:
            opened.callback(reply.close)
        return [[*zip(reply.result.sets, reply.buffers, strict=True)] for reply in prepared]

    def verified(self, pairs: Sequence[Sequence[Pair]]) -> tuple[Correctness, str]:
        """What is found of the answers, and what was printed: first in step, then while ranks come late."""
        asked = [
            RunKernel(
                kernel=self.compiled,
                device=request.case.device,
                import_root=self.import_root,
                probes=request.probes,
                sets=tuple(replace(inputs, op_calls={}) for inputs, _ in own),
            )
            for request, own in zip(self.requests, pairs, strict=True)
        ]
        sent = [[buffer for _, buffer in own] for own in pairs]
        failed = partial(_failed, self.compiled.source.contract, {inputs.name for inputs, _ in pairs[0]})
        ask = partial(
            self.workers.ask, "ranks", answer=KernelAnswers, kernel=self.compiled.key, failed=failed
        )
        ask("run", asked, buffers=sent)
        try:
            with self.workers.held_now_and_then("ranks"):
                answers = ask("run_late", [EmptyMessage()] * len(asked))
        except EndedError as end:
            what = f"it answered, but called again, while ranks came late: {end.verdict.message}"
            raise EndedError(end.verdict.status, end.verdict.reason, what, end.output) from end
        with ExitStack() as opened:
            for reply in answers:
                opened.callback(reply.close)
            to_judge = [
                JudgeAnswers(case_request=request, answers=reply.result)
                for request, reply in zip(self.requests, answers, strict=True)
            ]
            judged = self._referred("judge", to_judge, Judgement, answers)
        output = "\n".join(
            f"rank {rank}:\n{reply.output}" for rank, reply in enumerate(answers) if reply.output
        )
        return merged([reply.result.correctness for reply in judged]), output

    def judged(self, timed: Timed, *, name: str) -> TimingJudgement:
        """What each rank's kernel gave after it was timed."""
        replies = self.workers.finished
        try:
            told = [kernel_timing.read_finished(reply.result, names=[name]) for reply in replies]
        except ValueError as error:
            raise forged("timed-ranks", str(error), replies[0].output) from error
        asked = [
            JudgeTiming(
                case_request=request,
                cold=False,
                median_ns_per_call=timed.measurement.kernel.median_ns_per_call,
                launch_ns=timed.launch_ns,
                timing=finished,
            )
            for request, finished in zip(self.requests, told, strict=True)
        ]
        judged = self._referred("judge_timed", asked, TimingJudgement, replies)
        probes = zip(*(reply.result.probes for reply in judged), strict=False)
        return TimingJudgement(tuple(map(_worst, probes)), 0.0)

    def _referred(
        self, method: str, requests: Sequence[object], answer: type[T], told: Sequence[Reply[Any]] = ()
    ) -> list[Reply[T]]:
        """What the reference says, of what the kernel told if that is given."""
        role = f"reference/{id(self.reference)}"  # other evaluators may ask other ranks of the same pool
        try:
            return self.reference.ask(role, method, requests, answer, [reply.buffers for reply in told])
        except EndedError as end:  # no kernel runs there, but what it gave is read there
            if told and "ProtocolError in " in str(end):
                raise forged("ranks", str(end), end.output) from end
            raise EndedError(Status.INFRASTRUCTURE, Reason.REFERENCE_FAILED, str(end), end.output) from end


def merged(of_ranks: Sequence[Correctness]) -> Correctness:
    """What was found on all ranks as what was found of the case; messages say on which."""
    wrong = sum(not all(check.passed for check in one.checks) for one in of_ranks)
    return replace(
        of_ranks[0],
        checks=tuple(
            _of_rank(check, rank, wrong, len(of_ranks))
            for rank, one in enumerate(of_ranks)
            for check in one.checks
        ),
        probes=tuple(map(_worst, zip(*(one.probes for one in of_ranks), strict=True))),
        # What is told from the right answer on one rank is told.
        power=tuple(map(_most_told, zip(*(one.power for one in of_ranks), strict=False))),
        notes=tuple(dict.fromkeys(note for one in of_ranks for note in one.notes)),
    )


def _of_rank(check: Check, rank: int, wrong: int, count: int) -> Check:
    others = "all ranks are wrong" if wrong == count else f"right on {counted(count - wrong, 'other rank')}"
    told = f"rank {rank} of {count} ({others}): {check.message}" if check.message else ""
    return replace(check, inputs=f"{check.inputs}/{rank}", message=told)


def _worst(of_ranks: Sequence[Probe]) -> Probe:
    tripped = [rank for rank, probe in enumerate(of_ranks) if probe.outcome == "tripped"]
    probe = of_ranks[tripped[0]] if tripped else of_ranks[0]
    if not tripped or probe.reason is Reason.RANKS_DISAGREE:  # which each rank tells alike
        return probe
    names = numbered("rank", tripped)
    return replace(probe, message=f"{names} of {len(of_ranks)}: {probe.message}")


def _most_told(of_ranks: Sequence[ForgeryCheck]) -> ForgeryCheck:
    return next((power for power in of_ranks if power.caught), of_ranks[0])


def _failed(contract: str, names: set[str], reply: Reply[KernelAnswers]) -> EndedError | None:
    """The verdict on a set that the kernel failed on.

    Raises:
        ValueError: it is not what our own service would tell.
    """
    answers = (*reply.result.sets, *reply.result.deviations)
    if not {answer.name for answer in answers} <= names:
        raise ValueError("an answer is to a set that was not sent")
    failed = next((answer for answer in answers if answer.error is not None), None)
    if failed is None or failed.error is None:
        return None
    return ended_by(failed.error, contract, failed.name, reply.output)
