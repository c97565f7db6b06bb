"""Runs side by side: two of one journal never, two in one project always."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pytest_cgins.app.cli import main
from tests.regenerate import scripted
from tests.regenerate.llm_server import LlmServer


@pytest.fixture
def mark(tmp_path: Path) -> Iterator[str]:
    """By which processes are known that a failing test left."""
    name = f"{os.getpid()}-{tmp_path.name}"
    yield name
    for pid in scripted.processes(name):
        os.kill(pid, signal.SIGKILL)


@pytest.mark.exam
def test_two_runs_at_once(
    made_once: Callable[..., Path], tmp_path: Path, mark: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each ends as it would alone; who resumes one that is being worked on is refused, and it goes on unharmed."""
    script = scripted.Script(first=3)
    script.go_on.clear()
    more = {"log": tmp_path / "log", "env": {scripted.MARK: mark}}
    with LlmServer(script) as server:
        project = scripted.project(
            made_once("scripted", scripted.recorded), tmp_path / "project", server.base_url
        )
        both = [scripted.begin(project, [kernel], **more) for kernel in ("relu", "scaled")]
        assert scripted.until(lambda: len(script.asked) == 2, 60.0), more["log"].read_text()
        runs = sorted(project.glob(".cgins/runs/*/run.json"))
        assert len(runs) == 2
        for run in (file.parent for file in runs):
            assert main(["runs", "resume", run.name, "--runs", str(run.parent)]) == 2
            said = capsys.readouterr().err
            assert f"run {run.name} is in use by another process\n" in said
            assert "wait for it, or end it" in said
        script.go_on.set()
        assert [process.wait(120.0) for process in both] == [0, 0], more["log"].read_text()
    assert len(script.asked) == 2
    (relu,) = project.glob(".cgins/runs/*/proposals/relu-cpu-cpp/files/kernels/relu.cpp")
    (scaled,) = project.glob(".cgins/runs/*/proposals/scaled-cpu-python/files/kernels/scaled.py")
    assert relu.read_text() == scripted.draft("relu", 3)
    assert scaled.read_text() == scripted.draft("scaled", 3)
    assert relu.parents[4] != scaled.parents[4]
