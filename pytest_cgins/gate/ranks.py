"""One case of several ranks: processes that call the kernel together, each with inputs of its own, judged and timed as one.

It is a path of its own beside `verification_stage`: there, one process is asked again and again as its answers suggest, which
ranks would have to agree on each time. What judges, decides and reports is the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from pytest_cgins.building.build_queue import BuildQueue
from pytest_cgins.building.revision.base_kernels import BaseKernels
from pytest_cgins.core.buffers import Buffer
from pytest_cgins.core.case import Case, CompiledKernel
from pytest_cgins.core.device import device_of
from pytest_cgins.core.errors import InfrastructureError
from pytest_cgins.core.session_report import Evaluation
from pytest_cgins.core.text import counted
from pytest_cgins.core.verdict import Check, Correctness, ForgeryCheck, Probe, Reason, Status
from pytest_cgins.gate import correctness_verdict as gate
from pytest_cgins.gate.case_timing import Timed
from pytest_cgins.gate.reference_requests import ReferenceRequests
from pytest_cgins.gate.reference_worker import REFERENCE_TIMEOUT_S, ReferenceWorker
from pytest_cgins.gate.timing_stage import ReadyCase, TimingOptions, TimingStage, with_tuning_notes
from pytest_cgins.run import kernel_timing
from pytest_cgins.run.early_verdict import EndedError, ended_by
from pytest_cgins.run.kernel_run import KernelRuns, Pair
from pytest_cgins.run.pool import WorkerPool
from pytest_cgins.run.process import Reply
from pytest_cgins.run.rank_workers import RankWorkers, rank_devices
from pytest_cgins.timing.block import Block
from pytest_cgins.verify.messages import (
    CaseRequest,
    JudgeAnswers,
    Judgement,
    KernelAnswers,
    PreparedCase,
    RunKernel,
    RunLate,
    read,
)
from pytest_cgins.verify.timing_messages import JudgeTiming, TimingJudgement

T = TypeVar("T")
LATE_CALLS = 100
"""Calls while ranks come late."""
HELD_S = 0.3
"""For so long at most ranks are held at any point of these."""
_ALONE = "ranks must reach each other's processes, which {}: gate this kernel {}"


class RankStage:
    """Evaluates the cases of several ranks of one `cgins.yaml`."""

    def __init__(
        self,
        requests: ReferenceRequests,
        runs: KernelRuns,
        reference: ReferenceWorker,
        options: TimingOptions,
        bases: BaseKernels,
        *,
        trusted: WorkerPool,
        builds: BuildQueue,
        own_tests: Callable[[], int],
        import_root: str,
    ) -> None:
        """Nothing is started yet; `trusted` has the workers of the reference, all else is as of `TimingStage`."""
        self._requests, self._runs, self._reference = requests, runs, reference
        self._trusted = trusted
        self._options, self._bases, self._builds, self._own_tests = options, bases, builds, own_tests
        self._import_root = import_root
        self._references: dict[tuple[str, ...], RankWorkers] = {}

    def evaluate(self, result: Evaluation, compiled: CompiledKernel, *, timing: bool) -> Evaluation:
        """What is found of a case.

        Raises:
            EndedError: a rank failed before there was anything to compare, or there are fewer devices than ranks.
        """
        case, entry = result.case, self._requests.entry(result.case)
        devices = rank_devices(case.device, entry.ranks.count)
        self._require(case, len(devices))
        requests = [
            replace(self._requests.for_case(case), rank=rank, case=replace(case, device=device))
            for rank, device in enumerate(devices)
        ]
        with ExitStack() as opened:
            with self._locked(devices):
                references = self._joined(devices)
                prepared = self._referred(references, "prepare", requests, PreparedCase)
                for reply in prepared:
                    opened.callback(reply.close)
                pairs = [[*zip(reply.result.sets, reply.buffers, strict=True)] for reply in prepared]
                judged, output = self._verified(requests, compiled, devices, pairs)
            correctness = merged([judgement.correctness for judgement in judged])
            verified = replace(
                result, correctness=correctness, verdict=gate.decide(correctness, None), output=output
            )
            if not (timing and correctness.passed and self._requests.is_timed(case)):
                return verified
            return self._timed(verified, compiled, requests, pairs, devices)

    def close(self) -> None:
        """End the ranks of the reference."""
        for references in self._references.values():
            references.end()

    def _require(self, case: Case, count: int) -> None:
        pool = self._runs.pool
        if pool.is_local or pool.is_wrapped:
            where = "is one process" if pool.is_local else "a sandbox forbids"
            how = "without --cgins-isolation=none" if pool.is_local else "outside of it"
            raise EndedError(Status.INFRASTRUCTURE, Reason.TOOL_MISSING, _ALONE.format(where, how))
        kind = device_of(case.device)
        there = self._reference.count(kind.name)
        if kind.is_accelerator and there < count:
            raise EndedError(
                Status.SKIPPED,
                Reason.DEVICE_ABSENT,
                f"{counted(count, 'rank')} need a {kind.name} device each, and this machine has {there}",
            )

    @contextmanager
    def _locked(self, devices: Sequence[str]) -> Iterator[None]:
        with ExitStack() as stack:
            for device in dict.fromkeys(devices):
                stack.enter_context(self._reference.verification_lock(device))
            yield

    def _joined(self, devices: Sequence[str]) -> RankWorkers:
        key = tuple(devices)
        if key not in self._references:
            role = f"reference/{device_of(key[0]).name}-{len(key)}"
            self._references[key] = RankWorkers(self._trusted, role, devices, REFERENCE_TIMEOUT_S)
        self._references[key].join()
        return self._references[key]

    def _referred(
        self,
        references: RankWorkers,
        method: str,
        requests: Sequence[object],
        answer: type[T],
        buffers: Sequence[Sequence[Buffer]] = (),
    ) -> list[Reply[T]]:
        try:
            return references.ask(
                method, requests, partial(read, answer), buffers, timeout_s=REFERENCE_TIMEOUT_S
            )
        except EndedError as end:
            # No kernel runs there.
            raise EndedError(Status.INFRASTRUCTURE, Reason.REFERENCE_FAILED, str(end), end.output) from end

    def _verified(
        self,
        requests: Sequence[CaseRequest],
        compiled: CompiledKernel,
        devices: Sequence[str],
        pairs: Sequence[Sequence[Pair]],
    ) -> tuple[list[Judgement], str]:
        workers = RankWorkers(self._runs.pool, "ranks", devices, self._runs.timeout_s)
        workers.end()  # what another case left, also in files and memory that its ranks share
        try:
            workers.join(compiled.key)
            answers = self._answers(workers, requests, compiled, pairs)
            with ExitStack() as opened:
                for reply in answers:
                    opened.callback(reply.close)
                asked = [
                    JudgeAnswers(case_request=request, answers=reply.result)
                    for request, reply in zip(requests, answers, strict=True)
                ]
                sent = [reply.buffers for reply in answers]
                references = self._references[tuple(devices)]
                judged = self._referred(references, "judge", asked, Judgement, sent)
            output = "\n".join(
                f"rank {rank}:\n{reply.output}" for rank, reply in enumerate(answers) if reply.output
            )
            return [reply.result for reply in judged], output
        finally:
            workers.end()

    def _answers(
        self,
        workers: RankWorkers,
        requests: Sequence[CaseRequest],
        compiled: CompiledKernel,
        pairs: Sequence[Sequence[Pair]],
    ) -> list[Reply[KernelAnswers]]:
        """First answers in step, then what deviates from them while ranks come late."""
        names = [inputs.name for inputs, _ in pairs[0]]
        asked = [
            RunKernel(
                kernel=compiled,
                device=request.case.device,
                import_root=self._import_root,
                probes=request.probes,
                sets=kernel_timing.request_sets(inputs for inputs, _ in own),
            )
            for request, own in zip(requests, pairs, strict=True)
        ]
        ask = partial(
            workers.ask,
            read_answer=partial(read, KernelAnswers),
            timeout_s=self._runs.timeout_s,
            kernel=compiled.key,
            failed=partial(_failed, names, compiled.source.contract),
        )
        first = ask("run", asked, buffers=[[buffer for _, buffer in own] for own in pairs])
        if "ranks" not in requests[0].probes:
            return [_joined(names, reply, None) for reply in first]
        try:
            with workers.held_now_and_then(HELD_S):
                late = ask("run_late", [RunLate(calls=LATE_CALLS)] * len(asked))
        except EndedError as end:
            for reply in first:
                reply.close()
            what = f"right at first; called again, while ranks came late: {end.verdict.message}"
            raise EndedError(end.verdict.status, end.verdict.reason, what, end.output) from end
        return [_joined(names, *replies) for replies in zip(first, late, strict=True)]

    def _timed(
        self,
        verified: Evaluation,
        compiled: CompiledKernel,
        requests: Sequence[CaseRequest],
        pairs: Sequence[Sequence[Pair]],
        devices: Sequence[str],
    ) -> Evaluation:
        case = verified.case
        runs = _RankRuns(self._runs, devices, pairs)
        reference = _RankedReference(self._reference, self._references[tuple(devices)], requests, runs)
        stage = _RankTiming(
            self._requests, runs, reference, self._options, self._bases, builds=self._builds,
            own_tests=self._own_tests, import_root=self._import_root,
        )  # fmt: skip
        stage.devices = tuple(dict.fromkeys(devices))
        ready = ReadyCase(case=case, compiled=compiled, role="timed-ranks", pairs=list(pairs[0][:1]))
        try:
            outcome = stage.run(ready, requests[0])
        except EndedError as end:
            verdict = replace(end.verdict, message=f"right, but while it was timed: {end.verdict.message}")
            return replace(verified, verdict=verdict, output=end.output)
        except InfrastructureError as error:
            raise EndedError(Status.INFRASTRUCTURE, Reason.DEVICE_BUSY, f"not timed: {error}") from error
        finally:
            runs.end()
        assert verified.correctness is not None
        measured = with_tuning_notes(outcome.measurement, ())
        correctness = verified.correctness.with_probes(outcome.judged.probes)
        verdict = stage.decide(gate.decide(correctness, measured), case, outcome)
        return replace(
            verified,
            correctness=correctness,
            measurement=measured,
            verdict=verdict,
            fail_on=self._requests.entry(case).timing.fail_on,
        )


def merged(of_ranks: Sequence[Correctness]) -> Correctness:
    """What was found on all ranks as what was found of the case; messages say on which."""
    wrong = [rank for rank, one in enumerate(of_ranks) if not all(check.passed for check in one.checks)]
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


def _of_rank(check: Check, rank: int, wrong: Sequence[int], count: int) -> Check:
    message = check.message
    if message:
        others = (
            "all ranks are wrong"
            if len(wrong) == count
            else f"right on {counted(count - len(wrong), 'other rank')}"
        )
        message = f"rank {rank} of {count} ({others}): {message}"
    return replace(check, inputs=f"{check.inputs}/{rank}", message=message)


def _worst(of_ranks: Sequence[Probe]) -> Probe:
    tripped = [rank for rank, probe in enumerate(of_ranks) if probe.outcome == "tripped"]
    if not tripped:
        return of_ranks[0]
    probe = of_ranks[tripped[0]]
    if probe.reason is Reason.RANKS_DISAGREE:  # each rank tells the same
        return probe
    names = ", ".join(map(str, tripped))
    return replace(
        probe, message=f"rank{'s' * (len(tripped) > 1)} {names} of {len(of_ranks)}: {probe.message}"
    )


def _most_told(of_ranks: Sequence[ForgeryCheck]) -> ForgeryCheck:
    return next((power for power in of_ranks if power.caught), of_ranks[0])


def _failed(names: Sequence[str], contract: str, reply: Reply[KernelAnswers]) -> EndedError | None:
    """The verdict on a set that the kernel failed on; names of sets were left out of what it was asked."""
    for answer in (*reply.result.sets, *reply.result.deviations):
        if answer.error is not None:
            return ended_by(answer.error, contract, _named(names, answer.name), reply.output)
    return None


def _named(names: Sequence[str], number: str) -> str:
    return names[int(number)] if number.isdecimal() and int(number) < len(names) else number


def _joined(
    names: Sequence[str], first: Reply[KernelAnswers], late: Reply[KernelAnswers] | None
) -> Reply[KernelAnswers]:
    """First answers under the sets' own names, with what was seen later."""
    again = {answer.name: answer for answer in late.result.sets} if late else {}
    sets = tuple(
        replace(
            answer,
            name=_named(names, answer.name),
            overrun=answer.overrun or (again[answer.name].overrun if answer.name in again else ""),
            inputs_changed=answer.inputs_changed
            or (again[answer.name].inputs_changed if answer.name in again else ()),
        )
        for answer in first.result.sets
    )
    if late is None:
        return replace(first, result=replace(first.result, sets=sets))
    count = len(late.result.sets)
    for buffer in late.buffers[:count]:
        buffer.close()
    deviations = tuple(
        replace(one, name=_named(names, one.name), probe="ranks") for one in late.result.deviations
    )
    return replace(
        first,
        result=replace(first.result, sets=sets, deviations=deviations),
        buffers=(*first.buffers, *late.buffers[count:]),
        printed=first.printed + late.printed,
    )


class _RankPool:
    """The pool as `CaseTiming` uses it: a role stands for all its ranks."""

    is_local = False

    def __init__(self, runs: _RankRuns) -> None:
        self._runs = runs

    def discard(self, role: str) -> None:
        """End all ranks of a role."""
        self._runs.workers(role).end()

    def stopped(self, role: str) -> Any:
        """Keep all ranks of a role from running."""
        return self._runs.workers(role).stopped()


class _RankRuns(KernelRuns):
    """Requests that go to all ranks of a role, each with its own device and inputs; times are those of the slowest."""

    def __init__(self, runs: KernelRuns, devices: Sequence[str], pairs: Sequence[Sequence[Pair]]) -> None:
        self._whole, self._devices, self._pairs = runs.pool, devices, pairs
        self._workers: dict[str, RankWorkers] = {}
        self.pool: Any = _RankPool(self)
        self.timeout_s = runs.timeout_s
        self.finished: list[Reply[Any]] = []
        """Last answers of all ranks to `finish`."""

    def workers(self, role: str) -> RankWorkers:
        """The ranks of a role."""
        if role not in self._workers:
            self._workers[role] = RankWorkers(self._whole, role, self._devices, self.timeout_s)
        return self._workers[role]

    def end(self) -> None:
        """End all ranks of all roles."""
        for workers in self._workers.values():
            workers.end()
        self._forget()

    def _forget(self) -> None:
        for reply in self.finished:
            reply.close()
        self.finished = []

    def make_ready(self, role: str, device: str, *, kernel: str = "") -> None:
        """See `KernelRuns.make_ready`; the ranks also join each other."""
        self.workers(role).join(kernel)
        super().make_ready(role, device, kernel=kernel)

    def ask(
        self,
        role: str,
        method: str,
        request: Any,
        read_answer: Callable[[Any], T],
        buffers: Sequence[Buffer] = (),
        *,
        timeout_s: float,
        kernel: str = "",
    ) -> Reply[T]:
        """See `KernelRuns.ask`."""
        on_device = hasattr(request, "device")
        requests = [replace(request, device=device) if on_device else request for device in self._devices]
        own = [[buffer for _, buffer in pairs[: len(buffers)]] for pairs in self._pairs]
        replies = self.workers(role).ask(
            method, requests, read_answer, own, timeout_s=timeout_s, kernel=kernel
        )
        if method == "finish":
            self._forget()
            self.finished = list(replies)
            return replace(replies[0], buffers=())
        for reply in replies[1:]:
            reply.close()
        result: Any = replies[0].result
        if method == "blocks":
            of_ranks: Any = [reply.result for reply in replies]
            result = _slowest(of_ranks)
        return replace(replies[0], result=result)


def _slowest(of_ranks: Sequence[Sequence[Block]]) -> list[Block]:
    """Blocks in which each batch takes as long as on the slowest rank; each rank tells so itself, unless its kernel has it lie."""
    return [
        replace(
            blocks[0],
            ns_per_call=tuple(map(max, zip(*(block.ns_per_call for block in blocks), strict=True))),
            mean_ns_per_call=tuple(map(max, zip(*(block.mean_ns_per_call for block in blocks), strict=True))),
        )
        for blocks in zip(*of_ranks, strict=True)
    ]


class _RankedReference(ReferenceWorker):
    """Judges on each rank what its kernel gave after it was timed."""

    def __init__(
        self,
        machine: ReferenceWorker,
        references: RankWorkers,
        requests: Sequence[CaseRequest],
        runs: _RankRuns,
    ) -> None:
        self._machine = machine.machine
        self._references, self._requests, self._ran = references, requests, runs

    def judge_timing(self, case_request: CaseRequest, timed: Timed) -> TimingJudgement:
        """See `ReferenceWorker.judge_timing`."""
        del case_request  # that of the first rank
        asked = [
            JudgeTiming(
                case_request=request,
                cold=False,
                median_ns_per_call=timed.measurement.kernel.median_ns_per_call,
                launch_ns=timed.launch_ns,
                timing=reply.result,
            )
            for request, reply in zip(self._requests, self._ran.finished, strict=True)
        ]
        sent = [reply.buffers for reply in self._ran.finished]
        replies = self._references.ask(
            "judge_timed", asked, partial(read, TimingJudgement), sent, timeout_s=REFERENCE_TIMEOUT_S
        )
        probes = zip(*(reply.result.probes for reply in replies), strict=False)
        return TimingJudgement(tuple(map(_worst, probes)), 0.0)


class _RankTiming(TimingStage):
    """Times on all devices of the ranks."""

    devices: tuple[str, ...] = ()

    @contextmanager
    def alone_on(self, device: str) -> Iterator[None]:
        """See `TimingStage.alone_on`."""
        del device  # that of the first rank
        with ExitStack() as stack:
            for each in self.devices:
                stack.enter_context(super().alone_on(each))
            yield
