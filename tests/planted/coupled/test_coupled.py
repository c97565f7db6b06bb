"""Kernels that know the recorded offsets, tables and routings by heart are told from right ones."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_cgins import config
from pytest_cgins.core.verdict import Status
from pytest_cgins.gate.evaluate import Evaluator
from tests.planted.coupled import project

ALWAYS = ("varlen_mean", "write_slots", "mixture")
"""Offsets, a table and routings, which stand for all of them in `make test`."""


def _tested(kind: str) -> list[object]:
    kernels = project.kernels_of(kind)
    return [pytest.param(one, marks=() if one.startswith(ALWAYS) else pytest.mark.exam) for one in kernels]


def _gate(folder: Path, kind: str) -> Iterator[Evaluator]:
    # Bugs must be seen on the inputs that decide, whatever probes are on.
    probes = "off" if kind == "planted" else "full"
    evaluator = Evaluator(config.load(project.make(folder, kind)), seed=20, timing=False, probes=probes)
    yield evaluator
    evaluator.close()


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Evaluator]:
    """The planted bugs, in a project of their own."""
    yield from _gate(tmp_path_factory.mktemp("planted"), "planted")


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Evaluator]:
    """The honest kernels, in a project of their own."""
    yield from _gate(tmp_path_factory.mktemp("honest"), "honest")


def _statuses(evaluator: Evaluator, kernel: str) -> dict[str, Status]:
    cases = [case for case in evaluator.cases() if case.kernel == kernel]
    assert cases
    found = {}
    for case in cases:
        verdict = evaluator.evaluate(case).verdict
        found[f"{case.name}: {verdict.reason.value}: {verdict.message}"] = verdict.status
    return found


@pytest.mark.parametrize("kernel", _tested("planted"))
def test_a_planted_bug_is_caught(planted: Evaluator, kernel: str) -> None:
    """Right on what was recorded is not right."""
    statuses = _statuses(planted, kernel)
    caught = [status.outcome == "fail" for status in statuses.values()]
    assert any(caught) if kernel in project.WRONG_OF_SOME else all(caught), statuses
    assert "recorded inputs" not in str(statuses)


@pytest.mark.parametrize("kernel", _tested("honest"))
def test_an_honest_kernel_passes(honest: Evaluator, kernel: str) -> None:
    """Nothing that the op takes is held against it."""
    statuses = _statuses(honest, kernel)
    assert set(statuses.values()) == {Status.PASSED}, statuses
