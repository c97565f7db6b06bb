"""A sandbox for a tool that starts the worker itself, as compute-sanitizer does, and writes a log."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pytest_cgins.run.pool import WorkerPool
from pytest_cgins.run.sandbox import landlock, outside
from pytest_cgins.run.sandbox.sandbox import Sandbox
from pytest_cgins.run.worker import ENCLOSE_VARIABLE

from .conftest import LIMIT_S, Trial, python, run

TOYS = Path(__file__).parents[1]

_TOOL = """
import os, socket, subprocess, sys
log, packages, child = sys.argv[1:]
open(log + "/log", "w").write("begun\\n")
worker = subprocess.Popen([sys.executable, "-I", "-S", "-c", child, log, packages], stdout=subprocess.PIPE, text=True)
worker.stdout.readline()
line = socket.socket(socket.AF_UNIX)
line.connect("\\0the-worker")
line.sendall(b"asked")
print(line.makefile().read() + worker.stdout.read())
sys.exit(worker.wait())
"""
_WORKER = """
import os, socket, sys, threading
log, packages = sys.argv[1:]
sys.path.append(packages)
from pytest_cgins.run.sandbox.init import enclose_in_scratch

def tried(name, attempt):
    try:
        attempt()
        print(name, "reached", file=sys.stderr)
    except OSError as error:
        print(name, error.errno, file=sys.stderr)

def older():
    began.set()
    go.wait()
    tried("older-thread", lambda: socket.socket(socket.AF_UNIX).connect("\\0the-worker"))

began, go = threading.Event(), threading.Event()
thread = threading.Thread(target=older)
thread.start()
began.wait()
server = socket.socket(socket.AF_UNIX)
server.bind("\\0the-worker")
server.listen()
enclose_in_scratch()
print("listens", flush=True)
line, _ = server.accept()
assert line.recv(5) == b"asked"
line.sendall(b"answered")
line.close()
go.set()
thread.join()
tried("connect", lambda: socket.socket(socket.AF_UNIX).connect("\\0the-worker"))
tried("log", lambda: open(log + "/log", "w"))
tried("tool", lambda: open(f"/proc/{os.getppid()}/mem", "r+b"))
tried("signal", lambda: os.kill(os.getppid(), 0))
tried("scratch", lambda: open(os.environ["TMPDIR"] + "/mine", "w"))
"""


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A folder that the tool may write to."""
    folder = tmp_path / "logs"
    folder.mkdir()
    return folder


def test_a_tool_talks_to_its_worker_and_logs(sandbox: Sandbox, log: Path) -> None:
    """It connects to the worker's local socket, and its log is on the host. The worker connects to nobody.

    It does so from no thread, and cannot change the log; with Landlock it has no hold on the tool.
    """
    command = [*python(_TOOL), str(log), str(outside.PACKAGES), _WORKER]
    ran = run(sandbox.for_tool(writable=log).wrap(command))
    assert (ran.returncode, ran.stdout.strip()) == (0, "answered"), ran.stderr
    assert (log / "log").read_text() == "begun\n"
    held = "13" if landlock.version() >= 2 else "reached"
    assert dict(line.split() for line in ran.stderr.splitlines()) == {
        "scratch": "reached", "older-thread": "2", "connect": "2", "log": held, "tool": held,
        "signal": "1" if landlock.version() >= 6 else "reached",
    }  # fmt: skip


def test_folders_that_are_named_can_be_written(sandbox: Sandbox, fenced: Trial, log: Path) -> None:
    """Those, below what is only shown, and nothing beside them."""
    body = "open(place, 'w').write('x')"
    assert fenced(body, place=str(log / "x")) == "denied: EROFS"
    ran = run(replace(sandbox, writable=(log,)).wrap(python(f"open({str(log / 'x')!r}, 'w').write('x')")))
    assert (ran.returncode, (log / "x").read_text()) == (0, "x"), ran.stderr
    ran = run(replace(sandbox, writable=(log,)).wrap(python(f"open({str(log.parent / 'x')!r}, 'w')")))
    assert "Read-only file system" in ran.stderr


def test_a_worker_that_is_told_encloses_itself(sandbox: Sandbox, log: Path) -> None:
    """The pool's variable is all that it takes."""
    fence = sandbox.around(visible=[TOYS], hidden=[]).for_tool(writable=log)
    env = {"PYTHONPATH": str(TOYS), ENCLOSE_VARIABLE: "1"}
    with WorkerPool(services={"toy": "toys:Toy"}, env=env, wrap=fence.wrap) as pool:
        assert pool.call("toy", "writes", {"path": str(log / "x")}, timeout_s=LIMIT_S).result == (
            "Permission denied" if landlock.version() >= 2 else ""
        )
        assert pool.call("toy", "connects", {}, timeout_s=LIMIT_S).result == "No such file or directory"


def test_its_parent_may_be_found_at_the_start(sandbox: Sandbox) -> None:
    """A sandbox that a shell starts, whose id nobody knows before, ends with the shell."""
    command = sandbox.wrap(python("print('ran')"), parent=0)
    ran = run(["/bin/sh", "-c", '"$@"; exit $?', "sh", *command])
    assert (ran.returncode, ran.stdout) == (0, "ran\n"), ran.stderr
