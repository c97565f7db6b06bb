"""Scripts that take artifacts of runs that nobody trusts: reports to comment on, proposals to publish."""

from __future__ import annotations

import io
import json
import stat
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.action.hub import Hub, zipped
from tests.action.local_runner import ACTION, ROOT, obeyed


@pytest.fixture
def hub(tmp_path: Path) -> Hub:
    return Hub(tmp_path)


def test_report_is_taken_out_of_its_artifact(hub: Hub) -> None:
    """The one JSON file is the report, whatever it is called, and it lies where it should and nowhere else."""
    hub.add(12, zipped({"../../evil.json": b"{}"}))
    done = hub.run("fetch_report.sh", str(hub.folder / "report"))
    assert done.returncode == 0, done.stdout
    assert (hub.folder / "report" / "report.json").read_bytes() == b"{}"
    assert [file.name for file in hub.folder.rglob("evil.json")] == []


def test_large_artifact_is_refused(hub: Hub) -> None:
    """An artifact beyond any report's size is not fetched."""
    hub.add(12, nbytes=1 << 30)
    done = hub.run("fetch_report.sh", str(hub.folder / "report"))
    assert done.returncode == 1
    assert obeyed(done.stdout) == [
        "::error title=pytest-cgins::the artifact is larger than any that is expected"
    ]
    assert not (hub.folder / "report").exists()


@pytest.mark.exam
def test_hostile_report_gives_no_commands_to_the_job_that_comments(hub: Hub) -> None:
    """What is wrong with a report is told in its own words, and the runner obeys none of them."""
    report = hub.folder / "temp" / "report" / "report.json"
    report.parent.mkdir(parents=True)
    report.write_text(json.dumps({"version": "\n::error::forged\n"}))
    done = hub.step(
        "comment.yml", "Comment", RUNNER_TEMP=str(hub.folder / "temp"), NAME="gate", PYTHONPATH=str(ROOT)
    )
    assert done.returncode != 0
    assert "cgins: " in done.stdout
    assert obeyed(done.stdout) == []
    assert obeyed(done.stdout + "::notice::heard") == ["::notice::heard"]


@pytest.mark.exam
def test_hostile_report_gives_no_commands_to_the_job_that_merges(hub: Hub) -> None:
    """Nor there."""
    hub.add(
        12,
        zipped({"report.json": json.dumps({"version": "\n::error::forged\n"}).encode()}),
        name="cgins-shard-a",
    )
    done = hub.run("merge_reports.sh", str(hub.folder / "reports"), RUNNERS='[{"name": "a"}]')
    assert done.returncode == 2
    assert "cgins: " in done.stdout
    assert obeyed(done.stdout) == []


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (zipped({}), "has 0 JSON files"),
        (zipped({"a.json": b"", "b.json": b""}), "has 2 JSON files"),
        (b"PK\x03\x04 no archive", "no archive"),
        (b"", "no archive"),
    ],
)
def test_artifact_that_is_no_report_is_refused(hub: Hub, content: bytes, said: str) -> None:
    """What has no JSON file, several, or is no archive is an annotation and exit 2."""
    (hub.folder / "artifact.zip").write_bytes(content)
    done = subprocess.run(
        [sys.executable, str(ACTION / "unpack_report.py"), "artifact.zip", "out.json"],
        cwd=hub.folder, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert said in done.stdout
    assert not (hub.folder / "out.json").exists()


def test_archive_that_grows_is_refused(hub: Hub) -> None:
    """A few kilobytes that unpack to more than any report are refused while they are read."""
    (hub.folder / "artifact.zip").write_bytes(zipped({"report.json": bytes(1 << 20)}))
    code = (
        f"import sys; sys.path.insert(0, {str(ACTION)!r}); sys.argv = ['x', 'artifact.zip', 'out.json']\n"
        "import unpack_report; unpack_report.LIMIT_NBYTES = 1 << 19; sys.exit(unpack_report.main())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=hub.folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "larger than any report" in done.stdout


@pytest.mark.parametrize("name", ["../proposal.json", "/tmp/proposal.json", "a/../../proposal.json", "a\nb"])
def test_proposals_that_lead_elsewhere_are_refused(hub: Hub, name: str) -> None:
    """No path of the archive leads out of the folder, and the refusal repeats none."""
    hub.add(12, zipped({name: b"{}"}), name="cgins-proposals")
    done = hub.run("publish.sh", str(hub.folder / "proposals"), FOLDER=".")
    assert done.returncode == 2
    assert obeyed(done.stdout) == [
        "::error title=pytest-cgins::the artifact has a file whose path leads out of it"
    ]
    assert [file.name for file in hub.folder.rglob("proposal.json")] == []


def test_link_among_proposals_is_a_plain_file(hub: Hub) -> None:
    """What the archive calls a link is written as its text."""
    archive = io.BytesIO()
    link = zipfile.ZipInfo("run/link")
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr(link, "/etc/passwd")
    hub.add(12, archive.getvalue(), name="cgins-proposals")
    done = hub.run("publish.sh", str(hub.folder / "proposals"), FOLDER=".")
    assert done.returncode == 0, done.stdout
    written = hub.folder / "proposals/files/run/link"
    assert not written.is_symlink()
    assert written.read_text() == "/etc/passwd"


@pytest.mark.parametrize(
    ("limit", "said"),
    [("LIMIT_NBYTES = 1 << 10", "larger than any"), ("LIMIT_FILES = 1", "more files than any")],
)
def test_proposals_that_grow_are_refused(hub: Hub, limit: str, said: str) -> None:
    """All files together have a limit, and so has their number."""
    (hub.folder / "a.zip").write_bytes(zipped({"a": bytes(1000), "b": bytes(1000)}))
    code = (
        f"import sys; sys.path.insert(0, {str(ACTION)!r}); sys.argv = ['x', 'a.zip', 'out']\n"
        f"import unpack_proposals; unpack_proposals.{limit}; sys.exit(unpack_proposals.main())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=hub.folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert said in done.stdout


@pytest.mark.exam
def test_hostile_proposal_gives_no_commands_and_runs_nothing(hub: Hub) -> None:
    """A proposal that is none is refused in words that the runner does not obey; a module beside it is not imported."""
    proposal = json.dumps({"version": "\n::error::forged\n"}).encode()
    hub.add(12, zipped({"run/proposals/it/proposal.json": proposal}), name="cgins-proposals")
    project = hub.folder / "project"
    (project / "pytest_cgins").mkdir(parents=True)
    (project / "pytest_cgins" / "__init__.py").write_text("print('::error::imported')\n")
    done = hub.run(
        "publish.sh",
        str(hub.folder / "proposals"),
        FOLDER=str(project),
        GITHUB_TOKEN="token",
        GH_TOKEN="token",
    )
    assert (hub.folder / "proposals/files/run/proposals/it/proposal.json").exists()
    assert done.returncode == 1
    assert "cgins: " in done.stdout
    assert obeyed(done.stdout) == []
    assert "imported" not in done.stdout


@pytest.mark.parametrize(("most", "tried"), [("0", 0), ("08", 8), ("9", 9), ("10", 9)])
def test_one_artifact_opens_so_many_pull_requests(hub: Hub, most: str, tried: int) -> None:
    """Proposals beyond most-pull-requests are left alone, and a warning tells their number and nothing of theirs."""
    python = hub.path / "python3"
    python.unlink()
    python.write_text(
        f'#!/bin/sh\n[ "$1" = -P ] && echo "cgins: refused" && exit 2\nexec {sys.executable} "$@"\n'
    )
    python.chmod(0o755)
    names = [f"run/proposals/::error::{number}/proposal.json" for number in range(9)]
    hub.add(12, zipped(dict.fromkeys(names, b"{}")), name="cgins-proposals")
    done = hub.run("publish.sh", str(hub.folder / "proposals"), FOLDER=str(hub.folder), MOST=most)
    assert done.stdout.count("cgins: ") == tried
    assert done.returncode == int(tried > 0)
    warnings = obeyed(done.stdout)
    assert len(warnings) == int(tried < 9)
    assert [one for one in warnings if f" {9 - tried} are left" not in one] == []


@pytest.mark.parametrize("most", ["", "many", "-1", "2.5", "1e3", "99999", "files[$(touch x)]"])
def test_a_limit_that_is_no_number_is_refused(hub: Hub, most: str) -> None:
    """Before anything is fetched, in words that do not repeat it."""
    done = hub.run("publish.sh", str(hub.folder / "proposals"), FOLDER=".", MOST=most)
    assert done.returncode == 2
    assert obeyed(done.stdout) == [
        "::error title=pytest-cgins::most-pull-requests: give a whole number, 9999 or less"
    ]


@pytest.mark.exam
def test_upkeep_marks_what_is_stale_also_where_nothing_could_be_closed(hub: Hub) -> None:
    """The second command runs after the first has failed, and the step fails all the same."""
    done = hub.run("upkeep.sh", FOLDER=str(hub.folder))
    assert done.returncode == 1
    assert done.stdout.count("cgins: ") == 2
    assert obeyed(done.stdout) == []
