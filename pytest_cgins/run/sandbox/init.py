"""The sandbox's first process: starts the worker, reaps, watches what all processes take, and ends with the worker.

The kernel kills whatever is left in the PID namespace when this process ends.
"""

from __future__ import annotations

import os
import resource
import select
import signal
import stat
import struct

from . import landlock, seccomp, system
from .command_line import Fence

TYPE_CHECKING = False  # without `typing`, whose import takes longer than all else here
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import NoReturn

PERIOD_S = 0.2
"""How often memory and processes are looked at."""
STATUS = struct.Struct("i")
"""How the worker ended, as waitpid has it."""
MOST_FILES = 100_000
"""In the folders that lie in memory, which each file takes a kilobyte of, however empty it is."""
TROUBLE = 125
"""Exit status of a sandbox that could not be set up."""

_SHARED_MEMORY = "/dev/shm"  # noqa: S108 - its own
_FAILED = "pytest-cgins: the sandbox could not be set up: "


def run(fence: Fence, status: int) -> NoReturn:
    """Run the command in this namespace, and write how it ended to the descriptor `status`."""
    start(fence, status)
    execute(fence.command)


def start(fence: Fence, status: int) -> None:
    """Fork the worker, and return in it, fenced in; what called this watches it, and writes how it ended to `status`."""
    system.call("prctl", system.PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    _end_if_alone(status)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    worker = os.fork()
    if worker == 0:
        _fence_in(fence, status)
        return
    system.give_up_privileges()
    system.call("prctl", system.PR_SET_DUMPABLE, 0, 0, 0, 0)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    close_all_but(status, silent=False)
    _watch(worker, fence, status)


def guarded(function: Callable[..., None], *arguments: object) -> NoReturn:
    """Call a function that does not return; say in one line what it raised."""
    try:
        function(*arguments)
    except BaseException as error:  # noqa: BLE001
        give_up(error)
    os._exit(TROUBLE)


def give_up(error: BaseException) -> NoReturn:
    """Say in one line why there is no sandbox, and end."""
    what = error.strerror if isinstance(error, OSError) and error.filename is None else error
    os.write(2, f"{_FAILED}{what}\n".encode(errors="replace"))
    os._exit(TROUBLE)


def execute(command: list[str]) -> NoReturn:
    """Become a program, as one is started from a shell."""
    for name in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT):
        signal.signal(name, signal.SIG_DFL)
    os.execvp(command[0], command)  # noqa: S606


def close_all_but(descriptor: int, *, silent: bool) -> None:
    """Give back what only the worker is to hold: its end is noticed by its pipes and sockets being closed."""
    null = os.open("/dev/null", os.O_RDWR)
    for standard in (0, 1, 2) if silent else (0, 1):
        os.dup2(null, standard)
    os.closerange(3, descriptor)
    os.closerange(descriptor + 1, os.sysconf("SC_OPEN_MAX"))


def _end_if_alone(status: int) -> None:
    """End if the launcher was gone before we asked to die with it."""
    poll = select.poll()
    poll.register(status, 0)
    if poll.poll(0):
        os._exit(TROUBLE)


def _fence_in(fence: Fence, status: int) -> None:
    """Be the worker."""
    os.close(status)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
    home = os.environ.get("HOME", "")
    for folder in fence.paths["scratch"]:
        if home.startswith(folder + "/"):
            os.makedirs(home, exist_ok=True)  # noqa: PTH103
    _limit(fence.numbers)
    system.give_up_privileges()
    landlock.install([*fence.paths["scratch"], *fence.paths["write"], _SHARED_MEMORY])
    seccomp.install(connecting="tool" in fence.numbers)


def enclose_in_scratch(*others: str) -> None:
    """Fence in a worker that shares its sandbox with a tool: for the worker itself, before it runs what is not trusted.

    It writes to scratch only, connects to nobody, and has no hold on the tool, where the kernel has Landlock.

    Args:
        others: folders besides that it may write to.

    Raises:
        OSError: not in a sandbox.
    """
    landlock.install([os.environ["TMPDIR"], *others, _SHARED_MEMORY])
    seccomp.install()


def _limit(numbers: dict[str, int]) -> None:
    wanted = {
        resource.RLIMIT_FSIZE: numbers.get("file"),
        resource.RLIMIT_NOFILE: numbers.get("files"),
        resource.RLIMIT_CPU: numbers.get("cpu"),
        # Private writable memory only: reservations, which CUDA makes by the hundred GiB, do not count.
        resource.RLIMIT_DATA: numbers.get("data"),
        # 1, not 0: a program that takes the core by a pipe would be started for 0.
        resource.RLIMIT_CORE: 1,
    }
    if system.kernel_version() >= (5, 14):  # before, it counts all processes of the user, here or not
        wanted[resource.RLIMIT_NPROC] = numbers.get("processes")
    for what, limit in wanted.items():
        hard = resource.getrlimit(what)[1]
        if limit is not None:
            allowed = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
            resource.setrlimit(what, (allowed, allowed))


def _watch(worker: int, fence: Fence, status: int) -> NoReturn:
    while True:
        signal.sigtimedwait({signal.SIGCHLD}, PERIOD_S)
        while True:
            try:
                ended, how = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                os._exit(0)
            if ended == worker:
                os.write(status, STATUS.pack(how))
                os._exit(0)
            if ended == 0:
                break
        if trouble := _excess(fence):
            os.write(2, f"pytest-cgins: {trouble}; all processes of the sandbox were killed\n".encode())
            os.kill(-1, signal.SIGKILL)


def _excess(fence: Fence) -> str:
    """What is over its limit now, in words; "" if nothing is."""
    anonymous_kib = mapped_kib = threads = files = stored = 0
    folders: set[int] = set()
    for path in (*fence.paths["scratch"], _SHARED_MEMORY):
        usage = os.statvfs(path)
        folders.add(os.stat(path).st_dev)  # noqa: PTH116
        files += usage.f_files - usage.f_ffree
        stored += (usage.f_blocks - usage.f_bfree) * usage.f_frsize
    held: dict[tuple[int, int], int] = {}
    for name in os.listdir("/proc"):  # noqa: PTH208
        if name.isdigit() and name != "1":
            fields = _fields(f"/proc/{name}/status")
            anonymous_kib += fields.get(b"RssAnon", 0)
            mapped_kib += fields.get(b"RssShmem", 0)
            threads += fields.get(b"Threads", 0)
            _hold(f"/proc/{name}/fd", folders, held)
    # What is mapped is mostly what is held: tensors on their way are both.
    memory = (anonymous_kib << 10) + max(mapped_kib << 10, stored + sum(held.values()))
    allowed = fence.numbers["memory"], fence.numbers["processes"]
    if memory > allowed[0]:
        return f"{memory >> 20} MiB of memory in use, {allowed[0] >> 20} MiB allowed"
    if threads > allowed[1]:
        return f"{threads} processes and threads, {allowed[1]} allowed"
    if files > MOST_FILES:
        return f"{files:,} files in memory, {MOST_FILES:,} allowed"
    return ""


def _hold(descriptors: str, folders: set[int], held: dict[tuple[int, int], int]) -> None:
    """Add the bytes of files without a name that a process has open: those of memfd_create, mapped or not."""
    try:
        for number in os.listdir(descriptors):  # noqa: PTH208
            status = os.stat(f"{descriptors}/{number}")  # noqa: PTH116
            if stat.S_ISREG(status.st_mode) and not status.st_nlink and status.st_dev not in folders:
                held[status.st_dev, status.st_ino] = 512 * status.st_blocks
    except OSError:  # it has ended, or closed one meanwhile
        return


def _fields(path: str) -> dict[bytes, int]:
    """The numbers in a process's status file; none if it has ended."""
    found: dict[bytes, int] = {}
    try:
        with open(path, "rb") as file:  # noqa: PTH123
            lines = file.readlines()
    except OSError:
        return found
    for line in lines:
        name, _, value = line.partition(b":")
        if name in (b"RssAnon", b"RssShmem", b"Threads"):
            found[name] = int(value.split()[0])
    return found
