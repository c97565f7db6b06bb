"""Builds the sandbox with bubblewrap, which some systems allow to make namespaces although they forbid others."""

from __future__ import annotations

import os

from .command_line import Fence
from .mounts import NVIDIA, PROC_FILES, PROC_FOLDERS, settings

OLDEST = (0, 8)
"""Version from which on it has all that is used here."""


def command(fence: Fence, argv: list[str]) -> list[str]:
    """The command line that runs `argv` as the first process of the sandbox; the order is that of `mounts.build`."""
    words = [fence.bwrap, "--unshare-all", "--die-with-parent", "--as-pid-1", "--cap-drop", "ALL"]
    words += ["--ro-bind", "/", "/"]
    room = str(fence.numbers["room"])
    for path in fence.paths["empty"]:
        words += ["--perms", "0755", "--size", str(1 << 20), "--tmpfs", path]
    for path in fence.paths["scratch"]:
        words += ["--perms", "0700", "--size", room, "--tmpfs", path]
    for path in fence.paths["show"]:
        words += ["--ro-bind-try", path, path]
    for path in fence.paths["link"]:
        words += ["--symlink", os.readlink(path), path]  # noqa: PTH115
    for path in fence.paths["hide"]:
        words += _cover(path) if os.path.exists(path) else []  # noqa: PTH110
    words += [word for path in fence.paths["write"] for word in ("--bind", path, path)]
    words += ["--dev", "/dev"]
    for path in fence.paths["device"]:
        words += ["--dev-bind", path, path]
    words += ["--perms", "1777", "--size", room, "--tmpfs", "/dev/shm", "--remount-ro", "/dev"]  # noqa: S108
    words += ["--proc", "/proc"]
    for name in (*PROC_FILES, *PROC_FOLDERS):
        if os.path.exists(f"/proc/{name}"):  # noqa: PTH110
            words += _cover(f"/proc/{name}")
    for name in settings("/proc"):
        words += ["--ro-bind", f"/proc/{name}", f"/proc/{name}"]
    if os.path.ismount(f"/proc/{NVIDIA}"):
        words += ["--ro-bind", f"/proc/{NVIDIA}", f"/proc/{NVIDIA}"]
    for path in fence.paths["empty"]:
        words += ["--remount-ro", path]
    return [*words, "--", *argv]


def _cover(path: str) -> list[str]:
    if os.path.isdir(path):  # noqa: PTH112
        return ["--perms", "0555", "--size", "4096", "--tmpfs", path, "--remount-ro", path]
    return ["--dev-bind", "/dev/null", path]
