"""Servers that fork workers, as their parent sees them: one for each environment, shared by all pools of the process.

Where forks are impossible (a kernel before 5.3), refused (`CGINS_FORK=0`) or would not be what a fresh
process is (`forkserver` says why), there is no server, and each worker is started as a program.
"""

from __future__ import annotations

import atexit
import json
import logging
import os
import secrets
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

from pytest_cgins.run.environment import WORKER_MARK
from pytest_cgins.run.forkserver import REAP, REQUEST_BYTES
from pytest_cgins.run.sandbox.sandbox import ForForks

FORK_VARIABLE = "CGINS_FORK"
"""Environment variable that, with the value 0, has each worker started as a program."""
MOST_SERVERS = 4
"""Each holds some 150 MB of its own; the one that was not asked for longest takes no more requests."""

logger = logging.getLogger(__name__)

_FORK_S = 30.0  # a server that does not fork within this hangs
_REAP_S = 10.0
_ROOT = str(Path(__file__).resolve().parents[2])
PATH = f"import sys; sys.path[:1] == [''] and sys.path.pop(0); sys.path.append({_ROOT!r}); "
"""What a worker begins with. In sys.path ours is last, so that it shadows nothing, and the current directory never is,
where a user's own `trace.py` would be found before the standard library's."""


@dataclass(frozen=True, slots=True)
class Interpreter:
    """A Python that runs workers."""

    command: tuple[str, ...]
    """Reads a program from its standard input, which tells a kernel nothing of us."""
    path: str
    """What that program begins with, so that our modules are found."""


OWN = Interpreter((sys.executable, "-u", "-"), PATH)
"""This process's own."""
# No name is left in `__main__` that a worker which was started as a program has not.
_BOOT = (
    "from pytest_cgins.run.worker import main; "
    "main(**__import__('pytest_cgins.run.forkserver', fromlist=['serve'])"
    ".serve({fd}, module={module!r}, parent={parent}, death_signal={death_signal}))"
)
# Of a process's status, what it hands on to those that it starts.
_INHERITED = (
    "Umask", "Uid", "Gid", "Groups", "NoNewPrivs", "Seccomp", "Cap", "SigBlk", "SigIgn", "Cpus_allowed", "Mems"
)  # fmt: skip
_PATHS = ("PYTHONPATH", "LD_LIBRARY_PATH")

_Key = tuple[Any, ...]


@contextmanager
def told(program: str) -> Iterator[int]:
    """A descriptor to read a short Python program from."""
    out, into = os.pipe()
    try:
        os.write(into, program.encode())
        os.close(into)
        yield out
    finally:
        os.close(out)


class Forked:
    """A worker that a server forked. The server is its parent, and reaps it when `wait` says so."""

    def __init__(self, pid: int, line: socket.socket) -> None:
        """`pid` is not reaped before something is said on `line`, which is taken over."""
        self.pid = pid
        self.returncode: int | None = None
        self._line = line
        try:
            self._handle = os.pidfd_open(pid)
        except OSError:  # reaped by the system: its server died meanwhile
            self._handle = -1

    def is_running(self) -> bool:
        """Whether it has not ended; does not reap it."""
        return self._handle >= 0 and not _is_readable(self._handle, 0)

    def wait(self, limit_s: float) -> bool:
        """Wait for its end, reap it, and say whether it did end. If it did not, the server reaps it some time."""
        if self._line.fileno() < 0:
            return self.returncode is not None
        ended = self._handle < 0 or _is_readable(self._handle, limit_s)
        if ended:
            # Workers die of this signal when their server does, which then tells nothing.
            self.returncode = _ask(self._line, REAP, _REAP_S).get("status", -signal.SIGKILL)
        self._line.close()
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1
        return ended


class ForkServer:
    """A process that imports a module, and forks workers afterwards; usable by several threads."""

    def __init__(self, module: str, environment: Mapping[str, str], interpreter: Interpreter = OWN) -> None:
        """Start it, and do not wait for its imports.

        Args:
            module: what it imports.
            environment: that of its workers, but for the mark's value.
            interpreter: runs it.
        """
        self.module = module
        self.unfit: str | None = None
        """Why it forks no workers, "" if it does; None as long as it imports."""
        self.is_retired = False
        self._requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        boot = interpreter.path + _BOOT.format(
            fd=theirs.fileno(),
            module=module,
            parent=os.getpid(),
            death_signal=threading.current_thread() is threading.main_thread(),
        )
        with theirs, told(boot) as stdin:
            self._process = subprocess.Popen(
                interpreter.command,
                stdin=stdin,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                env={**environment, WORKER_MARK: secrets.token_hex(16)},
                start_new_session=True,
            )
        logger.debug("process %d imports %s, to fork workers", self.pid, module)

    @property
    def pid(self) -> int:
        """The worker's process id."""
        return self._process.pid

    @property
    def is_ready(self) -> bool:
        """Whether it is through with its imports, or will never be."""
        with suppress(TimeoutError):
            self.wait_until_ready(time.monotonic())
            return True
        return False

    def is_alive(self) -> bool:
        """Whether it runs."""
        return self._process.poll() is None

    def wait_until_ready(self, deadline: float | None = None) -> None:
        """Wait for its imports, until `deadline`, a reading of `time.monotonic`.

        Raises:
            TimeoutError: past the deadline.
        """
        if self.unfit is not None or self.is_retired:
            return
        left = None if deadline is None else max(0.0, deadline - time.monotonic())
        if not _is_readable(self._requests, left):
            raise TimeoutError("the imports take longer than they may")
        # Nobody takes it off the socket, so that any number of threads may wait for it.
        self.unfit = _read(self._requests, socket.MSG_PEEK).get("unfit", "it ended during its imports")
        if self.unfit:
            logger.debug("no worker of %s is forked: %s", self.module, self.unfit)

    def fork(
        self,
        mark: str,
        connection: int,
        stdout: int,
        stderr: int,
        folder: int,
        *,
        shielded: bool,
        fence: ForForks | None = None,
    ) -> Forked | None:
        """Fork a worker that has these descriptors, this mark, and a directory to be in.

        Args:
            mark: value of its `WORKER_MARK`.
            connection: its end of the socket on which it serves.
            stdout: its own.
            stderr: its own.
            folder: what is to be its current directory.
            shielded: let no other process of this user look into it, from its first instruction on.
            fence: the sandbox that it is to be in, whose launcher is handled then; None for none.

        Returns:
            The worker; None if there is none, and one is to be started in another way.
        """
        if self.unfit != "" or self.is_retired or not self.is_alive():
            return None
        fenced = None if fence is None else asdict(fence)
        request = json.dumps({"mark": mark, "shielded": shielded, "fence": fenced}).encode()
        if len(request) > REQUEST_BYTES:
            logger.debug(
                "process %d is asked for no worker: %d bytes are too long a request", self.pid, len(request)
            )
            return None
        line, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        answer: dict[str, Any] = {}
        with theirs, suppress(OSError):
            socket.send_fds(self._requests, [request], [connection, stdout, stderr, theirs.fileno(), folder])
        if _is_readable(line, _FORK_S):
            answer = _read(line)
        else:
            logger.warning("process %d, which forks workers, hangs and is ended", self.pid)
            self.end()
        if "pid" in answer:
            forked = Forked(answer["pid"], line)
            if self.is_alive():  # so that the id was the worker's when it was looked up
                return forked
            forked.wait(0)
        logger.debug("process %d forked no worker: %s", self.pid, answer.get("error", "it ended"))
        line.close()
        return None

    def retire(self) -> None:
        """Take no more requests; it ends once it has no workers."""
        self.is_retired = True
        self._requests.close()

    def end(self) -> None:
        """End it, and with it its workers."""
        self.retire()
        self._process.kill()
        self._process.wait()


class _Servers:
    """The fork servers of this process, keyed by all that a worker would inherit."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._owner = os.getpid()
        self._current: dict[_Key, ForkServer] = {}
        self._retired: list[ForkServer] = []
        self._hopeless: set[_Key] = set()

    def get(self, module: str, environment: Mapping[str, str], interpreter: Interpreter) -> ForkServer | None:
        with self._lock:
            if self._owner != os.getpid():  # a fork of the parent: the servers are not its own
                self._owner, self._current, self._retired = os.getpid(), {}, []
            key = (*_key(module, environment), interpreter)
            if key in self._hopeless:
                return None
            server = self._current.pop(key, None)
            if server is not None and server.is_ready and server.unfit:
                self._hopeless.add(key)
                self._retire(server)
                return None
            if server is None or server.is_retired or not server.is_alive():
                if server is not None:
                    logger.debug("process %d, which forked workers, ended and is replaced", server.pid)
                    self._retire(server)
                server = ForkServer(module, environment, interpreter)
            self._current[key] = server  # the last one of the dictionary is the one that was asked for last
            while len(self._current) > MOST_SERVERS:
                self._retire(self._current.pop(next(iter(self._current))))
            return server

    def end(self) -> None:
        """End all, and with them their workers."""
        with self._lock:
            servers = (*self._current.values(), *self._retired) if self._owner == os.getpid() else ()
            self._current, self._retired = {}, []
            for server in servers:
                server.end()

    def _retire(self, server: ForkServer) -> None:
        server.retire()
        self._retired = [one for one in (*self._retired, server) if one.is_alive()]


_servers = _Servers()
# Pools register later, and so end their workers before.
atexit.register(_servers.end)


def server_for(
    module: str, environment: Mapping[str, str], interpreter: Interpreter = OWN
) -> ForkServer | None:
    """The server whose forks are what a worker would be that this thread starts now; None if there cannot be one.

    A server of this process is taken if it has the same module, variables, limits, CPUs, rights and interpreter. One
    that has died is replaced, and one that cannot fork is not tried again.
    """
    if os.environ.get(FORK_VARIABLE, "").strip() == "0" or not _is_possible():
        return None
    return _servers.get(module, environment, interpreter)


@cache
def _is_possible() -> bool:
    """Whether the system has what is needed."""
    with suppress(OSError):
        os.close(os.pidfd_open(os.getpid()))
        return Path("/proc/thread-self/status").exists()
    return False


def _key(module: str, environment: Mapping[str, str]) -> _Key:
    """All that a process has from its parent, but for its mark and its current directory."""
    variables = tuple(sorted((name, value) for name, value in environment.items() if name != WORKER_MARK))
    status = Path("/proc/thread-self/status").read_text().splitlines()
    inherited = tuple(line for line in status if line.startswith(_INHERITED))
    limits = Path("/proc/thread-self/limits").read_text()
    group = Path("/proc/thread-self/cgroup").read_text()
    niceness = os.getpriority(os.PRIO_PROCESS, 0)
    # Where a path of modules or libraries is relative, what is imported depends on the current directory.
    parts = [part for name in _PATHS for part in environment.get(name, "/").split(":")]
    folder = "" if all(part.startswith("/") for part in parts) else str(Path.cwd())
    return module, variables, inherited, limits, group, niceness, folder


def _ask(line: socket.socket, what: bytes, limit_s: float) -> dict[str, Any]:
    with suppress(OSError):
        line.send(what)
        if _is_readable(line, limit_s):
            return _read(line)
    return {}


def _read(line: socket.socket, flags: int = 0) -> dict[str, Any]:
    """One answer; nothing if the other side has ended."""
    with suppress(OSError):
        data = line.recv(REQUEST_BYTES, flags)
        if data:
            answer: dict[str, Any] = json.loads(data)
            return answer
    return {}


def _is_readable(what: int | socket.socket, limit_s: float | None) -> bool:
    poll = select.poll()
    poll.register(what, select.POLLIN)
    return bool(poll.poll(None if limit_s is None else 1000 * limit_s))
