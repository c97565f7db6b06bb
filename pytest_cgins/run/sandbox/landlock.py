"""A second fence around files, where the kernel has Landlock: writing in scratch folders only, whatever is mounted."""

from __future__ import annotations

import os
import struct

from . import system

_CREATE, _ADD_RULE, _RESTRICT = 444, 445, 446
_VERSION, _PATH_BENEATH = 1, 1
_WRITE, _TRUNCATE, _REFER = 1 << 1, 1 << 14, 1 << 13
_CHANGES = _WRITE | sum(1 << bit for bit in (4, 5, 6, 7, 8, 9, 10, 11, 12)) | _REFER
"""Writing, removing and making files of every kind, and moving them between folders."""
_TCP = 3
"""Bind and connect."""
_SCOPES = 3
"""Abstract Unix sockets and signals."""
OLDEST = 2
"""Version 1 forbids moving files between folders."""


def version() -> int:
    """The version of Landlock's interface; 0 where there is none."""
    found: int = system.libc.syscall(_CREATE, None, 0, _VERSION)
    return max(0, found)


def install(writable: list[str]) -> bool:
    """Restrict this process and all that it starts. Needs no_new_privs.

    Returns:
        False if it is not there, or too old.
    """
    found = version()
    if found < OLDEST:
        return False
    changes = _CHANGES | (_TRUNCATE if found >= 3 else 0)
    fields = [changes, _TCP, _SCOPES][: 3 if found >= 6 else 2 if found >= 4 else 1]
    value = struct.pack(f"{len(fields)}Q", *fields)
    ruleset = system.call("syscall", _CREATE, value, len(value), 0)
    for path in writable:
        _allow(ruleset, path, changes)
    for path in ("/dev", "/proc"):  # what is there is for the mounts to allow
        _allow(ruleset, path, changes & (_WRITE | _TRUNCATE))
    system.call("syscall", _RESTRICT, ruleset, 0)
    os.close(ruleset)
    return True


def _allow(ruleset: int, path: str, access: int) -> None:
    folder = os.open(path, os.O_PATH)
    system.call("syscall", _ADD_RULE, ruleset, _PATH_BENEATH, struct.pack("=Qi", access, folder), 0)
    os.close(folder)
