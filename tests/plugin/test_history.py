"""`--cgins-history`: times of runs on the default branch are kept."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pytest_cgins.report.history_file import read
from tests.repository import NO_CI, commit, git

if TYPE_CHECKING:
    from conftest import Run

TIMED = ("--cgins", "--cgins-probes=off", "--cgins-json=report.json", "--cgins-history=kept/h.jsonl")
ONE = """\
version: 1
traces: [traces/tiny]
kernels:
  scaled: {op: tiny_ops.scaled, device: cpu, target: 'tiny_ops:scaled_kernel', sources: [tiny_ops.py]}
"""


@pytest.fixture
def repository(project: Path) -> Path:
    """The project with one kernel, committed on main."""
    (project / "cgins.yaml").write_text(ONE)
    commit(project)
    return project


def test_timed_cases_are_appended(repository: Path, run: Callable[..., Run]) -> None:
    """A line a case, with what its JSON report says; what was torn is cut off, and that is said."""
    (repository / "kept").mkdir()
    (repository / "kept" / "h.jsonl").write_text('{"version":1,"cgi')
    found = run(repository, *TIMED, env=NO_CI)
    assert found.code == 0, found.out
    timed = [one for one in found.document()["evaluations"] if one["measurement"]]
    said = f"cgins: history: {len(timed)} case{'s' * (len(timed) > 1)} appended to kept/h.jsonl"
    assert f"{said}; line 1 was incomplete and has been removed: 17 bytes" in found.lines
    kept = read(repository / "kept" / "h.jsonl").entries
    assert [one.case.rpartition("/")[2] for one in kept] == [one["case"]["signature"] for one in timed]
    times = [one["measurement"]["kernel"]["median_ns_per_call"] for one in timed]
    assert [one.kernel_ns for one in kept] == times
    assert (kept[0].head.branch, kept[0].head.dirty, kept[0].config) == ("main", False, "cgins.yaml")


def test_other_branches_are_not(repository: Path, run: Callable[..., Run]) -> None:
    """The summary says why; with --cgins-history-always they are, under xdist by the controller, once."""
    git(repository, "switch", "-q", "-c", "faster")
    found = run(repository, *TIMED, "--cgins-no-timing", env=NO_CI)
    assert found.code == 0, found.out
    said = "cgins: history: not appended to kept/h.jsonl: HEAD is on faster, and the default branch is main"
    assert f"{said} (--cgins-history-always appends anyway)" in found.lines
    assert not (repository / "kept").exists()
    found = run(repository, *TIMED, "--cgins-history-always", "-p", "xdist", "-n", "1", env=NO_CI)
    kept = read(repository / "kept" / "h.jsonl").entries
    assert {one.head.branch for one in kept} == {"faster"}
    assert len(kept) == len([one for one in found.document()["evaluations"] if one["measurement"]])


@pytest.mark.exam
def test_a_file_of_another_kind_is_left_alone(repository: Path, run: Callable[..., Run]) -> None:
    """It is said, and fails nothing: a history is no gate."""
    (repository / "kept").mkdir()
    (repository / "kept" / "h.jsonl").write_text("print('hello')\n")
    found = run(repository, *TIMED, env=NO_CI)
    assert found.code == 0, found.out
    assert "cgins: history: not appended to kept/h.jsonl: " in found.out
    assert "h.jsonl:1: not an entry of a history: " in found.out
    assert (repository / "kept" / "h.jsonl").read_text() == "print('hello')\n"


@pytest.mark.exam
def test_without_times_there_is_nothing_to_append(repository: Path, run: Callable[..., Run]) -> None:
    """No empty file is made."""
    found = run(repository, *TIMED, "--cgins-no-timing", env=NO_CI)
    assert "cgins: history: nothing to append to kept/h.jsonl: no case was timed" in found.lines
    assert not (repository / "kept").exists()


def test_the_switch_needs_the_file(project: Path, run: Callable[..., Run]) -> None:
    """Alone it would do nothing in silence."""
    found = run(project, "--cgins", "--cgins-history-always")
    assert found.code == 4
    assert "--cgins-history-always goes with --cgins-history PATH" in found.out
