"""What ends a case before there is anything to compare, as verdicts."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from pytest_cgins.core.errors import ServiceError, WorkerError
from pytest_cgins.core.failure_kinds import cause_of, cause_of_code, others_nbytes
from pytest_cgins.core.text import inputs_phrase
from pytest_cgins.core.verdict import Reason, Status, Verdict
from pytest_cgins.verify.messages import RaisedError


class EndedError(Exception):
    """The evaluation is over before there is anything to compare."""

    def __init__(self, status: Status, reason: Reason, message: str, output: str = "") -> None:
        super().__init__(message)
        self.verdict = Verdict(status=status, reason=reason, message=message, numbers={})
        self.output = output

    def with_more(self, lines: Sequence[str]) -> EndedError:
        """A copy of this error with more lines in its message."""
        verdict = self.verdict
        message = "\n".join((verdict.message, *lines))
        return EndedError(verdict.status, verdict.reason, message, self.output)


def is_full(verdict: Verdict) -> bool:
    """Whether a case had no memory, which others held, or torch needed more than there is."""
    return verdict.status is Status.INFRASTRUCTURE and verdict.reason is Reason.OUT_OF_MEMORY


def not_the_kernels(error: ServiceError) -> EndedError:
    """The verdict for an exception in the trusted worker: the pack does not replay, or something is broken."""
    text = f"{error.text}\n→ {error.remedy}" if error.remedy else error.text
    if cause_of(error.kind, error.text) is Reason.OUT_OF_MEMORY:
        return EndedError(Status.INFRASTRUCTURE, Reason.OUT_OF_MEMORY, text)
    if error.kind == "PackError":
        return EndedError(Status.TRACE_DRIFT, Reason.PACK_DAMAGED, text)
    if error.kind == "RandomOp":
        return EndedError(Status.SKIPPED, Reason.RANDOM, text)
    if error.kind in ("RecordError", "ReplayError", "TraceError"):
        return EndedError(Status.TRACE_DRIFT, Reason.GOLD_DRIFT, text)
    if error.kind == "ConfigError":
        return EndedError(Status.INFRASTRUCTURE, Reason.REFERENCE_FAILED, text)
    return EndedError(Status.INFRASTRUCTURE, Reason.REFERENCE_FAILED, str(error), error.output)


def lost_by(error: WorkerError) -> EndedError:
    """The verdict for what became of a request to a worker that runs a kernel.

    The kernel is to blame, unless the worker was lost before it could have run one.
    """
    reason = Reason(error.fault)
    if reason is Reason.WORKER_LOST:
        return EndedError(Status.INFRASTRUCTURE, reason, str(error), error.output)
    if isinstance(error, ServiceError):
        reason = cause_of(error.kind, error.text) or cause_of_code(error.text) or reason
        if reason is Reason.OUT_OF_MEMORY and (others := others_nbytes(error.text)) >= _MUCH_NBYTES:
            return _beside_others(str(error), others, error.output)
    elif reason is Reason.ABORTED:
        # An exception that nobody caught: what it was, the C++ runtime has printed before it aborted.
        reason = cause_of("", error.output) or reason
    return EndedError(_STATUSES.get(reason, Status.RUNTIME_ERROR), reason, str(error), error.output)


_STATUSES = {Reason.TIMED_OUT: Status.TIMEOUT, Reason.FORGED_ANSWER: Status.SUSPECT}


def forged(role: str, what: str, output: str) -> EndedError:
    """The verdict for an answer that our own service would never give."""
    return EndedError(
        Status.SUSPECT,
        Reason.FORGED_ANSWER,
        f"the {role} worker gave an answer that is not in the protocol ({what}): the kernel tampers with its process",
        output,
    )


def is_refusal(error: RaisedError) -> bool:
    """Whether binding found that the kernel's contract does not cover the call."""
    return (error.phase, error.kind) == ("bind", "ContractError")


_MUCH_NBYTES = 2**32
"""More than the contexts of a session's own processes: who runs out of memory beside so much is not to blame."""
_NUMBER_IN_INTERPRETER = """raised InterpreterError: AttributeError("'float' object has no attribute"""
"""What Triton's interpreter raises for `eps.to(…)`, which its compiler takes."""


def ended_by(error: RaisedError, contract: str, inputs: str, output: str) -> EndedError:
    """The verdict for what the kernel, its loading or its binding raised in a worker.

    Only before the kernel runs can an error be ours; its class name is the kernel's to choose afterwards.
    """
    message = f"{error.message}\n→ {error.remedy}" if error.remedy else error.message
    if is_refusal(error):
        return EndedError(Status.SKIPPED, Reason.CONTRACT, error.message)
    if error.phase == "run" and _NUMBER_IN_INTERPRETER in error.message:
        why = "the interpreter passes floating-point arguments as Python's numbers, the compiler as tensors"
        return EndedError(
            Status.SKIPPED, Reason.CONTRACT, f"{error.message.partition(chr(10))[0]}: {why}", output
        )
    if error.phase != "run" and error.kind == "SourceError":
        return EndedError(Status.BUILD_ERROR, Reason.SOURCE, message)
    if error.phase == "load" and error.kind == "InfrastructureError":
        return EndedError(Status.INFRASTRUCTURE, Reason.TOOL_MISSING, message)
    what = {"load": "loading it failed", "bind": "its arguments could not be passed"}
    where = what.get(error.phase, f"on {inputs_phrase(inputs, 'the ')}")
    if error.kind != "LaunchError":
        message = f"{error.kind}: {message}"
    by_code = error.phase == "run" and error.kind == "LaunchError" and contract == "launcher"
    cause = cause_of(error.kind, error.message) or cause_of_code(error.message)
    reason = cause or (Reason.ERROR_CODE if by_code else Reason.RAISED)
    others = error.others_nbytes or others_nbytes(error.message)
    if reason is Reason.OUT_OF_MEMORY and others >= _MUCH_NBYTES:
        return _beside_others(f"{where}: {message}", others, output)
    frames = "" if by_code else _own_frames(error.trace)
    status = _STATUSES.get(reason, Status.RUNTIME_ERROR)
    return EndedError(status, reason, f"{where}: {message}", frames + output)


def _beside_others(message: str, others: int, output: str) -> EndedError:
    """The verdict for who ran out of memory of which others held so many bytes."""
    held = f"other processes held {others / 2**30:.1f} GiB of the device's memory"
    why = f"{message.partition(chr(10))[0]}\n{held} → end them, or have fewer runs share the device"
    return EndedError(Status.INFRASTRUCTURE, Reason.OUT_OF_MEMORY, why, output)


def _own_frames(trace: str) -> str:
    """A worker's traceback without the frames of this package."""
    own = str(Path(__file__).parents[1])
    frames = re.split(r"(?m)^(?=  File )", trace)
    return "".join(part for part in frames if not part.startswith(f'  File "{own}'))
