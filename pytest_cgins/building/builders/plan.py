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
from pytest_cgins.building.compilers.process import Outcome, run_stages
from pytest_cgins.building.contracts import schema as schemas
from pytest_cgins.building.contracts import source as sources
from pytest_cgins.core.model import KernelSource

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


def commands(
    stages: Callable[[Path], Sequence[Sequence[Sequence[str]]]],
    *,
    files: Mapping[str, str] | None = None,
    environment: Mapping[str, str] | None = None,
) -> Run:
    """Compile by commands.

    Args:
        stages: given the folder, stages of commands; those of one stage may run side by side.
        files: generated files, by name, that are written to the folder first.
        environment: added to the environment of the commands.
    """

    def run(folder: Path, name: str, deadline: float) -> Outcome:
        for file, text in (files or {}).items():
            (folder / file).write_text(text, encoding="utf-8")
        return run_stages(stages(folder), folder, name, deadline, environment)

    return run


def launcher_prototype(source: KernelSource) -> tuple[str, str]:
    """The generated header of a launcher, and what of it enters the key.

    Returns:
        The header, which points at the schema line by absolute path, and the same without the path.
    """
    main = Path(source.files[0])
    text = sources.read(main)
    schema_text, line = schemas.locate(text, main)
    schema = schemas.parse(schema_text, f"{main}:{line}")
    workspace = any(sources.wants_workspace(sources.read(Path(file)), schema.entry) for file in source.files)
    header = schemas.header(schema, workspace=workspace, file=str(main), line=line)
    return header, schemas.header(schema, workspace=workspace, file="", line=0)


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


def dispatcher(source: KernelSource) -> dict[str, str]:
    """The generated source of a launcher with builds for some sizes, by file name; nothing for others."""
    if source.specialized is None:
        return {}
    schema = schemas.parse(source.schema, source.files[0])
    workspace = any(sources.wants_workspace(sources.read(Path(file)), schema.entry) for file in source.files)
    text = specialize.dispatcher(source, schema, workspace=workspace, prototype=PROTOTYPE)
    return {specialize.DISPATCHER: text}


def compile_each(
    source: KernelSource,
    compiler: list[str],
    flags: list[str],
    folder: Path,
    *,
    build: int | None = None,
    depfiles: bool = True,
) -> tuple[list[str], list[list[str]]]:
    """Object files, and the commands that compile them: the prototype goes before each source's first line.

    Args:
        source: the launcher.
        compiler: its command.
        flags: of this build.
        folder: where the prototype is.
        build: number of the build, where there are several, whose objects are joined; else None.
        depfiles: whether the compiler writes them.
    """
    before, after = ("", ".o") if build is None else (f"build{build}-", ".part")
    objects = [f"{before}{index}{after}" for index in range(len(source.files))]
    commands = [
        [
            *compiler, *flags, f"-I{INCLUDE}", "-include", str(folder / PROTOTYPE),
            *(["-MD", "-MF", f"{before}{index}.d"] if depfiles else []), "-c", file, "-o", objects[index],
        ]
        for index, file in enumerate(source.files)
    ]  # fmt: skip
    return objects, commands
