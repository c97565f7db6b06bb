"""The scripts of the jobs that take artifacts, with a `gh` that answers from files."""

from __future__ import annotations

import io
import json
import os
import shlex
import subprocess
import zipfile
from collections.abc import Mapping
from pathlib import Path

import yaml

from tests.action.local_runner import ACTION, ROOT, obeyed
from tests.forked_python import at_start, gate_python

GH = """#!/bin/sh
folder=FOLDER
case "$*" in
*actions/artifacts/*/zip) id=${2%/zip}; exec cat "$folder/${id##*/}.zip";;
*actions/runs/7/artifacts*) exec cat "$folder/listed";;
esac
echo "gh: no such request: $*" >&2
exit 1
"""


def zipped(files: Mapping[str, bytes]) -> bytes:
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in files.items():
            file.writestr(name, content)
    return archive.getvalue()


def script_of(workflow: str, step: str) -> str:
    """The `run:` of a step."""
    tree = yaml.safe_load((ROOT / ".github/workflows" / workflow).read_text(encoding="utf-8"))
    steps = [one for job in tree["jobs"].values() for one in job["steps"]]
    (script,) = (one["run"] for one in steps if one.get("name") == step and "run" in one)
    assert isinstance(script, str)
    return script


class Hub:
    """Run 7 of a repository, and a machine with its `gh`; without a list of artifacts, GitHub refuses."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / "bin"
        self.path.mkdir()
        (self.path / "gh").write_text(GH.replace("FOLDER", shlex.quote(str(folder))))
        (self.path / "gh").chmod(0o755)
        (self.path / "python3").symlink_to(gate_python().executable())
        self.artifacts: list[dict[str, object]] = []

    def add(
        self,
        number: int,
        content: bytes = b"",
        *,
        name: str = "cgins-report",
        created_at: str = "2026-01-02T03:04:05Z",
        nbytes: int = 500,
        expired: bool = False,
    ) -> None:
        """One artifact more, which GitHub lists last."""
        (self.folder / f"{number}.zip").write_bytes(content)
        self.artifacts.append(
            {
                "id": number,
                "name": name,
                "created_at": created_at,
                "size_in_bytes": nbytes,
                "expired": expired,
            }
        )
        self.answer()

    def answer(self) -> None:
        """Let GitHub answer with what was added."""
        listed = {"total_count": len(self.artifacts), "artifacts": self.artifacts}
        (self.folder / "listed").write_text(json.dumps(listed))

    def run(self, script: str, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
        """Run one of the action's scripts."""
        return self.bash([str(ACTION / script), *arguments], **env)

    def step(self, workflow: str, step: str, **env: str) -> subprocess.CompletedProcess[str]:
        """Run a step's script as the runner does."""
        return self.bash(["--noprofile", "--norc", "-eo", "pipefail", "-c", script_of(workflow, step)], **env)

    def bash(self, words: list[str], **env: str) -> subprocess.CompletedProcess[str]:
        own = {"GITHUB_REPOSITORY": "octo/kernels", "RUN_ID": "7", "ARTIFACT": "cgins-report", "MOST": "20"}
        path = f"{self.path}:{os.environ['PATH']}"
        own["GITHUB_STEP_SUMMARY"] = str(self.folder / "summary.md")
        done = subprocess.run(
            ["bash", *words],
            env={**at_start(os.environ), "PATH": path, "HOME": str(self.folder), **own, **env},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,  # the runner reads both
            text=True,
            check=False,
            cwd=self.folder,
        )
        obeyed(done.stdout)  # the runner is never left deaf
        return done
