"""A kernel run by a worker on prepared sets of inputs; a death is narrowed down to what it died of."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

from pytest_cgins.core.buffers import Buffer
from pytest_cgins.core.errors import ServiceError, WorkerError
from pytest_cgins.core.failure_kinds import cause_of, cause_of_code
from pytest_cgins.core.model import Reason, Status
from pytest_cgins.run.blinding import Blinding
from pytest_cgins.run.early_verdict import EndedError, ended_by, forged, is_refusal, lost_by
from pytest_cgins.run.output import Printed
from pytest_cgins.run.pool import WorkerPool
from pytest_cgins.run.process import Reply

_MALFORMED = (KeyError, TypeError, ValueError, AttributeError)
_DEATHS = (Status.RUNTIME_ERROR, Status.TIMEOUT)
_FAULTS = (Reason.ILLEGAL_ADDRESS, Reason.DEVICE_ASSERT)
NOT_RUN = "NotRun"
"""Kind of error of a set that a worker no longer ran: see `run.verification`."""
AFTER_HANG = 0.1
"""Share of the limit that a kernel gets again to show on which inputs it hangs: a hang costs its limit once."""


class KernelRuns:
    """Requests to workers that run kernels. Whatever a kernel does there becomes an `EndedError`."""

    def __init__(self, pool: WorkerPool, *, seed: int, timeout_s: float) -> None:
        self._pool = pool
        self._seed = seed
        self._timeout_s = timeout_s

    def run(
        self,
        role: str,
        request: dict[str, Any],
        sets: Sequence[dict[str, Any]],
        buffers: Sequence[Buffer],
    ) -> Reply:
        """Run a kernel on all sets, those of probes included.

        Args:
            role: of the worker.
            request: `VerificationService.run`'s, without `sets`.
            sets: as the reference worker prepared them.
            buffers: one a set.

        Returns:
            The worker's answer with the sets' real names, and `notes` in its result. A probe's set on which the
            kernel died has an error of phase `died`.

        Raises:
            EndedError: the kernel failed on a set that is no probe's, died, or forged an answer.
        """
        pairs = list(zip(sets, buffers, strict=True))
        notes: list[str] = []
        try:
            reply = self.together(role, request, pairs)
        except EndedError as end:
            if end.verdict.status not in _DEATHS:
                raise
            reply, notes = self._in_parts(role, request, pairs, end)
        else:
            broken = self._broken_by_a_probe(role, request, pairs, reply)
            if broken is not None:
                reply, notes = self._in_parts(role, request, pairs, broken)
        reply.result["notes"] = notes
        self._require_answers(role, request, pairs, reply)
        return reply

    def ask(
        self,
        role: str,
        method: str,
        params: Any,
        buffers: Sequence[Buffer],
        *,
        timeout_s: float,
        kernel: str = "",
    ) -> Reply:
        """One request to a worker that runs the kernel: its death is the kernel's doing."""
        try:
            return self._pool.call(role, method, params, buffers, timeout_s=timeout_s, kernel=kernel)
        except ServiceError as error:
            raise lost_by(error) from error
        except WorkerError as error:
            raise lost_by(error) from error

    def has_run(self, role: str, kernel: str) -> bool:
        """Whether a kernel runs next in a process that has run it before."""
        return self._pool.has_run(role, kernel)

    def stopped(self, role: str) -> AbstractContextManager[None]:
        """Keep a worker from running meanwhile."""
        return self._pool.stopped(role)

    def renew(self, role: str) -> None:
        """End a worker, so that what is asked next runs in a process without a past."""
        self._pool.discard(role)

    def refuse(self, role: str, error: Exception, output: str) -> EndedError:
        """End a worker whose answer our own service would never give; the verdict for it."""
        self._pool.discard(role)
        return forged(role, f"{type(error).__name__}: {error}", output)

    def together(
        self,
        role: str,
        request: dict[str, Any],
        pairs: Sequence[tuple[dict[str, Any], Buffer]],
        *,
        share: float = 1.0,
    ) -> Reply:
        """Have the kernel run on sets whose names it does not learn, in one request and within a share of the limit.

        Raises:
            EndedError: it died, or forged an answer; which set it died on is not looked for.
        """
        kernel = request["kernel"]["key"]
        blinding = Blinding(pairs, seed=f"{self._seed}/{kernel}")
        asked = {**request, "sets": blinding.sets}
        timeout_s = share * self._timeout_s
        reply = self.ask(role, "run", asked, blinding.buffers, timeout_s=timeout_s, kernel=kernel)
        try:
            blinding.take_off(reply.result)
        except _MALFORMED as error:
            raise self.refuse(role, error, reply.output) from error
        return reply

    def _in_parts(
        self,
        role: str,
        request: dict[str, Any],
        pairs: Sequence[tuple[dict[str, Any], Buffer]],
        end: EndedError,
    ) -> tuple[Reply, list[str]]:
        """The sets that are no probe's, then each of the others alone; the reply, and notes.

        After a hang all of that has but a share of the limit, and ends with the first set that does not answer in it.

        Raises:
            EndedError: there are no probes' sets, the kernel dies without them, or `end` does not come again.
        """
        core = [pair for pair in pairs if not pair[0].get("probe")]
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
            if pair[0].get("probe"):
                try:
                    part = (
                        _not_run(pair[0]["name"])
                        if has_hung
                        else self.together(role, request, [pair], share=share)
                    )
                except EndedError as death:
                    has_hung = death.verdict.status is Status.TIMEOUT
                    part = _dead(pair[0]["name"], end if has_hung and hung else death)
                try:
                    died = _mark_death(part) or died
                    reply = _joined(reply, part)
                except _MALFORMED as error:
                    raise self.refuse(role, error, part.output) from error
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
        self,
        role: str,
        request: dict[str, Any],
        pairs: Sequence[tuple[dict[str, Any], Buffer]],
        reply: Reply,
    ) -> EndedError | None:
        """What the kernel failed with on a probe's set, where the sets after it could not be run because of it."""
        probing = {one["name"] for one, _ in pairs if one.get("probe")}
        broken = None
        try:
            for answer in reply.result["sets"]:
                error = answer["error"]
                if error and error["kind"] == NOT_RUN and broken is not None:
                    if broken["name"] not in probing:
                        return None
                    contract = request["kernel"]["source"]["contract"]
                    return ended_by(broken["error"], contract, broken["name"], reply.output)
                if error and error["phase"] == "run":
                    broken = answer
        except _MALFORMED as error:
            raise self.refuse(role, error, reply.output) from error
        return None

    def _require_answers(
        self,
        role: str,
        request: dict[str, Any],
        pairs: Sequence[tuple[dict[str, Any], Buffer]],
        reply: Reply,
    ) -> None:
        """Raise what the kernel failed with on sets that are no probe's."""
        names = [one["name"] for one, _ in pairs]
        probing = {one["name"] for one, _ in pairs if one.get("probe")}
        try:
            failed = [
                answer
                for answer in reply.result["sets"]
                if answer["error"] and (answer["name"] not in probing or answer["error"]["phase"] == "load")
            ]
            # A refusal of one set says nothing of the others: a failure among them comes first, its cause before all.
            failed.sort(
                key=lambda answer: (
                    is_refusal(answer["error"]),
                    answer["error"]["kind"] == NOT_RUN,
                    names.index(answer["name"]),
                )
            )
            contract = request["kernel"]["source"]["contract"]
            ended = (
                ended_by(failed[0]["error"], contract, failed[0]["name"], reply.output) if failed else None
            )
        except _MALFORMED as error:
            raise self.refuse(role, error, reply.output) from error
        if ended is not None:
            if ended.verdict.reason in (Reason.OUT_OF_MEMORY, Reason.EXITED):
                # What it still holds, or has taken down on its way out, the next kernel would miss.
                self._pool.discard(role)
            raise ended


def _mark_death(part: Reply) -> bool:
    """Whether the kernel died on a probe's set, or broke its process: the same for what is made of it."""
    error = part.result["sets"][0]["error"]
    if error is None:
        return False
    cause = cause_of(str(error["kind"]), str(error["message"])) or cause_of_code(str(error["message"]))
    if cause in _FAULTS:
        error["phase"] = "died"
    return bool(error["phase"] == "died")


def _joined(one: Reply, other: Reply) -> Reply:
    """Two answers as one: sets, then deviations, and their buffers in the same order."""
    result = {
        "sets": [*one.result["sets"], *other.result["sets"]],
        "deviations": [*one.result["deviations"], *other.result["deviations"]],
        "observed": {**other.result["observed"], **one.result["observed"], **_both(one, other)},
    }
    count, others = len(one.result["sets"]), len(other.result["sets"])
    buffers = (
        *one.buffers[:count],
        *other.buffers[:others],
        *one.buffers[count:],
        *other.buffers[others:],
    )
    return Reply(result, buffers, one.printed + other.printed)


def _both(one: Reply, other: Reply) -> dict[str, list[Any]]:
    """Facts that both observed of probes whose facts are lists: neither may hide what the other saw."""
    seen, also = one.result["observed"], other.result["observed"]
    return {
        name: [*seen[name], *(fact for fact in also[name] if fact not in seen[name])]
        for name in seen.keys() & also.keys()
        if isinstance(seen[name], list) and isinstance(also[name], list)
    }


def _dead(name: str, death: EndedError) -> Reply:
    """What stands for the answer to a probe's set on which the kernel died."""
    return _failed(
        name, {"phase": "died", "kind": death.verdict.reason.value, "message": death.verdict.message}
    )


def _not_run(name: str) -> Reply:
    """What stands for the answer to a probe's set that was not tried any more."""
    message = "not run: the kernel hung on another set of inputs"
    return _failed(name, {"phase": "run", "kind": NOT_RUN, "message": message, "remedy": "", "trace": ""})


def _failed(name: str, error: dict[str, Any]) -> Reply:
    answer = {"name": name, "error": error, "devices": [], "tensors": {"metas": [], "spans": []}}
    return Reply({"sets": [answer], "deviations": [], "observed": {}}, (Buffer.from_chunks([]),), Printed())
