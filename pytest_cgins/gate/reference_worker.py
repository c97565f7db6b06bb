"""The trusted worker as the gate asks it: it prepares cases and judges answers, and runs no kernel."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from typing import TypeVar

from pytest_cgins.core import documents
from pytest_cgins.core.buffers import Buffer
from pytest_cgins.core.device import DeviceName, device_of
from pytest_cgins.core.errors import InfrastructureError, ReferenceStopped, ServiceError, WorkerError
from pytest_cgins.core.failure_kinds import DEVICE_FAULTS, cause_of
from pytest_cgins.core.session_report import Environment
from pytest_cgins.core.verdict import Check, Correctness, Reason, Status
from pytest_cgins.gate.case_timing import Timed
from pytest_cgins.recording.profile import PackProfile
from pytest_cgins.run.early_verdict import EndedError, forged, not_the_kernels
from pytest_cgins.run.pool import WorkerPool
from pytest_cgins.run.process import Reply
from pytest_cgins.timing import lock
from pytest_cgins.timing.measured_peaks import MeasuredPeaks
from pytest_cgins.verify.messages import (
    CaseRequest,
    CompareAnswers,
    DevicePeak,
    Drift,
    EmptyMessage,
    FirstFailure,
    JudgeAnswers,
    Judgement,
    KernelAnswers,
    Machine,
    PreparedCase,
    ProfileRequest,
    read,
)
from pytest_cgins.verify.probes.registry import PROBE_SPECS
from pytest_cgins.verify.timing_messages import JudgeTiming, Ready, TimingJudgement

_T = TypeVar("_T")
REFERENCE_TIMEOUT_S = 600.0
"""Limit of one request to the trusted worker: four runs of the op on three sets of inputs, some in fp64."""


class ReferenceWorker:
    """Asks the trusted worker of a pool. All methods raise EndedError where there is none, or it has no answer."""

    def __init__(self, pool: WorkerPool) -> None:
        self._pool = pool
        self._machine: Machine | None = None
        self._thread = ThreadPoolExecutor(1)
        self._ahead: tuple[CaseRequest, Future[Reply[PreparedCase]]] | None = None
        self._stopping: dict[tuple[str, str], tuple[str, ...]] = {}
        """By trace and device: sets of inputs on which torch's own code stopped the device."""

    def warm(self) -> None:
        """Have it import torch, and do not wait."""
        self._pool.warm(["reference"])

    @property
    def known(self) -> Mapping[str, Environment]:
        """The devices of this machine, `cpu` and `cuda`; none before `describe`."""
        return {} if self._machine is None else self._machine.environments

    def describe(self) -> Mapping[str, Environment]:
        """The devices of this machine, asked for once."""
        if self._machine is None:
            self._machine = self._ask("describe", EmptyMessage(), Machine).result
        return self.known

    def environment_of(self, device: str) -> Environment:
        """The environment of a device, after `describe`."""
        return self.known[device_of(device).name]

    def count(self, kind: str) -> int:
        """How many devices of a kind there are, after `describe`."""
        return sum(name.partition(":")[0] == kind for name in (self._machine.locks if self._machine else ()))

    def lock_key(self, device: str) -> str:
        """What processes that use the same hardware agree on."""
        return device if self._machine is None else self._machine.locks.get(device, device)

    @contextmanager
    def verification_lock(self, device: str) -> Iterator[None]:
        """Hold the device with others that verify.

        Raises:
            EndedError: others time on it all the while.
        """
        with ExitStack() as stack:
            try:
                stack.enter_context(lock.verifying(self.lock_key(device), wait_s=lock.WAIT_S))
            except InfrastructureError as error:
                raise EndedError(Status.INFRASTRUCTURE, Reason.DEVICE_BUSY, str(error)) from error
            yield

    def absence(self, device: str) -> str:
        """Why a device that was asked for by name is not there, as far as the workers know."""
        cpu = self.known.get("cpu")
        built = f"torch {cpu.torch} " if cpu else "torch "
        built += f"for CUDA {cpu.cuda} finds none" if cpu and cpu.cuda else "is built without CUDA"
        return (
            f"no {device.upper()} device: {built}, and --cgins-device={device} asks for it\n"
            "→ `cgins doctor` says what is missing; --cgins-device=auto skips such cases instead"
        )

    def peaks(self, device: str) -> MeasuredPeaks | None:
        """What a device reaches; whoever asks holds its lock."""
        return self._ask("peaks", Ready(device), DevicePeak).result.peaks

    def profile(self, pack: str, device: DeviceName, import_root: str) -> PackProfile:
        """What torch runs for the traces of a pack; whoever asks holds the device's lock."""
        request = ProfileRequest(pack=pack, device=device, import_root=import_root)
        return self._ask("profile", request, PackProfile).result

    def prepare(self, case_request: CaseRequest) -> Reply[PreparedCase]:
        """The inputs of a case; EndedError also where torch no longer gives what was recorded."""
        ahead, self._ahead = self._ahead, None
        if ahead is not None and ahead[0] == case_request:
            prepared = ahead[1].result()
        else:
            _forget(ahead)
            prepared = self._prepared(case_request)
        if prepared.result.drift:
            raise EndedError(Status.TRACE_DRIFT, Reason.GOLD_DRIFT, prepared.result.drift)
        return prepared

    @contextmanager
    def preparing(self, case_request: CaseRequest) -> Iterator[None]:
        """Prepare the case that comes next meanwhile, and wait for it at the end; `prepare` tells what came of it."""
        _forget(self._ahead)
        upcoming = self._thread.submit(self._prepared, case_request)
        self._ahead = case_request, upcoming
        try:
            yield
        finally:
            wait([upcoming])

    def close(self) -> None:
        """Forget what was prepared for a case that never came."""
        _forget(self._ahead)
        self._ahead = None
        self._thread.shutdown()

    def _prepared(self, case_request: CaseRequest) -> Reply[PreparedCase]:
        """The inputs of a case, without those on which torch stops the device; each costs a trusted worker, once a trace."""
        where, searched = _trace_of(case_request), False
        while True:
            try:
                return self._ask("prepare", self._without_stopping(case_request), PreparedCase)
            except _StoppedError as stopped:
                self._stopping[where] = (*self._stopping.get(where, ()), stopped.inputs)
            except _LostError:
                if searched:
                    raise
                searched, self._stopping[where] = True, self._fatal_inputs(case_request)

    def _fatal_inputs(self, case_request: CaseRequest) -> tuple[str, ...]:
        """Inputs of which the trusted worker dies, so that it cannot name them: of all that may be left out, each is tried.

        torch's grouped products divide by a size of zero on a GPU, which ends the process.
        """

        def prepare_without(names: Sequence[str]) -> None:
            request = replace(case_request, stopping=tuple(names))
            self._ask("prepare", request, PreparedCase, tries=1).close()

        fatal = ["fresh", "edge", "coupled"]
        fatal += [name for name in case_request.probes if not PROBE_SPECS[name].fast]
        prepare_without(fatal)
        for tried in tuple(fatal):
            others = [name for name in fatal if name != tried]
            with suppress(EndedError):
                prepare_without(others)
                fatal = others
        return tuple(fatal)

    def _without_stopping(self, case_request: CaseRequest) -> CaseRequest:
        return replace(case_request, stopping=self._stopping.get(_trace_of(case_request), ()))

    def judge(self, case_request: CaseRequest, answers: Reply[KernelAnswers]) -> Judgement:
        """What is found of a kernel's answers."""
        return self._of_answers("judge", case_request, answers, Judgement)

    def judge_large(self, case_request: CaseRequest, answers: Reply[KernelAnswers]) -> Correctness:
        """What is found of a kernel's large calls."""
        return self._of_answers("judge_large", case_request, answers, Judgement).correctness

    def first_failure(self, case_request: CaseRequest, answers: Reply[KernelAnswers]) -> Check | None:
        """The first check that a kernel's answers fail on the sets that they answer."""
        return self._of_answers("first_failure", case_request, answers, FirstFailure).check

    def drift(self, first: Reply[KernelAnswers], second: Reply[KernelAnswers]) -> Drift:
        """How far answers of two environments to the same sets lie from each other."""
        request = CompareAnswers(first=first.result, second=second.result)
        return self._ask("drift", request, Drift, (*first.buffers, *second.buffers)).result

    def judge_timing(self, case_request: CaseRequest, timed: Timed) -> TimingJudgement:
        """What is found of a kernel while it was timed."""
        request = JudgeTiming(
            case_request=self._without_stopping(case_request),
            cold=timed.measurement.cache == "cold",
            median_ns_per_call=timed.measurement.kernel.median_ns_per_call,
            launch_ns=timed.launch_ns,
            timing=timed.reply.result,
        )
        with self.verification_lock(case_request.case.device):
            return self._ask(
                "judge_timed",
                request,
                TimingJudgement,
                timed.reply.buffers,
                blame=lambda error: _blamed("timing", error, timed.reply.output),
            ).result

    def _of_answers(
        self, method: str, case_request: CaseRequest, answers: Reply[KernelAnswers], answer: type[_T]
    ) -> _T:
        return self._ask(
            method,
            JudgeAnswers(case_request=self._without_stopping(case_request), answers=answers.result),
            answer,
            answers.buffers,
            blame=lambda error: _blamed("verification", error, answers.output),
        ).result

    def _ask(
        self,
        method: str,
        request: object,
        answer: type[_T],
        buffers: tuple[Buffer, ...] = (),
        *,
        blame: Callable[[ServiceError], EndedError] = not_the_kernels,
        tries: int = 2,
    ) -> Reply[_T]:
        """One request, tried once more if the worker is lost, or its device to what it was asked before.

        No kernel runs there, so its limit is not the user's, who thinks of kernels.
        """
        params = documents.dump_python(request)
        for left in reversed(range(tries)):
            try:
                reply = self._pool.call("reference", method, params, buffers, timeout_s=REFERENCE_TIMEOUT_S)
                return replace(reply, result=read(answer, reply.result))
            except ServiceError as error:
                stopped = error.kind == ReferenceStopped.__name__
                lost = not stopped and cause_of(error.kind, error.text) in DEVICE_FAULTS
                if stopped or lost:
                    self._pool.discard("reference")
                if stopped:
                    raise _StoppedError(error.text) from error
                if not lost:
                    raise blame(error) from error
                if not left:
                    raise _LostError(Reason.REFERENCE_FAILED, error) from error
            except WorkerError as error:
                if not left:
                    raise _LostError(Reason.WORKER_LOST, error) from error
        raise AssertionError("the loop above returns or raises")


class _LostError(EndedError):
    """The trusted worker, or its device, was lost as often as it was asked."""

    def __init__(self, reason: Reason, error: WorkerError) -> None:
        super().__init__(Status.INFRASTRUCTURE, reason, str(error), error.output)


class _StoppedError(EndedError):
    """torch's own code stopped the device on the inputs that it names."""

    def __init__(self, inputs: str) -> None:
        text = f"torch's own code stops the device on {inputs} inputs"
        super().__init__(Status.INFRASTRUCTURE, Reason.REFERENCE_FAILED, text)
        self.inputs = inputs


def _trace_of(case_request: CaseRequest) -> tuple[str, str]:
    return case_request.case.trace_id, case_request.case.device


def _forget(ahead: tuple[CaseRequest, Future[Reply[PreparedCase]]] | None) -> None:
    if ahead is not None and ahead[1].exception() is None:
        ahead[1].result().close()


def _blamed(role: str, error: ServiceError, output: str) -> EndedError:
    """Whose fault it is that the trusted worker cannot judge what another worker told."""
    return forged(role, error.text, output) if error.kind == "ProtocolError" else not_the_kernels(error)
