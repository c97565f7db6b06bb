"""What a verdict means to pytest: pass, warning, skip, failure or error."""

from __future__ import annotations

from dataclasses import replace
from os.path import relpath

import pytest

from pytest_cgins.app.session.gate import Gate
from pytest_cgins.core.session_report import Compilation, Evaluation
from pytest_cgins.core.verdict import Status
from pytest_cgins.report import compiled, escape, failure, summary, times

Result = Evaluation | Compilation


class WeakCaseWarning(pytest.PytestWarning):
    """A kernel passed a case that some forged answer passes too."""


class SlowKernelWarning(pytest.PytestWarning):
    """A kernel passed whose time would have failed it, but for `gate.fail_on: never`."""


def settle_setup(item: pytest.Item, found: Result, gate: Gate) -> None:
    """Skip, or raise what is not the kernel's doing."""
    outcome = _outcome(found, gate)
    if outcome == "skip":
        pytest.skip(escape.lines(f"{found.verdict.reason.value}: {found.verdict.message}"))
    if outcome == "error":
        _fail(item, found, gate)


def settle_call(item: pytest.Item, found: Result, gate: Gate) -> None:
    """Fail what the kernel did wrong, warn of a case that proves little and of a slowdown that is let pass."""
    if _outcome(found, gate) == "fail":
        _fail(item, found, gate)
    if isinstance(found, Compilation):
        return
    if found.verdict.status is Status.WEAK:
        item.warn(WeakCaseWarning(escape.lines(f"{item.name}: {failure.headline(found)}")))
    if times.let_pass([found]):
        told = f"{item.name}: {failure.headline(found)}; gate.fail_on is never"
        item.warn(SlowKernelWarning(escape.lines(told)))


def assert_ok(item: pytest.Item, evaluation: Evaluation, gate: Gate) -> None:
    """Both in one, for a user's test."""
    settle_setup(item, evaluation, gate)
    settle_call(item, evaluation, gate)


def _outcome(found: Result, gate: Gate) -> str:
    return (
        summary.outcome(found, strict=gate.strict)
        if isinstance(found, Evaluation)
        else found.verdict.status.outcome
    )


def _fail(item: pytest.Item, found: Result, gate: Gate) -> None:
    if isinstance(found, Evaluation):
        message = failure.message(found, command=gate.command(item))
    else:
        config = relpath(item.path, gate.config.invocation_params.dir)
        message = compiled.message(found, command=compiled.command(replace(found, config=config)))
    pytest.fail(escape.lines(message), pytrace=False)
