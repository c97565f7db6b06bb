"""`--cgins-store` and `--cgins-resume`: what did not change is not run again, and that is told."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

import pytest

from tests.repository import NO_CI, commit, git

if TYPE_CHECKING:
    from conftest import Run

CONFIG = """\
version: 1
traces: [traces/tiny]
kernels:
  relu: {op: torch.nn.functional.relu, source: kernels/relu.cpp}
  scaled: {op: tiny_ops.scaled, device: cpu, target: 'tiny_ops:scaled_kernel', sources: [tiny_ops.py]}
"""
CHECKED = ("--cgins", "--cgins-no-timing", "--cgins-probes=off", "--cgins-json=report.json")
KILLING = """\
import os, signal

def pytest_runtest_logfinish(nodeid):
    if os.environ.get("KILLED_AFTER", "none") in nodeid:
        os.kill(os.getpid(), signal.SIGKILL)
"""
WATCHING = """\
import json, os

def pytest_runtest_logreport(report):
    own = ("nodeid", "location", "keywords", "outcome", "longrepr", "when", "user_properties", "sections", "cgins_own")
    told = {name: getattr(report, name) for name in own} | {"found": len(report.cgins)}
    with open("reports.jsonl", "a") as file:
        print(json.dumps([told, os.environ.get("PYTEST_CURRENT_TEST", "")]), file=file)
"""
PHASED = """
def pytest_runtest_setup(item):
    pass
"""
SKIPPING = """
import pytest

def pytest_collection_modifyitems(items):
    items[0].add_marker(pytest.mark.skip(reason="not today"))
"""


@pytest.fixture
def store(tmp_path: Path) -> str:
    return f"--cgins-store={tmp_path / 'store'}"


@pytest.fixture
def repository(project: Path) -> Path:
    """The project with two kernels, committed on main."""
    (project / "cgins.yaml").write_text(CONFIG)
    (project / ".gitignore").write_text("report.json\n__pycache__/\n.cgins/\n")
    (project / "conftest.py").write_text(KILLING)
    commit(project)
    return project


def written(store: str) -> str:
    """The option that writes where another reads."""
    return store.replace("--cgins-store=", "--cgins-store-write=")


def taken(found: Run) -> dict[str, str]:
    """Kernels of cases that were not run, and by whom they were verified."""
    evaluations = found.document()["evaluations"]
    return {one["case"]["kernel"]: one["stored"]["writer"] for one in evaluations if one["stored"]}


def edit(file: Path, old: str, new: str) -> None:
    assert old in file.read_text()
    file.write_text(file.read_text().replace(old, new))


def test_only_what_changed_is_run(repository: Path, store: str, run: Callable[..., Run]) -> None:
    """Each other case is an item with its verdict, and where that comes from is told in every report."""
    github = {"GITHUB_SERVER_URL": "https://github.example", "GITHUB_REPOSITORY": "o/r", "GITHUB_RUN_ID": "7"}
    address = f"{store.partition('=')[2]}"
    first = run(repository, *CHECKED, store, written(store), env={**NO_CI, **github})
    assert first.code == 0, first.out
    assert f"cgins: earlier verdicts: {address} has none" in first.lines
    assert f"cgins: earlier verdicts: 3 verdicts written to {address}" in first.lines
    assert taken(first) == {}
    options = ["-rA", "--junitxml=junit.xml", "--cgins-durations=durations.json"]
    again = run(repository, *CHECKED, store, *options, env=NO_CI)
    assert again.code == 0, again.out
    writer = "https://github.example/o/r/actions/runs/7"
    assert taken(again) == {"relu": writer, "scaled": writer}
    head = git(repository, "rev-parse", "HEAD")[:10]
    words = f" UTC by {writer}, revision {head}, digest "
    assert again.out.count(words) == 3
    assert again.counts == {"passed": 3}
    assert "NOT RUN AGAIN 3 cases of 3: verified by earlier runs since 20" in again.out
    assert (repository / "junit.xml").read_text().count(words) >= 3
    for one in again.document()["evaluations"]:
        assert words in one["verdict"]["message"]
        assert one["verdict"]["status"] == "PASSED"
        assert one["measurement"] is None
        assert one["stored"]["key"] == one["tested"]["key"]
        assert "torch" in one["stored"]["environment"]
    assert '"seconds": {}' in (repository / "durations.json").read_text()
    edit(repository / "tiny_ops.py", "x + x", "2 * x")
    changed = run(repository, *CHECKED, store, env=NO_CI)
    assert changed.code == 0, changed.out
    assert taken(changed) == {"relu": writer}
    edit(repository / "tiny_ops.py", "2 * x", "3 * x")
    assert run(repository, *CHECKED, store, env=NO_CI).statuses()["scaled/python f32-5x4-9132"] == "INCORRECT"


def reports(repository: Path) -> tuple[list[Any], list[str]]:
    """Reports since the last call, and the phase of pytest in which each was made; "" after and without them."""
    file = repository / "reports.jsonl"
    told = [json.loads(line) for line in file.read_text().splitlines()]
    file.unlink()
    return [report for report, _ in told], [phase.rpartition(" ")[2] for _, phase in told]


def test_a_known_case_has_the_reports_of_its_phases(
    repository: Path, store: str, run: Callable[..., Run]
) -> None:
    """It goes through none of them; the file's last case does, and each case where a hook of the project's waits for it."""
    conftest = repository / "conftest.py"
    conftest.write_text(WATCHING)
    commit(repository)
    first = run(repository, *CHECKED, store, written(store), env=NO_CI)
    assert first.counts == {"passed": 3}
    reports(repository)
    told = []
    phased = ["(setup)", "(call)", ""]
    for text, phases in ((WATCHING, [""] * 6 + phased), (WATCHING + PHASED, phased * 3)):
        conftest.write_text(text)
        options = ["-x", "-vv", "--durations=0", "--junitxml=junit.xml"]
        found = run(repository, *CHECKED, store, *options, env=NO_CI | {"PYTEST_CURRENT_TEST": ""})
        assert taken(found).keys() == {"relu", "scaled"}
        made, known_phases = reports(repository)
        assert known_phases == phases
        xml = ET.parse(repository / "junit.xml")
        cases = [
            (case.get("name"), [(one.tag, one.attrib, one.text) for one in case.iter() if one is not case])
            for case in xml.iter("testcase")
        ]
        shown = [re.sub(r"^[\d.]+s", "", line) for line in found.lines if "cgins.yaml::" in line]
        told.append((made, cases, sorted(shown)))
    assert told[0] == told[1]


def test_a_known_case_that_is_to_be_skipped_is_skipped(
    repository: Path, store: str, run: Callable[..., Run]
) -> None:
    """A marker says so, of which only a phase of pytest takes notice."""
    run(repository, *CHECKED, store, written(store), env=NO_CI)
    (repository / "conftest.py").write_text(SKIPPING)
    assert run(repository, *CHECKED, store, env=NO_CI).counts == {"passed": 2, "skipped": 1}


def test_workers_take_and_the_controller_keeps(repository: Path, store: str, run: Callable[..., Run]) -> None:
    """Under xdist; who only writes runs all cases, and keeps all anew."""
    parallel = ("-p", "xdist", "-n", "2")
    first = run(repository, *CHECKED, store, written(store), *parallel, env=NO_CI)
    assert "3 verdicts written to" in first.out, first.out
    again = run(repository, *CHECKED, store, written(store), *parallel, env=NO_CI)
    assert taken(again).keys() == {"relu", "scaled"}
    assert "0 verdicts written to" in again.out
    nightly = run(repository, *CHECKED, written(store), env=NO_CI)
    assert taken(nightly) == {}
    assert "3 verdicts written to" in nightly.out


@pytest.mark.exam
@pytest.mark.parametrize(
    ("variables", "dirty", "said"),
    [
        ({"GITHUB_EVENT_NAME": "pull_request"}, False, "this is a run of GitHub's event pull_request"),
        ({"CI_MERGE_REQUEST_TARGET_BRANCH_NAME": "main"}, False, "this is a pull request into main"),
        ({"CI_COMMIT_BRANCH": "faster"}, False, "HEAD is on faster, and the default branch is main"),
        ({}, True, "the working tree is not that of its commit"),
    ],
    ids=["GitHub", "GitLab", "branch", "changed"],
)
def test_only_the_default_branch_writes(
    repository: Path, store: str, run: Callable[..., Run], variables: dict[str, str], dirty: bool, said: str
) -> None:
    """A pull request must not plant its own PASSED, whatever its command line says."""
    if dirty:
        edit(repository / "tiny_ops.py", "x + x", "2 * x")
    found = run(repository, *CHECKED, store, written(store), env={**NO_CI, **variables})
    address = store.partition("=")[2]
    assert f"cgins: earlier verdicts: not written to {address}: {said}" in found.lines
    assert not Path(address).exists()


@pytest.mark.exam
def test_what_is_compared_with_its_base_is_run(repository: Path, store: str, run: Callable[..., Run]) -> None:
    """A kernel that is again what it was once verified as may still be slower than its base: its time is no stored one."""
    timed = ("--cgins", "--cgins-probes=off", "--cgins-json=report.json")
    first = run(repository, *timed, store, written(store), env=NO_CI)
    assert "3 verdicts written to" in first.out, first.out
    edit(repository / "tiny_ops.py", "x + x", "x * 2")
    commit(repository)
    git(repository, "switch", "-q", "-c", "back")
    edit(repository / "tiny_ops.py", "x * 2", "x + x")
    found = run(repository, *timed, store, env=NO_CI)
    assert taken(found).keys() == {"relu"}, found.out
    (scaled,) = [one for one in found.document()["evaluations"] if one["case"]["kernel"] == "scaled"]
    assert scaled["measurement"]["comparisons"], found.out


def test_a_killed_run_goes_on(repository: Path, run: Callable[..., Run]) -> None:
    """What it had verified before kill -9 is taken over; a finished run leaves nothing."""
    killed = run(repository, *CHECKED, env={**NO_CI, "KILLED_AFTER": "relu"})
    assert killed.code in (-9, 137), killed.out
    (journal,) = (repository / ".cgins" / "unfinished").iterdir()
    journal.write_text(journal.read_text() + "0123 torn")
    other = run(repository, *CHECKED, env=NO_CI)
    assert taken(other) == {}
    assert journal.exists()
    resumed = run(repository, *CHECKED, "--cgins-resume", env=NO_CI)
    assert resumed.code == 0, resumed.out
    assert taken(resumed).keys() == {"relu"}
    assert resumed.out.count("NOT RUN AGAIN 1 case of 3: verified by earlier runs") == 1
    assert not (repository / ".cgins").exists()
    assert taken(run(repository, *CHECKED, "--cgins-resume", env=NO_CI)) == {}


@pytest.mark.exam
def test_what_is_not_known_whole_is_run_each_time(
    repository: Path, store: str, run: Callable[..., Run]
) -> None:
    """And why is told."""
    edit(repository / "tiny_ops.py", "import pytest_cgins", "import importlib, pytest_cgins")
    commit(repository)
    for _ in range(2):
        found = run(repository, *CHECKED, store, written(store), env=NO_CI)
        assert "cgins: earlier verdicts: 1 case run each time: tiny_ops.py has importlib" in found.lines
    assert taken(found).keys() == {"relu"}


def test_old_verdicts_are_not_taken(repository: Path, store: str, run: Callable[..., Run]) -> None:
    """`--cgins-store-days` says from which age on."""
    run(repository, *CHECKED, store, written(store), env=NO_CI)
    assert taken(run(repository, *CHECKED, store, "--cgins-store-days=0.000001", env=NO_CI)) == {}


@pytest.mark.exam
def test_what_does_not_go_together_is_refused(repository: Path, store: str, run: Callable[..., Run]) -> None:
    """Verdicts that a pull request could bring, and times that nobody took."""

    def refused(*options: str, **variables: str) -> str:
        found = run(repository, "--cgins", "--collect-only", *options, env=NO_CI | variables)
        assert found.code == 4, found.out
        return found.out

    said = "--cgins-store and --cgins-regenerate: verdicts that are taken over have no times\n→ leave one of them out"
    assert said in refused(store, "--cgins-regenerate")
    assert "nosuch://x cannot be opened" in refused("--cgins-store=nosuch://x")
    (repository / "kept").mkdir()
    (repository / "kept" / "planted.verdicts").write_text("")
    commit(repository)
    said = (
        "kept: verdicts that are in git could be a pull request's own\n→ git rm them, and name another folder"
    )
    assert said in refused("--cgins-store=kept")
    (repository / "pytest.ini").write_text(f"[pytest]\naddopts = {store}\n")
    said = "--cgins-store in a file's addopts: a pull request could choose its own verdicts\n→ give it on the command line or"
    assert said in refused()
    assert (
        "collected" in run(repository, "--cgins", "--collect-only", env=NO_CI | {"PYTEST_ADDOPTS": store}).out
    )


@pytest.mark.exam
def test_a_store_that_cannot_be_read_takes_nothing(
    repository: Path, store: str, run: Callable[..., Run]
) -> None:
    """Each case is run, and that is told."""
    folder = Path(store.partition("=")[2])
    (folder / "f.verdicts").mkdir(parents=True)
    found = run(repository, *CHECKED, store, env=NO_CI)
    assert found.counts == {"passed": 3}
    assert (
        f"cgins: earlier verdicts: none is taken: the store of verdicts {folder} cannot be read" in found.out
    )
