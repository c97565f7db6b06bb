"""What is called of NVRTC, by ctypes.

It is bound by hand, not through cuda-bindings: the dozen functions that are needed are plain C, and importing the
bindings takes twice as long as compiling a small kernel. The process that compiles in the sandbox imports this module
and no other of the package, which would take longer than the rest of its start.
"""

from __future__ import annotations

import contextvars
import ctypes
import threading

TYPE_CHECKING = False  # without `typing`, for the reason above
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

SUCCESS = 0
STACK_NBYTES = 1 << 30  # of address space: what is not touched takes no memory
STACK_SIZE = threading.Lock()
CALLBACK = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)


class NvrtcError(Exception):
    """A call that does not depend on the source has failed."""


class Program:
    """What came of one compilation."""

    __slots__ = ("cubin", "log", "lowered", "ptx", "status")

    def __init__(self, status: int, log: str) -> None:
        self.status = status
        self.log = log
        self.cubin = b""
        """Machine code as an ELF image; b"" if the source was refused, or the architecture is virtual."""
        self.ptx = b""
        """PTX, without the zero byte at its end; b"" if the source was refused."""
        self.lowered: list[str] = []
        """For each name expression, the name that it has in the machine code."""


def load(names: Sequence[str], builtins: Sequence[str] = ()) -> ctypes.CDLL:
    """The library, of the first name that can be loaded.

    Args:
        names: paths, or names that the system's loader looks for.
        builtins: paths of libraries that NVRTC looks for by their bare names: one that is loaded already is found.

    Raises:
        OSError: none can.
    """
    for path in builtins:
        ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
    for name in names:
        try:
            loaded = ctypes.CDLL(name)
        except OSError:
            if name == names[-1]:
                raise
        else:
            loaded.nvrtcGetErrorString.restype = ctypes.c_char_p
            return loaded
    raise OSError("no name")


def compile(  # noqa: A001 - the field's word
    nvrtc: ctypes.CDLL,
    text: str,
    name: str,
    options: Sequence[str],
    *,
    expressions: Sequence[str] = (),
    is_late: Callable[[], bool] | None = None,
) -> Program:
    """Compile a source; the arguments are those of `nvrtc.compile`, the architecture is one of the options.

    Args:
        nvrtc: the library.
        text: the source.
        name: what messages call it.
        options: all of NVRTC's.
        expressions: kernels or variables to instantiate.
        is_late: asked again and again whether to give up; once it was true it must stay so.

    Raises:
        NvrtcError: NVRTC failed at something else than the source.
    """
    program = ctypes.c_void_p()
    status = nvrtc.nvrtcCreateProgram(ctypes.byref(program), text.encode(), name.encode(), 0, None, None)
    check(nvrtc, status, "nvrtcCreateProgram")
    try:
        for expression in expressions:
            check(nvrtc, nvrtc.nvrtcAddNameExpression(program, expression.encode()), "nvrtcAddNameExpression")
        keep = _ask(nvrtc, program, is_late)
        words = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
        status = _with_deep_stack(lambda: int(nvrtc.nvrtcCompileProgram(program, len(options), words)))
        del keep
        log = _bytes(nvrtc, program, "ProgramLog").rstrip(b"\0").decode(errors="replace")
        if status != SUCCESS and not log.strip():
            log = nvrtc.nvrtcGetErrorString(status).decode()
        found = Program(status, log)
        if status == SUCCESS:
            found.cubin = _bytes(nvrtc, program, "CUBIN")
            found.ptx = _bytes(nvrtc, program, "PTX").rstrip(b"\0")
            found.lowered = [_lowered(nvrtc, program, one) for one in expressions]
        return found
    finally:
        nvrtc.nvrtcDestroyProgram(ctypes.byref(program))


def check(nvrtc: ctypes.CDLL, status: int, what: str) -> None:
    """Nothing, if a call succeeded.

    Raises:
        NvrtcError: it did not.
    """
    if status != SUCCESS:
        raise NvrtcError(f"NVRTC: {what}: {nvrtc.nvrtcGetErrorString(status).decode()}")


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


def _ask(nvrtc: ctypes.CDLL, program: ctypes.c_void_p, is_late: Callable[[], bool] | None) -> object:
    """Have the compiler ask whether to go on; what is returned must live until it is done.

    NVRTC has had this question since 12.9; an older one runs to its end.
    """
    if is_late is None or not hasattr(nvrtc, "nvrtcSetFlowCallback"):
        return None
    callback = CALLBACK(lambda _payload, _reserved: int(is_late()))
    check(nvrtc, nvrtc.nvrtcSetFlowCallback(program, callback, None), "nvrtcSetFlowCallback")
    return callback


def _bytes(nvrtc: ctypes.CDLL, program: ctypes.c_void_p, what: str) -> bytes:
    """One of the program's products; b"" where it has none."""
    count = ctypes.c_size_t()
    if nvrtc[f"nvrtcGet{what}Size"](program, ctypes.byref(count)) != SUCCESS or count.value == 0:
        return b""
    buffer = ctypes.create_string_buffer(count.value)
    check(nvrtc, nvrtc[f"nvrtcGet{what}"](program, buffer), f"nvrtcGet{what}")
    return buffer.raw


def _lowered(nvrtc: ctypes.CDLL, program: ctypes.c_void_p, expression: str) -> str:
    found = ctypes.c_char_p()
    status = nvrtc.nvrtcGetLoweredName(program, expression.encode(), ctypes.byref(found))
    check(nvrtc, status, f"the name of {expression!r}")
    return (found.value or b"").decode()
