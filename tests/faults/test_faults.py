"""Kernels that break their worker, between right ones in one session; all of them in tests/benchmarks/faults.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_cgins.core.verdict import Status
from pytest_cgins.run.limits import MEMORY_VARIABLE
from tests.faults import project

NAMES = ("os-exit-at-import", "fork-bomb", "forged-answer")
STATUSES = {"forged-answer": Status.SUSPECT}


@pytest.mark.exam
def test_a_fault_costs_its_own_case_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each fault is called by its name, and all other cases have what they have without it."""
    monkeypatch.setenv(MEMORY_VARIABLE, "2GiB")
    faults = [fault for fault in project.FAULTS if fault.name in NAMES]
    outcomes = project.run(tmp_path / "project", "cpu", faults, timeout_s=60, probes="off")
    assert [outcome.reason for outcome in outcomes] == [fault.reason for fault in faults]
    for outcome in outcomes:
        assert outcome.status is STATUSES.get(outcome.fault.name, Status.RUNTIME_ERROR)
        assert outcome.cases_lost == 1, outcome
        assert outcome.others_equal, outcome


def test_names_of_faults_are_unique() -> None:
    """A fault is asked for by its name, on either device."""
    for device in ("cpu", "cuda"):
        names = [fault.name for fault in project.faults_of(device)]
        assert len(set(names)) == len(names) > 15
