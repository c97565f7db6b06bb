"""`cgins proposal rebase`: a proposal on a base that moved, with kernels that are really run."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from pytest_cgins.app import cli
from pytest_cgins.core.verdict import Status
from pytest_cgins.regenerate import proposal
from pytest_cgins.regenerate.proposal import measure
from tests.evaluations import make_evaluation
from tests.regenerate import proposals, rebasing
from tests.regenerate.proposals import git
from tests.regenerate.rebasing import HEADER, NEW, ODD, OLD, PATH, RIGHT, SLOW, WRONG, YAML


@pytest.fixture(scope="session")
def packs(made_once: Callable[[str, Callable[[Path], object]], Path]) -> Path:
    """Traces, recorded once."""
    return made_once("rebase-packs", rebasing.record) / "traces"


@pytest.fixture
def project(tmp_path: Path, packs: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with the traces in it, and a proposal in `../p` that was made on its first commit."""
    folder = tmp_path / "project"
    shutil.copytree(packs, folder / "traces")
    first = proposals.project(folder, {"cgins.yaml": YAML, PATH: OLD, HEADER: WRONG})
    rebasing.propose(tmp_path / "p", base_commit=first)
    monkeypatch.chdir(folder)
    return folder


def rebase(*options: str) -> int:
    return cli.main(["proposal", "rebase", "../p", "--output", "../new", *options])


def test_a_base_that_moved_elsewhere(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The new proposal is the old one with evidence of the new base, which a process without secrets has measured."""
    monkeypatch.setenv("GITHUB_TOKEN", "not-for-kernels")
    seen: list[Mapping[str, str]] = []
    real = subprocess.run

    def run(command: Any, *arguments: Any, **options: Any) -> Any:
        if measure.__name__ in command:
            seen.append(options["env"])
        return real(command, *arguments, **options)

    monkeypatch.setattr(subprocess, "run", run)
    first = git(project, "rev-parse", "HEAD")
    tip = rebasing.move(project, {"notes.md": "more\n"})
    git(project, "reset", "--quiet", "--hard", first)
    (project / PATH).write_text("somebody's edit\n")
    assert rebase("--onto", tip) == 0, capsys.readouterr()
    assert capsys.readouterr().out == f"accepted at {tip[:10]}: wrote ../new\n"
    assert ["not-for-kernels" in one.values() for one in seen] == [False]
    was, now = proposal.read(Path("../p")), proposal.read(Path("../new"))
    assert now.patch == was.patch
    assert (now.proposal.base_commit, now.evidence.base_revision) == (tip, tip)
    assert now.proposal.held_out_seed != was.proposal.held_out_seed
    assert f"--cgins-seed={now.proposal.held_out_seed}" in now.proposal.command
    assert now.proposal.created_at > was.proposal.created_at
    for field in ("id", "target", "goal", "attempts", "provider", "models", "cost", "search", "files"):
        assert getattr(now.proposal, field) == getattr(was.proposal, field)
    assert now.proposal.notes == (f"measured again on {tip}; first accepted on {first} in run run-1",)
    assert [one.status for one in now.proposal.before] == [Status.INCORRECT]
    [own] = now.evidence.evaluations
    assert own.verdict.status.outcome == "pass"
    assert own.measurement is not None
    assert own.case.pack_path == str(project / "traces/tiny")
    assert (project / PATH).read_text() == "somebody's edit\n"
    assert git(project, "status", "--porcelain") == f"M {PATH}"
    assert cli.main(["proposal", "show", "../new"]) == 0
    assert "! measured again on" in capsys.readouterr().out


@pytest.mark.exam
@pytest.mark.parametrize("twice", [True, False])
def test_measured_anew_tells_of_the_first_base(
    project: Path, twice: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """The note of an earlier base makes way, and the commit that the run was on is kept; traces may be outside of git.

    Another implementation that came with the new base, and is wrong, is in the evidence and no hindrance.
    """
    first = git(project, "rev-parse", "HEAD") if twice else "no commit"
    git(project, "rm", "-r", "--quiet", "--cached", "traces")
    tip = rebasing.move(project, {".gitignore": "/traces/\n", "cgins.yaml": YAML + ODD})
    notes = [
        "1 request had to be sent again",
        "measured with changes that are not committed: kernels/clamp.h",
    ]
    earlier = [f"measured again on {'0' * 40}; first accepted on {first} in run run-1"] if twice else []
    shutil.rmtree("../p")
    rebasing.propose(Path("../p"), notes=notes + earlier, base_commit="0" * 40 if twice else "")
    assert rebase() == 0, capsys.readouterr()
    found = proposal.read(Path("../new"))
    statuses = {one.case.implementation: one.verdict.status for one in found.evidence.evaluations}
    assert (statuses["cpp"].outcome, statuses["odd"]) == ("pass", Status.INCORRECT)
    assert found.proposal.notes == (
        notes[0],
        f"measured again on {tip}; first accepted on {first} in run run-1",
    )


@pytest.mark.exam
def test_new_traces_count(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A case that came with the new base and fails is named, and there is no new proposal."""
    tip = rebasing.move(
        project, {"cgins.yaml": YAML.replace("[traces/tiny]", "[traces/tiny, traces/double]")}
    )
    assert rebase() == 1
    out = capsys.readouterr().out
    assert out.startswith(f"not accepted at {tip[:10]}: clamp/cpu-cpp/double/")
    assert not Path("../new").exists()


@pytest.mark.exam
def test_a_kernel_that_was_repaired_meanwhile(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What passes on the new base as it is needs no repair: exit 0, and there is no new proposal."""
    tip = rebasing.move(project, {HEADER: RIGHT})
    assert rebase() == 0
    assert capsys.readouterr().out == f"the kernel passes at {tip[:10]} without it: nothing to do\n"
    assert not Path("../new").exists()


@pytest.mark.exam
@pytest.mark.parametrize(
    ("header", "said"),
    [(SLOW, ""), (RIGHT, "not faster"), (WRONG, "to be repaired")],
    ids=["slow", "quick", "wrong"],
)
def test_a_faster_kernel_is_to_be_faster_still(
    project: Path, capsys: pytest.CaptureFixture[str], header: str, said: str
) -> None:
    """For `optimise` the kernel of the new base is right, and slower in a case; else the reason is told."""
    shutil.rmtree("../p")
    rebasing.propose(Path("../p"), goal="optimise")
    rebasing.move(project, {HEADER: header, "notes.md": "more\n"})
    assert rebase() == (1 if said else 0)
    assert said in capsys.readouterr().out
    assert Path("../new").exists() == (not said)
    if not said:
        found = proposal.read(Path("../new"))
        assert Status.FASTER in [one.verdict.status for one in found.evidence.evaluations]
        assert found.proposal.before[0].kernel_ns_per_call is not None


@pytest.mark.exam
def test_a_new_kernel(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """For `generate` there is no kernel before; its entry and its file are tried on the new base."""
    shutil.rmtree("../p")
    added = YAML + "      - {name: fresh, device: cpu, source: kernels/fresh.cpp}\n"
    rebasing.propose(
        Path("../p"), goal="generate",
        target=proposals.target(kernel="clamp", implementation="fresh", op="torch.nn.functional.relu", goal="generate"),
        base={"cgins.yaml": YAML}, new={"cgins.yaml": added, "kernels/fresh.cpp": NEW},
        after=proposals.accepted(make_evaluation(kernel="clamp", implementation="fresh")),
    )  # fmt: skip
    tip = rebasing.move(project, {"notes.md": "more\n"})
    assert rebase() == 0, capsys.readouterr()
    found = proposal.read(Path("../new"))
    assert (found.proposal.before, found.proposal.base_commit) == ((), tip)
    assert {one.case.implementation for one in found.evidence.evaluations} == {"fresh"}


# ---- without a kernel


def test_a_base_with_another_kernel_is_stale(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Somebody changed the kernel itself: exit 1, and what to do."""
    tip = rebasing.move(project, {PATH: "// another\n"})
    assert rebase("--onto", "main") == 1
    out = capsys.readouterr().out
    assert out.startswith(f'the proposal is stale: "{PATH}" at {tip[:10]} is not what it was made on (')
    assert out.endswith(f"→ regenerate the kernel on {tip[:10]}\n")
    git(project, "rm", "--quiet", PATH)
    rebasing.move(project, {})
    assert rebase() == 1
    assert "is not what it was made on (no file, then " in capsys.readouterr().out
    assert not Path("../new").exists()


def test_a_base_that_has_it(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What was merged meanwhile is nothing to do: exit 0, and there is no new proposal."""
    tip = rebasing.move(project, {PATH: NEW})
    assert rebase() == 0
    assert capsys.readouterr().out == f"{tip[:10]} already has these files: nothing to do\n"
    assert not Path("../new").exists()


def test_what_is_refused(project: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A folder that is there, a commit that is not, and a place in no repository: exit 2, with the remedy."""
    (tmp_path / "new").mkdir()
    assert rebase() == 2
    assert "../new: already exists\n→ name a folder that is not there yet" in capsys.readouterr().err
    assert list((tmp_path / "new").iterdir()) == []
    (tmp_path / "new").rmdir()
    assert rebase("--onto=--all") == 2
    assert 'git knows no commit "--all"' in capsys.readouterr().err
    (tmp_path / "plain").mkdir()
    assert rebase("--root", str(tmp_path / "plain")) == 2
    assert "plain is in no git repository" in capsys.readouterr().err


def test_a_hostile_proposal(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What is damaged, or changes more than its kernel on that commit, is refused before anything runs."""
    shutil.rmtree("../p")
    rebasing.propose(Path("../p"), new={PATH: NEW, "kernels/other.cpp": "x\n"})
    assert rebase() == 2
    assert "kernels/other.cpp: is not a source of clamp-cpu-cpp, by cgins.yaml" in capsys.readouterr().err
    proposals.forge_file(Path("../p"), "../../../out.cpp", b"x\n")
    assert rebase() == 2
    assert "paths are relative to the repository" in capsys.readouterr().err
    Path("../p/proposal.json").write_text(json.dumps({"version": 1}))
    assert rebase() == 2
    assert not Path("../new").exists()
