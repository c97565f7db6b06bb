"""A sandbox as its users see it: what is fenced in, whether this host can, and the command that does it."""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, NoReturn

from pytest_cgins.core.errors import SandboxUnavailable
from pytest_cgins.run.environment import WORKER_MARK
from pytest_cgins.run.sandbox import bubblewrap, enter, outside
from pytest_cgins.run.sandbox.host import namespace_remedy
from pytest_cgins.run.sandbox.seccomp import MACHINES

Way = Literal["bubblewrap", "namespaces"]


def _boot(function: Callable[[], NoReturn]) -> str:
    """By the folder that holds this package: pytest_cgins itself imports more than the launcher's start may take."""
    name = function.__name__
    return f"import sys; sys.path.append({str(Path(__file__).parents[1])!r}); from sandbox.enter import {name}; {name}()"


TOOL_SCRATCH = Path("/var/tmp")  # noqa: S108 - in the sandbox it is nobody else's
SHELTER = (sys.executable, "-I", "-S", "-c", _boot(enter.shelter))
"""What a server's command is put behind, that forks workers into sandboxes: see `enter.shelter`."""
_NOWHERE = Path("/dev/null")  # nobody can make a folder in it
_GIB = 1 << 30
_TRIAL_LIMIT_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What all processes of one sandbox may take.

    The defaults are wider than `run.limits`, by which the parent ends a worker with a reason.
    """

    memory_bytes: int | None = None
    """Anonymous and shared memory in use, all processes together; by default nine tenths of the machine's."""
    cpu_s: int | None = None
    """CPU time a process. None: a worker serves many requests, each of which has a limit of its own."""
    processes: int = 16384
    """Processes and threads together."""
    file_bytes: int = 64 * _GIB
    """Size of one file, also of a tensor on its way to the parent."""
    open_files: int = 4096
    """Descriptors a process."""
    scratch_bytes: int = 4 * _GIB
    """All files in the scratch folder together; /dev/shm may take as much again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ForForks:
    """A sandbox for a worker that is forked."""

    words: list[str]
    """What `enter.become` makes it of."""
    variables: dict[str, str]
    """What it sets itself."""

    def of_server(self, variables: Mapping[str, str]) -> dict[str, str]:
        """What of a worker's variables its server has, which is outside: folders that others could fill are nowhere."""
        unset = set(_unset())
        kept = {name: value for name, value in variables.items() if name not in unset}
        return {**kept, **outside.variables(_NOWHERE)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Sandbox:
    """A fence around a process that runs untrusted native code: `docs/sandbox.md` says what it keeps out."""

    scratch: Path = Path("/tmp")  # noqa: S108 - in the sandbox it is nobody else's
    """Where, in the sandbox, the one folder lies that can be written: empty, in memory, gone with the sandbox."""
    visible: tuple[Path, ...] = ()
    """What must be seen although it lies in a home or temporary folder, which are empty: the project, the builds."""
    hidden: tuple[Path, ...] = ()
    """What must not be seen, such as packs with gold; the usual places of secrets are hidden in any case."""
    writable: tuple[Path, ...] = ()
    """The host's folders that may be written to, beside the scratch folder."""
    limits: Limits = Limits()
    """What it may take."""
    devices: bool = True
    """Whether it gets NVIDIA's device nodes."""
    way: Way | None = None
    """How it is made; by default the first way that works here."""
    is_for_tool: bool = False
    """Whether what runs in it is a tool that starts the worker, and talks to it by local sockets. The worker then
    fences itself in further, with `init.enclose_in_scratch`."""

    def wrap(self, argv: Sequence[str], *, parent: int | None = None) -> list[str]:
        """The command that runs `argv` in the sandbox, as a child of this process.

        Args:
            argv: the command.
            parent: id of the process that is to start it, by default this one; 0 if that is not known yet.

        Descriptors that are inherited stay open under their numbers. The process ends as `argv` ended, by
        the same exit status or signal, and once it has ended nothing of the sandbox runs. Exit status 125:
        it could not be set up, and the last line of stderr says why.

        Raises:
            SandboxUnavailable: no way works here.
        """
        return [*self.opening(parent=os.getpid() if parent is None else parent), "--", *argv]

    def opening(self, *, parent: int) -> list[str]:
        """What `wrap` puts before `--` and the command. Further words may be added behind it: see `words`.

        Raises:
            SandboxUnavailable: no way works here.
        """
        way = self._require_way()
        words = [f"way={shutil.which('bwrap') or 'bwrap'}"] if way == "bubblewrap" else []
        unset = [word for name in _unset() for word in ("-u", name)]
        variables = [f"{name}={value}" for name, value in outside.variables(self.scratch).items()]
        launcher = [sys.executable, "-I", "-S", "-c", _boot(enter.main)]
        return [
            "/usr/bin/env",
            *unset,
            *variables,
            *launcher,
            f"parent={parent}",
            *words,
            *self._words(),
        ]

    def fence(self) -> ForForks | None:
        """What a fork server's worker makes this sandbox of; None where it takes another program to make it.

        Raises:
            SandboxUnavailable: no way works here.
        """
        if self._require_way() != "namespaces" or self.writable:
            return None
        return ForForks(words=self._words(), variables=outside.variables(self.scratch))

    def _require_way(self) -> Way:
        way = self.way or _found_way()
        if not way:
            self.require()
        assert way is not None
        return way

    def _words(self) -> list[str]:
        if self.devices:
            _make_device_nodes()
        words = []
        for name, paths in outside.paths(self.scratch, self.visible, self.hidden, self.writable).items():
            words += [f"{name}={path}" for path in paths]
        words += [f"device={path}" for path in outside.devices(self.devices)]
        return [*words, *(f"{name}={number}" for name, number in self._numbers().items())]

    def around(self, *, visible: Iterable[Path], hidden: Iterable[Path]) -> Sandbox:
        """A copy of this sandbox that shows and hides more."""
        return replace(self, visible=(*self.visible, *visible), hidden=(*self.hidden, *hidden))

    def available(self) -> str:
        """What was in the way on this host; an empty text if it can be done."""
        return _trouble(self.way) if self.way else "" if _found_way() else _why_not()

    def for_tool(self, *, writable: Path) -> Sandbox:
        """A sandbox for a tool that starts the worker and writes into a folder, which the worker does not.

        The scratch folder is another one than where temporary folders are made: Landlock allows all below a folder.
        """
        return replace(self, scratch=TOOL_SCRATCH, writable=(*self.writable, writable), is_for_tool=True)

    def require(self) -> None:
        """Nothing, if this host can do it.

        Raises:
            SandboxUnavailable: it cannot; says what is missing and what would allow it.
        """
        trouble = self.available()
        if trouble:
            raise SandboxUnavailable(
                f"kernels cannot be fenced in on this host: {trouble}",
                remedy=f"{namespace_remedy()}; or trust the kernels and run them without: --cgins-sandbox=off",
            )

    def _numbers(self) -> dict[str, int]:
        limits = self.limits
        memory = limits.memory_bytes or 9 * os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 10
        return {
            "memory": memory,
            # Not beside a GPU: what of its driver's mappings counts is not ours to know.
            **({} if self.devices else {"data": memory}),
            **({} if limits.cpu_s is None else {"cpu": limits.cpu_s}),
            "processes": limits.processes,
            "file": limits.file_bytes,
            "files": limits.open_files,
            "room": limits.scratch_bytes,
            **({"tool": 1} if self.is_for_tool else {}),
        }


def _unset() -> list[str]:
    """Names of this process's variables that nobody in a sandbox gets; the mark is that of a worker, not of a service."""
    return [name for name in outside.unset(os.environ) if name != WORKER_MARK]


def ways() -> dict[Way, str]:
    """Each way, in the order of preference, with what is in its way here, "" if it works."""
    return {"bubblewrap": _trouble("bubblewrap"), "namespaces": _trouble("namespaces")}


def quickest_way() -> Way | None:
    """Namespaces of our own if they work here, which take half of the time that bubblewrap takes; else None."""
    return None if _trouble("namespaces") else "namespaces"


def _found_way() -> Way | None:
    order: tuple[Way, ...] = ("bubblewrap", "namespaces")
    return next((way for way in order if not _trouble(way)), None)


def _why_not() -> str:
    return "; ".join(f"{way}: {trouble}" for way, trouble in ways().items())


@functools.cache
def _trouble(way: Way) -> str:
    """What happens when a sandbox is really made in this way, in a line; "" if all goes well."""
    if os.uname().machine not in MACHINES:
        return f"no filter of system calls for {os.uname().machine}"
    if way == "bubblewrap" and (missing := _bubblewrap_is_missing()):
        return missing
    command = Sandbox(way=way, devices=False).wrap([sys.executable, "-I", "-S", "-c", ""])
    try:
        ran = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=_TRIAL_LIMIT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    lines = ran.stderr.decode(errors="replace").strip().splitlines()
    said = lines[-1].removeprefix("pytest-cgins: ") if lines else f"exit status {ran.returncode}"
    return said if ran.returncode else ""


def _bubblewrap_is_missing() -> str:
    where = shutil.which("bwrap")
    if where is None:
        return "bwrap is not installed"
    try:
        said = subprocess.run(
            [where, "--version"], capture_output=True, timeout=10, check=False
        ).stdout.decode()
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    found = tuple(int(number) for number in re.findall(r"\d+", said)[:2])
    oldest = ".".join(map(str, bubblewrap.OLDEST))
    return "" if found >= bubblewrap.OLDEST else f"{said.strip() or 'bwrap'} is older than {oldest}"


def _make_device_nodes() -> None:
    """Have the driver's nodes made before /dev is closed: no set-user-id helper works inside."""
    helper = shutil.which("nvidia-modprobe")
    if helper and Path("/dev/nvidiactl").exists() and not Path("/dev/nvidia-uvm").exists():
        subprocess.run([helper, "-u", "-c", "0"], capture_output=True, timeout=30, check=False)
