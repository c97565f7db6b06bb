"""What a kernel's answers to the sets of probes tell of it."""

from __future__ import annotations

from pytest_cgins.config import Tolerance
from pytest_cgins.core.call_text import call_line
from pytest_cgins.core.failure_kinds import cause_of
from pytest_cgins.core.model import Check, Reason
from pytest_cgins.verify import arguments, layouts, precision, sizes, special
from pytest_cgins.verify.compare import ExpectedSet
from pytest_cgins.verify.diagnosis import Answered, Diagnosis
from pytest_cgins.verify.input_sets import InputSet
from pytest_cgins.verify.messages import RaisedError
from pytest_cgins.verify.probe_verdicts import Suspicions

_PATTERNS = (Reason.NAN_PATTERN, Reason.INFINITE_PATTERN, Reason.UNWRITTEN)
_FAULTS = (Reason.ILLEGAL_ADDRESS, Reason.DEVICE_ASSERT)


def take_error(made: InputSet, error: RaisedError, suspicions: Suspicions) -> None:
    """What a kernel raised on a probe's set, or died of.

    A refusal is an error that the kernel itself gives: whoever dies, or launches nothing, did not refuse. What a kernel is said to
    take it must not refuse.
    """
    name, message = made.expected.name, error.message.partition("\n")[0]
    died = error.phase == "died" or cause_of(error.kind, error.message) in _FAULTS
    died = died or _fails_on_nothing(made, error)
    claimed = made.probe == layouts.NAME and layouts.claim_of(made) in suspicions.permissions.claims
    if died or claimed:
        what = "died" if died else "refuses what its claims in cgins.yaml say it takes"
        if error.kind == Reason.TIMED_OUT.value:
            what = "did not end, as it hangs there or is slow"
        suspicions.trip(
            made.probe,
            f"on the {name} inputs the kernel {what}: {message}{_called(made)}{_remedy(made)}",
            _reason(made),
        )
    else:
        suspicions.not_run.setdefault(made.probe, f"the kernel refuses {name}: {message}")


def _fails_on_nothing(made: InputSet, error: RaisedError) -> bool:
    """Whether a kernel launched no blocks, or divided by no rows: that is no refusal of an empty batch."""
    empty = made.probe == sizes.NAME and any(0 in meta.shape for meta in made.layout.metas)
    text = error.message
    return empty and (error.kind == "ZeroDivisionError" or "invalid configuration argument" in text)


def take_checks(
    one: Answered,
    suspicions: Suspicions,
    found: Diagnosis | None,
    *,
    half: ExpectedSet,
    tolerance: Tolerance,
) -> None:
    """The checks of the answer to a probe's set, by a kernel that is right on the sets that decide.

    Args:
        one: the answer.
        suspicions: collects what is found.
        found: what explains a wrong answer.
        half: what was expected of the same numbers in the case's own precision.
        tolerance: of the case.
    """
    made = one.made
    if not one.checks:
        return
    failed = [check for check in one.checks if not check.passed]
    if made.probe == precision.NAME:
        hidden, unknown = precision.judge(half, one.checks, one.got, tolerance)
        suspicions.trip(made.probe, hidden)
        if unknown:
            suspicions.not_run.setdefault(made.probe, unknown)
        return
    if made.probe == special.NAME:
        # Its numbers were looked at before; a wrong shape would have been seen there, too.
        failed = [check for check in failed if check.reason in _PATTERNS]
    suspicions.answered.add(made.probe)
    if failed:
        words = f" {found.words}" if found is not None and found.words else ""
        reason = found.reason if found is not None and found.reason else _reason(made, failed[0])
        suspicions.trip(made.probe, f"{failed[0].message}{words}{_called(made)}{_remedy(made)}", reason)


def _reason(made: InputSet, check: Check | None = None) -> Reason | None:
    if made.probe == layouts.NAME and layouts.claim_of(made) == layouts.MISALIGNED:
        return Reason.ALIGNMENT_DEPENDENT
    if made.probe == special.NAME and check is not None and check.reason in _PATTERNS[:2]:
        return check.reason
    return None


def _called(made: InputSet) -> str:
    """The probe's call, which is not the recorded one."""
    return f"\ncalled  {call_line(made.call, made.layout.metas)}"


_REMEDIES = {
    sizes.NAME: "be right for this size too, or return an error for it: a size that is refused fails nothing",
    arguments.NAME: "be right for these values too, or return an error for them: what is refused fails nothing",
    layouts.NAME: "go by the tensor's strides and address, or return an error for those that the kernel does not take",
}


def _remedy(made: InputSet) -> str:
    """What the probe itself goes by."""
    return f"\n→ {_REMEDIES[made.probe]}" if made.probe in _REMEDIES else ""
