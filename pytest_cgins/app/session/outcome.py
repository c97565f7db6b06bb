"""What a verdict means to pytest: pass, warning, skip, failure or error."""

from __future__ import annotations

import pytest

from pytest_cgins.app.session.gate import Gate
from pytest_cgins.core.session_report import Evaluation
from pytest_cgins.core.verdict import Status
from pytest_cgins.report import escape, failure, summary, times


class WeakCaseWarning(pytest.PytestWarning):
    """A kernel passed a case that some forged answer passes too."""


class SlowKernelWarning(pytest.PytestWarning):
    """A kernel passed whose time would have failed it, but for `gate.fail_on: never`."""


def settle_setup(item: pytest.Item, evaluation: Evaluation, gate: Gate) -> None:
    """Skip, or raise what is not the kernel's doing."""
    outcome = summary.outcome(evaluation, strict=gate.strict)
    if outcome == "skip":
        pytest.skip(escape.lines(f"{evaluation.verdict.reason.value}: {evaluation.verdict.message}"))
    if outcome == "error":
        _fail(item, evaluation, gate)


def settle_call(item: pytest.Item, evaluation: Evaluation, gate: Gate) -> None:
    """Fail what the kernel did wrong, warn of a case that proves little and of a slowdown that is let pass."""
    if summary.outcome(evaluation, strict=gate.strict) == "fail":
        _fail(item, evaluation, gate)
    if evaluation.verdict.status is Status.WEAK:
        item.warn(WeakCaseWarning(escape.lines(f"{item.name}: {failure.headline(evaluation)}")))
    if times.let_pass([evaluation]):
        told = f"{item.name}: {failure.headline(evaluation)}; gate.fail_on is never"
        item.warn(SlowKernelWarning(escape.lines(told)))


def assert_ok(item: pytest.Item, evaluation: Evaluation, gate: Gate) -> None:
    """Both in one, for a user's test."""
    settle_setup(item, evaluation, gate)
    settle_call(item, evaluation, gate)


def _fail(item: pytest.Item, evaluation: Evaluation, gate: Gate) -> None:
    pytest.fail(escape.lines(failure.message(evaluation, command=gate.command(item))), pytrace=False)
