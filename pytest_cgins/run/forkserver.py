"""A process that has a service's modules imported, and forks workers that need not import them again.

Run as `python -c '… main(**serve(…))'` by `forking.ForkServer`: `serve` returns in a forked worker only, with what
`worker.main` is called with. So a worker's stack, modules, descriptors and variables are those of a process that was
started anew. What it has in common with others of this server is where code and memory lie, and Python's hash seed.

The server never runs a kernel, has no CUDA context and no threads, and nobody of this user may look into it. It ends
with its parent, and its workers end with it. It reaps a worker only when told to: until then the worker's process id
cannot be given away.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import json
import os
import re
import select
import signal
import socket
import stat
import sys
import threading
import traceback
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from pytest_cgins.run.environment import WORKER_MARK, shield, unshield

REAP = b"reap"
"""What the parent says of a worker that it has seen end."""
REQUEST_BYTES = 1 << 16
"""Of a request or an answer; paths of a sandbox take some kilobytes."""

_PR_SET_PDEATHSIG = 1
_LEAVING_S = 1.0
_NOT_A_WORKER = 70
_DESCRIPTORS = 1024  # among them those that imports have opened
_MEMORY_DEVICES = 1  # /dev/null, /dev/zero, /dev/urandom
_RANK = 128  # matrices of this size are multiplied by all threads of numpy's library


def serve(fd: int, *, module: str, parent: int, death_signal: bool) -> dict[str, Any]:
    """Import a module, say whether processes that have it can be forked, and fork one a request.

    Args:
        fd: one end of a pair of sockets for datagrams: requests come, the first answer goes.
        module: what to import.
        parent: process id of the parent.
        death_signal: whether it was the parent's main thread that made us.

    Returns:
        Arguments of `worker.main`, in each worker. The server does not return.
    """
    shield()
    requests = socket.socket(fileno=fd)
    requests.set_inheritable(False)
    handle = _handle_of(parent, death_signal)
    unfit, threads = _prepare(module)
    with suppress(OSError):
        requests.send(json.dumps({"unfit": unfit}).encode())
    if unfit:
        os._exit(0)
    os.chdir("/")  # keeps no directory of a user's busy
    work = _Server(requests, handle, threads, _leak(requests.fileno(), handle)).run()
    # A worker has imported what it serves with, and nothing else.
    del sys.modules[__name__], sys.modules[__package__ or ""].forkserver
    return work


def _handle_of(parent: int, death_signal: bool) -> int:
    """A descriptor that tells of the parent's end, whichever of its threads made us and whoever has its sockets."""
    if death_signal:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL))
    handle = os.pidfd_open(parent)
    if os.getppid() != parent:
        os._exit(0)
    return handle


def _prepare(module: str) -> tuple[str, bool]:
    """Import; why no worker can be forked afterwards, or "", and whether a pool of threads was there before."""
    gc.disable()
    try:
        getattr(importlib.import_module(module), "prepare_forks", lambda: None)()
    except BaseException as error:  # noqa: BLE001 - a worker that is started anew will tell of it
        return f"{module} cannot be imported: {type(error).__name__}", False
    gc.freeze()
    gc.enable()
    ctypes.CDLL(None).fflush(None)  # what imports print is no worker's output
    threads = _threads() > 1
    if not _mark_address():
        return "the process's first environment cannot be found", threads
    return _unfit(), threads


def _unfit() -> str:
    """Why forks would not be what a process is that is started anew; tried on one.

    OpenBLAS ends its threads before a fork and starts them again when they are needed. Others would be missing.
    """
    pid = os.fork()
    if pid == 0:
        torch = sys.modules.get("torch")
        os._exit(bool(torch is not None and torch.cuda._is_in_bad_fork()))
    if os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]):
        return "CUDA was initialized by an import"
    if _has_device():
        return "a device was opened by an import"
    if threading.active_count() > 1 or _threads() > 1:
        return "threads were started by an import"
    return ""


def _leak(*own: int) -> str:
    """What would lead a fork out of its sandbox, or ""; a program would not have it. `own` are descriptors of the server's."""
    for fd in range(3, _DESCRIPTORS):
        with suppress(OSError):
            mode = os.fstat(fd).st_mode
            if fd not in own and (stat.S_ISDIR(mode) or stat.S_ISREG(mode) or stat.S_ISSOCK(mode)):
                return "a file was left open by an import"
    if re.search(rb"^\S+ .w.s ", Path("/proc/self/maps").read_bytes(), re.MULTILINE):
        return "memory was shared by an import"
    return ""


def _has_device() -> bool:
    """Whether a device is open but those of memory: a driver's state would not be a fork's own."""
    for fd in range(3, _DESCRIPTORS):  # not by /proc, which is closed to those who are not dumpable
        with suppress(OSError):
            status = os.fstat(fd)
            if stat.S_ISCHR(status.st_mode) and os.major(status.st_rdev) != _MEMORY_DEVICES:
                return True
    return False


def _threads() -> int:
    return len(os.listdir("/proc/self/task"))  # noqa: PTH208


class _Ends(NamedTuple):
    """The descriptors of a request, in their order."""

    connection: int
    stdout: int
    stderr: int
    line: int
    """To the parent; the server's, not the worker's."""
    folder: int
    """What is to be the current directory."""


@dataclass(slots=True)
class _Worker:
    """A worker that is not reaped yet."""

    pid: int
    line: socket.socket | None
    """To the parent; None if the parent has hung up."""


class _Server:
    """Forks on request, and reaps."""

    def __init__(self, requests: socket.socket, parent: int, threads: bool, leak: str) -> None:
        self._requests: socket.socket | None = requests
        self._parent = parent
        self._threads = threads
        self._leak = leak
        self._workers: dict[int, _Worker] = {}

    def run(self) -> dict[str, Any]:
        """Serve until the parent ends, or takes no more workers and has no more; returns in workers only."""
        while self._requests is not None or self._workers:
            poll = select.poll()
            poll.register(self._parent, select.POLLIN)
            lines = {worker.line.fileno(): worker for worker in self._workers.values() if worker.line}
            for fd in (*lines, *([self._requests.fileno()] if self._requests else [])):
                poll.register(fd, select.POLLIN)
            leaving = len(lines) < len(self._workers)
            for fd, _ in poll.poll(1000 * _LEAVING_S if leaving else None):
                if fd == self._parent:
                    os._exit(0)
                if fd in lines:
                    self._hear(lines[fd])
                elif (work := self._fork_one()) is not None:
                    return work
            self._reap_leaving()
        os._exit(0)

    def _hear(self, worker: _Worker) -> None:
        """The parent has seen the worker end and wants to know how; or it does not care for it any more."""
        assert worker.line is not None
        told = b""
        with suppress(OSError):
            told = worker.line.recv(len(REAP))
        if told == REAP:
            status = os.waitstatus_to_exitcode(os.waitpid(worker.pid, 0)[1])
            del self._workers[worker.pid]
            with suppress(OSError):
                worker.line.send(json.dumps({"status": status}).encode())
        else:
            with suppress(OSError):
                os.killpg(worker.pid, signal.SIGKILL)
        worker.line.close()
        worker.line = None

    def _reap_leaving(self) -> None:
        for worker in [one for one in self._workers.values() if one.line is None]:
            if os.waitpid(worker.pid, os.WNOHANG)[0]:
                del self._workers[worker.pid]

    def _fork_one(self) -> dict[str, Any] | None:
        """Serve one request; None in the server."""
        assert self._requests is not None
        data, fds = b"", list[int]()
        with suppress(ConnectionResetError):  # the other end was closed, with our first answer unread
            data, fds, _, _ = socket.recv_fds(
                self._requests, REQUEST_BYTES, len(_Ends._fields), socket.MSG_CMSG_CLOEXEC
            )
        if len(fds) != len(_Ends._fields):
            self._requests.close()
            self._requests = None
            return None
        ends = _Ends(*fds)
        line = socket.socket(fileno=ends.line)
        request = json.loads(data)
        fence: dict[str, Any] | None = request["fence"]
        ready, ready_end = os.pipe()
        server = os.getpid()
        answer: dict[str, Any]
        try:
            pid = self._forked_for(fence)
        except OSError as error:
            answer = {"error": str(error)}
            os.close(ready_end)
        else:
            if pid == 0:
                line.close()
                os.close(ready)
                self._become(request["mark"], ends, ready_end, fence, shielded=request["shielded"])
                return {
                    "fd": ends.connection,
                    "parent": server if fence is None else 0,
                    "death_signal": True,
                    "shielded": request["shielded"],
                }
            os.close(ready_end)
            answer = self._forked(pid, line, ready)
        for fd in (ends.connection, ends.stdout, ends.stderr, ends.folder, ready):
            os.close(fd)
        with suppress(OSError):  # a parent that has hung up is heard in the next round
            line.send(json.dumps(answer).encode())
        if "error" in answer:
            line.close()
        return None

    def _forked_for(self, fence: dict[str, Any] | None) -> int:
        if fence is not None and self._leak:
            raise OSError(self._leak)
        return os.fork()

    def _forked(self, pid: int, line: socket.socket, ready: int) -> dict[str, Any]:
        """Wait until a fork is in a session of its own, and marked: before, nobody may look for its processes."""
        if os.read(ready, 1):
            self._workers[pid] = _Worker(pid, line)
            return {"pid": pid}
        os.waitpid(pid, 0)
        return {"error": "the forked process ended"}

    def _become(
        self, mark: str, ends: _Ends, ready: int, fence: dict[str, Any] | None, *, shielded: bool
    ) -> None:
        """Drop everything of the server's, in the forked process, and enter the sandbox, if there is one."""
        server = os.getppid()
        try:
            os.setsid()
            for fd, standard in ((ends.stdout, 1), (ends.stderr, 2)):
                os.dup2(fd, standard)
                os.close(fd)
            self._close()
            os.fchdir(ends.folder)
            os.close(ends.folder)
            _mark(mark)
            if fence is not None:
                os.write(ready, b"1")
                os.close(ready)
                unshield()  # who nobody may look into has no say in its own namespaces
                _enter(fence["words"], server)
                os.environ.update(fence["variables"])
            _renew()
            if self._threads:
                _wake_threads()
            if not shielded:
                unshield()
            if fence is None:
                os.write(ready, b"1")
                os.close(ready)
        except BaseException:  # noqa: BLE001
            traceback.print_exc()
            _leave()

    def _close(self) -> None:
        """Close what leads to the parent, or to other workers."""
        if self._requests is not None:
            self._requests.close()
        os.close(self._parent)
        for worker in self._workers.values():
            if worker.line is not None:
                worker.line.close()
        self._workers.clear()


def _enter(words: list[str], server: int) -> None:
    """Return in the sandbox's worker, which has nothing of this imported."""
    known = set(sys.modules)
    from pytest_cgins.run.sandbox.enter import become

    become(words, server)
    for name in set(sys.modules) - known:
        del sys.modules[name]
        package, _, module = name.rpartition(".")
        delattr(sys.modules[package], module)


def _leave() -> NoReturn:
    os._exit(_NOT_A_WORKER)


def _mark_address() -> int:
    """Where the mark's value stands in what `/proc/PID/environ` shows; 0 if it is not there."""
    libc = ctypes.CDLL(None)
    libc.getenv.restype = ctypes.c_void_p
    address: int = libc.getenv(WORKER_MARK.encode()) or 0
    fields = Path("/proc/self/stat").read_bytes().rpartition(b")")[2].split()
    start, end = int(fields[47]), int(fields[48])
    return address if start < address < end else 0


def _mark(mark: str) -> None:
    """Put a mark in the place of the server's: in the memory that others read, and for processes to be started."""
    value, address = mark.encode(), _mark_address()
    if not address or len(value) != len(os.environ[WORKER_MARK]):
        raise ValueError(f"no place for the mark {mark!r}")
    ctypes.memmove(address, value, len(value))
    os.environ[WORKER_MARK] = mark


def _renew() -> None:
    """What a process draws or looks up as it starts: no two have it in common. Python's `random` sees to itself."""
    importlib.invalidate_caches()
    # Torch's generators of GPUs are made with a context, after the fork.
    if (torch := sys.modules.get("torch")) is not None:
        torch.default_generator.seed()
    if (numbers := sys.modules.get("numpy.random")) is not None:
        numbers.seed()
    if (processes := sys.modules.get("multiprocessing.process")) is not None:
        processes.current_process().authkey = os.urandom(32)


def _wake_threads() -> None:
    """Have numpy's library start its threads again, which are there from the start in other processes."""
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        matrix = numpy.ones((_RANK, _RANK))
        matrix @ matrix
