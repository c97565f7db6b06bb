"""What became of methods, kept over rounds, runs, kills and writers at once."""

from __future__ import annotations

import json
import multiprocessing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_cgins.core.errors import JournalError
from pytest_cgins.regenerate.methods import memory_file
from pytest_cgins.regenerate.methods.classes import MOST_TRIED, MethodMemory
from tests.regenerate.methods.test_choice import tried


def test_nothing_is_remembered_at_first(tmp_path: Path) -> None:
    """A file that is not there is an empty memory, and reading makes none."""
    assert memory_file.read(tmp_path / "methods.json") == MethodMemory()
    assert not list(tmp_path.iterdir())


def test_results_of_rounds_and_runs_are_kept(tmp_path: Path) -> None:
    """They are added in order; a round that is told again by a resumed run is there once, with its last result."""
    file = tmp_path / ".cgins" / "methods.json"
    memory_file.remember(file, [tried("wgmma"), tried("tma-load", "effective")])
    memory_file.remember(file, [tried("wgmma", "effective", round=2)])
    memory_file.remember(file, [tried("tma-load", "unknown")])
    found = memory_file.read(file)
    assert [(one.method, one.round, one.result) for one in found.tried] == [
        ("wgmma", 1, "ineffective"), ("wgmma", 2, "effective"), ("tma-load", 1, "unknown"),
    ]  # fmt: skip
    assert json.loads(file.read_text())["schema_version"] == 1
    place = {"kernel": "mm", "device_name": "NVIDIA H200", "language": "cuda"}
    assert found.latest(*place.values())["wgmma"].result == "effective"
    assert found.not_again(*place.values()) == {}
    assert list(found.worked(families=("matmul",), language="cuda")) == ["wgmma"]
    assert found.worked(families=("norm",), language="cuda") == {}
    assert found.worked(families=("matmul",), language="triton") == {}


def test_the_largest_gain_is_what_worked(tmp_path: Path) -> None:
    """Of several successes on other kernels the best is told."""
    results = [
        tried("wgmma", "effective", kernel=f"k{gain}", slowdown_without=gain) for gain in (1.2, 1.5, 1.1)
    ]
    found = MethodMemory().with_more(results).worked(families=("matmul",), language="cuda")
    assert found["wgmma"].kernel == "k1.5"


def test_old_results_go(tmp_path: Path) -> None:
    """The file does not grow without end."""
    memory = MethodMemory().with_more(tried("wgmma", round=number) for number in range(1, MOST_TRIED + 11))
    assert len(memory.tried) == MOST_TRIED
    assert memory.tried[0].round == 11


@given(numbers=st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 4)), max_size=20))
def test_telling_twice_changes_nothing(numbers: list[tuple[str, int]]) -> None:
    """What is told again is there once."""
    results = [tried(method, round=number) for method, number in numbers]
    once = MethodMemory().with_more(results)
    assert len(once.tried) == len(set(numbers))
    assert set(once.with_more(results).tried) == set(once.tried)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "is not a method memory file"),
        ('{"schema_version": 2, "tried": []}', "schema_version"),
        ('{"schema_version": 1, "tried": [], "more": 1}', "more"),
        ('{"schema_version": 1, "tried": [{"kernel": 3}]}', "kernel"),
    ],
)
def test_a_damaged_file_is_told_and_left_alone(tmp_path: Path, text: str, said: str) -> None:
    """It is never overwritten: a person decides."""
    file = tmp_path / "methods.json"
    file.write_text(text)
    with pytest.raises(JournalError, match=said) as caught:
        memory_file.remember(file, [tried("wgmma")])
    assert caught.value.remedy == "remove the file: only what was learned of methods is lost"
    assert file.read_text() == text


def test_a_folder_is_no_memory(tmp_path: Path) -> None:
    """Something else of that name is told."""
    with pytest.raises(JournalError, match="is not a regular file"):
        memory_file.read(tmp_path)


def _write_five(file: Path, run: str) -> None:
    for number in range(5):
        memory_file.remember(file, [tried("wgmma", run=run, round=number + 1)])


def test_writers_at_once_lose_nothing(tmp_path: Path) -> None:
    """Four processes add five results each: all twenty are there, and nothing else is left in the folder."""
    file = tmp_path / "methods.json"
    fork = multiprocessing.get_context("fork")
    writers = [fork.Process(target=_write_five, args=(file, f"r{number}")) for number in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(60)
    assert [writer.exitcode for writer in writers] == [0] * 4
    found = memory_file.read(file).tried
    assert {(one.run, one.round) for one in found} == {
        (f"r{run}", round_) for run in range(4) for round_ in range(1, 6)
    }
    assert {one.name for one in tmp_path.iterdir()} == {"methods.json", ".methods.json.lock"}


def test_a_lock_that_is_never_given_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Waiting ends with the remedy."""
    import fcntl

    monkeypatch.setattr(memory_file, "LOCK_WAIT_S", 0.05)
    with (tmp_path / ".methods.json.lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(
            JournalError, match=r"was locked by another process for 0\.05 s\n→ end that process"
        ):
            memory_file.remember(tmp_path / "methods.json", [tried("wgmma")])
