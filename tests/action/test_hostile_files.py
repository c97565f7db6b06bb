"""Scripts that take artifacts of runs that nobody trusts: reports to comment on, proposals to publish."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.action.local_runner import ACTION, obeyed

BIN = Path(sys.executable).parent


def zipped(files: Mapping[str, bytes]) -> bytes:
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in files.items():
            file.writestr(name, content)
    return archive.getvalue()


class Hub:
    """A `gh` that answers from files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / "bin"
        self.path.mkdir()
        tool = self.path / "gh"
        tool.write_text(
            f"#!/bin/sh\ncase \"$*\" in\n*/zip) exec cat '{folder}/artifact.zip';;\n"
            f"*artifacts*) exec cat '{folder}/listed';;\n'run download'*) exec sh '{folder}/download' \"$@\";;\nesac\n"
        )
        tool.chmod(0o755)
        (folder / "download").write_text("exit 1\n")

    def run(self, script: str, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
        own = {"GITHUB_REPOSITORY": "octo/kernels", "RUN_ID": "7", "ARTIFACT": "cgins-report"}
        done = subprocess.run(
            ["bash", str(ACTION / script), *arguments],
            env={"PATH": f"{self.path}:{BIN}:{os.environ['PATH']}", "HOME": str(self.folder), **own, **env},
            capture_output=True,
            text=True,
            check=False,
            cwd=self.folder,
        )
        obeyed(done.stdout)  # the runner is never left deaf
        return done


@pytest.fixture
def hub(tmp_path: Path) -> Hub:
    return Hub(tmp_path)


@pytest.mark.parametrize("listed", ["- 0\n", "", "x; rm -rf / 10\n"])
def test_run_without_a_report_is_no_error(hub: Hub, listed: str) -> None:
    """Where GitHub lists no artifact there is nothing to comment, which is told."""
    (hub.folder / "listed").write_text(listed)
    done = hub.run("fetch_report.sh", str(hub.folder / "report"))
    assert done.returncode == 0
    assert "there is nothing to comment" in done.stdout
    assert not (hub.folder / "report" / "report.json").exists()


def test_report_is_taken_out_of_its_artifact(hub: Hub) -> None:
    """The one JSON file is the report, whatever it is called, and it lies where it should and nowhere else."""
    (hub.folder / "listed").write_text("12 500\n")
    (hub.folder / "artifact.zip").write_bytes(zipped({"../../evil.json": b"{}"}))
    done = hub.run("fetch_report.sh", str(hub.folder / "report"))
    assert done.returncode == 0, done.stderr
    assert (hub.folder / "report" / "report.json").read_bytes() == b"{}"
    assert [file.name for file in hub.folder.rglob("evil.json")] == []


def test_large_artifact_is_refused(hub: Hub) -> None:
    """An artifact beyond any report's size is not fetched."""
    (hub.folder / "listed").write_text(f"12 {1 << 30}\n")
    done = hub.run("fetch_report.sh", str(hub.folder / "report"))
    assert done.returncode == 1
    assert obeyed(done.stdout) == ["::error title=pytest-cgins::the artifact is larger than any report"]
    assert not (hub.folder / "report").exists()


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


def test_no_proposals_are_no_error(hub: Hub) -> None:
    """A run that proposed nothing publishes nothing."""
    done = hub.run("publish.sh", str(hub.folder / "proposals"), FOLDER=".")
    assert done.returncode == 0
    assert obeyed(done.stdout) == ["::notice title=pytest-cgins::there are no proposals"]


def test_hostile_proposal_gives_no_commands_and_runs_nothing(hub: Hub) -> None:
    """A proposal that is none is refused in words that the runner does not obey; a module beside it is not imported."""
    proposal = "$9/run/proposals/it"
    (hub.folder / "download").write_text(
        f'mkdir -p "{proposal}"; printf \'{{"version": "\\\\n::error::forged\\\\n"}}\' >"{proposal}/proposal.json"\n'
    )
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
    assert (hub.folder / "proposals/run/proposals/it/proposal.json").exists()
    assert done.returncode == 1
    assert "cgins: " in done.stderr
    assert obeyed(done.stdout) == []
    assert "imported" not in done.stdout
