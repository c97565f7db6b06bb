"""The sandbox around compilers: a source that nobody has read can name any file that its compiler may read."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from pytest_cgins.building.builders import cutlass
from pytest_cgins.building.builders import plan as plans
from pytest_cgins.building.compilers import toolchain
from pytest_cgins.building.compilers.running import Fence
from pytest_cgins.config import Config
from pytest_cgins.core.errors import CginsError
from pytest_cgins.run.sandbox.sandbox import Sandbox, quickest_way

# Of an installation that may be a home folder: never all of it.
_PARTS = ("bin", "lib", "lib64", "libexec", "include", "nvvm", "targets", "*-linux-*")
_LIBRARIES = ("LIBRARY_PATH", "LD_RUN_PATH", "COMPILER_PATH")


class BuildFence:
    """A `compilers.Fence` for all projects whose kernels are built together.

    A compiler sees what it needs of the machine and what `show` names, writes to its working folder, and gets no GPU.
    """

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = replace(sandbox, devices=False, way=sandbox.way or quickest_way())
        self._lock = threading.Lock()
        self._visible = dict.fromkeys(_of_machine())
        self._hidden: dict[Path, None] = {}
        self._known: tuple[object, list[str]] | None = None

    def show(self, *, visible: Iterable[Path], hidden: Iterable[Path] = ()) -> None:
        """Have compilers that start from now on see more, and hide more from them; what is hidden wins."""
        with self._lock:
            before = len(self._visible) + len(self._hidden)
            self._visible |= dict.fromkeys(visible)
            self._hidden |= dict.fromkeys(hidden)
            if len(self._visible) + len(self._hidden) > before:
                self._known = None

    def __call__(self, command: Sequence[str], folder: Path) -> list[str]:
        """See `compilers.Fence`.

        Raises:
            SandboxUnavailable: this host cannot make one.
        """
        return [*self._opening(), f"write={os.path.realpath(folder)}", "--", *command]

    def _opening(self) -> list[str]:
        """Remembered, for what is to be seen takes as long to find out as a sandbox takes to start."""
        variables = dict(os.environ)
        with self._lock:
            known = (variables, [path for path in self._visible if path.exists()])
            if self._known is None or self._known[0] != known:
                made = self._sandbox.around(visible=self._visible, hidden=self._hidden).opening(parent=0)
                self._known = (known, made)
            return self._known[1]


def around_kernels(sandbox: Sandbox, config: Config, folders: Sequence[Path]) -> Sandbox:
    """The sandbox, showing what a project's kernels need, folders among it, and hiding what they are judged by."""
    folders[0].mkdir(parents=True, exist_ok=True)  # what is not there when a worker starts, it will never see
    implementations = (made for entry in config.kernels for made in entry.implementations)
    sources = (
        file
        for made in implementations
        for file in (*made.sources, *(Path(name) for name in made.load if "/" in name))
    )
    return sandbox.around(visible=(config.root, *folders, *sources), hidden=config.traces)


def show_compilers(around: Fence | None, config: Config, fence: Sandbox) -> None:
    """Have compilers see what the kernels see, and what else is included or linked."""
    if not isinstance(around, BuildFence):
        raise TypeError("an evaluator with a sandbox was given builds whose compilers run outside of it")
    around.show(visible=(*fence.visible, *sources_of(config)), hidden=fence.hidden)


def sources_of(config: Config) -> Iterator[Path]:
    """Folders and files that the kernels of a project are built from: its repository, sources, folders of flags."""
    yield _repository(config.root) or config.root
    for entry in config.kernels:
        for implementation in entry.implementations:
            yield from implementation.sources
            yield from plans.header_folders(implementation.sources, implementation.flags)
            for flag, following in zip(implementation.flags, (*implementation.flags[1:], ""), strict=False):
                if flag.startswith("-L"):
                    yield Path(flag[2:] or following)
                elif "/" in flag and not flag.startswith(("-I", "-D")):
                    yield from (Path(part) for part in flag.replace(",", "=").split("=") if part[:1] == "/")


def _repository(root: Path) -> Path | None:
    """The git repository around a folder, unless it is around the home folder as well."""
    top = next((folder for folder in (root, *root.parents) if (folder / ".git").exists()), None)
    home = Path(os.environ.get("HOME", "/"))
    return None if top is None or home.resolve().is_relative_to(top.resolve()) else top


def _of_machine() -> Iterator[Path]:
    """Where compilers and CUTLASS are, and folders that variables name; Python and CUDA_HOME are seen in any case."""
    for command in (toolchain.cxx, toolchain.nvcc):
        try:
            yield from toolchain.installation(command()[0], _PARTS)
        except CginsError:  # whoever needs it is told
            continue
    for name in ("CC", "NVCC_CCBIN"):
        yield from toolchain.installation(os.environ.get(name, ""), _PARTS)
    try:
        headers = cutlass.installed()
    except CginsError:
        headers = None
    yield from headers.folders if headers is not None else ()
    for name in (*plans.HEADER_VARIABLES, *_LIBRARIES):
        for folder in os.environ.get(name, "").split(os.pathsep):
            if folder.startswith("/"):
                yield Path(folder)
