"""The processes of one worker: found wherever they hide, counted, and killed together.

A process belongs to a worker if its parent does, if it is in a session of one that does, or if the worker's mark
is in its environment. Workers adopt the orphans among their descendants (`worker.main`), so that a daemon stays
in its worker's tree though it has called setsid and lost its parent. Only a daemon that also sheds its environment,
and whose worker dies before anybody looked, gets away; a sandbox's PID namespace holds that one, too.
"""

from __future__ import annotations

import logging
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from pytest_cgins.run.environment import WORKER_MARK
from pytest_cgins.run.limits import named_number

logger = logging.getLogger(__name__)

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_KILL_S = 5.0
_PF_EXITING = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What the processes of a worker take now."""

    processes: int
    """Living descendants of the worker."""
    threads: int
    """Threads of all of them, the worker's included."""
    memory_bytes: int
    """Resident memory of all of them, the worker's included. Shared pages count once for each: it is a bound."""


@dataclass(frozen=True, slots=True)
class _Process:
    """A line of /proc/PID/stat, as far as it matters here."""

    pid: int
    parent: int
    group: int
    session: int
    started: int
    threads: int
    memory_bytes: int
    is_zombie: bool


class ProcessTree:
    """A worker process and its descendants, by looks at /proc.

    Where /proc is of another PID namespace, only the worker's group is known.
    """

    def __init__(self, root: int, mark: str) -> None:
        """`root` is the process that was started, a session leader; `mark` the value of its `WORKER_MARK`."""
        self._root = root
        found = _read(root)
        self._root_started = found.started if found else 0
        self._needle = f"{WORKER_MARK}={mark}\0".encode()
        self._members: dict[int, int] = {}
        self._strangers: set[int] = set()

    def look(self) -> Usage:
        """Find new members, and add up what all take.

        Costs about 10 µs a process of the machine, and 30 to 110 µs one that was not there at the last look.
        """
        members = self._find()
        return Usage(
            processes=sum(process.pid != self._root for process in members),
            threads=sum(process.threads for process in members),
            memory_bytes=sum(process.memory_bytes for process in members),
        )

    def pids(self) -> tuple[int, ...]:
        """Members of the last look."""
        return tuple(self._members)

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Keep all from running meanwhile."""
        members = self._find()
        try:
            for process in members:
                _send(process, signal.SIGSTOP)
            yield
        finally:
            for process in members:
                _send(process, signal.SIGCONT)

    def memory_bytes(self) -> int:
        """Resident memory of all members of the last look, shared pages counted once. Takes milliseconds."""
        return sum(_proportional_bytes(pid) for pid in self._members)

    def is_exiting(self) -> bool:
        """Whether the root has begun to end: a process that has only closed its descriptors has not."""
        if not _proc_is_ours():
            return True
        with suppress(OSError, ValueError, IndexError):
            flags = int(Path(f"/proc/{self._root}/stat").read_bytes().rpartition(b")")[2].split()[6])
            return bool(flags & _PF_EXITING)
        return True

    def kill(self) -> None:
        """Kill every member, and what they start meanwhile; the root stays a zombie until its parent reaps it."""
        deadline = time.monotonic() + _KILL_S
        own_group = os.getpgrp()
        self._strangers.clear()
        looked_at_all = True
        while True:
            found = self._find()
            # A whole group dies at once, whatever its processes are about to start.
            roots = {self._root} if self._has_root() else set()
            for group in roots | {process.group for process in found}:
                if group > 0 and group != own_group:
                    with suppress(OSError):
                        os.killpg(group, signal.SIGKILL)
            for process in found:
                _send(process, signal.SIGKILL)
            if not found and looked_at_all:
                return
            if time.monotonic() >= deadline:
                pids = ", ".join(str(process.pid) for process in found)
                logger.warning("%g s after SIGKILL these processes of a worker still run: %s", _KILL_S, pids)
                return
            # Strangers are looked at again only at the end: that takes long where there are many.
            looked_at_all = not found
            if looked_at_all:
                self._strangers.clear()
            else:
                time.sleep(0.002)

    def _find(self) -> list[_Process]:
        """All members that run."""
        pids = _pids()
        self._strangers.intersection_update(pids)
        seen = {pid: process for pid in pids - self._strangers if (process := _read(pid)) is not None}
        members = {
            pid: process for pid, process in seen.items() if self._is_known(process) or self._is_marked(pid)
        }
        self._adopt(members, seen)
        self._strangers.update(pids - members.keys())
        self._members = {pid: process.started for pid, process in members.items()}
        return [process for process in members.values() if not process.is_zombie]

    @staticmethod
    def _adopt(members: dict[int, _Process], seen: dict[int, _Process]) -> None:
        """Add all whose parent or session is a member's, and theirs. No member can join a session from outside."""
        others = [process for pid, process in seen.items() if pid not in members]
        grew = True
        while grew:
            sessions = {member.session for member in members.values()}
            mine = [other for other in others if other.parent in members or other.session in sessions]
            members.update((one.pid, one) for one in mine)
            others = [other for other in others if other.pid not in members]
            grew = bool(mine)

    def _is_known(self, process: _Process) -> bool:
        """Whether it is the root or a member of the last look, and not another that was given its id."""
        started = self._root_started if process.pid == self._root else self._members.get(process.pid)
        return process.started == started

    def _has_root(self) -> bool:
        """Whether the root's id is still its own: if what forked it has died, the system reaps it at any time."""
        if not _proc_is_ours():
            return True
        root = _read(self._root)
        return root is not None and self._is_known(root)

    def _is_marked(self, pid: int) -> bool:
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:  # noqa: PTH123 - read for every process
                return self._needle in file.read()
        except OSError:
            return False


def _proportional_bytes(pid: int) -> int:
    """Resident memory of one process, of shared pages its share; 0 if it is gone."""
    with suppress(OSError, ValueError, IndexError):
        return named_number(Path(f"/proc/{pid}/smaps_rollup"), "Pss:") * 1024
    process = _read(pid)
    return process.memory_bytes if process else 0


def _send(process: _Process, number: signal.Signals) -> None:
    """Send a signal to a process, and never to another that was given its id meanwhile."""
    with suppress(OSError):
        handle = os.pidfd_open(process.pid)
        try:
            now = _read(process.pid)
            if now is not None and now.started == process.started:
                signal.pidfd_send_signal(handle, number)
        finally:
            os.close(handle)


def _pids() -> set[int]:
    """Processes that /proc shows; none if its numbers are not those that this process may signal."""
    with suppress(OSError):
        names = os.listdir("/proc") if _proc_is_ours() else []  # noqa: PTH208
        return {int(name) for name in names if name.isdecimal()}
    return set()


def _proc_is_ours() -> bool:
    """Whether /proc is of this process's PID namespace; it is not after a bare `unshare --pid --fork`."""
    with suppress(OSError):
        return os.readlink("/proc/self") == str(os.getpid())  # noqa: PTH115
    return False


def _read(pid: int) -> _Process | None:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123
            fields = file.read().rpartition(b")")[2].split()
        numbers = [int(fields[index]) for index in (1, 2, 3, 19, 17, 21)]
    except (OSError, ValueError, IndexError):
        return None
    parent, group, session, started, threads, pages = numbers
    return _Process(pid, parent, group, session, started, threads, pages * _PAGE_BYTES, fields[0] in b"ZX")
