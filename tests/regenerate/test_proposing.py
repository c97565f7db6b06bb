"""What a run writes into a proposal about the commit that was measured on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_cgins.config import load
from pytest_cgins.regenerate import proposal
from pytest_cgins.regenerate.project_copy import ProjectCopy
from pytest_cgins.regenerate.proposal import from_journal
from tests.evaluations import make_evaluation
from tests.regenerate import journals, proposals
from tests.regenerate.proposals import NEW, OLD, PATH

HEADER = "kernels/scale.h"
Propose = Callable[[], proposal.Proposal]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A repository with a kernel, whose own source somebody edited afterwards."""
    proposals.project(
        tmp_path / "project", {HEADER: "#define FACTOR 1\n", "traces/tiny/t.json": "{}\n", PATH: "// right\n"}
    )
    (tmp_path / "project" / PATH).write_text(OLD)
    return tmp_path / "project"


@pytest.fixture
def propose(project: Path, tmp_path: Path) -> Propose:
    """Has a candidate be accepted on the working tree as it is, and proposed."""

    def made() -> proposal.Proposal:
        config, target = load(project / "cgins.yaml", require_traces=False), proposals.target()
        head = proposals.git(project, "rev-parse", "HEAD")
        run = journals.journal(config.file, target, runs=tmp_path / "runs", base_commit=head)
        report = proposals.accepted(make_evaluation())
        more = {"stage": "acceptance", "environments": report.environments, "seed": 77}
        trial = journals.trial(*report.evaluations, **more)
        journals.attempt(run, target, outcome="accepted", sources={PATH: NEW}, trials=(trial,))
        copy = ProjectCopy(config, ("scale", "cpp", "cpu"), tmp_path / "copy", baseline="none")
        result = journals.settle(run, target, "accepted", {PATH: NEW})
        run.proposal(target).rmdir()
        found = from_journal.proposed(run, config, copy, result)
        return proposal.read(run.folder / found.proposal).proposal

    return made


def test_a_commit_that_has_all_but_the_kernel(project: Path, propose: Propose) -> None:
    """An edit of the kernel itself, prose and what the run writes beside it are no other base."""
    for path in ("notes.md", ".cgins/methods.json"):
        (project / path).parent.mkdir(exist_ok=True)
        (project / path).write_text("{}\n")
    found = propose()
    assert found.base_commit == proposals.git(project, "rev-parse", "HEAD")
    assert found.notes == ()
    assert proposals.git(project, "status", "--porcelain", PATH) == f"M {PATH}"


@pytest.mark.parametrize(
    "path", [HEADER, "kernels/new.h", "cgins.yaml", "traces/tiny/t.json"], ids=["edited", "new", "yaml", "trace"]
)  # fmt: skip
def test_changes_that_are_not_committed(project: Path, propose: Propose, path: str) -> None:
    """Where a header, the configuration or a trace is not the commit's, no commit is claimed, and the note names it."""
    file = project / path
    file.write_text(f"{file.read_text() if file.exists() else ''}\n")
    found = propose()
    assert (found.base_commit, found.notes) == (
        "",
        (f"measured with changes that are not committed: {path}",),
    )


def test_a_file_that_is_gone(project: Path, propose: Propose) -> None:
    """A header that was deleted is a change, too; staged or not."""
    proposals.git(project, "rm", "--quiet", HEADER)
    assert propose().notes == (f"measured with changes that are not committed: {HEADER}",)


def test_many_changes_are_counted(project: Path, propose: Propose) -> None:
    """The first ones are named."""
    for number in range(from_journal.SHOWN_CHANGES + 3):
        (project / f"kernels/{number:02}.h").write_text("\n")
    [note] = propose().notes
    assert note.endswith("kernels/09.h and 3 more")
