"""System calls that a sandbox is made of. The launcher's modules need the standard library's quick parts only."""

from __future__ import annotations

import ctypes
import os
import struct

CLONE_NEWNS = 0x00020000
CLONE_NEWCGROUP = 0x02000000
CLONE_NEWUTS = 0x04000000
CLONE_NEWIPC = 0x08000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000
NAMESPACES = CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWPID | CLONE_NEWNET
"""All but those of users and mounts."""

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT = 1, 2, 4, 8, 32
MS_BIND, MS_REC, MS_PRIVATE = 0x1000, 0x4000, 1 << 18
ATTR_RDONLY, ATTR_NOSUID, ATTR_NODEV = 1, 2, 4
MNT_DETACH = 2

PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_CAPBSET_DROP = 1, 4, 24
PR_SET_NO_NEW_PRIVS, PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL = 38, 47, 4

_AT_FDCWD, _AT_RECURSIVE = -100, 0x8000
_MOUNT_SETATTR = 442
_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}
_CAPABILITY_VERSION_3 = 0x20080522

libc = ctypes.CDLL(None, use_errno=True)


def call(what: str, *arguments: object) -> int:
    """Call a function of the C library; `syscall` takes the number first.

    Raises:
        OSError: with the function's name and errno.
    """
    result: int = getattr(libc, what)(*arguments)
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def mount(source: str, target: str, kind: str, flags: int, options: str = "") -> None:
    """Mount a file system; an error has the target's name."""
    try:
        call(
            "mount",
            source.encode(),
            os.fsencode(target),
            kind.encode(),
            ctypes.c_ulong(flags),
            options.encode(),
        )
    except OSError as error:
        raise OSError(error.errno, f"mount on {target}: {os.strerror(error.errno or 0)}") from None


def bind(source: str, target: str) -> None:
    """Show `source` with all that is mounted beneath it at `target` too."""
    try:
        call("mount", os.fsencode(source), os.fsencode(target), None, ctypes.c_ulong(MS_BIND | MS_REC), None)
    except OSError as error:
        raise OSError(error.errno, f"bind {source}: {os.strerror(error.errno or 0)}") from None


def mount_setattr(target: str, attributes: int, cleared: int = 0) -> None:
    """Set attributes of a mount and of all beneath it, and clear others (Linux 5.12)."""
    value = struct.pack("QQQQ", attributes, cleared, 0, 0)
    path, size = os.fsencode(target), ctypes.c_size_t(len(value))
    call("syscall", _MOUNT_SETATTR, _AT_FDCWD, path, _AT_RECURSIVE, value, size)


def pivot_root(new: str, old: str) -> None:
    """Make `new` the root, and show the old one at `old`."""
    call("syscall", _PIVOT_ROOT[os.uname().machine], os.fsencode(new), os.fsencode(old))


def give_up_privileges() -> None:
    """No capabilities, and none by executing a file either."""
    call("prctl", PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    libc.prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
    capability = 0
    while libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) == 0:
        capability += 1
    call("capset", struct.pack("Ii", _CAPABILITY_VERSION_3, 0), bytes(24))


def kernel_version() -> tuple[int, int]:
    """Such as (6, 14)."""
    major, minor, *_ = os.uname().release.split(".")
    return int(major), int("".join(digit for digit in minor if digit.isdigit()))
