"""Kernels that know the recorded offsets, tables and routings by heart are told from right ones."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pytest_cgins import config
from pytest_cgins.core.verdict import Status
from pytest_cgins.gate.evaluate import Evaluator
from tests.planted.coupled import project


@pytest.fixture(scope="module", params=list(project.MODULES))
def gate(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Evaluator]:
    """The kernels of a module, in a project of their own."""
    file = project.make(tmp_path_factory.mktemp(request.param), request.param)
    # Bugs must be seen on the inputs that decide, whatever probes are on.
    probes = "off" if "planted" in request.param else "full"
    evaluator = Evaluator(config.load(file), seed=20, timing=False, probes=probes)
    yield evaluator
    evaluator.close()


def _kernels(kind: str) -> list[tuple[str, str]]:
    return [
        (module, name) for module in project.MODULES if kind in module for name in project.kernels_of(module)
    ]


def _statuses(evaluator: Evaluator, kernel: str) -> dict[str, Status]:
    cases = [case for case in evaluator.cases() if case.kernel == kernel]
    assert cases
    found = {}
    for case in cases:
        verdict = evaluator.evaluate(case).verdict
        found[f"{case.name}: {verdict.reason.value}: {verdict.message}"] = verdict.status
    return found


@pytest.mark.parametrize(("gate", "kernel"), _kernels("planted"), indirect=["gate"])
def test_a_planted_bug_is_caught(gate: Evaluator, kernel: str) -> None:
    """Right on what was recorded is not right."""
    statuses = _statuses(gate, kernel)
    caught = [status.outcome == "fail" for status in statuses.values()]
    assert any(caught) if kernel in project.WRONG_OF_SOME else all(caught), statuses
    assert "recorded inputs" not in str(statuses)


@pytest.mark.parametrize(("gate", "kernel"), _kernels("honest"), indirect=["gate"])
def test_an_honest_kernel_passes(gate: Evaluator, kernel: str) -> None:
    """Nothing that the op takes is held against it."""
    statuses = _statuses(gate, kernel)
    assert set(statuses.values()) == {Status.PASSED}, statuses
