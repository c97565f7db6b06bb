"""What a verdict on time means to pytest."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, cast

import pytest
from timings import blocks, compared, measured

from pytest_cgins.app.session import outcome
from pytest_cgins.core.session_report import Evaluation
from pytest_cgins.core.verdict import Reason, Status

SLOW = measured(compared("base", blocks(0.08)), again=[compared("base", blocks(0.08))])
NOISY = measured(compared("base", blocks(0.03, 0.2)))


class Item:
    """Takes warnings."""

    name = "scale/cpu-cpp/tiny/a"

    def __init__(self) -> None:
        self.warnings: list[Warning] = []

    def warn(self, warning: Warning) -> None:
        self.warnings.append(warning)


class Gate:
    """Knows a command."""

    strict = False

    def command(self, item: Item) -> str:
        return f"pytest {item.name}"


def settled(evaluation: Evaluation) -> list[Warning]:
    item, gate = Item(), Gate()
    outcome.assert_ok(cast(Any, item), evaluation, cast(Any, gate))
    return item.warnings


@pytest.mark.parametrize(
    ("status", "fail_on"), [(Status.SLOWER, "regression"), (Status.INCONCLUSIVE, "inconclusive")]
)
def test_a_time_fails_as_the_gate_says(
    make_evaluation: Callable[..., Evaluation], status: Status, fail_on: str
) -> None:
    """The failure has the headline, the message, where to look and the command."""
    evaluation = make_evaluation(
        status, reason=Reason.NOISE, message="time +8%\n→ accept it", timing=SLOW, fail_on=fail_on
    )
    with pytest.raises(pytest.fail.Exception) as caught:
        settled(evaluation)
    text = str(caught.value)
    assert text.startswith(f"{status.value} (noise): time +8%\n\n→ accept it\n\ncall  ")
    assert text.endswith("\nagain   pytest scale/cpu-cpp/tiny/a")


def test_a_slowdown_that_is_let_pass_warns(make_evaluation: Callable[..., Evaluation]) -> None:
    """Under gate.fail_on: never; an undecided time passes in silence, and so does one that is not slower."""
    slow = make_evaluation(
        Status.SLOWER, reason=Reason.SLOWER_THAN_BASE, message="time +8%", timing=SLOW, fail_on="never"
    )
    (warning,) = settled(slow)
    assert isinstance(warning, outcome.SlowKernelWarning)
    assert str(warning) == (
        "scale/cpu-cpp/tiny/a: SLOWER (slower-than-base): time +8%; gate.fail_on is never"
    )
    assert settled(make_evaluation(Status.INCONCLUSIVE, timing=NOISY, fail_on="never")) == []
    assert settled(make_evaluation(Status.SAME, fail_on="never")) == []
    weak = make_evaluation(Status.WEAK, timing=SLOW, fail_on="never")
    assert [type(one) for one in settled(weak)] == [outcome.WeakCaseWarning, outcome.SlowKernelWarning]


HOSTILE = "\x1b]0;title\x07\x1b[2J\x9b31m\u202eno\r::error::no\n\x1bPq"


@pytest.mark.parametrize("status", [Status.INCORRECT, Status.INFRASTRUCTURE, Status.SKIPPED])
def test_a_kernel_s_words_control_no_terminal(
    make_evaluation: Callable[..., Evaluation], status: Status
) -> None:
    """Escape sequences, in messages and in what it printed, are spelled out, whatever pytest makes of the verdict."""
    evaluation = dataclasses.replace(make_evaluation(status, message=HOSTILE), output=HOSTILE)
    with pytest.raises((pytest.fail.Exception, pytest.skip.Exception)) as caught:
        settled(evaluation)
    assert "\\u001b]0;title\\u0007" in str(caught.value)
    assert str(caught.value).replace("\n", "").isprintable()
