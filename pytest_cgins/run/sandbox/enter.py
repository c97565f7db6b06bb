"""The launcher: makes the sandbox, has the worker run in it, and ends as the worker ended.

    python -I -S enter.py WORD… -- COMMAND…      (the words: see command_line.py)

A server that forks workers runs in a `shelter`, and its forks call `become`: no program is started.

Three processes: this one, outside, whose pid the parent knows and whose death ends all; the sandbox's first process
(`init`); and the worker.
"""

from __future__ import annotations

import os
import resource
import select
import signal
import sys

from . import bubblewrap, init, mounts, system
from .command_line import Fence

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

_PARENT_POLL_MS = 500


def main() -> NoReturn:
    """Run as the words of the command line say. Does not return."""
    fence = Fence(sys.argv[1:])
    if "status" in fence.numbers:  # started again, by bubblewrap, inside
        init.guarded(init.run, fence, fence.numbers["status"])
    init.guarded(_launch, fence)


def shelter() -> NoReturn:
    """Execute the command line where nothing of the host can be changed.

    A fork's program lies where its server's does, whatever it sees of files: there a worker that is its owner could
    have changed its mode. Does not return.
    """
    init.guarded(_shelter)


def _shelter() -> None:
    user, group = os.geteuid(), os.getegid()
    try:
        system.call("unshare", system.CLONE_NEWNS)
    except OSError:  # no administrator, or one in name only
        system.call("unshare", system.CLONE_NEWUSER | system.CLONE_NEWNS)
        _stay(user, group)
    system.mount("none", "/", "", system.MS_REC | system.MS_PRIVATE)
    system.mount_setattr("/", system.ATTR_RDONLY)
    for folder in ("/proc", "/dev"):  # where namespaces are told who is who, and devices are as they were
        system.mount_setattr(folder, 0, system.ATTR_RDONLY)
    os.execv(sys.argv[1], sys.argv[1:])  # noqa: S606


def become(words: list[str], parent: int) -> None:
    """Enter a sandbox in a process that was forked for it, and return in its worker.

    Args:
        words: without a way, which is that of namespaces, and without a command.
        parent: with which all is to end.
    """
    try:
        _enter(Fence([*words, "--"]), parent)
    except BaseException as error:  # noqa: BLE001
        init.give_up(error)


def _launch(fence: Fence) -> None:
    parent = fence.numbers["parent"] or os.getppid()
    if os.getppid() != parent:
        os._exit(init.TROUBLE)
    _enter(fence, parent)
    init.execute(fence.command)


def _enter(fence: Fence, parent: int) -> None:
    """Return in the worker."""
    result, status = os.pipe()
    own_users = False if fence.bwrap else enter_namespaces()
    first = os.fork()
    if first:
        os.close(status)
        init.close_all_but(result, silent=True)
        _supervise(first, result, parent)
    os.close(result)
    if fence.bwrap:
        os.set_inheritable(status, True)
        words = [f"status={status}", *fence.words, "--", *fence.command]
        again = [sys.executable, *sys.orig_argv[1 : -len(sys.argv) + 1], *words]
        os.execv(fence.bwrap, bubblewrap.command(fence, again))  # noqa: S606
    folder = os.getcwd()  # noqa: PTH109
    system.call("unshare", system.CLONE_NEWNS)  # only now: the launcher keeps the host's files
    mounts.build(fence, own_users=own_users)
    os.chdir(folder if os.path.isdir(folder) else "/")  # noqa: PTH112
    init.start(fence, status)


def enter_namespaces() -> bool:
    """Leave all namespaces but that of mounts; the next child will be the first process of the new one.

    Returns:
        Whether the user namespace is new, too: an administrator can do without.

    Raises:
        OSError: this is not allowed here.
    """
    user, group = os.geteuid(), os.getegid()
    if user == 0:
        try:  # noqa: SIM105 - contextlib's import takes longer than all else here
            os.setgroups([])
        except OSError:  # an administrator in name only, as in a container: the groups stay
            pass
    try:
        system.call("unshare", system.CLONE_NEWUSER | system.NAMESPACES)
    except OSError:
        if user != 0:
            raise
        system.call("unshare", system.NAMESPACES)
        return False
    _stay(user, group)
    return True


def _stay(user: int, group: int) -> None:
    """Be who one was before, in a new user namespace."""
    for name, text in (
        ("setgroups", "deny"),
        ("uid_map", f"{user} {user} 1"),
        ("gid_map", f"{group} {group} 1"),
    ):
        with open(f"/proc/self/{name}", "w") as file:  # noqa: PTH123
            file.write(text)


def _supervise(first: int, result: int, parent: int) -> NoReturn:
    """Wait for the end, and end the same way."""
    poll = select.poll()
    poll.register(result, select.POLLIN)
    while not poll.poll(_PARENT_POLL_MS):
        if os.getppid() != parent:
            os.kill(first, signal.SIGKILL)
    told = os.read(result, init.STATUS.size)
    own = os.waitpid(first, 0)[1]  # nothing of the sandbox runs once this is back
    how = init.STATUS.unpack(told)[0] if len(told) == init.STATUS.size else own
    if not os.WIFSIGNALED(how):
        os._exit(os.WEXITSTATUS(how))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    name = os.WTERMSIG(how)
    if name != signal.SIGKILL:
        signal.signal(name, signal.SIG_DFL)
    os.kill(os.getpid(), name)
    os._exit(init.TROUBLE)  # not reached: none of these can be ignored here
