"""What a kernel is linked with, and what else its flags name: part of its key, by content."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from pytest_cgins.building.cache.headers import file_digest

SYSTEM_FOLDERS = ("/usr/local/lib", "/usr/lib", "/lib", "/usr/local/lib64", "/usr/lib64", "/lib64")
READ_NBYTES = 64 << 20
"""Larger libraries are known by name and size: reading one would take longer than a hit may."""


def identity(flags: Sequence[str]) -> tuple[str, ...]:
    """Libraries of `-l`, looked up as a linker does, and files that flags name, by content.

    A library of the system is known by the name of its file, which carries its version. One that is not found is
    known to be missing.
    """
    words = list(_joined(flags))
    named = [flag[2:] for flag in words if flag.startswith("-L")]
    folders = [*named, *filter(None, os.environ.get("LIBRARY_PATH", "").split(os.pathsep))]
    found = [_library(flag[2:], folders) for flag in words if flag.startswith("-l")]
    # -Wl,--version-script=FILE, @FILE, objects and archives: any part of a flag that is a file.
    parts = {part for flag in words for part in re.split(r"[,=@]", flag) if os.sep in part or "." in part}
    files = sorted(part for part in parts if Path(part).is_file())
    return (*found, *(f"{Path(file).name} {_content(Path(file))}" for file in files))


def _joined(flags: Sequence[str]) -> Iterator[str]:
    """Flags with a value that stands apart (`-L folder`) joined to it."""
    words = iter(flags)
    for word in words:
        yield word + next(words, "") if word in ("-L", "-l") else word


def _library(name: str, folders: Sequence[str]) -> str:
    files = [name[1:]] if name.startswith(":") else [f"lib{name}.so", f"lib{name}.a"]
    for folder in folders:
        for file in files:
            if (place := Path(folder) / file).is_file():
                return f"-l{name} {_content(place)}"
    for folder in SYSTEM_FOLDERS:
        for file in files:
            for place in (Path(folder) / file, *sorted(Path(folder).glob(f"*-linux-gnu*/{file}"))):
                if place.is_file():
                    return f"-l{name} {place.resolve().name}"
    return f"-l{name} not found"


def _content(file: Path) -> str:
    size = file.stat().st_size
    return (file_digest(file) or "") if size <= READ_NBYTES else f"{file.resolve().name} {size}"
