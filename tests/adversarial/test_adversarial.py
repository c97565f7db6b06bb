"""Kernels that try to pass without being right: each fails, for the reason that its own file gives."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pytest_cgins.core.verdict import Reason
from tests.adversarial import project
from tests.adversarial.specimens import ADVERSARIAL, Specimen, collect
from tests.selected import selected

SPECIMENS = [one for one in collect(ADVERSARIAL) if "sandbox" not in one.flags]
ELSEWHERE = {"memory-use"}
"""Reasons whose kernels take half a minute; tests/verify/probe_support/test_memory.py has them for every change."""
SESSION_WAYS = {3, 19, 20}
"""Those that no kernel is: see test_sessions.py."""


def _parameters(device: str) -> list[object]:
    return [one.parameter for one in SPECIMENS if one.device == device]


@pytest.fixture(scope="module")
def gate(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[project.Gate]:
    """All that are tested, in one project, with default settings."""
    folder, specimens = tmp_path_factory.mktemp("adversarial"), selected(request, "specimen")
    with project.workers_are_forked(), project.gate(folder, specimens) as opened:
        yield opened


@pytest.fixture(scope="module")
def gpu_gate(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[project.Gate]:
    """Those that need a GPU."""
    folder, specimens = tmp_path_factory.mktemp("adversarial-gpu"), selected(request, "specimen")
    with project.gate(folder, specimens, device="cuda") as opened:
        yield opened


@pytest.mark.parametrize("specimen", _parameters("cpu"))
def test_is_caught_by_its_own_reason(gate: project.Gate, specimen: Specimen) -> None:
    """The kernel does not pass any of its cases, and the verdict gives the reason that its file gives."""
    _is_caught(gate, specimen)


@pytest.mark.gpu
@pytest.mark.parametrize("specimen", _parameters("cuda"))
def test_is_caught_by_its_own_reason_on_a_gpu(gpu_gate: project.Gate, specimen: Specimen) -> None:
    """The same for what only a GPU can do: streams, shared memory, tensor cores, a persisting cache."""
    _is_caught(gpu_gate, specimen)


def _is_caught(gate: project.Gate, specimen: Specimen) -> None:
    """What is told by times alone may be hidden by the noise of a busy machine: then it is asked once more."""
    found = gate.evaluate(specimen)
    if specimen.flags & {"timing", "base"} and any(one.verdict.status.outcome == "pass" for one in found):
        found = gate.evaluate(specimen)
    for evaluation in found:
        verdict = evaluation.verdict
        told = f"{verdict.status.value} ({verdict.reason.value}): {verdict.message}\n{evaluation.output}"
        assert verdict.status.outcome == "fail", told
        assert verdict.reason.value in specimen.caught_by, told


def test_every_way_has_a_kernel() -> None:
    """All ways of the list that are a kernel's are here, and there are at least sixty kernels on the CPU alone."""
    assert {one.way for one in SPECIMENS} | SESSION_WAYS == set(range(1, 28))
    assert len(_parameters("cpu")) >= 60


def test_every_reason_has_a_kernel_that_is_gated_for_every_change() -> None:
    """`make test` leaves out no reason; and no file expects one that no verdict has."""
    of_cpu = [one for one in SPECIMENS if one.device == "cpu"]
    always = {reason for one in of_cpu if "always" in one.flags for reason in one.caught_by}
    assert {reason for one in of_cpu for reason in one.caught_by} - always == ELSEWHERE
    assert {reason for one in SPECIMENS for reason in one.caught_by} <= {reason.value for reason in Reason}
