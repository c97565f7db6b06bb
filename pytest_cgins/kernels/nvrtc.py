"""NVRTC, the CUDA compiler as a library: source text to machine code in process.

It is bound by ctypes, not through cuda-bindings: the dozen functions that are needed are plain C, and
importing the bindings takes twice as long as compiling a small kernel.
"""

from __future__ import annotations

import contextvars
import ctypes
import importlib.util
import os
import re
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from pytest_cgins.errors import InfrastructureError, SourceError
from pytest_cgins.kernels import compilers

REMEDY = "pip install 'pytest-cgins[nvrtc]', or install the CUDA toolkit and set CUDA_HOME"
SUCCESS = 0
STACK_NBYTES = 1 << 30  # of address space: what is not touched takes no memory
STACK_SIZE = threading.Lock()
_chosen: list[Path | None] = []
CALLBACK = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)


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
    home = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH")
    folders = [Path(home) / "lib64", Path(home) / "lib"] if home else []
    # find_spec of a namespace package looks at folder names only; nothing is imported.
    package = importlib.util.find_spec("nvidia")
    for place in (package.submodule_search_locations or ()) if package else ():
        versioned = sorted(Path(place).glob("cu[0-9]*/lib"), key=_number_in, reverse=True)
        folders += [*versioned, Path(place) / "cuda_nvrtc/lib"]
    return [*folders, Path("/usr/local/cuda/lib64"), Path("/usr/local/cuda/lib")]


def _number_in(folder: Path) -> int:
    return int(re.sub(r"\D", "", folder.parent.name) or 0)


def find_library() -> Path | None:
    """The newest libnvrtc of the first folder that has one; None if there is none."""
    for folder in library_folders():
        found = [
            path for path in folder.glob("libnvrtc.so*") if re.fullmatch(r"libnvrtc\.so(\.\d+)*", path.name)
        ]
        if found:
            return max(found, key=lambda path: len(path.name))
    return None


def use(path: Path | None) -> None:
    """Have this process load a library that another has found; None to have the system's loader find one."""
    _chosen[:] = [path]


@lru_cache(maxsize=1)
def library() -> ctypes.CDLL:
    """libnvrtc, loaded.

    Raises:
        InfrastructureError: there is none, or it cannot be loaded.
    """
    path = _chosen[0] if _chosen else find_library()
    names = [str(path)] if path else ["libnvrtc.so.13", "libnvrtc.so.12"]
    if path is not None:
        # NVRTC looks for this library by its bare name: one that is loaded already is found.
        for builtins in sorted(path.parent.glob("libnvrtc-builtins.so*")):
            try:
                ctypes.CDLL(str(builtins), mode=ctypes.RTLD_GLOBAL)
            except OSError as error:
                raise InfrastructureError(f"{builtins} cannot be loaded: {error}", remedy=REMEDY) from error
    trouble = ""
    for name in names:
        try:
            loaded = ctypes.CDLL(name)
        except OSError as error:
            trouble = str(error)
        else:
            loaded.nvrtcGetErrorString.restype = ctypes.c_char_p
            return loaded
    if path is None:
        raise InfrastructureError(
            "no NVRTC: libnvrtc is neither in a package nor in a CUDA toolkit", remedy=REMEDY
        )
    raise InfrastructureError(f"{path} cannot be loaded: {trouble}", remedy=REMEDY)


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
    return f"nvrtc {version()[0]}.{version()[1]} of {nbytes} bytes"


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
        SourceError: `arch` is no name of one, or not known; the message has those that are.
    """
    named = re.fullmatch(r"(?:sm|compute)_(\d{2,3})[af]?", arch)
    if named is None:
        raise SourceError(
            f'"{arch}" is not a CUDA architecture', remedy="write sm_90a, or compute_80 for PTX"
        )
    if int(named[1]) not in supported():
        known = [f"sm_{number}" for number in supported()]
        major, minor = version()
        raise SourceError(
            f'NVRTC {major}.{minor} does not know the architecture "{arch}"',
            remedy=f"it knows {', '.join(known)}",
        )


def compile(  # noqa: A001 - the field's word
    text: str,
    name: str,
    arch: str,
    options: Sequence[str] = (),
    *,
    expressions: Sequence[str] = (),
    headers: Sequence[tuple[str, str]] = (),
    deadline: float | None = None,
) -> NvrtcResult:
    """Compile a source for one architecture.

    Args:
        text: the source.
        name: what messages call it; quoted includes are looked up in its folder too.
        arch: `sm_90a`, or `compute_80` for PTX alone.
        options: further options, as NVRTC has them.
        expressions: C++ expressions that name kernels or variables, e.g. `scale<float>`; they are instantiated.
        headers: headers that need not be on disk, as (name in the include line, text).
        deadline: time of `time.monotonic()` at which to give up.

    Raises:
        InfrastructureError: there is no NVRTC.
        SourceError: it does not know the architecture.
    """
    nvrtc = library()
    check_arch(arch)
    started = time.monotonic()
    program = ctypes.c_void_p()
    names = (ctypes.c_char_p * len(headers))(*(header.encode() for header, _ in headers))
    texts = (ctypes.c_char_p * len(headers))(*(body.encode() for _, body in headers))
    status = nvrtc.nvrtcCreateProgram(
        ctypes.byref(program), text.encode(), name.encode(), len(headers), texts, names
    )
    _check(status, "nvrtcCreateProgram")
    try:
        for expression in expressions:
            _check(nvrtc.nvrtcAddNameExpression(program, expression.encode()), "nvrtcAddNameExpression")
        given = [f"--gpu-architecture={arch}", *options]
        keep = _set_deadline(nvrtc, program, deadline)
        words = (ctypes.c_char_p * len(given))(*(option.encode() for option in given))
        status = _with_deep_stack(lambda: int(nvrtc.nvrtcCompileProgram(program, len(given), words)))
        del keep
        late = status != SUCCESS and deadline is not None and time.monotonic() >= deadline
        log = _bytes(nvrtc, program, "ProgramLog").rstrip(b"\0").decode(errors="replace")
        if status != SUCCESS and not log.strip():
            log = nvrtc.nvrtcGetErrorString(status).decode()
        return NvrtcResult(
            cubin=(_bytes(nvrtc, program, "CUBIN") or None) if status == SUCCESS else None,
            ptx=(_bytes(nvrtc, program, "PTX").rstrip(b"\0") or None) if status == SUCCESS else None,
            log=log,
            seconds=time.monotonic() - started,
            lowered=tuple(_lowered(nvrtc, program, one) for one in expressions) if status == SUCCESS else (),
            timed_out=late,
        )
    finally:
        nvrtc.nvrtcDestroyProgram(ctypes.byref(program))


def _with_deep_stack(compile_it: Callable[[], int]) -> int:
    """Run the compiler on a stack of its own: on a usual one, some thousand nested brackets end the process."""
    status: list[int] = []
    context = contextvars.copy_context()
    with STACK_SIZE:
        before = threading.stack_size(STACK_NBYTES)
        thread = threading.Thread(target=lambda: status.append(context.run(compile_it)), name="nvrtc")
        try:
            thread.start()
        except RuntimeError:  # no address space for it
            return compile_it()
        finally:
            threading.stack_size(before)
    interrupted: BaseException | None = None
    while thread.is_alive():
        try:
            thread.join()
        except BaseException as error:  # noqa: BLE001 - the program must outlive its compilation
            interrupted = error
    if interrupted is not None:
        raise interrupted
    return status[0]


def _set_deadline(nvrtc: ctypes.CDLL, program: ctypes.c_void_p, deadline: float | None) -> object:
    """Have the compiler ask whether to go on; what is returned must live until it is done.

    NVRTC has had this question since 12.9; an older one runs to its end.
    """
    if deadline is None or not hasattr(nvrtc, "nvrtcSetFlowCallback"):
        return None
    ended = False

    def is_late(_payload: object, _reserved: object) -> int:
        nonlocal ended  # once it has said 1 it must go on saying so
        ended = ended or time.monotonic() >= deadline or compilers.current().closed
        return int(ended)

    callback = CALLBACK(is_late)
    _check(nvrtc.nvrtcSetFlowCallback(program, callback, None), "nvrtcSetFlowCallback")
    return callback


def _bytes(nvrtc: ctypes.CDLL, program: ctypes.c_void_p, what: str) -> bytes:
    """One of the program's products; b"" where it has none."""
    count = ctypes.c_size_t()
    if nvrtc[f"nvrtcGet{what}Size"](program, ctypes.byref(count)) != SUCCESS or count.value == 0:
        return b""
    buffer = ctypes.create_string_buffer(count.value)
    _check(nvrtc[f"nvrtcGet{what}"](program, buffer), f"nvrtcGet{what}")
    return buffer.raw


def _lowered(nvrtc: ctypes.CDLL, program: ctypes.c_void_p, expression: str) -> str:
    found = ctypes.c_char_p()
    _check(
        nvrtc.nvrtcGetLoweredName(program, expression.encode(), ctypes.byref(found)),
        f"the name of {expression!r}",
    )
    return (found.value or b"").decode()


def _check(status: int, what: str) -> None:
    if status != SUCCESS:
        text = library().nvrtcGetErrorString(status).decode()
        raise InfrastructureError(
            f"NVRTC: {what}: {text}", remedy="report this line, or install another NVRTC"
        )
