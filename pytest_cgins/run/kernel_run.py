"""A kernel run by a worker on prepared sets of inputs; a death is narrowed down to what it died of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from pytest_cgins.core import documents
from pytest_cgins.core.buffers import Buffer
from pytest_cgins.core.errors import WorkerError
from pytest_cgins.core.failure_kinds import DEVICE_FAULTS, cause_of, cause_of_code, others_nbytes
from pytest_cgins.core.verdict import Reason, Status
from pytest_cgins.run.blinding import Blinding
from pytest_cgins.run.early_verdict import EndedError, ended_by, forged, is_refusal, lost_by
from pytest_cgins.run.output import Printed
from pytest_cgins.run.pool import WorkerPool
from pytest_cgins.run.process import Reply
from pytest_cgins.verify.messages import (
    EmptyMessage,
    Facts,
    KernelAnswers,
    PackedInputs,
    RaisedError,
    RunKernel,
    SetAnswer,
    read,
)
from pytest_cgins.verify.timing_messages import Ready

T = TypeVar("T")
Pair = tuple[PackedInputs, Buffer]
"""A set of inputs, and the buffer of its tensors."""
_DEATHS = (Status.RUNTIME_ERROR, Status.TIMEOUT)
NOT_RUN = "NotRun"
"""Kind of error of a set that a worker no longer ran: see `run.verification_service`."""
AFTER_HANG = 0.1
"""Share of the limit that a kernel gets again to show on which inputs it hangs: a hang costs its limit once."""


class KernelRuns:
    """Requests to workers that run kernels. Whatever a kernel does there becomes an `EndedError`."""

    def __init__(self, pool: WorkerPool, *, seed: int, timeout_s: float) -> None:
        self.pool = pool
        self._seed = seed
        self.timeout_s = timeout_s

    def run(
        self, role: str, request: RunKernel, pairs: Sequence[Pair]
    ) -> tuple[Reply[KernelAnswers], list[str]]:
        """Run a kernel on all sets, those of probes included; the request comes without sets.

        Returns:
            The worker's answers under the sets' real names, and notes. A probe's set on which the kernel died has an
            error of phase `died`.

        Raises:
            EndedError: the kernel failed on a set that is no probe's, died, or forged an answer.
        """
        notes: list[str] = []
        try:
            reply = self.together(role, request, pairs)
        except EndedError as end:
            if end.verdict.status not in _DEATHS:
                raise
            reply, notes = self._in_parts(role, request, pairs, end)
        else:
            broken = self._broken_by_a_probe(request, pairs, reply)
            if broken is not None:
                reply, notes = self._in_parts(role, request, pairs, broken)
        self._require_answers(role, request, pairs, reply)
        return reply, notes

    def ask(
        self,
        role: str,
        method: str,
        request: object,
        read_answer: Callable[[Any], T],
        buffers: Sequence[Buffer] = (),
        *,
        timeout_s: float,
        kernel: str = "",
    ) -> Reply[T]:
        """One request to a worker that runs the kernel: its death is the kernel's doing, and so is a wrong answer.

        By a ValueError `read_answer` says of the answer's JSON that our own service would never give it.

        Raises:
            EndedError: the kernel failed, died, or forged an answer.
        """
        params = documents.dump_python(request)
        try:
            reply = self.pool.call(role, method, params, buffers, timeout_s=timeout_s, kernel=kernel)
        except WorkerError as error:
            raise lost_by(error) from error
        try:
            return replace(reply, result=read_answer(reply.result))
        except ValueError as error:
            reply.close()
            self.pool.discard(role)
            raise forged(role, str(error), reply.output) from error

    def make_ready(self, role: str, device: str, *, kernel: str = "") -> None:
        """Have a worker import what it needs, and make the context of a GPU."""
        answer = partial(read, EmptyMessage)
        self.ask(role, "ready", Ready(device), answer, timeout_s=self.timeout_s, kernel=kernel)

    def together(
        self, role: str, request: RunKernel, pairs: Sequence[Pair], *, share: float = 1.0
    ) -> Reply[KernelAnswers]:
        """Have the kernel run on sets whose names it does not learn, in one request and within a share of the limit.

        Raises:
            EndedError: it died, or forged an answer; which set it died on is not looked for.
        """
        kernel = request.kernel.key
        blinding = Blinding(pairs, seed=f"{self._seed}/{kernel}")
        return self.ask(
            role,
            "run",
            replace(request, sets=blinding.sets),
            lambda result: blinding.take_off(read(KernelAnswers, result)),
            blinding.buffers,
            timeout_s=share * self.timeout_s,
            kernel=kernel,
        )

    def _in_parts(
        self, role: str, request: RunKernel, pairs: Sequence[Pair], end: EndedError
    ) -> tuple[Reply[KernelAnswers], list[str]]:
        """The sets that are no probe's, then each of the others alone; the reply, and notes.

        After a hang all of that has but a share of the limit, and ends with the first set that does not answer in it.

        Raises:
            EndedError: there are no probes' sets, the kernel dies without them, or `end` does not come again.
        """
        core = [pair for pair in pairs if not pair[0].probe]
        if len(core) == len(pairs):
            raise end
        hung = end.verdict.status is Status.TIMEOUT
        share = AFTER_HANG if hung else 1.0
        try:
            reply = self.together(role, request, core, share=share)
        except EndedError as again:
            if hung and again.verdict.status is Status.TIMEOUT:
                raise end from again
            raise
        died = has_hung = False
        for pair in pairs:
            if name := pair[0].probe and pair[0].name:
                try:
                    part = _not_run(name) if has_hung else self.together(role, request, [pair], share=share)
                except EndedError as death:
                    has_hung = death.verdict.status is Status.TIMEOUT
                    part = _dead(name, end if has_hung and hung else death)
                part, dies = _with_death(part)
                died = died or dies
                reply = _joined(reply, part)
        if died:
            return reply, []
        first, _, rest = end.verdict.message.partition("\n")
        if end.verdict.status is Status.TIMEOUT or end.verdict.reason is Reason.OUT_OF_MEMORY:
            # Of all sets together: each by itself is within the limits.
            return reply, [f"it answered on its sets of inputs in parts; on all of them at once: {first}"]
        message = "\n".join(
            filter(None, (f"on all sets of inputs in one process, not in parts: {first}", rest))
        )
        raise EndedError(end.verdict.status, end.verdict.reason, message, end.output)

    def _broken_by_a_probe(
        self, request: RunKernel, pairs: Sequence[Pair], reply: Reply[KernelAnswers]
    ) -> EndedError | None:
        """What the kernel failed with on a probe's set, where the sets after it could not be run because of it."""
        probing = {inputs.name for inputs, _ in pairs if inputs.probe}
        broken = None
        for answer in reply.result.sets:
            error = answer.error
            if error and error.kind == NOT_RUN and broken is not None and broken.error is not None:
                if broken.name not in probing:
                    return None
                return ended_by(broken.error, request.kernel.source.contract, broken.name, reply.output)
            if error and error.phase == "run":
                broken = answer
        return None

    def _require_answers(
        self, role: str, request: RunKernel, pairs: Sequence[Pair], reply: Reply[KernelAnswers]
    ) -> None:
        """Raise what the kernel failed with on sets that are no probe's, or again for want of memory that others hold."""
        names = [inputs.name for inputs, _ in pairs]
        probing = {inputs.name for inputs, _ in pairs if inputs.probe}
        failed = [
            (answer.name, answer.error)
            for answer in reply.result.sets
            if answer.error and (answer.name not in probing or answer.error.phase == "load")
        ]
        if not failed:
            for deviant in reply.result.deviations:
                if deviant.error and others_nbytes(deviant.error.message):
                    ended = ended_by(
                        deviant.error, request.kernel.source.contract, deviant.name, reply.output
                    )
                    if ended.verdict.status is Status.INFRASTRUCTURE:
                        self.pool.discard(role)
                        raise ended
            return
        # A refusal of one set says nothing of the others: a failure among them comes first, its cause before all.
        name, error = min(
            failed, key=lambda pair: (is_refusal(pair[1]), pair[1].kind == NOT_RUN, names.index(pair[0]))
        )
        ended = ended_by(error, request.kernel.source.contract, name, reply.output)
        if ended.verdict.reason in (Reason.OUT_OF_MEMORY, Reason.EXITED):
            # What it still holds, or has taken down on its way out, the next kernel would miss.
            self.pool.discard(role)
        raise ended


def _with_death(part: Reply[KernelAnswers]) -> tuple[Reply[KernelAnswers], bool]:
    """Whether the kernel died on a probe's set, or broke its process: the answer says the same of both."""
    (answer,) = part.result.sets
    if answer.error is None:
        return part, False
    error = answer.error
    cause = cause_of(error.kind, error.message) or cause_of_code(error.message)
    if cause in DEVICE_FAULTS:
        error = replace(error, phase="died")
    return replace(
        part, result=replace(part.result, sets=(replace(answer, error=error),))
    ), error.phase == "died"


def _joined(first: Reply[KernelAnswers], second: Reply[KernelAnswers]) -> Reply[KernelAnswers]:
    """Two answers as one: sets, then deviations, and their buffers in the same order."""
    ours, theirs = first.result, second.result
    answers = KernelAnswers(
        sets=(*ours.sets, *theirs.sets),
        deviations=(*ours.deviations, *theirs.deviations),
        observed={**theirs.observed, **ours.observed, **_both(ours.observed, theirs.observed)},
        tuned=ours.tuned or theirs.tuned,
        jit=theirs.jit or ours.jit,
    )
    count, others = len(ours.sets), len(theirs.sets)
    buffers = (
        *first.buffers[:count],
        *second.buffers[:others],
        *first.buffers[count:],
        *second.buffers[others:],
    )
    return Reply(answers, buffers, first.printed + second.printed)


def _both(ours: Facts, theirs: Facts) -> Facts:
    """Facts that both observed of probes whose facts are lists: neither may hide what the other saw."""
    return {
        name: [*ours[name], *(fact for fact in theirs[name] if fact not in ours[name])]
        for name in ours.keys() & theirs.keys()
        if isinstance(ours[name], list) and isinstance(theirs[name], list)
    }


def _dead(name: str, death: EndedError) -> Reply[KernelAnswers]:
    """What stands for the answer to a probe's set on which the kernel died."""
    return _failed(
        name, RaisedError(phase="died", kind=death.verdict.reason.value, message=death.verdict.message)
    )


def _not_run(name: str) -> Reply[KernelAnswers]:
    """What stands for the answer to a probe's set that was not tried any more."""
    return _failed(
        name, RaisedError(kind=NOT_RUN, message="not run: the kernel hung on another set of inputs")
    )


def _failed(name: str, error: RaisedError) -> Reply[KernelAnswers]:
    answer = SetAnswer(name=name, tensors={"metas": [], "spans": []}, error=error)
    return Reply(KernelAnswers(sets=(answer,)), (Buffer.from_chunks([]),), Printed())
