"""The file system that a worker sees: everything read-only, much of it empty, one scratch folder."""

from __future__ import annotations

import os
import stat

from . import (
    system,
)  # relative: the launcher must not import pytest_cgins, whose start takes longer than its own
from .command_line import Fence

# Kernel memory, keys, other processes' timers, and files whose mode lets root do things to the host.
PROC_FILES = ("kcore", "keys", "key-users", "kmsg", "kallsyms", "sysrq-trigger", "timer_list", "sched_debug")
PROC_FOLDERS = ("acpi", "scsi")
NVIDIA = "driver/nvidia"
"""In /proc: where GPUs are listed, which NVIDIA's container tools mount over."""

DEVICE_LINKS = (("fd", "fd"), ("stdin", "fd/0"), ("stdout", "fd/1"), ("stderr", "fd/2"))
"""In /dev: names, and where they point to below /proc/self."""

_OLD, _NEW, _EMPTY, _EMPTY_FILE = "/old", "/new", "/empty", "/empty-file"
_QUIET = system.MS_NOSUID | system.MS_NODEV
_KEPT = {"nosuid": 2, "nodev": 4, "noexec": 8, "noatime": 1024, "nodiratime": 2048, "relatime": 1 << 21}
_SMALL = "mode=0755,size=1m"


def build(fence: Fence, *, own_users: bool) -> None:
    """Build it and make it the root. For the first process of new mount and PID namespaces.

    Args:
        fence: what to show and to hide.
        own_users: whether we are in a user namespace of our own, whose limits are ours to set.

    Raises:
        OSError: what could not be mounted.
    """
    _stage()
    system.bind(_OLD, _NEW)
    seal(_NEW)
    for path in fence.paths["empty"]:
        system.mount("tmpfs", _NEW + path, "tmpfs", _QUIET, _SMALL)
    room = fence.numbers["room"]
    for path in fence.paths["scratch"]:
        system.mount("tmpfs", _NEW + _made(path), "tmpfs", _QUIET, f"mode=0700,size={room}")
    for path in fence.paths["show"]:
        # What is gone since the words were made, as a base revision's files are, nobody will read.
        if os.path.exists(_OLD + path):  # noqa: PTH110
            _place(_OLD + path, _NEW + path)
            seal(_NEW + path)
    for path in fence.paths["link"]:
        os.makedirs(_NEW + os.path.dirname(path), exist_ok=True)  # noqa: PTH103, PTH120
        os.symlink(os.readlink(_OLD + path), _NEW + path)  # noqa: PTH115, PTH211
    for path in fence.paths["hide"]:
        if os.path.exists(_NEW + path):  # noqa: PTH110
            _cover(_NEW + path)
    for path in fence.paths["write"]:
        _place(_OLD + path, _NEW + path)
        _quieten(_NEW + path)
    _devices(fence.paths["device"], room)
    _proc(own_users, fence.numbers["processes"])
    for path in fence.paths["empty"]:
        _shut(_NEW + path)
    _enter_new_root()


def seal(path: str) -> None:
    """Make a mount and all beneath it read-only, without set-user-id programs and device nodes."""
    try:
        system.mount_setattr(path, system.ATTR_RDONLY | system.ATTR_NOSUID | system.ATTR_NODEV)
    except OSError:
        _seal_one_by_one(path)


def _seal_one_by_one(path: str) -> None:
    """Seal mount by mount, for kernels before 5.12, or where one of many mounts refuses."""
    with open(f"{_OLD}/proc/self/mountinfo", "rb") as file:  # noqa: PTH123
        lines = [line.split() for line in file]
    for fields in lines:
        target = os.fsdecode(_unescaped(fields[4]))
        if target == path or target.startswith(path + "/"):
            kept = sum(_KEPT.get(name, 0) for name in fields[5].decode().split(","))
            _shut(target, kept & ~_QUIET)


def _quieten(path: str) -> None:
    try:  # noqa: SIM105 - contextlib's import takes longer than all else here
        system.mount_setattr(path, system.ATTR_NOSUID | system.ATTR_NODEV)
    except OSError:  # a kernel before 5.12; nothing gains rights by executing in a sandbox anyway
        pass


def _unescaped(path: bytes) -> bytes:
    """A path of mountinfo. By hand: codecs are imported, and Python's files are out of sight now."""
    for character in b" \t\n\\":  # the backslash last
        path = path.replace(b"\\%03o" % character, bytes([character]))
    return path


def _shut(target: str, flags: int = 0) -> None:
    """Make one mount read-only."""
    flags |= system.MS_REMOUNT | system.MS_BIND | system.MS_RDONLY | _QUIET
    system.mount("none", target, "", flags)


def _stage() -> None:
    """A root of our own, with the host's at /old and nothing yet at /new."""
    system.mount("none", "/", "", system.MS_REC | system.MS_PRIVATE)
    system.mount("tmpfs", "/tmp", "tmpfs", _QUIET, "mode=0755")  # noqa: S108 - any folder that every system has
    os.mkdir("/tmp/old")  # noqa: PTH102, S108
    system.pivot_root("/tmp", "/tmp/old")  # noqa: S108
    os.chdir("/")
    for folder in (_NEW, _EMPTY):
        os.mkdir(folder, 0o555)  # noqa: PTH102
    os.close(os.open(_EMPTY_FILE, os.O_CREAT, 0o444))


def _enter_new_root() -> None:
    os.chdir(_NEW)
    system.call("umount2", _OLD.encode(), system.MNT_DETACH)
    system.pivot_root(".", ".")
    system.call("umount2", b".", system.MNT_DETACH)
    os.chdir("/")


def _made(path: str) -> str:
    os.makedirs(_NEW + path, exist_ok=True)  # noqa: PTH103
    return path


def _place(source: str, target: str) -> None:
    """Bind a file or folder where nothing may be yet."""
    if stat.S_ISDIR(os.stat(source).st_mode):  # noqa: PTH116
        os.makedirs(target, exist_ok=True)  # noqa: PTH103
    elif not os.path.exists(target):  # noqa: PTH110
        os.makedirs(os.path.dirname(target), exist_ok=True)  # noqa: PTH103, PTH120
        os.close(os.open(target, os.O_CREAT, 0o444))
    system.bind(source, target)


def _cover(path: str) -> None:
    """Put something empty over a file or folder."""
    system.bind(_EMPTY if os.path.isdir(path) else _EMPTY_FILE, path)  # noqa: PTH112
    _shut(path)


def _devices(nodes: list[str], room: int) -> None:
    folder = _NEW + "/dev"
    system.mount("tmpfs", folder, "tmpfs", _QUIET, _SMALL)
    for node in nodes:
        _place(_OLD + node, _NEW + node)
    for name, target in DEVICE_LINKS:
        os.symlink(f"/proc/self/{target}", f"{folder}/{name}")  # noqa: PTH211
    os.mkdir(folder + "/shm")  # noqa: PTH102
    system.mount("tmpfs", folder + "/shm", "tmpfs", _QUIET | system.MS_NOEXEC, f"mode=1777,size={room}")
    _shut(folder)


def _proc(own_users: bool, processes: int) -> None:
    folder = _NEW + "/proc"
    system.mount("proc", folder, "proc", _QUIET | system.MS_NOEXEC)
    if own_users:
        _write(folder + "/sys/user/max_user_namespaces", "0")
        if system.kernel_version() >= (6, 14):  # before, this number is the whole host's
            _write(folder + "/sys/kernel/pid_max", str(max(processes, 301)))
    for name in PROC_FILES + PROC_FOLDERS:
        if os.path.exists(f"{folder}/{name}"):  # noqa: PTH110
            _cover(f"{folder}/{name}")
    if os.path.ismount(f"{_OLD}/proc/{NVIDIA}"):
        system.bind(f"{_OLD}/proc/{NVIDIA}", f"{folder}/{NVIDIA}")
        seal(f"{folder}/{NVIDIA}")
    for name in settings(folder):
        system.bind(f"{folder}/{name}", f"{folder}/{name}")
        _shut(f"{folder}/{name}", system.MS_NOEXEC)


def settings(proc: str) -> list[str]:
    """What in /proc could be written to by root, but for the folders of processes and what is covered.

    Those stay as they are: CUDA names its threads through them, and does not start where it cannot.
    """
    found = []
    for name in sorted(os.listdir(proc)):  # noqa: PTH208
        if name.isdigit() or name in PROC_FILES + PROC_FOLDERS:  # a process may end before it is looked at
            continue
        mode = os.lstat(f"{proc}/{name}").st_mode
        if stat.S_ISDIR(mode) or (stat.S_ISREG(mode) and mode & 0o222):
            found.append(name)
    return found


def _write(path: str, text: str) -> None:
    with open(path, "w") as file:  # noqa: PTH123
        file.write(text)
