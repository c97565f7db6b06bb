"""What all tests share: pytester, a build cache, and evaluations made to measure."""

from __future__ import annotations

import gc
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock
from hypothesis import settings

from pytest_cgins.app.cli import main
from pytest_cgins.core.session_report import Evaluation
from pytest_cgins.run import forking, pool
from pytest_cgins.run.pool import WorkerPool
from tests import evaluations
from tests.forked_python import TORCH, ForkedPython, gate_python, shared_key

pytest_plugins = ["pytester"]
TESTS = Path(__file__).parent
# Tests import `timings` and other helpers, however pytest was started.
sys.path[:0] = [str(TESTS), str(TESTS.parent)]
# Threads of torch that spin while they wait cost other test processes their cores: five times the CPU on two cores.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
# pip has compiled torch; a checkout would be compiled in each of some five hundred processes.
os.environ["PYTHONDONTWRITEBYTECODE"] = ""
# A change is judged on the same examples each time; each night draws others (make test-exam).
settings.register_profile("same examples", derandomize=True)
settings.load_profile("same examples")


LONGEST = (
    "adversarial/test_adversarial.py", "honest/test_honest.py", "planted/test_low_bits.py", "test_demo_regenerate.py",
    "planted/test_planted.py", "planted/coupled/test_coupled.py", "regenerate/test_proposal_rebase.py",
    "building/test_torch_extension.py", "regenerate/test_whole_loop.py", "regenerate/test_proposal_commands.py",
    "regenerate/test_commands.py", "plugin/test_operator_project.py", "verify/test_probe_inputs.py",
    "planted/test_large_indices.py", "action/test_events.py", "action/test_run.py", "docs/test_extending.py",
    "gate/test_evaluate.py", "planted/test_unread.py", "building/test_base_kernels.py", "building/test_export.py",
    "regenerate/test_goalposts.py", "regenerate/test_candidate_pool.py", "plugin/test_regenerate.py",
    "pull_request/test_pull_request.py", "pull_request/test_upkeep.py", "fuzz/test_parsers.py",
    "report/test_html_browser.py", "plugin/test_environments.py", "plugin/test_times.py", "docs/test_tutorial.py",
)  # fmt: skip
"""Files that take 20 s and more, which begin first: the last one would leave the other process alone."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long files come first; tests for a GPU are skipped where no NVIDIA driver is loaded."""
    places = {TESTS / name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.path, len(places)))
    if Path("/dev/nvidiactl").exists():
        return
    for item in items:
        if item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.skip(reason="no NVIDIA GPU"))


@pytest.fixture(scope="module", autouse=True)
def _frozen() -> None:
    """What files before this one left stays: probes of memory collect garbage often, and would walk all of it each time."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="module", autouse=True)
def _forgotten() -> Iterator[None]:
    """Each file imports its own `models` or `kernels`: what one imported from a project is forgotten after it."""
    path, before = [*sys.path], {*sys.modules}
    yield
    sys.path[:] = path
    for name in {*sys.modules} - before:
        module = sys.modules[name]
        file = getattr(module, "__file__", None) or str([*getattr(module, "__path__", ())])
        if "/pytest-of-" in file or "/example_project/" in file:
            del sys.modules[name]


@pytest.fixture(scope="session")
def whole_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of the whole run: xdist's workers share it."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "whole-run"
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture(scope="session")
def made_once(whole_run: Path) -> Callable[[str, Callable[[Path], object]], Path]:
    """Gives a folder by its name, and has it made, in its place, by the first test of all workers that wants it."""

    def folder(name: str, make: Callable[[Path], object]) -> Path:
        place, made = whole_run / name, whole_run / f"{name}.made"
        with FileLock(whole_run / f"{name}.lock"):
            if not made.exists():
                make(place)
                made.touch()
        return place

    return folder


@pytest.fixture(scope="session")
def recorded(made_once: Callable[..., Path]) -> Path:
    """The project `plugin/project` with its trace pack; who changes something copies it."""

    def make(folder: Path) -> None:
        shutil.copytree(TESTS / "plugin" / "project", folder)
        subprocess.run([sys.executable, "record_tiny.py"], cwd=folder, check=True)
        (folder / "pytest.ini").write_text("[pytest]\n")

    return made_once("recorded", make)


@pytest.fixture
def cgins(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs a command of `cgins` in a folder, in this process: another one would import all of it first.

    What the command's own child processes print is captured, too. What times is forked as well, as in forked_python.py.
    """
    monkeypatch.setattr(pool, "MEASURING", frozenset())

    def run(folder: Path, *words: str, columns: int = 240) -> subprocess.CompletedProcess[str]:
        monkeypatch.chdir(folder)
        monkeypatch.setenv("COLUMNS", str(columns))
        capfd.readouterr()
        try:
            code: Any = main(words)
        except SystemExit as ended:
            code = ended.code
        captured = capfd.readouterr()
        return subprocess.CompletedProcess(words, code, captured.out, captured.err)

    return run


@pytest.fixture(scope="session", autouse=True)
def build_cache(whole_run: Path) -> Path:
    """One cache of built kernels for the whole run, apart from the user's own; xdist's workers share it."""
    folder = whole_run / "build-cache"
    folder.mkdir(exist_ok=True)
    os.environ["CGINS_CACHE_DIR"] = str(folder)
    return folder


@pytest.fixture(scope="session", autouse=True)
def _locks(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Locks of devices for each test process: runs of pytest that one starts take turns, those of others go on."""
    os.environ["CGINS_LOCK_DIR"] = str(tmp_path_factory.mktemp("locks"))


@pytest.fixture(scope="session", autouse=True)
def _no_sync() -> Iterator[None]:
    """Files of tests need not outlive the machine: a sync takes 6 ms, and a search of a few candidates does 256."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)
        yield


@pytest.fixture(scope="session", autouse=True)
def _servers() -> Iterator[None]:
    """Each server of workers has imported torch: tests share them, however wide the terminal of each is."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(forking, "_key", shared_key(forking._key))
        yield


@pytest.fixture(scope="session")
def forked_python() -> ForkedPython:
    """Runs pytest and `cgins` without their imports."""
    return gate_python()


@pytest.fixture(scope="session")
def forked_torch() -> ForkedPython:
    """Runs programs that import torch, and need not."""
    return ForkedPython(TORCH)


@pytest.fixture(scope="session")
def reference() -> Iterator[WorkerPool]:
    """The trusted worker, for evaluators of projects that have torch's ops and none of their own: they share it."""
    with WorkerPool() as pool:
        yield pool


@pytest.fixture
def make_evaluation() -> Callable[..., Evaluation]:
    """Makes an evaluation with the given status, numbers and texts."""
    return evaluations.make_evaluation
