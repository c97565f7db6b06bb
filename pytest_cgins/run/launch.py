"""How the process of a worker comes to be: a program is started, or a server that has the imports behind it forks."""

from __future__ import annotations

import os
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from pytest_cgins.run.forking import OWN, Forked, ForkServer, Interpreter, server_for, told
from pytest_cgins.run.sandbox.sandbox import SHELTER, Sandbox

Wrap = Callable[[Sequence[str]], Sequence[str]]
"""Makes of a worker's command one that starts it inside of another program. That program must hand on open
descriptors and variables, end with the worker, and give its exit status, or 128 and the number of its signal."""

_BOOT = (
    "{path}from pytest_cgins.run.worker import main; "
    "main({fd}, parent={parent}, death_signal={death_signal}, shielded={shielded})"
)


class Started(Protocol):
    """A worker's process as its parent handles it."""

    @property
    def pid(self) -> int:
        """Process id, which is also the id of its group and session; nobody else's before `wait`."""

    @property
    def returncode(self) -> int | None:
        """The exit status as in `subprocess.Popen`, once `wait` has returned True."""

    def is_running(self) -> bool:
        """Whether it has not ended; does not reap it."""

    def wait(self, limit_s: float) -> bool:
        """Wait for its end, reap it, and say whether it did end."""


class Executed:
    """A program that was started."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    @property
    def pid(self) -> int:
        """Process id."""
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        """How it ended."""
        return self._process.returncode

    def is_running(self) -> bool:
        """Whether it has not ended; does not reap it."""
        try:
            return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None
        except ChildProcessError:
            return False

    def wait(self, limit_s: float) -> bool:
        """Wait for its end, reap it, and say whether it did end."""
        try:
            self._process.wait(timeout=limit_s)
        except subprocess.TimeoutExpired:
            return False
        return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Ends:
    """What a worker gets of the connections to its parent."""

    connection: socket.socket
    """The parent's end of a socket pair."""
    stdout: int
    """The write end of a pipe."""
    stderr: int
    """The write end of another."""

    def close(self) -> None:
        """Close them here; a second time does nothing."""
        if self.connection.fileno() >= 0:
            self.connection.close()
            os.close(self.stdout)
            os.close(self.stderr)


class Launch:
    """A process that is to be started once, and the ends that it is to have."""

    def __init__(
        self,
        ends: Ends,
        *,
        mark: str,
        environment: Mapping[str, str],
        wrap: Wrap | None,
        sandbox: Sandbox | None,
        shielded: bool,
        fork: str,
        interpreter: Interpreter = OWN,
    ) -> None:
        """Take over the ends, and have a server begin its imports where one is wanted and there is none.

        Args:
            ends: closed by `start` or `close`.
            mark: the environment's `WORKER_MARK`.
            environment: all variables.
            wrap: puts another program around it, which sees to a sandbox itself; then nothing is forked.
            sandbox: what it runs in.
            shielded: let no other process of this user look into it.
            fork: module whose imports a server is to have that forks it; "" if none may.
            interpreter: runs it.
        """
        self._ends = ends
        self._mark = mark
        self._environment = environment
        if wrap is not None and sandbox is not None:
            raise ValueError("either a sandbox or a program around a worker")
        self._wrap = sandbox.wrap if sandbox is not None else wrap
        self._fence = sandbox.fence() if sandbox is not None and fork else None
        self._shielded = shielded
        self._interpreter = interpreter
        self._server: ForkServer | None = None
        self._folder = -1
        if fork and self._wrap is None:
            self._server = server_for(fork, environment, interpreter)
        elif self._fence is not None:
            sheltered = replace(interpreter, command=(*SHELTER, *interpreter.command))
            self._server = server_for(fork, self._fence.of_server(environment), sheltered)
        if self._server is not None:
            try:
                self._folder = os.open(".", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            except OSError:  # a program may stay in a directory that nobody may enter any more
                self._server = None

    @property
    def is_ready(self) -> bool:
        """Whether `start` has not to wait for imports."""
        return self._server is None or self._server.is_ready

    def start(self, deadline: float | None = None) -> Started:
        """Have the process.

        Raises:
            TimeoutError: the imports of a server took until `deadline`, a reading of `time.monotonic`.
            OSError: no process could be started.
        """
        if self._server is not None:
            self._server.wait_until_ready(deadline)
        try:
            return self._fork() or self._execute()
        finally:
            self.close()

    def close(self) -> None:
        """Close the ends."""
        self._ends.close()
        if self._folder >= 0:
            os.close(self._folder)
            self._folder = -1

    def _fork(self) -> Forked | None:
        if self._server is None:
            return None
        ends = self._ends
        return self._server.fork(
            self._mark,
            ends.connection.fileno(),
            ends.stdout,
            ends.stderr,
            self._folder,
            shielded=self._shielded,
            fence=self._fence,
        )

    def _execute(self) -> Executed:
        boot = _BOOT.format(
            path=self._interpreter.path,
            fd=self._ends.connection.fileno(),
            parent=0 if self._wrap else os.getpid(),
            death_signal=threading.current_thread() is threading.main_thread(),
            shielded=self._shielded,
        )
        command = self._interpreter.command
        with told(boot) as stdin:
            process = subprocess.Popen(
                [*self._wrap(command)] if self._wrap else command,
                stdin=stdin,
                stdout=self._ends.stdout,
                stderr=self._ends.stderr,
                pass_fds=[self._ends.connection.fileno()],
                cwd=f"/proc/self/fd/{self._folder}" if self._folder >= 0 else None,
                env=self._environment,
                start_new_session=True,
            )
        return Executed(process)


def wait_until_exited(process: Started, limit_s: float) -> bool:
    """Wait for a process's end, and do not reap it."""
    deadline = time.monotonic() + limit_s
    while process.is_running():
        if time.monotonic() >= deadline:
            return False
        time.sleep(0.005)
    return True
