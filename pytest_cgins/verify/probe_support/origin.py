"""Whose code a file holds: the kernel's, Python's, an installed library's, or ours."""

from __future__ import annotations

import os
import sys
import sysconfig
from collections.abc import Collection
from pathlib import Path
from types import FrameType
from typing import Literal

from pytest_cgins.verify.messages import KernelRequest

Kind = Literal["kernel", "standard", "installed", "ours", "made"]
"""`made`: code that was compiled from a string, by whoever called it."""

_PACKAGES = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")
_OURS = str(Path(__file__).parents[2]) + os.sep
_LIBRARIES = [sysconfig.get_path(name) for name in ("stdlib", "platstdlib")]
_STANDARD = tuple({path + os.sep for path in (*_LIBRARIES, *map(os.path.realpath, _LIBRARIES))})
_PREFIXES = tuple({os.path.realpath(prefix) + os.sep for prefix in (sys.prefix, sys.base_prefix)})

# Where a thread or a pool of the standard library runs what it was handed.
_RUN_BY_THREADS = {
    "threading.run", "concurrent.futures.thread.run", "multiprocessing.pool.worker",
    "multiprocessing.pool.mapstar", "multiprocessing.pool.starmapstar",
}  # fmt: skip


class Origins:
    """Tells a kernel's files from others.

    Args:
        files: the kernel's sources.
        roots: folders of the project that it belongs to; environments that lie in them are no part of it.
    """

    def __init__(self, files: Collection[str], roots: Collection[str]) -> None:
        self._files = {os.path.realpath(file) for file in files}
        self._roots = tuple(os.path.realpath(root) + os.sep for root in roots if root)
        self._kinds: dict[str, Kind] = {}

    @classmethod
    def for_request(cls, request: KernelRequest) -> Origins:
        """The origins for the kernel of a request."""
        source = request.kernel.source
        return cls(source.files, {request.import_root, source.import_root})

    def has(self, path: str) -> bool:
        """Whether a path lies in the project's folders."""
        return os.path.realpath(path).startswith(self._roots)

    def kind(self, file: str) -> Kind:
        """Whose code has this file name."""
        if file not in self._kinds:
            self._kinds[file] = self._kind(file)
        return self._kinds[file]

    def _kind(self, file: str) -> Kind:
        if file.startswith("<"):
            return "made"
        path = os.path.realpath(file)
        if path.startswith(_OURS):
            return "ours"
        if any(part in path for part in _PACKAGES):
            return "installed"  # a library's function that is gated, too: how it builds itself is its affair
        if path in self._files:
            return "kernel"
        if path.startswith(_STANDARD):
            return "standard"
        # An environment in the project, or a project in an environment.
        venvs = tuple(
            prefix for prefix in _PREFIXES if not any(root.startswith(prefix) for root in self._roots)
        )
        return "kernel" if path.startswith(self._roots) and not path.startswith(venvs) else "installed"

    def blame(self, frame: FrameType | None, through: Collection[str] | None = None) -> str:
        """The kernel's line that does what a frame does; "" if it is not the kernel's own doing.

        Args:
            frame: where it happens, or what called it.
            through: modules of the standard library that a kernel may reach it by; None for all of them.
        """
        while frame is not None:
            kind = self.kind(frame.f_code.co_filename)
            if kind == "kernel":
                return place(frame)
            module = str(frame.f_globals.get("__name__", ""))
            if kind == "standard" and f"{module}.{frame.f_code.co_name}" in _RUN_BY_THREADS:
                return "in a thread"  # to which somebody has handed just that
            if kind == "standard" and through is not None and module.partition(".")[0] not in through:
                return ""
            if kind in ("installed", "ours"):
                return ""
            frame = frame.f_back
        return ""

    def blame_any(self, frame: FrameType | None) -> str:
        """The innermost of the kernel's lines that lead to a frame, whatever they lead through; "" if none does."""
        while frame is not None:
            if self.kind(frame.f_code.co_filename) == "kernel":
                return place(frame)
            frame = frame.f_back
        return ""


def acts_of(facts: list[dict[str, str]], where: str) -> str:
    """What a kernel did, for a message; each fact has `what` and, by the name `where`, where or when."""
    acts = "; ".join(f"{str(fact['what'])[:300]} ({str(fact[where])[:200]})" for fact in facts[:3])
    return f"{acts} and {len(facts) - 3} more" if len(facts) > 3 else acts


def place(frame: FrameType) -> str:
    """Where a frame is, for a message: `relu.py, line 3`."""
    return f"{Path(frame.f_code.co_filename).name}, line {frame.f_lineno}"
