"""What a builder hands to the build: commands, and all that decides their result besides the sources."""

from __future__ import annotations

import os
import sysconfig
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pytest_cgins.kernels import schema as schemas
from pytest_cgins.kernels import source as sources
from pytest_cgins.model import KernelSource

INCLUDE = Path(__file__).parent / "include"
LIBRARY = "kernel.so"
PROTOTYPE = "cgins_prototype.h"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How to build one source. Every command runs in a fresh folder and leaves `kernel.so` there."""

    compiler: str
    """Name for messages, e.g. `g++`."""
    identity: tuple[str, ...]
    """What enters the key: compiler version, flags, architectures, environment."""
    roots: tuple[Path, ...]
    """Folders in which headers are looked up; headers under them are remembered by relative path."""
    commands: Callable[[Path], list[list[str]]]
    """Commands, in order, for a build in the given folder; they write depfiles `*.d` in make's syntax."""
    prototype: str = ""
    """Content of the generated header `cgins_prototype.h`; "" for none."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Added to the environment of the commands."""
    module: str = ""
    """Python module name of the library; "" for a plain shared library."""


def launcher_prototype(source: KernelSource) -> tuple[str, str]:
    """The generated header of a launcher, and what of it enters the key.

    Returns:
        The header, which points at the schema line by absolute path, and the bare declarations.
    """
    main = Path(source.files[0])
    text = sources.read(main)
    schema_text, line = schemas.locate(text, main)
    schema = schemas.parse(schema_text, f"{main}:{line}")
    workspace = any(sources.wants_workspace(sources.read(Path(file)), schema.entry) for file in source.files)
    header = schemas.header(schema, workspace=workspace, file=str(main), line=line)
    return header, schemas.prototype(schema, workspace=workspace)


def header_roots(source: KernelSource) -> tuple[Path, ...]:
    """Folders of the sources and of their `-I` flags, longest first."""
    folders = {Path(file).parent for file in source.files}
    folders |= {Path(flag[2:]) for flag in source.flags if flag.startswith("-I")}
    return tuple(sorted(folders, key=lambda folder: (-len(str(folder)), str(folder))))


def environment_identity(*names: str) -> tuple[str, ...]:
    """Environment variables that change what a compiler does, and the platform."""
    return (
        sysconfig.get_platform(),
        *(f"{name}={os.environ[name]}" for name in names if os.environ.get(name)),
    )


def compile_each(
    source: KernelSource, compiler: list[str], flags: list[str], folder: Path
) -> tuple[list[str], list[list[str]]]:
    """Object files, and the commands that compile them: the prototype goes before each source's first line."""
    objects = [f"{index}.o" for index in range(len(source.files))]
    commands = [
        [
            *compiler, *flags, f"-I{INCLUDE}", "-include", str(folder / PROTOTYPE),
            "-MD", "-MF", f"{index}.d", "-c", file, "-o", f"{index}.o",
        ]
        for index, file in enumerate(source.files)
    ]  # fmt: skip
    return objects, commands
