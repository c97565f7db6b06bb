"""`--cgins-shard I/N` and the merge of what the parts found."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_cgins import plugin
from pytest_cgins.app.session.collect import chosen
from pytest_cgins.core.session_report import Shard
from pytest_cgins.report.durations import Durations, parts

if TYPE_CHECKING:
    from .conftest import Run

FAST = ("--cgins", "--cgins-no-timing", "--cgins-probes=off")


def test_each_case_is_in_one_part_with_all_that_runs_it() -> None:
    """Parts differ by one case at most; a user's test on a case goes with it; what runs none is the first part's."""
    keys = [None, ("a", "p"), ("b", "p"), ("c", "p"), ("a", "q"), ("b", "p"), ("d", "p")]
    found = [chosen(keys, Shard(number=number, count=2)) for number in (1, 2)]
    assert found == [[0, 1, 3, 6], [2, 4, 5]]
    assert sorted(index for one in found for index in one) == list(range(len(keys)))
    assert chosen(keys, Shard(number=1, count=1)) == list(range(len(keys)))


@pytest.mark.exam
def test_the_parts_of_a_run_are_the_run(project: Path, run: Callable[..., Run]) -> None:
    """Collected by shard: no case twice, none lost, whatever `-k` leaves of each part."""
    options = ("--cgins", "--collect-only", "-q")
    whole = run(project, *options).nodes()
    found = [run(project, *options, f"--cgins-shard={number}/3").nodes() for number in (1, 2, 3)]
    assert sorted(node for nodes in found for node in nodes) == sorted(whole)
    assert {len(nodes) for nodes in found} <= {len(whole) // 3, -(-len(whole) // 3)}
    some = run(project, *options, "--cgins-shard=2/3", "-k", "relu").nodes()
    assert some == [node for node in found[1] if "relu" in node]


def test_parts_are_cut_by_how_long_cases_took(project: Path, run: Callable[..., Run]) -> None:
    """A run writes it, parts read it; without the file a case could be in none."""
    file = project / "durations.json"
    missing = run(project, "--cgins", "--cgins-shard=1/2", "--cgins-durations=durations.json")
    assert missing.code == 4
    assert "durations.json is not there, and shards are cut by it" in missing.out
    whole = run(project, "--cgins", "--cgins-no-timing", "-k", "right", "--cgins-durations=durations.json")
    assert whole.code == 0, whole.out
    written = json.loads(file.read_text())
    assert written["seconds"]
    assert all("right" in name and seconds > 0 for name, seconds in written["seconds"].items())
    longest = max(written["seconds"], key=written["seconds"].get)
    file.write_text(json.dumps({**written, "seconds": {**written["seconds"], longest: 1e6}}))
    options = ("--cgins", "--collect-only", "-q", "-k", "right", "--cgins-durations=durations.json")
    nodes = [run(project, *options, f"--cgins-shard={number}/2").nodes() for number in (1, 2)]
    assert [len([node for node in part if node.endswith(longest)]) for part in nodes] == [1, 0]
    assert sorted(node for part in nodes for node in part) == sorted(run(project, *options).nodes())


@given(
    st.dictionaries(
        st.tuples(st.text(max_size=3), st.just("p")),
        st.floats(min_value=0.01, max_value=1e4),
        min_size=1,
        max_size=60,
    ),
    st.integers(min_value=1, max_value=8),
)
def test_parts_are_a_partition_and_within_its_bound(
    seconds: dict[tuple[str, str], float], count: int
) -> None:
    """Each case once; the longest part takes at most 4/3 of what any cut can reach."""
    divided = parts(seconds, count)
    assert sorted(case for part in divided for case in part) == sorted(seconds)
    longest = max(sum(seconds[case] for case in part) for part in divided)
    ordered = sorted(seconds.values(), reverse=True)
    two = ordered[count - 1] + ordered[count] if len(ordered) > count else 0.0
    least = max(sum(ordered) / count, ordered[0], two)
    assert longest <= (4 / 3) * least * (1 + 1e-9)


def test_a_case_of_which_nothing_is_known_takes_what_its_kernel_usually_does() -> None:
    """And that of all cases, where the kernel is new."""
    known = Durations(version=1, seconds={"relu/cpp/a/1": 1.0, "relu/cpp/a/2": 3.0, "gelu/cpp/a/1": 9.0})
    assert known.expected(["relu/cpp/a/2", "relu/cpp/b/7", "new/cpp/a/1"]) == {
        "relu/cpp/a/2": 3.0, "relu/cpp/b/7": 2.0, "new/cpp/a/1": 3.0,
    }  # fmt: skip


def test_reports_of_parts_merge_to_that_of_the_whole(
    project: Path, run: Callable[..., Run], capsys: pytest.CaptureFixture[str]
) -> None:
    """Statuses and exit code of two parts, one of them over xdist's workers, are those of one run; a part alone is refused by its number."""
    from pytest_cgins.app import cli

    options = (*FAST, "--cgins-seed=7", "-k", "right or wrong")
    whole = run(project, *options, "--cgins-json=report.json")
    expected = whole.statuses()
    for number in (1, 2):
        workers = ["-p", "xdist", "-n", "2"] * (number == 2)
        place = f"--cgins-json=part{number}.json"
        part = run(project, *options, f"--cgins-shard={number}/2", place, *workers)
        assert part.code in (0, 1), part.out
    files = [str(project / f"part{number}.json") for number in (1, 2)]
    assert cli.main(["merge", *files, f"--out={project / 'report.json'}"]) == whole.code == 1
    assert whole.statuses() == expected
    assert len(expected) > 2
    capsys.readouterr()
    assert cli.main(["merge", files[1], f"--out={project / 'no.json'}"]) == 2
    assert "shard 1 of 2 is missing" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["0/2", "3/2", "1", "a/b", "1/2/3"])
def test_a_part_that_cannot_be_is_refused(text: str) -> None:
    """A number beyond the count, or no number."""
    with pytest.raises(ValueError):
        plugin._shard(text)


def test_a_wrong_part_is_a_usage_error(project: Path, run: Callable[..., Run]) -> None:
    """Nothing is run."""
    found = run(project, "--cgins", "--cgins-shard=3/2")
    assert found.code == 4
    assert "argument --cgins-shard" in found.out


@pytest.mark.exam
@pytest.mark.parametrize("workers", [(), ("-p", "xdist", "-n", "2")])
def test_failures_that_no_case_stands_for_are_counted(
    project: Path, run: Callable[..., Run], workers: tuple[str, ...]
) -> None:
    """A test of the user's own and a file that cannot be collected, and not the kernel that is wrong."""
    (project / "test_own.py").write_text("def test_wrong_own():\n    assert 0\n")
    (project / "test_broken.py").write_text("import no_such_module_of_ours\n")
    options = (*FAST, "--cgins-json=report.json", "--continue-on-collection-errors")
    places = ("cgins.yaml", "test_own.py", "test_broken.py")
    found = run(project, *options, *workers, "-k", "wrong", *places)
    document = found.document()
    assert "INCORRECT" in found.statuses().values()
    assert (found.code, document["other_failures"], document["stopped"]) == (1, 2, False), found.out


@pytest.mark.exam
def test_a_run_that_was_stopped_says_so(project: Path, run: Callable[..., Run]) -> None:
    """With `-x` the exit code is 1, as if all had run."""
    options = (*FAST, "--cgins-json=report.json", "-k", "wrong", "cgins.yaml")
    found = run(project, *options, "-x")
    assert (found.code, found.document()["stopped"], found.document()["other_failures"]) == (1, True, 0)
