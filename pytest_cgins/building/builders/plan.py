"""What a builder hands to the build: how to compile, and all that decides the result besides the sources."""

from __future__ import annotations

import os
import re
import sysconfig
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from pytest_cgins.building.builders import specialize
from pytest_cgins.building.compilers.process import Outcome, run_stages, write_files
from pytest_cgins.building.contracts import schema as schemas
from pytest_cgins.building.contracts import source as sources
from pytest_cgins.core.case import KernelSource

INCLUDE = Path(__file__).parents[1] / "include"
LIBRARY = "kernel.so"
PROTOTYPE = "cgins_prototype.h"
HEADER_VARIABLES = ("CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH")


class Run(Protocol):
    """Compiles once."""

    def __call__(self, folder: Path, name: str, deadline: float) -> Outcome:
        """Compile in a fresh folder.

        On success it leaves the artifact there and, where headers were read, depfiles `*.d` in make's syntax.

        Args:
            folder: the folder, on the cache's file system.
            name: `kernel/implementation`, for log messages.
            deadline: time of `time.monotonic()` at which to give up.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How to build one source."""

    compiler: str
    """Name for messages, e.g. `g++`."""
    identity: tuple[str, ...]
    """What enters the key: compiler version, flags, architectures, environment."""
    roots: tuple[Path, ...]
    """Folders in which headers are looked up; headers under them are remembered by relative path."""
    run: Run
    """Compiles."""
    artifact: str = LIBRARY
    """Name of the file that it leaves."""
    prototyped: bool = False
    """Whether the main function must match a generated prototype."""
    archs: tuple[str, ...] = ()
    """CUDA architectures that it builds for, for `cgins cache ls`; () for none or those of the source."""
    memory_nbytes: int = 1 << 30
    """Memory that its compilers may take at once: the machine runs fewer builds beside it where it is short."""


def commands(stages: Callable[[Path], Sequence[Sequence[Sequence[str]]]], *, files: Mapping[str, str]) -> Run:
    """Compile by commands.

    Args:
        stages: given the folder, stages of commands; those of one stage may run side by side.
        files: generated files, by name, that are written to the folder first.
    """

    def run(folder: Path, name: str, deadline: float) -> Outcome:
        write_files(folder, files)
        return run_stages(stages(folder), folder, name, deadline)

    return run


def launcher_files(source: KernelSource) -> tuple[dict[str, str], str]:
    """The generated files of a launcher by name, and what of them enters the key.

    Returns:
        The header, which points at the schema line by absolute path, with the dispatcher where there are builds for
        some sizes; and the header without the path.
    """
    main = Path(source.files[0])
    schema_text, line = schemas.locate(sources.read(main), main)
    schema = schemas.parse(schema_text, f"{main}:{line}")
    workspace = sources.takes_workspace(source, schema.entry)
    files = {PROTOTYPE: schemas.header(schema, workspace=workspace, file=str(main), line=line)}
    if source.specialized is not None:
        text = specialize.dispatcher(source, schema, workspace=workspace, prototype=PROTOTYPE)
        files[specialize.DISPATCHER] = text
    return files, schemas.header(schema, workspace=workspace, file="", line=0)


def header_roots(source: KernelSource) -> tuple[Path, ...]:
    """Folders of the sources, those of flags that search headers (`-I`, `-isystem`), those of the environment."""
    return header_folders(source.files, source.flags)


def header_folders(files: Sequence[str | Path], flags: Sequence[str]) -> tuple[Path, ...]:
    """As `header_roots`, of files and flags."""
    folders = [Path(file).parent for file in files]
    for flag, following in zip(flags, (*flags[1:], ""), strict=False):
        found = re.match(r"-(?:I|isystem|iquote|idirafter)=?(.*)", flag, re.DOTALL)
        if found:
            folders.append(Path(found[1] or following))
    for variable in HEADER_VARIABLES:
        folders += [Path(folder) for folder in os.environ.get(variable, "").split(os.pathsep) if folder]
    return tuple(dict.fromkeys(folder for folder in folders if folder.is_absolute()))


def environment_identity(*names: str) -> tuple[str, ...]:
    """Environment variables that change what a compiler does, and the platform."""
    return (
        sysconfig.get_platform(),
        *(f"{name}={os.environ[name]}" for name in names if os.environ.get(name)),
    )


def compile_stages(
    source: KernelSource, command: list[str], folder: Path, *, depfiles: bool = True
) -> tuple[list[list[list[str]]], list[str]]:
    """Stages that compile a launcher, and the object files that they leave: one a source, or one a build and a dispatcher.

    The prototype goes before each source's first line.

    Args:
        source: the launcher.
        command: its compiler with the flags of all builds.
        folder: where the prototype is.
        depfiles: whether the compiler writes them.
    """
    stages: list[list[list[str]]] = []
    objects: list[str] = []
    builds = specialize.flags(source)
    for number, macros in enumerate(builds):
        before, after = (f"build{number}-", ".part") if len(builds) > 1 else ("", ".o")
        made = [f"{before}{index}{after}" for index in range(len(source.files))]
        stages.append([
            [
                *command, *macros, f"-I{INCLUDE}", "-include", str(folder / PROTOTYPE),
                *(["-MD", "-MF", f"{before}{index}.d"] if depfiles else []), "-c", file, "-o", made[index],
            ]
            for index, file in enumerate(source.files)
        ])  # fmt: skip
        if len(builds) > 1:
            stages += [[joining] for joining in specialize.join(source, number, made)]
            made = [f"{number}.o"]
        objects += made
    if len(builds) > 1:
        stages.append([specialize.compile_dispatcher(folder, INCLUDE)])
        objects.append("dispatcher.o")
    return stages, objects
