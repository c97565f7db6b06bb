"""Tries what a sandbox cannot do without, each in a process of its own. Prints one line of JSON: name → trouble or ""."""

from __future__ import annotations

import ctypes
import json
import os
import socket
import struct
import tempfile
from collections.abc import Callable
from pathlib import Path

NEWNS, NEWIPC, NEWUSER, NEWPID, NEWNET = 0x00020000, 0x08000000, 0x10000000, 0x20000000, 0x40000000
MS_REC, MS_PRIVATE, MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC = 0x4000, 1 << 18, 1, 2, 4, 8
PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS, SECCOMP_MODE_FILTER = 22, 38, 2
BPF_RETURN, SECCOMP_ALLOW = 0x06, 0x7FFF0000

libc = ctypes.CDLL(None, use_errno=True)


def check(result: int) -> None:
    """Raise what errno says after a failed call."""
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def enter(flags: int) -> None:
    """Enter a new user namespace, as its root, and further new namespaces with it."""
    user, group = os.getuid(), os.getgid()
    check(libc.unshare(NEWUSER | flags))
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"0 {user} 1")
    Path("/proc/self/gid_map").write_text(f"0 {group} 1")


def user_namespace() -> None:
    """A mapping as well, which some systems refuse after they allowed the namespace."""
    enter(0)


def network_namespace() -> None:
    """No way may lead out of it."""
    enter(NEWNET)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as outwards:
        try:
            outwards.connect(("192.0.2.1", 9))  # an address for documentation; nothing is sent
        except OSError:
            return
    raise OSError(0, "the new namespace has a way out")


def pid_namespace() -> None:
    """With a /proc of its own: else the processes outside can be seen."""
    enter(NEWPID | NEWNS)
    child = os.fork()
    if child == 0:
        check(libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None))
        check(libc.mount(b"proc", b"/proc", b"proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, None))
        alone = os.getpid() == 1 and [name for name in os.listdir("/proc") if name.isdigit()] == ["1"]  # noqa: PTH208
        os._exit(0 if alone else 1)
    if os.waitpid(child, 0)[1] != 0:
        raise OSError(0, "a /proc of its own could not be mounted")


def read_only_root() -> None:
    """A mount namespace with a read-only root."""
    enter(NEWNS)
    check(libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None))
    with tempfile.TemporaryDirectory() as folder:
        name = folder.encode()
        check(libc.mount(name, name, None, 0x1000, None))
        check(libc.mount(name, name, None, 0x1000 | 0x20 | MS_RDONLY | MS_NOSUID | MS_NODEV, None))
        try:
            Path(folder, "file").write_text("")
            written = True
        except OSError:
            written = False
        libc.umount2(name, 2)
        if written:
            raise OSError(0, "a read-only mount could be written")


def seccomp() -> None:
    """Install a filter that allows everything."""
    instruction = ctypes.create_string_buffer(struct.pack("HBBI", BPF_RETURN, 0, 0, SECCOMP_ALLOW))
    program = ctypes.create_string_buffer(struct.pack("HxxxxxxQ", 1, ctypes.addressof(instruction)))
    check(libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    check(libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, program, 0, 0))


def ipc_namespace() -> None:
    """One in which no shared memory of others is."""
    enter(NEWIPC)


TRIALS = (user_namespace, network_namespace, pid_namespace, ipc_namespace, read_only_root, seccomp)


def attempt(trial: Callable[[], None]) -> str:
    """Trouble of a trial, "" if it went well."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        trouble = ""
        try:
            trial()
        except Exception as error:  # noqa: BLE001
            trouble = getattr(error, "strerror", None) or str(error) or type(error).__name__
        os.write(write, trouble.encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as stream:
        trouble = stream.read().decode()
    status = os.waitpid(child, 0)[1]
    return trouble or ("" if status == 0 else f"the trial ended with status {status}")


if __name__ == "__main__":
    print(json.dumps({trial.__name__: attempt(trial) for trial in TRIALS}))
