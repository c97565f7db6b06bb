"""Candidates on the nodes of a cluster: real ones of Ray, on this machine."""

from __future__ import annotations

import pickle
import shutil
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from pytest_cgins import __version__, config
from pytest_cgins.core.device import DeviceName
from pytest_cgins.core.errors import ConfigError, RegenerateError
from pytest_cgins.regenerate import run_setup
from pytest_cgins.regenerate.candidate_gate import TrialSettings
from pytest_cgins.regenerate.executor import dispatch
from pytest_cgins.regenerate.executor.archive import TargetOnNode, packed, unpack
from pytest_cgins.regenerate.executor.base import Executor
from pytest_cgins.regenerate.executor.dispatch import Answer, Dispatcher, Work
from pytest_cgins.regenerate.executor.node import Node
from pytest_cgins.regenerate.executor.ray_cluster import RaySlot, RaySlots
from pytest_cgins.regenerate.journal.journal import Journal
from pytest_cgins.regenerate.project_copy import ProjectCopy
from pytest_cgins.regenerate.targets import target_of
from tests import cuda_twin
from tests.regenerate import scripted
from tests.regenerate.llm_server import LlmServer
from tests.regenerate.projects import committed
from tests.regenerate.ray_nodes import RayNodes

LIMIT_S = 120.0
KEY = "SCRIPTED_API_KEY"


@pytest.fixture(scope="module")
def recorded(made_once: Callable[..., Path]) -> Path:
    """The scripted project with its trace pack."""
    return made_once("scripted", scripted.recorded)


def test_an_archive_that_breaks_off_leaves_nothing(tmp_path: Path) -> None:
    """A node that is asked again has all files, or none."""
    (tmp_path / "file").write_bytes(bytes(100_000))
    archive = packed({"0/file": tmp_path / "file"})
    with pytest.raises(tarfile.ReadError):
        unpack(archive[:50_000], tmp_path / "packs")
    assert [place.name for place in tmp_path.iterdir()] == ["file"]
    unpack(archive, tmp_path / "packs")
    assert (tmp_path / "packs/0/file").stat().st_size == 100_000


def started(project: Path, folder: Path, executor: str, *kernels: str) -> subprocess.Popen[bytes]:
    """A run that repairs kernels."""
    return scripted.begin(project, kernels, log=folder / "log", env={scripted.EXECUTOR: executor})


def regenerating(project: Path, log: Path, nodes: RayNodes) -> subprocess.Popen[bytes]:
    """The same by pytest, with a key that no node may see."""
    words = [
        "--cgins-no-timing",
        "--cgins-probes=fast",
        "--cgins-pr=off",
        "-k",
        "relu",
        "--cgins-regenerate=relu",
    ]
    command = [sys.executable, "-m", "pytest", "--cgins", *words, f"--cgins-executor={nodes.executor}"]
    env = {KEY: "sk-0123456789abcdef", "PYTHONUNBUFFERED": "1"}
    return scripted.started(command, project, log=log, env=env)


def run_of(project: Path) -> Path:
    (record,) = project.glob(".cgins/runs/*/run.json")
    return record.parent


def test_a_killed_node_costs_no_attempt(recorded: Path, tmp_path: Path) -> None:
    """kill -9 of a node that is checking a candidate: another one checks it, the journal has it once and names the node."""
    with RayNodes() as nodes, LlmServer(scripted.Script(first=3)) as server:
        project = scripted.project(recorded, tmp_path / "project", server.base_url)
        process = regenerating(project, tmp_path / "log", nodes)
        answered = "attempt-01/generator: answered"
        assert scripted.until(lambda: answered in said(project) and bool(nodes.answering()), LIMIT_S)
        (actor,) = nodes.answering()
        assert KEY.encode() not in Path(f"/proc/{actor}/environ").read_bytes()
        nodes.kill_node_of(actor)
        assert process.wait(LIMIT_S) == pytest.ExitCode.TESTS_FAILED, (tmp_path / "log").read_text()
    assert not nodes.processes()
    journal = Journal.read_only(run_of(project))
    (target,) = journal.record.targets
    (attempt,) = journal.attempts(target)
    assert attempt.outcome == "accepted"
    assert said(project).count("attempt-01: ") == said(project).count("was tried again: lost with ") == 1
    check, acceptance = attempt.trials
    assert check.notes[-1].startswith("tried again: lost with ")
    assert not acceptance.notes
    assert check.sandbox
    assert check.evaluations[0].case.pack_path == str(project / "traces/tiny")


def said(project: Path) -> str:
    """The run's log of events."""
    return "".join(file.read_text() for file in project.glob(".cgins/runs/*/events.log"))


@pytest.mark.exam
def test_a_cluster_ends_a_run_as_this_machine_does(recorded: Path, tmp_path: Path) -> None:
    """The same verdicts, messages, proposals and files, whoever built and judged the candidates."""
    endings = []
    with RayNodes() as nodes, LlmServer(scripted.Script()) as server:
        for executor in ("local", nodes.executor):
            folder = tmp_path / executor.partition("=")[0]
            project = scripted.project(recorded, folder / "project", server.base_url)
            process = started(project, folder, executor, *scripted.KERNELS)
            assert process.wait(LIMIT_S) == 0, (folder / "log").read_text()
            endings.append(scripted.ending(run_of(project)))
    assert scripted.judged_differently(*endings) == []


@pytest.mark.exam
def test_a_node_with_another_version_is_not_used(recorded: Path, tmp_path: Path) -> None:
    """It is told by name, and the next node is taken."""
    other = tmp_path / "other/pytest_cgins"
    shutil.copytree(scripted.ROOT / "pytest_cgins", other, ignore=shutil.ignore_patterns("__pycache__"))
    text = (other / "__init__.py").read_text()
    (other / "__init__.py").write_text(text.replace(__version__, "0.0.1"))
    with RayNodes(0) as nodes, LlmServer(scripted.Script(first=3)) as server:
        nodes.add(PYTHONPATH=str(other.parent))
        project = scripted.project(recorded, tmp_path / "project", server.base_url)
        log = tmp_path / "log"
        process = regenerating(project, log, nodes)
        refusal = f"has pytest-cgins 0.0.1, and this machine {__version__}"
        assert scripted.until(lambda: refusal in log.read_text(), LIMIT_S), log.read_text()
        nodes.add()
        assert process.wait(LIMIT_S) == pytest.ExitCode.TESTS_FAILED, log.read_text()
    assert "accepted after 1 of 5 attempts" in log.read_text()


@pytest.mark.exam
def test_slots_have_whole_gpus_of_one_type(tmp_path: Path) -> None:
    """What the first one has, the others have; one that was given back is given out again (ray#44821)."""
    import ray

    cuda_twin.build(tmp_path)
    twin = {"LD_LIBRARY_PATH": str(tmp_path)}
    with RayNodes(0) as nodes:
        nodes.add(2, {"num_gpus": 1, "resources": {"accelerator_type:T1": 1}}, **twin, TWIN_NAME="NVIDIA T1")
        ray.init(address=nodes.executor.partition("=")[2], log_to_driver=False)
        try:
            slots = RaySlots("cuda", fenced=False, cache=None)
            for _ in range(2):
                slot = slots.open(lambda: True)
                assert slot is not None
                slot.close()
            first = slots.open(lambda: True)
            nodes.add(
                2, {"num_gpus": 1, "resources": {"accelerator_type:T2": 1}}, **twin, TWIN_NAME="NVIDIA T2"
            )
            began = time.monotonic()
            assert slots.open(lambda: time.monotonic() < began + 15) is None
            nodes.add(
                2, {"num_gpus": 1, "resources": {"accelerator_type:T1": 1}}, **twin, TWIN_NAME="NVIDIA T1"
            )
            second = slots.open(lambda: True)
            assert isinstance(first, RaySlot)
            assert isinstance(second, RaySlot)
            assert "node " in first.name
            assert first.name != second.name
        finally:
            ray.shutdown()


class OnNodes(Executor):
    """Two nodes in this process, to which requests and answers travel."""

    def dispatcher(self, device: DeviceName) -> Dispatcher:
        made = Dispatcher(lambda _: Travelled("here", sandbox=None, cache=self.settings.cache), 2)
        self._stack.callback(made.close)
        return made

    def close(self) -> None:
        self.stop()


class Travelled(Node):
    """What it is asked is another process's, and so is what it answers."""

    def answer(self, work: Work[Any]) -> Answer[Any]:
        answered: Answer[Any] = pickle.loads(pickle.dumps(super().answer(pickle.loads(pickle.dumps(work)))))
        return answered


@pytest.mark.exam
def test_all_that_a_search_asks_is_asked_of_nodes(recorded: Path, tmp_path: Path) -> None:
    """Times beside the champion of the batch, and beside a later one; evidence, the machine, acceptance."""
    shutil.copytree(recorded, tmp_path / "project", ignore=shutil.ignore_patterns("__pycache__"))
    text = (
        "version: 1\ntraces: [traces/tiny]\nkernels:\n  relu:\n    op: torch.nn.functional.relu\n"
        "    source: kernels/relu.cpp\n    gate: {tolerate: 40%, catch: 90%}\n"
    )
    files = {"cgins.yaml": text, "kernels/relu.cpp": scripted.draft("relu", 3)}
    project = config.load(committed(tmp_path / "project", files) / "cgins.yaml")
    right, other, wrong = (
        {"kernels/relu.cpp": f"// {number}\n{scripted.draft('relu', draft)}"}
        for number, draft in enumerate((3, 3, 1))
    )
    (tmp_path / "reports").mkdir()
    (entry,) = project.kernels
    target = target_of(entry, entry.implementations[0], "optimise")
    copy = ProjectCopy(project, ("relu", "cpp", "cpu"), tmp_path / "copy", baseline="none")
    settings = TrialSettings(seed=3, sandbox=None, cache=tmp_path / "cache")
    executor = OnNodes(project, settings, print)
    try:
        gate = executor.gate(target, copy, {}, tmp_path / "reports")
        assert gate.hardware().device == "cpu"
        gate.begin([right, other, wrong], None)
        checks = [gate.check(files).evaluations[0] for files in (right, other, wrong)]
        assert [one.verdict.status.outcome for one in checks] == ["pass", "pass", "fail"]
        assert checks[0].case.pack_path == str(tmp_path / "project/traces/tiny")
        timed = [gate.times(right, champion).evaluations for champion in (None, other)]
        assert all(one.measurement is not None for (one,) in timed)
        assert gate.evidence(right, timed[0]).case == checks[0].case.name
        accepted = gate.accept(right, goal="optimise", alpha_share=0.5)
        assert (accepted.stage, gate.touched(), gate.sass_signatures(right)) == ("acceptance", (), None)
    finally:
        executor.close()


def test_what_is_not_there_is_said_before_a_model_is_asked(tmp_path: Path) -> None:
    """An executor that nobody knows."""
    (tmp_path / "cgins.yaml").write_text("version: 1\nkernels: {}\n")
    loaded = config.load(tmp_path / "cgins.yaml")
    for name in ("slurm", "local=here"):
        with pytest.raises(ConfigError, match="no such executor"):
            run_setup.settings_of(loaded, run_setup.RunOptions(executor=name))


# ---- the queue before the slots


class Nodes:
    """Slots that answer when they are told to, and are lost with what they do.

    Args:
        lost: which answers, counted over all slots, end the slot.
    """

    def __init__(self, *lost: int) -> None:
        self.lost, self.is_lost = lost, False
        self.under_way = self.most = self.answers = self.opened = 0
        self.go_on = threading.Event()
        self._lock = threading.Lock()

    def open(self, is_wanted: Callable[[], bool]) -> Nodes:
        """One more slot; all are this."""
        self.opened += 1
        self.is_lost = False
        return self

    def answer(self, work: Work[None]) -> Answer[None]:
        with self._lock:
            self.under_way += 1
            self.most = max(self.most, self.under_way)
            self.answers += 1
            number = self.answers
        self.go_on.wait(10)
        with self._lock:
            self.under_way -= 1
        self.is_lost = number in self.lost
        lost = "its raylet died" if self.is_lost else ""
        return Answer(id=work.id, node=f"node {number}", lost=lost)

    def stop(self) -> None:
        """Nothing is held."""

    def close(self) -> None:
        """Nothing is held."""


@pytest.fixture
def work(tmp_path: Path) -> Callable[[int], Work[None]]:
    (tmp_path / "relu.cpp").write_text("")
    (tmp_path / "cgins.yaml").write_text(
        "version: 1\nkernels: {relu: {op: torch.nn.functional.relu, source: relu.cpp}}\n"
    )
    (entry,) = config.load(tmp_path / "cgins.yaml").kernels
    spec = TargetOnNode(
        target=target_of(entry, entry.implementations[0], "repair"), top="", config="", traces=(), packs=b"", repository=b"",
        base_commit="", before={}, seed=0, timing=False, compile=False, timeout_s=1.0,
    )  # fmt: skip
    return lambda number: Work(f"{number}-check", spec, lambda _: None)


def test_no_more_are_under_way_than_there_are_slots(work: Callable[[int], Work[None]]) -> None:
    """The others wait in the queue, and are answered once each, in order of their futures."""
    nodes = Nodes()
    dispatcher = Dispatcher(nodes.open, 2)
    futures = [dispatcher.submit(work(number)) for number in range(8)]
    assert scripted.until(lambda: nodes.under_way == 2, 10)
    nodes.go_on.set()
    assert [future.result(10).id for future in futures] == [f"{n}-check" for n in range(8)]
    dispatcher.close()
    assert (nodes.most, nodes.answers, nodes.opened) == (2, 8, 2)


def test_what_is_lost_three_times_is_given_up_and_the_nodes_are_named(
    work: Callable[[int], Work[None]],
) -> None:
    """The request after it is answered by the next slot."""
    nodes = Nodes(1, 2, 3)
    nodes.go_on.set()
    dispatcher = Dispatcher(nodes.open, 1)
    first: Future[Answer[None]] = dispatcher.submit(work(1))
    second = dispatcher.submit(work(2))
    with pytest.raises(
        RegenerateError, match="INFRASTRUCTURE: 1-check was lost with 3 nodes: node 1"
    ) as told:
        first.result(10)
    assert "node 3: its raylet died" in told.value.what
    assert second.result(10).losses == ()
    dispatcher.close()
    assert nodes.opened == 1 + dispatch.MOST_LOSSES


def test_close_ends_those_who_wait(work: Callable[[int], Work[None]]) -> None:
    """Nobody waits for ever for what was in the queue."""
    nodes = Nodes()
    dispatcher = Dispatcher(nodes.open, 1)
    futures = [dispatcher.submit(work(number)) for number in range(3)]
    assert scripted.until(lambda: nodes.under_way == 1, 10)
    threading.Timer(0.2, nodes.go_on.set).start()
    dispatcher.close()
    assert futures[2].cancelled()
    assert all(future.done() for future in futures)
