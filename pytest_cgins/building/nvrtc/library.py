"""NVRTC, the CUDA compiler as a library: source text to machine code in process."""

from __future__ import annotations

import ctypes
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from pytest_cgins.building.compilers import architectures, running, toolkit
from pytest_cgins.building.nvrtc import calls
from pytest_cgins.building.nvrtc.calls import NvrtcError
from pytest_cgins.core.errors import InfrastructureError, SourceError
from pytest_cgins.core.text import counted

REMEDY = "pip install 'pytest-cgins[nvrtc]', or install the CUDA toolkit and set CUDA_HOME"
REPORT = "report this line, or install another NVRTC"


@dataclass(frozen=True, slots=True, kw_only=True)
class NvrtcResult:
    """What came of one compilation."""

    cubin: bytes | None
    """Machine code as an ELF image; None if the source was refused, or the architecture is virtual."""
    ptx: bytes | None
    """PTX, without the zero byte at its end; None if the source was refused."""
    log: str
    """What the compiler printed, ptxas's lines included."""
    seconds: float
    """Wall time."""
    lowered: tuple[str, ...]
    """For each name expression, the name that it has in the machine code; () if the source was refused."""
    timed_out: bool = False
    """Whether it was given up at its deadline."""
    status: int = 0
    """How a process of its own ended that gave no answer, as an exit status; 0 where there was none, or an answer."""


def library_folders() -> list[Path]:
    """Folders in which libnvrtc may lie, best first: the toolkit that is named, the packages, usual places."""
    named, usual = (
        [home / name for home in homes for name in ("lib64", "lib")]
        for homes in (toolkit.named(), [toolkit.USUAL])
    )
    return [*named, *toolkit.packaged("cu[0-9]*/lib"), *toolkit.packaged("cuda_nvrtc/lib"), *usual]


def find_library() -> Path | None:
    """The newest libnvrtc of the first folder that has one; None if there is none."""
    for folder in library_folders():
        named = [path for path in folder.glob("*") if re.fullmatch(r"libnvrtc\.so(\.\d+)*", path.name)]
        if named:
            return max(named, key=lambda path: len(path.name))
    return None


@lru_cache(maxsize=1)
def library() -> ctypes.CDLL:
    """libnvrtc, loaded.

    Raises:
        InfrastructureError: there is none, or it cannot be loaded.
    """
    names, builtins = names_to_load()
    try:
        return calls.load(names, builtins)
    except OSError as error:
        path = find_library()
        absent = "no NVRTC: libnvrtc is neither in a package nor in a CUDA toolkit"
        what = f"{path} cannot be loaded: {error}" if path else absent
        raise InfrastructureError(what, remedy=REMEDY) from error


def names_to_load() -> tuple[list[str], list[str]]:
    """What `nvrtc_calls.load` is given to load NVRTC, here or in another process."""
    path = find_library()
    if path is None:
        return ["libnvrtc.so.13", "libnvrtc.so.12"], []
    return [str(path)], [str(one) for one in sorted(path.parent.glob("libnvrtc-builtins.so*"))]


@lru_cache(maxsize=1)
def version() -> tuple[int, int]:
    """Its version, e.g. (13, 0).

    Raises:
        InfrastructureError: there is no NVRTC.
    """
    major, minor = ctypes.c_int(), ctypes.c_int()
    _check(library().nvrtcVersion(ctypes.byref(major), ctypes.byref(minor)), "nvrtcVersion")
    return major.value, minor.value


@lru_cache(maxsize=1)
def identity() -> str:
    """What tells one NVRTC from another: version, and size of the library, which differs between patch releases.

    Raises:
        InfrastructureError: there is no NVRTC.
    """
    path = find_library()
    nbytes = path.stat().st_size if path else 0
    return f"nvrtc {version()[0]}.{version()[1]} of {counted(nbytes, 'byte')}"


@lru_cache(maxsize=1)
def supported() -> tuple[int, ...]:
    """Architectures that it compiles for, as numbers such as 90."""
    count = ctypes.c_int()
    _check(library().nvrtcGetNumSupportedArchs(ctypes.byref(count)), "nvrtcGetNumSupportedArchs")
    numbers = (ctypes.c_int * max(1, count.value))()
    _check(library().nvrtcGetSupportedArchs(numbers), "nvrtcGetSupportedArchs")
    return tuple(sorted(numbers[: count.value]))


def check_arch(arch: str) -> None:
    """Refuse architectures that this NVRTC does not compile for.

    Raises:
        SourceError: `arch` is not a name of one, or not known; the message has those that are.
    """
    if architectures.number(arch) not in supported():
        known = ", ".join(f"sm_{number}" for number in supported())
        major, minor = version()
        raise SourceError(
            f'NVRTC {major}.{minor} does not know the architecture "{arch}"', remedy=f"it knows {known}"
        )


def compile(  # noqa: A001 - the field's word
    text: str,
    name: str,
    arch: str,
    options: Sequence[str] = (),
    *,
    expressions: Sequence[str] = (),
    deadline: float | None = None,
) -> NvrtcResult:
    """Compile a source for one architecture.

    Args:
        text: the source.
        name: what messages call it; quoted includes are looked up in its folder too.
        arch: `sm_90a`, or `compute_80` for PTX alone.
        options: further options, as NVRTC has them.
        expressions: C++ expressions that name kernels or variables, e.g. `scale<float>`; they are instantiated.
        deadline: time of `time.monotonic()` at which to give up.

    Raises:
        InfrastructureError: there is no NVRTC.
        SourceError: it does not know the architecture.
    """
    check_arch(arch)
    started = time.monotonic()
    ended = False

    def is_late() -> bool:
        nonlocal ended
        ended = ended or time.monotonic() >= (deadline or 0.0) or running.current().closed
        return ended

    try:
        done = calls.compile(
            library(), text, name, [f"--gpu-architecture={arch}", *options],
            expressions=expressions, is_late=is_late if deadline is not None else None,
        )  # fmt: skip
    except NvrtcError as error:
        raise InfrastructureError(str(error), remedy=REPORT) from error
    refused = done.status != calls.SUCCESS
    return NvrtcResult(
        cubin=done.cubin or None,
        ptx=done.ptx or None,
        log=done.log,
        seconds=time.monotonic() - started,
        lowered=tuple(done.lowered),
        timed_out=refused and deadline is not None and time.monotonic() >= deadline,
    )


def _check(status: int, what: str) -> None:
    try:
        calls.check(library(), status, what)
    except NvrtcError as error:
        raise InfrastructureError(str(error), remedy=REPORT) from error
