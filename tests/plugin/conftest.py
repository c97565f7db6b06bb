"""A tiny project with kernels that are right, wrong and worse, and runs of pytest in it."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.forked_python import ForkedPython

SOURCE = Path(__file__).parent / "project"


@dataclass(frozen=True)
class Run:
    """A finished run of pytest."""

    code: int
    out: str
    folder: Path

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()

    @property
    def counts(self) -> dict[str, int]:
        """Of pytest's last line, after which we may tell that we waited: `{"passed": 2, "failed": 1}`."""
        ends = (line for line in reversed(self.lines) if re.search(r" in \d+\.\d+s", line))
        counts = next(ends, "").partition(" in ")[0]
        found = {word: int(number) for number, word in re.findall(r"(\d+) ([a-z]+)", counts)}
        found.pop("deselected", None)
        return found

    def nodes(self) -> list[str]:
        """Node names that `--collect-only -q` printed."""
        return [line.partition("::")[2] for line in self.lines if line.startswith("cgins.yaml::")]

    def document(self) -> Any:
        return json.loads((self.folder / "report.json").read_text())

    def evaluations(self) -> dict[str, Any]:
        """`{"relu/right f32-2x3-…": …}` from the JSON document."""
        found = {}
        for one in self.document()["evaluations"]:
            case = one["case"]
            found[f"{case['kernel']}/{case['implementation']} {case['signature']}"] = one
        return found

    def statuses(self) -> dict[str, str]:
        return {name: one["verdict"]["status"] for name, one in self.evaluations().items()}


@pytest.fixture(scope="session")
def run(forked_python: ForkedPython) -> Callable[..., Run]:
    """Runs pytest in a process of its own, in a folder, with our plugin and no other."""
    environment = {
        **os.environ,
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "COLUMNS": "240",
    }
    for name in ("CI", "PYTEST_XDIST_WORKER", "PYTEST_XDIST_WORKER_COUNT", "PYTEST_XDIST_TESTRUNUID"):
        environment.pop(name, None)

    def run(folder: Path, *options: str, env: dict[str, str] | None = None, forked: bool = True) -> Run:
        words = ["-m", "pytest", "-p", "pytest_cgins.plugin", *options]
        done = forked_python.run(words, cwd=folder, env=environment | (env or {}), forked=forked)
        return Run(code=done.returncode, out=done.stdout + done.stderr, folder=folder)

    return run


@pytest.fixture
def project(recorded: Path, tmp_path: Path) -> Path:
    """A copy of the project for one test."""
    return Path(shutil.copytree(recorded, tmp_path / "project"))


@pytest.fixture(scope="session")
def full_run(recorded: Path, made_once: Callable[..., Path], run: Callable[..., Run]) -> Run:
    """All cases of the project once, in one process, which is started as users start it."""
    options = ["--cgins", "--cgins-seed=7", "-v", "-rfEs", "--cgins-json=report.json", "--junitxml=junit.xml"]

    def make(folder: Path) -> None:
        done = run(shutil.copytree(recorded, folder / "project"), *options, forked=False)
        (folder / "ended.json").write_text(json.dumps([done.code, done.out]))

    folder = made_once("full", make)
    code, out = json.loads((folder / "ended.json").read_text())
    return Run(code=code, out=out, folder=folder / "project")
