"""Which artifact is taken, what is made of none, and what of a GitHub that does not answer."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from reports import CPU, report_of

from pytest_cgins.core.session_report import Evaluation, SessionReport
from pytest_cgins.core.verdict import Reason, Status
from pytest_cgins.report import document
from tests.action import events
from tests.action.hub import Hub, zipped
from tests.action.local_runner import ROOT, obeyed

Make = Callable[..., Evaluation]
RUNNERS = json.dumps([{"name": "h200", "labels": []}, {"name": "l4", "labels": []}])
SCRIPTS = {
    "fetch_report.sh": ("cgins-report", {}),
    "publish.sh": ("cgins-proposals", {"FOLDER": "."}),
    "merge_reports.sh": ("cgins-shard-h200", {"RUNNERS": RUNNERS}),
}
"""Scripts that take artifacts: the name of the first, and what they are told."""


@pytest.fixture
def hub(tmp_path: Path) -> Hub:
    return Hub(tmp_path)


def packed(report: SessionReport) -> bytes:
    return zipped({"report.json": document.text_of(report).encode()})


@pytest.mark.parametrize("script", SCRIPTS)
def test_github_that_refuses_is_a_failure(hub: Hub, script: str) -> None:
    """Where GitHub does not list the artifacts, nobody knows that there are none: the script fails."""
    done = hub.run(script, str(hub.folder / "target"), **SCRIPTS[script][1])
    assert done.returncode == 1
    (said,) = obeyed(done.stdout)
    assert said.startswith("::error title=pytest-cgins::GitHub did not give the artifact")


@pytest.mark.parametrize("script", SCRIPTS)
def test_artifact_that_cannot_be_had_is_a_failure(hub: Hub, script: str) -> None:
    """Nor is an artifact that is listed, and whose archive does not come, taken for none."""
    name, told = SCRIPTS[script]
    hub.add(12, name=name)
    (hub.folder / "12.zip").unlink()
    done = hub.run(script, str(hub.folder / "target"), **told)
    assert done.returncode == 1
    assert "GitHub did not give the artifact" in done.stdout


@pytest.mark.parametrize("listed", ["", "<html>", "[]", '{"artifacts": [{}]}'])
def test_answer_that_is_none_is_a_failure(hub: Hub, listed: str) -> None:
    """What is not a list of artifacts is not taken for an empty one."""
    (hub.folder / "listed").write_text(listed)
    done = hub.run("fetch_report.sh", str(hub.folder / "report"))
    assert done.returncode == 2
    assert obeyed(done.stdout) == ["::error title=pytest-cgins::GitHub's list of artifacts cannot be read"]


def test_run_without_a_report_is_no_error(hub: Hub) -> None:
    """Where GitHub lists no artifact of the name there is nothing to comment, which is told."""
    hub.add(11, name="cgins-report-cpu")
    hub.add(12, expired=True)
    done = hub.run("fetch_report.sh", str(hub.folder / "report"))
    assert done.returncode == 0
    (said,) = obeyed(done.stdout)
    assert said.startswith(
        "::warning title=pytest-cgins::that run left no report: a comment of an earlier run is withdrawn"
    )
    assert not (hub.folder / "report").exists()


def test_run_without_proposals_is_no_error(hub: Hub) -> None:
    """A run that proposed nothing publishes nothing."""
    hub.answer()
    done = hub.run("publish.sh", str(hub.folder / "proposals"), FOLDER=".")
    assert done.returncode == 0
    assert obeyed(done.stdout) == ["::notice title=pytest-cgins::there are no proposals"]


def test_the_last_attempts_report_is_taken(hub: Hub) -> None:
    """Of several artifacts of one name, one an attempt, it is the newest, in whatever order GitHub lists them."""
    for number in (12, 34, 9):
        hub.add(number, zipped({"report.json": b'{"of": %d}' % number}))
    done = hub.run("fetch_report.sh", str(hub.folder / "report"))
    assert done.returncode == 0, done.stdout
    assert json.loads((hub.folder / "report/report.json").read_bytes()) == {"of": 34}


def test_the_last_attempts_proposals_are_taken(hub: Hub) -> None:
    """So it is with proposals."""
    for number in (12, 34):
        hub.add(number, zipped({f"run-{number}/report.md": b""}), name="cgins-proposals")
    done = hub.run("publish.sh", str(hub.folder / "proposals"), FOLDER=".")
    assert done.returncode == 0, done.stdout
    assert [one.name for one in (hub.folder / "proposals/files").iterdir()] == ["run-34"]


@pytest.mark.parametrize(
    ("since", "found"), [("2026-01-02T03:04:05Z", True), ("2026-01-02T03:04:06Z", False)]
)
def test_report_of_an_earlier_attempt_is_not_commented(hub: Hub, since: str, found: bool) -> None:
    """An attempt that left no report is not told to be as green as the one before it."""
    hub.add(12, zipped({"report.json": b"{}"}))
    done = hub.run("fetch_report.sh", str(hub.folder / "report"), SINCE=since)
    assert done.returncode == 0
    assert (hub.folder / "report/report.json").exists() == found


def test_event_says_when_the_attempt_began() -> None:
    """What comment.yml gives as SINCE is in GitHub's event."""
    text = (ROOT / ".github/workflows/comment.yml").read_text(encoding="utf-8")
    assert "SINCE: ${{ github.event.workflow_run.run_started_at }}" in text
    run = events.event("workflow_run").payload["workflow_run"]
    assert run["run_started_at"].endswith("Z")


@pytest.mark.exam
@pytest.mark.parametrize("fails", [True, False])
def test_matrix_is_summed_up_also_if_a_kernel_failed(hub: Hub, make_evaluation: Make, fails: bool) -> None:
    """The merged report and the summary are there, and the exit code is that of a gate over all cases."""
    right = report_of(
        make_evaluation(Status.PASSED), exit_status=0, environments=[replace(CPU, device_name="one")]
    )
    if fails:
        wrong = make_evaluation(
            Status.INCORRECT, reason=Reason.GOLD_MISMATCH, message="it is wrong", implementation="bad"
        )
        other = report_of(wrong)
    else:
        other = report_of(make_evaluation(implementation="good"), exit_status=0, seed=8)
    hub.add(12, packed(right), name="cgins-shard-h200")
    hub.add(13, packed(other), name="cgins-shard-l4")
    done = hub.run("merge_reports.sh", str(hub.folder / "reports"), RUNNERS=RUNNERS)
    assert done.returncode == int(fails), done.stdout
    merged = json.loads((hub.folder / "reports/report.json").read_bytes())
    assert merged["exit_status"] == int(fails)
    summary = (hub.folder / "summary.md").read_text(encoding="utf-8")
    assert ("it is wrong" in summary) == fails
    assert "scale" in summary


def test_matrix_without_one_report_is_an_error(hub: Hub, make_evaluation: Make) -> None:
    """A runner that left none is named."""
    hub.add(12, packed(report_of(make_evaluation(Status.PASSED), exit_status=0)), name="cgins-shard-h200")
    done = hub.run("merge_reports.sh", str(hub.folder / "reports"), RUNNERS=RUNNERS)
    assert done.returncode == 1
    assert "::error title=pytest-cgins::there is no report of l4" in obeyed(done.stdout)
    assert not (hub.folder / "reports/report.json").exists()
