"""Workers that are forked: what a fork has, what it has not, and what becomes of both when one of them dies."""

from __future__ import annotations

import errno
import logging
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_cgins.core.errors import ServiceError, WorkerCrashed, WorkerTimeout
from pytest_cgins.run import forking
from pytest_cgins.run.forking import FORK_VARIABLE, MOST_SERVERS, ForkServer
from pytest_cgins.run.pool import WorkerPool
from pytest_cgins.run.process import WorkerProcess
from pytest_cgins.run.sandbox.sandbox import Sandbox

from .living import LIMIT_S, ask, is_running, wait_until_gone

SERVICES = {"toy": "toys:Toy", "other": "toys:Toy", "timing": "toys:Toy", "reference": "toys:Toy"}


@pytest.fixture(autouse=True)
def fresh_servers() -> Iterator[None]:
    """Each test begins and ends without servers."""
    forking._servers.end()
    yield
    forking._servers.end()


@pytest.fixture
def pool(toy_path: dict[str, str]) -> Iterator[WorkerPool]:
    with WorkerPool(services=SERVICES, env=toy_path) as pool:
        yield pool


def servers() -> list[ForkServer]:
    return list(forking._servers._current.values())


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def is_forked(pid: int) -> bool:
    return parent_of(pid) in {server.pid for server in servers()}


def test_pools_share_a_server(pool: WorkerPool, toy_path: dict[str, str]) -> None:
    """Workers of one environment have one parent, whichever pool they are of; each is another process."""
    pids = [ask(pool, "pid"), ask(pool, "pid", "other")]
    with WorkerPool(services=SERVICES, env=toy_path) as second:
        pids.append(ask(second, "pid"))
        assert len(set(pids)) == 3
        assert {parent_of(pid) for pid in pids} == {one.pid for one in servers()}
        assert len(servers()) == 1


def test_another_environment_has_another_server(pool: WorkerPool, toy_path: dict[str, str]) -> None:
    """A variable more, and the worker has another parent, and the variable."""
    with WorkerPool(services=SERVICES, env={**toy_path, "CGINS_TOY": "green"}) as second:
        assert parent_of(ask(pool, "pid")) != parent_of(ask(second, "pid"))
        assert [ask(one, "variable") for one in (pool, second)] == ["blue", "green"]


def test_what_knows_the_answers_has_the_same_server_and_is_shielded(pool: WorkerPool) -> None:
    """One import for both; nobody may look into the reference worker, nor into what forked it."""
    assert parent_of(ask(pool, "pid")) == parent_of(ask(pool, "pid", "reference"))
    assert [ask(pool, "is_dumpable", role) for role in ("toy", "reference")] == [1, 0]


def test_what_times_is_never_forked(pool: WorkerPool) -> None:
    """Two timing workers have nothing in common, so that one can confirm what the other has measured."""
    assert parent_of(ask(pool, "pid", "timing")) == os.getpid()
    assert not servers()


def test_what_is_wrapped_is_never_forked(toy_path: dict[str, str]) -> None:
    """Another program, such as a checker, is put around a program."""
    with WorkerPool(services=SERVICES, env=toy_path, wrap=lambda command: ["env", *command]) as pool:
        assert parent_of(ask(pool, "pid")) == os.getpid()


@pytest.mark.parametrize("change", ["limit", "mask", "cpus"])
def test_what_a_process_hands_on_is_not_a_server_s(pool: WorkerPool, change: str) -> None:
    """Limits, masks and CPUs are those that this process has when a worker is started."""
    before = parent_of(ask(pool, "pid"))
    pool.close()
    limits, mask, cpus = (resource.getrlimit(resource.RLIMIT_CORE), os.umask(0o077), os.sched_getaffinity(0))
    os.umask(mask)
    if len(cpus) < 2 and change == "cpus":
        pytest.skip("one CPU")
    try:
        if change == "limit":
            resource.setrlimit(resource.RLIMIT_CORE, (0 if limits[0] else 1, limits[1]))
        elif change == "mask":
            os.umask(mask ^ 0o007)
        else:
            os.sched_setaffinity(0, {min(cpus)})
        pid = ask(pool, "pid")
        assert parent_of(pid) != before
        status = Path(f"/proc/{pid}/status").read_text()
        if change == "mask":
            assert f"Umask:\t{mask ^ 0o007:04o}" in status
        assert os.sched_getaffinity(pid) == os.sched_getaffinity(0)
    finally:
        resource.setrlimit(resource.RLIMIT_CORE, limits)
        os.umask(mask)
        os.sched_setaffinity(0, cpus)


def test_the_current_directory_is_the_parent_s(
    pool: WorkerPool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker is where this process is when it starts it, whichever server forks it."""
    ask(pool, "pid")
    monkeypatch.chdir(tmp_path)
    assert Path(f"/proc/{ask(pool, 'pid', 'other')}/cwd").readlink() == tmp_path
    assert len(servers()) == 1


@pytest.mark.exam
@pytest.mark.parametrize("fenced", [False, True])
def test_a_fork_is_what_a_program_is(
    toy_path: dict[str, str], monkeypatch: pytest.MonkeyPatch, *, fenced: bool
) -> None:
    """Modules, names, stack, descriptors, threads, signals, rights and mounts do not tell how a worker was started."""
    monkeypatch.setenv("A_TOKEN", "of somebody")
    folders = tuple(map(Path, toy_path["PYTHONPATH"].split(os.pathsep)))
    sandbox = Sandbox(way="namespaces", visible=folders, devices=False) if fenced else None
    if sandbox is not None and sandbox.available():
        pytest.skip(sandbox.available())
    found = []
    for value in ("1", "0"):
        monkeypatch.setenv(FORK_VARIABLE, value)
        with WorkerPool(services={"x": "state:State"}, env=toy_path, sandbox=sandbox) as pool:
            found.append(ask(pool, "look", "x"))
            assert is_forked(pool._workers["x"].pid) is (value == "1")
    assert found[0] == found[1]
    assert "A_TOKEN" not in found[0]["first variables"]
    assert not fenced or found[0]["its program"] == f"OSError{errno.EROFS}"


@pytest.mark.parametrize(
    ("left", "why"),
    [
        ("import os; os.open('/', os.O_RDONLY)", "a file was left open by an import"),
        ("import mmap; KEPT = mmap.mmap(-1, 4096)", "memory was shared by an import"),
    ],
)
def test_what_leads_out_of_a_sandbox_is_not_forked_into_one(
    tmp_path: Path, toy_path: dict[str, str], caplog: pytest.LogCaptureFixture, left: str, why: str
) -> None:
    """A descriptor or a mapping that a server has from its imports; without a sandbox it is forked."""
    (tmp_path / "leaky.py").write_text(f"{left}\nfrom toys import Toy\n")
    path = f"{tmp_path}{os.pathsep}{toy_path['PYTHONPATH']}"
    sandbox = Sandbox(way="namespaces", visible=tuple(map(Path, path.split(os.pathsep))), devices=False)
    if sandbox.available():
        pytest.skip(sandbox.available())
    for fence in (None, sandbox):
        with (
            caplog.at_level(logging.DEBUG, logger=forking.__name__),
            WorkerPool(services={"x": "leaky:Toy"}, env={"PYTHONPATH": path}, sandbox=fence) as pool,
        ):
            ask(pool, "pid", "x")
            assert is_forked(pool._workers["x"].pid) is (fence is None)
    assert any(message.endswith(f"forked no worker: {why}") for message in caplog.messages)


@pytest.mark.exam
def test_random_numbers_of_two_workers_differ(toy_path: dict[str, str]) -> None:
    """Python's, numpy's and torch's generators, and multiprocessing's key, are each worker's own."""
    with WorkerPool(services={"x": "state:State", "y": "state:State"}, env=toy_path) as pool:
        first, second = (ask(pool, "draw", role) for role in "xy")
        assert is_forked(ask(pool, "pid", "x"))
    assert sorted(first) == ["multiprocessing", "numpy", "random", "torch", "torch seed"]
    assert not [name for name in first if first[name] == second[name]]


@pytest.mark.exam
def test_torch_works_in_a_fork(toy_path: dict[str, str]) -> None:
    """Its threads and numpy's start, autograd runs, and CUDA could be initialized."""
    with WorkerPool(services={"x": "state:State"}, env=toy_path) as pool:
        result = ask(pool, "compute", "x")
        assert is_forked(ask(pool, "pid", "x"))
    assert result == {"right": True, "bad fork": False, "threads": True}


@pytest.mark.parametrize(
    ("module", "why"),
    [("threaded", "threads were started by an import"), ("opens_device", "a device was opened by an import")],
)
def test_an_import_that_does_not_survive_a_fork_is_not_forked(
    toy_path: dict[str, str], caplog: pytest.LogCaptureFixture, module: str, why: str
) -> None:
    """Such a service is started as a program, and no second server is tried."""
    with (
        caplog.at_level(logging.DEBUG, logger=forking.__name__),
        WorkerPool(services={"x": f"{module}:Service"}, env=toy_path) as pool,
    ):
        for _ in range(3):
            pid = ask(pool, "pid", "x")
            assert parent_of(pid) == os.getpid()
            pool.discard("x")
    assert f"no worker of {module} is forked: {why}" in caplog.messages
    assert sum("to fork workers" in message for message in caplog.messages) == 1


def test_an_import_that_fails_is_told_by_a_worker(tmp_path: Path, toy_path: dict[str, str]) -> None:
    """The error is the first one, with its traceback, though a server had tried before."""
    (tmp_path / "failing.py").write_text("raise LookupError('no such library')\n")
    path = f"{tmp_path}{os.pathsep}{toy_path['PYTHONPATH']}"
    with WorkerPool(services={"x": "failing:Service"}, env={"PYTHONPATH": path}) as pool:
        for _ in range(2):
            with pytest.raises(ServiceError, match="LookupError in the x worker: no such library") as caught:
                ask(pool, "pid", "x")
            assert "failing.py" in caught.value.trace
            assert caught.value.fault == "worker-lost"


def test_imports_that_take_too_long_are_told(tmp_path: Path) -> None:
    """The limit of a start holds for a server's imports, and a pool that is closed meanwhile does not wait."""
    (tmp_path / "slow.py").write_text("import time; time.sleep(60)\n")
    services, env = {"x": "slow:Service"}, {"PYTHONPATH": str(tmp_path)}
    began = time.monotonic()
    with WorkerPool(services=services, env=env, start_timeout_s=0.3) as pool:
        pool.warm(["x"])
        with pytest.raises(WorkerTimeout, match=r"did not answer 'start' within 0\.3 s") as caught:
            ask(pool, "pid", "x")
        assert caught.value.fault == "worker-lost"
        pool.warm(["x"])
    assert time.monotonic() - began < 10


def test_a_server_that_was_killed_is_replaced(pool: WorkerPool) -> None:
    """Its workers die with it, and the next call finds another server and another worker."""
    pid = ask(pool, "pid")
    (first,) = servers()
    os.kill(first.pid, signal.SIGKILL)
    assert wait_until_gone(pid)
    again = ask(pool, "pid")
    (second,) = servers()
    assert again != pid
    assert parent_of(again) == second.pid != first.pid


def test_a_worker_whose_server_is_killed_is_told_as_killed(pool: WorkerPool) -> None:
    """Whoever kills its own parent dies, and the error says so; pytest lives on."""
    with pytest.raises(WorkerCrashed) as caught:
        ask(pool, "kills_its_parent")
    assert "the toy worker was killed by SIGKILL (" in caught.value.what
    assert caught.value.returncode == -9
    assert is_forked(ask(pool, "pid"))


def test_a_server_that_hangs_is_replaced(pool: WorkerPool, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that was stopped forks nothing: the worker is started as a program, and the server ended."""
    monkeypatch.setattr(forking, "_FORK_S", 0.2)
    monkeypatch.setattr(forking, "_REAP_S", 0.2)
    ask(pool, "pid")
    (first,) = servers()
    os.kill(first.pid, signal.SIGSTOP)
    assert parent_of(ask(pool, "pid", "other")) == os.getpid()
    assert wait_until_gone(first.pid)
    assert is_forked(ask(pool, "pid"))


def test_the_number_of_servers_is_bounded(toy_path: dict[str, str]) -> None:
    """One that is not wanted any longer ends, but not before its last worker has."""
    with WorkerPool(services=SERVICES, env=toy_path) as pool:
        pid = ask(pool, "pid")
        (first,) = servers()
        for number in range(MOST_SERVERS):
            with WorkerPool(services=SERVICES, env={**toy_path, "NUMBER": str(number)}) as another:
                ask(another, "pid")
        assert first not in servers()
        assert len(servers()) == MOST_SERVERS
        assert ask(pool, "pid") == pid
    assert wait_until_gone(first.pid)


def test_no_zombie_is_left(pool: WorkerPool) -> None:
    """A worker that has ended is reaped once its parent has asked how."""
    for method in ("exit_zero", "segfault"):
        pid = ask(pool, "pid")
        with pytest.raises(WorkerCrashed):
            ask(pool, method)
        assert not Path(f"/proc/{pid}").exists()


def test_a_worker_cannot_reach_its_server(pool: WorkerPool) -> None:
    """It has no socket but its own connection, and may not look into the server unless it may do everything."""
    ask(pool, "pid", "other")  # a sibling, with whose descriptors it is not born
    pid = ask(pool, "pid")
    assert is_forked(pid)
    opened = {link.name: str(link.readlink()).partition(":")[0] for link in Path(f"/proc/{pid}/fd").iterdir()}
    assert sorted(opened.values()) == ["/dev/null", "pipe", "pipe", "socket"]
    (server,) = servers()
    if os.geteuid() == 0:
        assert Path(f"/proc/{server.pid}/environ").stat().st_uid == 0
        script = f"import os; os.setgid(65534); os.setuid(65534); open('/proc/{server.pid}/environ')"
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
        assert "PermissionError" in done.stderr
    else:
        with pytest.raises(PermissionError):
            Path(f"/proc/{server.pid}/environ").read_bytes()


def test_the_mark_is_each_worker_s_own(pool: WorkerPool) -> None:
    """Others read it in /proc, where a fork's environment is its parent's, and programs that it starts have it."""
    pids = [ask(pool, "pid"), ask(pool, "pid", "other")]
    variables = [Path(f"/proc/{pid}/environ").read_bytes().split(b"\0") for pid in pids]
    marks = [[one for one in found if one.startswith(b"INVOCATION_ID=")] for found in variables]
    assert [len(found) for found in marks] == [1, 1]
    assert marks[0] != marks[1]
    child = ask(pool, "grandchild")
    assert marks[0][0] in Path(f"/proc/{child}/environ").read_bytes().split(b"\0")


@pytest.mark.parametrize("method", ["daemon", "marked_daemon"])
def test_daemons_of_a_fork_die_with_it(pool: WorkerPool, method: str) -> None:
    """Processes that left the session and lost their parents are killed, by their tree or by their mark."""
    daemon = ask(pool, method)
    worker, bystander = ask(pool, "pid"), ask(pool, "pid", "other")
    assert is_forked(worker)
    assert is_running(daemon)
    if method == "marked_daemon":  # its worker dies before anybody has looked
        os.kill(worker, signal.SIGKILL)
    pool.discard("toy")
    assert not is_running(daemon)
    assert ask(pool, "pid", "other") == bystander


def test_secrets_are_in_no_server(pool: WorkerPool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server's environment is a worker's, and pytest's current test is in neither."""
    monkeypatch.setenv("GITHUB_TOKEN", "hush")
    found = {name for role in ("toy", "reference") for name in ask(pool, "environment", role)}
    (server,) = servers()
    if os.geteuid() == 0:
        variables = Path(f"/proc/{server.pid}/environ").read_bytes()
        assert b"hush" not in variables
        assert b"PYTEST_CURRENT_TEST" not in variables
    assert not {"GITHUB_TOKEN", "PYTEST_CURRENT_TEST"} & found


@pytest.mark.parametrize("how", ["switched off", "impossible"])
def test_where_there_are_no_forks_programs_are_started(
    pool: WorkerPool, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """With CGINS_FORK=0, and on a system without pidfds, each worker is a program that pytest has started."""
    if how == "impossible":
        monkeypatch.setattr(forking, "_is_possible", lambda: False)
    else:
        monkeypatch.setenv(FORK_VARIABLE, "0")
    assert parent_of(ask(pool, "pid")) == os.getpid()
    assert not servers()


def test_threads_can_start_workers_at_once(toy_path: dict[str, str]) -> None:
    """Each gets the worker that it asked for, of one server."""
    found: list[tuple[int, int]] = []

    def work() -> None:
        with WorkerPool(services=SERVICES, env=toy_path) as pool:
            worker = ask(pool, "pid")
            found.append((worker, parent_of(worker)))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({worker for worker, _ in found}) == 8
    assert len({server for _, server in found}) == 1


PARENT = """
import os, threading, time
from pytest_cgins.run import forking
from pytest_cgins.run.process import WorkerProcess
def work():
    worker = WorkerProcess.start("toys:Toy", name="toy")
    pid = worker.call("pid", {}, timeout_s=20).result
    (server,) = forking._servers._current.values()
    if os.fork() == 0:
        time.sleep(60)
    print(pid, server.pid, flush=True)
    worker.call("loop", {}, timeout_s=60)
"""


@pytest.mark.parametrize(
    "start",
    ["work()", "t = threading.Thread(target=work); t.start(); t.join()"],
    ids=["main-thread", "thread"],
)
def test_a_server_does_not_outlive_its_parent(toy_path: dict[str, str], start: str) -> None:
    """A parent that is killed takes server and worker along, also where a fork of it has its sockets open."""
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT + start],
        stdout=subprocess.PIPE,
        env={**os.environ, **toy_path},
        text=True,
        start_new_session=True,
    )
    assert parent.stdout is not None
    worker, server = map(int, parent.stdout.readline().split())
    assert parent_of(worker) == server
    parent.kill()
    parent.wait()
    assert wait_until_gone(server)
    assert wait_until_gone(worker)
    os.killpg(parent.pid, signal.SIGKILL)


def test_a_fork_of_pytest_leaves_the_servers_alone(pool: WorkerPool) -> None:
    """A copy of the parent that ends, atexit and all, neither ends the servers nor uses them."""
    pid = ask(pool, "pid")
    copy = os.fork()
    if copy == 0:
        forking._servers.end()
        pool.close()
        os._exit(0)
    os.waitpid(copy, 0)
    assert ask(pool, "pid") == pid
    assert len(servers()) == 1


def test_a_pid_that_was_given_away_is_not_killed(toy_path: dict[str, str]) -> None:
    """Where a server has died, the system has reaped its workers, and their ids may be those of others."""
    worker = WorkerProcess.start("toys:Toy", name="toy", env=toy_path)
    pid = worker.call("pid", {}, timeout_s=LIMIT_S).result
    (server,) = servers()
    server.end()
    assert wait_until_gone(pid)
    time.sleep(0.02)  # who starts within the same hundredth of a second is told apart by the id alone
    with subprocess.Popen(["sleep", "60"], start_new_session=True) as stranger:
        worker._tree._root = stranger.pid  # as if it had got the id
        worker.close()
        assert stranger.poll() is None
        stranger.kill()
