"""CUTLASS and CuTe: which sources include their headers, and where these are."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.machinery import PathFinder
from pathlib import Path

from pytest_cgins.building.contracts.cxx import with_headers
from pytest_cgins.core.case import KernelSource
from pytest_cgins.core.errors import InfrastructureError
from pytest_cgins.core.text import text_of

VENDOR_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*([<"])((?:cute|cutlass)/[^>"\n]+)[>"]', re.MULTILINE)
VERSION_PART = re.compile(r"^#define CUTLASS_(?:MAJOR|MINOR|PATCH)[ \t]+(\d+)", re.MULTILINE)
CHECKOUT_INCLUDES = ("include", "tools/util/include")
FLAGS = ("--expt-relaxed-constexpr",)
"""What nvcc needs for CuTe: its layouts are computed by constexpr functions of the host."""
INSTALL = "pip install 'pytest-cgins[cutlass]', or set CUTLASS_PATH to a checkout of CUTLASS"


@dataclass(frozen=True, slots=True, kw_only=True)
class Headers:
    """The headers of CUTLASS that a build uses."""

    folders: tuple[Path, ...] = ()
    """To be searched, in this order; () where the kernel's own flags name the folder, or none is needed."""
    version: str = ""
    """`CUTLASS 4.2.0`, from cutlass/version.h: part of the build's key. "" for a source that needs none."""
    roots: tuple[Path, ...] = ()
    """Those of `folders` that are neither the toolkit's nor the Python environment's."""

    @property
    def flags(self) -> tuple[str, ...]:
        """Flags for nvcc. Searched as the system's folders are: warnings in them are not the user's."""
        return (*FLAGS, *(f"-isystem={folder}" for folder in self.folders)) if self.version else ()


def headers_for(source: KernelSource) -> Headers:
    """The headers that a source needs: empty unless it, or a header of its own, includes <cute/…> or <cutlass/…>.

    They are taken from the kernel's own `-I` flags, else `$CUTLASS_INCLUDE_DIR` (folders), else `$CUTLASS_PATH`
    (a checkout), else the Python package nvidia-cutlass.

    Raises:
        InfrastructureError: it needs them, and there are none, or a variable names a folder without them.
    """
    searched = [Path(folder) for folder in _search_path(source.flags)]
    for file, text in with_headers(source.files, searched, bare=True):
        for bracket, name in VENDOR_INCLUDE.findall(text):
            if bracket == '"' and (file.parent / name).is_file():
                continue
            if any((folder / name).is_file() for folder in searched):
                return Headers(version=_version(searched) or "CUTLASS")
            if headers := installed():
                return headers
            raise InfrastructureError(
                f"{file} includes <{name}>, and there is no CUTLASS: neither $CUTLASS_INCLUDE_DIR nor $CUTLASS_PATH "
                "is set, and the Python package nvidia-cutlass is not installed",
                remedy=INSTALL,
            )
    return Headers()


def installed() -> Headers | None:
    """The headers of this machine, for a source whose own flags name none; None if there are none.

    Raises:
        InfrastructureError: a variable names a folder without them.
    """
    for variable, below in (("CUTLASS_INCLUDE_DIR", ("",)), ("CUTLASS_PATH", CHECKOUT_INCLUDES)):
        if value := os.environ.get(variable):
            named = [Path(folder).absolute() for folder in value.split(os.pathsep) if folder]
            folders = tuple(filter(Path.is_dir, (folder / part for folder in named for part in below)))
            if version := _version(folders):
                return Headers(folders=folders, version=version, roots=folders)
            is_checkout = variable == "CUTLASS_PATH"
            meant = "a checkout" if is_checkout else "the folder in which cutlass/ and cute/ lie"
            raise InfrastructureError(
                f"${variable} is {value!r}: there is no {'include/' * is_checkout}cutlass/version.h in it",
                remedy=f"set it to {meant}, or unset it: {INSTALL}",
            )
    spec = PathFinder.find_spec("cutlass_library")  # without importing it
    if spec is None or spec.origin is None:
        return None
    folders = tuple(Path(spec.origin).parent / "source" / part for part in CHECKOUT_INCLUDES)
    version = _version(folders)
    return Headers(folders=folders, version=version) if version else None


def _version(folders: Sequence[Path]) -> str:
    """`CUTLASS 4.2.0`; "" if no folder has cutlass/version.h."""
    for folder in folders:
        if text := text_of(folder / "cutlass/version.h"):
            return f"CUTLASS {'.'.join(VERSION_PART.findall(text))}"
    return ""


def _search_path(flags: tuple[str, ...]) -> Iterator[str]:
    """Folders of `-IFOLDER`, `-I FOLDER`, and the same of `-isystem`; those of `$CPATH`."""
    words = iter(flags)
    for flag in words:
        named = re.match(r"(?:-I|-isystem|--include-path|--system-include)=?(.*)", flag)
        if named:
            yield named[1] or next(words, "")
    yield from filter(None, os.environ.get("CPATH", "").split(os.pathsep))
