"""The service that runs kernels on given inputs. It knows neither gold nor torch's answers."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Literal

import torch

from pytest_cgins.building.loading.callable import LoadedKernel
from pytest_cgins.building.loading.launcher import put_nothing_around
from pytest_cgins.core import documents
from pytest_cgins.core.buffers import Buffer
from pytest_cgins.core.device import device_of, give_back_unused
from pytest_cgins.core.errors import ProtocolError
from pytest_cgins.core.failure_kinds import cause_of
from pytest_cgins.core.tensors import pack
from pytest_cgins.core.text import counted
from pytest_cgins.core.verdict import Reason
from pytest_cgins.run.kernels import KernelCache, begin, is_lost, make_ready
from pytest_cgins.run.large_call import LargeCall
from pytest_cgins.run.worker import become_ordinary, describe
from pytest_cgins.verify.messages import (
    CheckOperator,
    DeviantAnswer,
    EmptyMessage,
    Facts,
    Header,
    KernelAnswers,
    OperatorFinding,
    PackedInputs,
    RaisedError,
    RunKernel,
    SetAnswer,
    serves,
)
from pytest_cgins.verify.probe_support.process_watch import Watch
from pytest_cgins.verify.probe_support.rerun import Deviation
from pytest_cgins.verify.probe_support.set_trial import Sent, SetTrial
from pytest_cgins.verify.probes import (
    autotuner,
    device_order,
    fresh_memory,
    integrity,
    late_work,
    memory_leak,
    memory_use,
    on_stream,
    op_callback,
    recompiles,
    repeat,
)
from pytest_cgins.verify.probes.late_work import Threads
from pytest_cgins.verify.probes.memory_leak import Leak
from pytest_cgins.verify.probes.memory_use import Meter
from pytest_cgins.verify.timing_messages import (
    FinishedTiming,
    Opened,
    OpenTiming,
    Ready,
    RunBlocks,
    TimedBlocks,
)


def prepare_forks() -> None:
    """Make once, in the server that forks workers, what each kernel's worker needs."""
    documents.prepare(
        RunKernel, KernelAnswers, OpenTiming, Opened, RunBlocks, TimedBlocks, FinishedTiming, EmptyMessage
    )
    integrity.fingerprint()
    op_callback.all_operators()


Answered = tuple[SetAnswer, Buffer]
_Deviant = tuple[DeviantAnswer, Buffer]


class VerificationService:
    """Runs a kernel on sets of inputs and hands its outputs back, bit by bit as they lie."""

    def __init__(self) -> None:
        self.fatal = False
        self.rest = give_back_unused
        self._kernels = KernelCache()
        self._compilations = recompiles.Compilations()
        self._around: Callable[[], AbstractContextManager[object]] = nullcontext
        """What a kernel is loaded and first run in."""

    @serves(Ready)
    def ready(self, request: Ready) -> EmptyMessage:
        """Have the context of a GPU made."""
        make_ready(request.device)
        return EmptyMessage()

    @serves(RunKernel)
    def run(self, request: RunKernel, buffers: list[Buffer]) -> tuple[KernelAnswers, list[Buffer]]:
        """Run a kernel on each set, and again in the ways that probes want.

        Whatever the kernel raises stays in its set, and the sets after it are run, unless the GPU was lost.
        """
        if request.ordinary:
            become_ordinary()
            put_nothing_around()
            self._around = _unnamed
        sets, device = request.sets, request.device
        if len(sets) != len(buffers):
            raise ProtocolError(f"{counted(len(sets), 'set')} came with {counted(len(buffers), 'buffer')}")
        watch = Watch(frozenset(request.probes), request)
        try:
            begin(request)
            with nullcontext() if self._kernels.has(request.kernel) else watch.loading():
                kernel = self._kernels.load(request.kernel, around=self._around)
            self._compilations.listen()
            watch.guard(kernel)
        except BaseException as error:  # noqa: BLE001 - code under test may raise anything at import
            failed = [failure(inputs.name, raised_error(error, device, "load")) for inputs in sets]
            seen = watch.observed()
            self.fatal = self.fatal or watch.spent
            return all_answers(failed, [], seen)
        # All are bound before the first runs: a kernel that runs cannot change how the others are bound.
        meter = Meter(device, on=memory_use.NAME in request.probes)
        bound = [
            _bind(kernel, inputs, buffer, device, watch=watch, meter=meter)
            for inputs, buffer in zip(sets, buffers, strict=True)
        ]
        threads = Threads()
        stream = device_of(device).own_stream if _is_direct(request) else nullcontext
        firsts = (
            self._first(inputs, trial, stream(), meter) for inputs, trial in zip(sets, bound, strict=True)
        )
        answers = [*itertools.islice(firsts, sum(not inputs.probe for inputs in sets))]
        with autotuner.first_chosen():
            answers += firsts
            meter.all_ran()
            # What else was overwritten nobody knows: the next kernel gets another process.
            self.fatal = self.fatal or any(answer.overrun for answer, _ in answers)
            ran = [trial for trial in bound if isinstance(trial, SetTrial)]
            ran_well = [
                (trial, answer)
                for inputs, trial, (answer, _) in zip(sets, bound, answers, strict=True)
                if isinstance(trial, SetTrial) and not answer.error and not inputs.once
            ]
            tuners, jit = autotuner.Autotuners(), self._compilations.counted()
            again = (
                _Again([], _not_run(_AGAIN))
                if self.fatal
                else self._again(ran, ran_well, request, threads, meter, tuners=tuners)
            )
        answers = [(again.revised.get(answer.name, answer), buffer) for answer, buffer in answers]
        observed = again.facts
        if memory_use.NAME in request.probes:
            observed[memory_use.NAME] = meter.facts()
        seen = {**watch.observed(), **observed}
        self.fatal = self.fatal or watch.spent
        result, packed = all_answers(answers, again.deviations, seen)
        return replace(result, tuned=tuners.chosen(), jit=jit), packed

    @serves(CheckOperator)
    def check_operator(self, request: CheckOperator, buffers: list[Buffer]) -> OperatorFinding:
        """Look at how an operator is registered, in a process that verifies nothing: torch's compiler changes it."""
        from pytest_cgins.run import operator_checks  # it imports torch's compiler

        begin(request)
        kernel = self._kernels.load(request.kernel)
        finding = operator_checks.Operator(request, buffers, kernel).finding(request.check)
        # A capture that failed leaves torch's allocator waiting for its end.
        self.fatal = request.check == "graph" and finding.reason is not Reason.OK
        return finding

    def _first(
        self,
        inputs: PackedInputs,
        trial: SetTrial | LargeCall | RaisedError,
        stream: AbstractContextManager[object],
        meter: Meter,
    ) -> Answered:
        name = inputs.name
        if isinstance(trial, RaisedError):
            return failure(name, trial)
        if self.fatal:
            return failure(name, _NOT_RUN)
        device = trial.device
        try:
            with stream:
                with meter.call("first", name, 0 if inputs.once else _moved_nbytes(inputs)), self._around():
                    trial.first()
                packed = pack(trial.answer)
            return set_answer(name, trial, packed)
        except BaseException as error:  # noqa: BLE001 - SystemExit from a kernel is its error, not ours
            self.fatal = is_lost(device)
            return failure(name, raised_error(error, device, "run"))

    def _again(
        self,
        ran: Sequence[SetTrial],
        ran_well: Sequence[tuple[SetTrial, SetAnswer]],
        request: RunKernel,
        threads: Threads,
        meter: Meter,
        *,
        tuners: autotuner.Autotuners,
    ) -> _Again:
        """Run the kernel again as the probes want; what deviates from its first answers, and facts by probe.

        What later runs write where they should not is put down in revised answers.
        """
        trials = [trial for trial, _ in ran_well]
        probes, device = request.probes, request.device
        deviations: list[_Deviant] = []  # packed at once: the kernel may return the same memory on every run
        facts: Facts = {}
        revised: dict[str, SetAnswer] = {}
        try:
            if late_work.NAME in probes and trials:
                threads.settle(device)
                late = list(late_work.deviations(trials, ran))
                deviations += map(deviant_answer, late)
                if not device_of(device).is_accelerator and not all(deviation.reused for deviation in late):
                    # Its threads write to memory that further runs would give to others.
                    self.fatal = True
                    return _Again(deviations, _not_run(_AGAIN[1:]))
            if memory_leak.NAME in probes and trials:
                moved = max(map(_moved_nbytes, request.sets))
                leak = Leak(trials[0], lambda: meter.call("later", trials[0].name, moved))
                deviations += map(deviant_answer, leak.deviations())
                facts[memory_leak.NAME] = leak.facts
            if repeat.NAME in probes:
                late_too = late_work.NAME in probes and not deviations
                deviations += map(deviant_answer, _repeated(trials, ran, late=late_too))
            if {memory_leak.NAME, repeat.NAME} & set(probes) and not is_lost(device):
                for trial, answer in ran_well:
                    overrun = answer.overrun or trial.overrun()
                    changed = answer.inputs_changed or tuple(trial.inputs_changed())
                    revised[answer.name] = replace(answer, overrun=overrun, inputs_changed=changed)
                    self.fatal = self.fatal or bool(overrun)
            if recompiles.NAME in probes and trials and not self.fatal and self._compilations.can_hear():
                facts[recompiles.NAME] = list(recompiles.observe(trials[0], self._compilations))
            if autotuner.NAME in probes and trials and not self.fatal:
                deviations += map(deviant_answer, tuners.deviations(trials[0]))
            if fresh_memory.NAME in probes and self.fatal:
                facts |= _not_run([fresh_memory.NAME])
            elif fresh_memory.NAME in probes:
                deviations += map(deviant_answer, fresh_memory.deviations(trials))
            if trials and device_of(device).is_cuda and not self.fatal:
                deviations += self._beside_other_work(trials, request, facts)
            return _Again(deviations, facts, revised)
        finally:
            self.fatal = self.fatal or is_lost(device)

    def _beside_other_work(
        self, trials: Sequence[SetTrial], request: RunKernel, facts: Facts
    ) -> list[_Deviant]:
        """Probes that have a GPU do something else meanwhile; adds facts."""
        direct = _is_direct(request)
        if on_stream.NAME in request.probes:
            facts[on_stream.NAME] = on_stream.observe(trials[0], direct=direct)
            self.fatal = direct and not on_stream.usable(trials[0])  # it was captured
        if device_order.NAME not in request.probes or self.fatal:
            return []
        if why := device_order.why_not(request.device, direct=direct):
            facts[device_order.NAME] = {"not_run": why}
            return []
        return [*map(deviant_answer, device_order.deviations(trials, direct=direct))]


def _repeated(trials: Sequence[SetTrial], ran: Sequence[SetTrial], *, late: bool) -> Iterator[Deviation]:
    """What differs in another run, or, with `late`, in what was returned before: a ring of buffers has come round."""
    yield from repeat.deviations(trials)
    if late:
        kept = [trial for trial in trials if not trial.mutates]
        yield from late_work.deviations(kept, ran, overwritten=True)


@dataclass(slots=True)
class _Again:
    """What came of running a kernel again."""

    deviations: list[_Deviant]
    facts: Facts
    revised: dict[str, SetAnswer] = field(default_factory=dict)
    """First answers with what later runs wrote, by set."""


def all_answers(
    answers: Sequence[Answered], deviations: Sequence[_Deviant], observed: Facts
) -> tuple[KernelAnswers, list[Buffer]]:
    """What is told of a kernel, and its buffers."""
    result = KernelAnswers(
        sets=tuple(answer for answer, _ in answers),
        deviations=tuple(answer for answer, _ in deviations),
        observed=observed,
    )
    return result, [buffer for _, buffer in (*answers, *deviations)]


def raised_error(error: BaseException, device: str, phase: Literal["load", "bind", "run"]) -> RaisedError:
    """What was raised while a kernel was loaded, bound or run."""
    found = RaisedError(**describe(error), phase=phase)
    if cause_of(found.kind, found.message) is not Reason.OUT_OF_MEMORY:
        return found
    return replace(found, others_nbytes=device_of(device).others_nbytes())


_AGAIN = (
    late_work.NAME, memory_leak.NAME, repeat.NAME, autotuner.NAME, fresh_memory.NAME, on_stream.NAME, device_order.NAME,
)  # fmt: skip
_NOT_RUN = RaisedError(
    kind="NotRun",
    message="not run: an earlier set of inputs had broken the process",
    remedy="see that set's error first",
)


@contextmanager
def _unnamed() -> Iterator[None]:
    """Meanwhile a kernel that looks for our modules among those that are imported finds none."""
    ours = {
        name: sys.modules.pop(name) for name in [*sys.modules] if name.partition(".")[0] == "pytest_cgins"
    }
    try:
        yield
    finally:
        sys.modules.update(ours)


def _is_direct(request: RunKernel) -> bool:
    """Whether the kernel is told its stream; others may count on the default one, as torch's users do."""
    return request.kernel.source.contract in on_stream.DIRECT


def _not_run(probes: Sequence[str]) -> Facts:
    """Facts of probes that run a kernel again, where it must not be."""
    why = "not run again: an earlier call wrote out of bounds, left work running, or broke its process"
    return {name: {"not_run": why} for name in probes}


def _bind(
    kernel: LoadedKernel, inputs: PackedInputs, buffer: Buffer, device: str, *, watch: Watch, meter: Meter
) -> SetTrial | LargeCall | RaisedError:
    if inputs.large is not None:
        return LargeCall(kernel, inputs, buffer, device)
    try:
        sent = Sent(inputs, buffer, device)  # is no memory of the kernel's
        with meter.call("bind", inputs.name, 0 if inputs.once else _moved_nbytes(inputs)):
            return SetTrial(kernel, inputs, sent, device, watch)
    except Exception as error:  # noqa: BLE001 - becomes the set's error
        return raised_error(error, device, "bind")


def _moved_nbytes(inputs: PackedInputs) -> int:
    """Bytes of a set's inputs and outputs."""
    return int(sum(inputs.tensors["spans"])) + sum(meta.nbytes for meta in inputs.outputs)


def deviant_answer(deviation: Deviation) -> _Deviant:
    """A later answer."""
    tensors: Sequence[torch.Tensor] = deviation.tensors
    header, packed = pack(tensors)
    answer = DeviantAnswer(
        probe=deviation.probe,
        name=deviation.name,
        tensors=header,
        error=deviation.error,
        reused=deviation.reused,
        about=deviation.about,
    )
    return answer, packed


def set_answer(name: str, trial: SetTrial | LargeCall, packed: tuple[Header, Buffer]) -> Answered:
    """The first answer to a set, with what the call did besides, once its device has done all of it."""
    device_of(trial.device).synchronize()
    answer = SetAnswer(
        name=name,
        tensors=packed[0],
        devices=tuple(str(tensor.device) for tensor in trial.answer),
        inputs_changed=tuple(trial.inputs_changed()),
        overrun=trial.overrun(),
        unlike=tuple(trial.unlike),
    )
    return answer, packed[1]


def failure(name: str, error: RaisedError) -> Answered:
    """What stands for an answer."""
    header, packed = pack([])
    return SetAnswer(name=name, tensors=header, error=error), packed
