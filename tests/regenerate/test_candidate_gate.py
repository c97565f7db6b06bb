"""What a machine lacks is not laid at a candidate's door."""

from __future__ import annotations

import pytest

from pytest_cgins.core.errors import RegenerateError
from pytest_cgins.core.verdict import Reason, Status
from pytest_cgins.regenerate.candidate_gate import tried_here
from tests.evaluations import make_evaluation


def test_a_device_that_is_not_here_costs_no_attempt() -> None:
    """A run that is resumed on another machine ends with what is missing, and the answer waits."""
    absent = make_evaluation(
        Status.SKIPPED, reason=Reason.DEVICE_ABSENT, message="no cuda device on this machine"
    )
    with pytest.raises(RegenerateError) as raised:
        tried_here(absent, needs_tools=False)
    assert raised.value.what == f"{absent.case.name} cannot be tried here: no cuda device on this machine"
    assert raised.value.remedy == "resume the run where its device is; the answer is kept"
    wrong = make_evaluation(Status.INCORRECT)
    assert tried_here(wrong, needs_tools=False) is wrong


def test_a_tool_that_fails_late_costs_no_attempt() -> None:
    """What could be built and was right is not refused because the incumbent beside it could not be built."""
    failed = make_evaluation(
        Status.INFRASTRUCTURE,
        reason=Reason.TOOL_MISSING,
        message="its base revision could not be built: no room",
    )
    with pytest.raises(RegenerateError) as raised:
        tried_here(failed)
    assert raised.value.what.endswith("cannot be tried here: its base revision could not be built: no room")
    assert raised.value.remedy == "resume the run once that is fixed; the answer is kept"
    slower = make_evaluation(Status.SLOWER)
    assert tried_here(slower) is slower


def test_memory_that_others_hold_costs_no_attempt() -> None:
    """A right kernel was told that it is wrong for other numbers, since another session held 137 GiB."""
    held = "other processes held 137.1 GiB of the device's memory"
    full = make_evaluation(Status.INFRASTRUCTURE, reason=Reason.OUT_OF_MEMORY, message=held)
    with pytest.raises(RegenerateError) as raised:
        tried_here(full)
    assert raised.value.what == f"{full.case.name} cannot be tried here: {held}"
    assert raised.value.remedy == "resume the run once that is fixed; the answer is kept"
    assert tried_here(full, needs_tools=False) is full  # candidates beside it may hold it
    own = make_evaluation(Status.RUNTIME_ERROR, reason=Reason.OUT_OF_MEMORY)
    assert tried_here(own) is own
    busy = make_evaluation(Status.INFRASTRUCTURE, reason=Reason.DEVICE_BUSY, message="not timed")
    with pytest.raises(RegenerateError, match="cannot be tried here: not timed"):
        tried_here(busy, needs_tools=False)
