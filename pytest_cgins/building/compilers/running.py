"""Compilers that are under way: none starts or runs while something is timed, and all end with the run.

Each command runs in a session of its own, and its offspring is found by that session: ninja puts every job
into a process group of its own, which a signal to the command's group does not reach.
"""

from __future__ import annotations

import errno
import os
import select
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import BinaryIO

from pytest_cgins.building.compilers.watched import watched
from pytest_cgins.core.errors import InfrastructureError
from pytest_cgins.core.waiting import Wait

LOOK_S = 0.1

# Reads pids up to the end of its input, which comes too when this process is killed, and has them go on:
# a compiler that stays suspended would hold its memory for ever.
_GUARD = 'while read -r pid; do pids="$pids $pid"; done; [ -z "$pids" ] || kill -s CONT $pids'
_PASSES = 32

Fence = Callable[[Sequence[str], Path], Sequence[str]]
"""Given a command and its working folder, the command that runs it in a sandbox, where it may write to that folder."""


class _OfThread(threading.local):
    depth = 0
    """How often the thread has asked for quiet that it has not given back."""


class Compilers:
    """The compilers that some threads of this process have started.

    Args:
        fence: put around each command; None for none.
    """

    def __init__(self, fence: Fence | None = None) -> None:
        self.fence = fence
        self._changed = threading.Condition()
        self._running: set[int] = set()
        self._in_process = 0
        self._quiet = 0
        self._quiet_since = 0.0
        self._quiet_s = 0.0
        self._guard: subprocess.Popen[bytes] | None = None
        self._own = _OfThread()
        self.closed = False

    def start(
        self, command: Sequence[str], *, folder: Path, environment: Mapping[str, str], log: BinaryIO
    ) -> subprocess.Popen[bytes]:
        """Start a command, once nothing is timed.

        Args:
            command: what to run.
            folder: where; in a sandbox this is what it may write to.
            environment: all its variables; in a sandbox it gets those alone that compilers read, and what differs
                from this process's own.
            log: open file that takes what it prints.

        Raises:
            InfrastructureError: `close` was called.
            OSError: there is no such command.
        """
        if shutil.which(command[0]) is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), command[0])
        if self.fence is not None:
            own = [f"{name}={value}" for name, value in environment.items() if os.environ.get(name) != value]
            command = self.fence(["/usr/bin/env", *own, *command], folder)
        with self._changed:
            self._wait_for_turn()
            shell, alive = watched(command)
            process = subprocess.Popen(
                shell, cwd=folder, env=environment, stdin=alive, stdout=log, stderr=log,
                start_new_session=True,
            )  # fmt: skip
            self._running.add(process.pid)
        return process

    def wait(self, process: subprocess.Popen[bytes], deadline: float) -> bool:
        """Wait for the end of a command.

        Args:
            process: what `start` gave.
            deadline: time of `time.monotonic()`, which time spent suspended puts off.

        Returns:
            Whether it has ended.
        """
        before = self._suspended_s()
        while True:
            left_s = deadline + self._suspended_s() - before - time.monotonic()
            if _ended(process, max(0.0, left_s)):
                return True
            if left_s <= 0:
                return False

    def end(self, process: subprocess.Popen[bytes]) -> None:
        """Kill what is left of a command and its offspring, and forget it."""
        if process.poll() is None:
            _signal_all({process.pid}, signal.SIGKILL)
            process.wait()
        with self._changed:
            self._running.discard(process.pid)

    @contextmanager
    def in_process(self) -> Iterator[None]:
        """Around a compilation by a library in this process, which cannot be suspended: timing waits for its end.

        Raises:
            InfrastructureError: `close` was called, before or meanwhile.
        """
        with self._changed:
            self._wait_for_turn()
            self._in_process += 1
        try:
            yield
        finally:
            with self._changed:
                self._in_process -= 1
                self._changed.notify_all()
        self.require_open()

    @contextmanager
    def suspended(self) -> Iterator[None]:
        """Around what is timed: running commands are stopped, and none starts."""
        before = self._own.depth
        try:
            self._begin_quiet()
            yield
        finally:
            while self._own.depth > before:
                self._end_quiet()

    @contextmanager
    def resumed(self) -> Iterator[None]:
        """Around a wait for a command: what this thread itself suspends goes on, or it would wait for ever."""
        depth = self._own.depth
        while self._own.depth:
            self._end_quiet()
        try:
            yield
        finally:
            while self._own.depth < depth:
                self._begin_quiet()

    def close(self) -> None:
        """Kill all commands, and let none start any more."""
        with self._changed:
            self.closed = True
            _signal_all(self._running, signal.SIGKILL)
            self._changed.notify_all()

    def require_open(self) -> None:
        """Tell a command that `close` has killed from one that failed.

        Raises:
            InfrastructureError: `close` was called.
        """
        if self.closed:
            raise InfrastructureError("the run ended while a kernel was built", remedy="run again")

    def _begin_quiet(self) -> None:
        with self._changed:
            self._quiet += 1
            self._own.depth += 1
            if self._quiet == 1:
                self._quiet_since = time.monotonic()
                if self._running:
                    self._guard = _stop(self._running)
            with Wait("a compilation in this process") as wait:
                while self._in_process:
                    wait.tick()
                    self._changed.wait(LOOK_S)

    def _end_quiet(self) -> None:
        with self._changed:
            self._quiet -= 1
            self._own.depth -= 1
            if self._quiet == 0:
                self._quiet_s += time.monotonic() - self._quiet_since
                _resume(self._guard)
                self._guard = None
                self._changed.notify_all()

    def _wait_for_turn(self) -> None:
        while self._quiet and not self.closed:
            self._changed.wait()
        self.require_open()

    def _suspended_s(self) -> float:
        with self._changed:
            return self._quiet_s + (time.monotonic() - self._quiet_since if self._quiet else 0.0)


def _ended(process: subprocess.Popen[bytes], limit_s: float) -> bool:
    """Wait for the end of a process, but no longer than `limit_s`."""
    # `Popen.wait` with a limit looks in steps of up to 50 ms: more than a small kernel takes to compile.
    try:
        descriptor = os.pidfd_open(process.pid)
    except OSError:  # a kernel before 5.3
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout=limit_s)
    else:
        try:
            end = select.poll()
            end.register(descriptor, select.POLLIN)
            end.poll(limit_s * 1000)
        finally:
            os.close(descriptor)
    return process.poll() is not None


_OF_PROCESS = Compilers()
_CURRENT = ContextVar("compilers", default=_OF_PROCESS)


def current() -> Compilers:
    """Those of this thread."""
    return _CURRENT.get()


def use(compilers: Compilers) -> None:
    """Have this thread's builds start their compilers among these."""
    _CURRENT.set(compilers)


def _members(sessions: Collection[int]) -> set[int]:
    found = set()
    for name in os.listdir("/proc"):  # noqa: PTH208 (thousands of paths would be made for nothing)
        if name.isdigit():
            with suppress(OSError):
                if os.getsid(int(name)) in sessions:
                    found.add(int(name))
    return found


def _signal_all(sessions: Collection[int], number: signal.Signals) -> None:
    """Send a signal to all processes of some sessions, those included that are born meanwhile."""
    reached: set[int] = set()
    for _ in range(_PASSES):
        new = _members(sessions) - reached if sessions else set()
        for pid in new:
            with suppress(ProcessLookupError):
                os.kill(pid, number)
        if not new:
            return
        reached |= new


def _stop(sessions: Collection[int]) -> subprocess.Popen[bytes]:
    guard = subprocess.Popen(
        ["/bin/sh", "-c", _GUARD], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        start_new_session=True,
    )  # fmt: skip
    assert guard.stdin is not None
    stopped: set[int] = set()
    try:
        for _ in range(_PASSES):
            new = _members(sessions) - stopped
            if not new:
                break
            guard.stdin.write("".join(f"{pid}\n" for pid in new).encode())
            guard.stdin.flush()
            for pid in new:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGSTOP)
            stopped |= new
    except BaseException:  # Ctrl-C, pytest-timeout
        _resume(guard)
        raise
    return guard


def _resume(guard: subprocess.Popen[bytes] | None) -> None:
    if guard is not None:
        assert guard.stdin is not None
        guard.stdin.close()
        guard.wait()
