"""The few functions of CUDA's driver that load and launch device kernels, by ctypes.

Torch has made the context; all calls go to the device that is current. See `nvrtc` for why ctypes.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from pytest_cgins.core.errors import LaunchError

if TYPE_CHECKING:
    from pytest_cgins.building.loading.launch_binding import Settings

CLUSTER_DIMENSION = 4  # CU_LAUNCH_ATTRIBUTE_…
COOPERATIVE = 2
PROGRAMMATIC_STREAM_SERIALIZATION = 6
MAX_DYNAMIC_SHARED = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
NON_PORTABLE_CLUSTER = 14
SM_COUNT = 16  # CU_DEVICE_ATTRIBUTE_…
SHARED_PER_BLOCK_OPT_IN = 97
DEFAULT_SHARED_NBYTES = 48 * 1024


class _Attribute(ctypes.Structure):
    """CUlaunchAttribute: its value is a union of 64 bytes."""

    _fields_ = (("id", ctypes.c_int), ("padding", ctypes.c_char * 4), ("value", ctypes.c_uint32 * 16))


class _Config(ctypes.Structure):
    """CUlaunchConfig."""

    _fields_ = (
        ("grid", ctypes.c_uint32 * 3),
        ("block", ctypes.c_uint32 * 3),
        ("shared_nbytes", ctypes.c_uint32),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(_Attribute)),
        ("attribute_count", ctypes.c_uint32),
    )


@lru_cache(maxsize=1)
def library() -> ctypes.CDLL:
    """The driver's library.

    Raises:
        LaunchError: no NVIDIA driver is installed.
    """
    try:
        return ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        raise LaunchError(f"no CUDA driver: {error}", remedy="install the NVIDIA driver") from error


def check(status: int, where: str) -> None:
    """Raise CUDA's own message unless a call succeeded.

    Raises:
        LaunchError: it did not.
    """
    if status == 0:
        return
    name, text = ctypes.c_char_p(), ctypes.c_char_p()
    library().cuGetErrorName(status, ctypes.byref(name))
    library().cuGetErrorString(status, ctypes.byref(text))
    said = f"{(name.value or b'?').decode()}: {(text.value or b'unknown error').decode()}"
    raise LaunchError(f"{where}: {said}", remedy="")


def ensure_context(index: int, where: str) -> None:
    """Make a device's context the calling thread's, if it has none: torch may have made it in another thread."""
    current = ctypes.c_void_p()
    check(library().cuCtxGetCurrent(ctypes.byref(current)), where)
    if current.value is None:
        context = ctypes.c_void_p()
        check(library().cuDevicePrimaryCtxRetain(ctypes.byref(context), index), where)
        check(library().cuCtxSetCurrent(context), where)


def load_module(code: bytes, where: str) -> ctypes.c_void_p:
    """A cubin or PTX, loaded into the current context, for the process's life."""
    module = ctypes.c_void_p()
    check(library().cuModuleLoadData(ctypes.byref(module), code), where)
    return module


def function(module: ctypes.c_void_p, name: str, where: str) -> ctypes.c_void_p:
    """A kernel of a module."""
    found = ctypes.c_void_p()
    check(library().cuModuleGetFunction(ctypes.byref(found), module, name.encode()), where)
    return found


def device_attribute(attribute: int, index: int) -> int:
    """A number that describes a device."""
    value = ctypes.c_int()
    check(library().cuDeviceGetAttribute(ctypes.byref(value), attribute, index), f"attribute {attribute}")
    return value.value


def allow(kernel: ctypes.c_void_p, attribute: int, value: int, where: str) -> None:
    """Let a kernel take more than the default: `MAX_DYNAMIC_SHARED` bytes, or `NON_PORTABLE_CLUSTER`s of over 8 blocks."""
    check(library().cuFuncSetAttribute(kernel, attribute, value), where)


def zero(pointer: int, nbytes: int, stream: int, *, where: str) -> None:
    """Set memory to 0, in the order of a stream."""
    if nbytes:
        status = library().cuMemsetD8Async(
            ctypes.c_uint64(pointer), ctypes.c_ubyte(0), ctypes.c_size_t(nbytes), ctypes.c_void_p(stream)
        )
        check(status, where)


class PreparedLaunch:
    """A launch whose arguments are packed: running it is one call of the driver."""

    def __init__(self, kernel: ctypes.c_void_p, settings: Settings) -> None:
        self._kernel = kernel
        self._where = (
            f"{settings.where}: launching {settings.kernel} with grid {settings.grid}, block {settings.block}, "
            f"smem {settings.shared_nbytes}"
        )
        self._arguments = settings.arguments
        self._pointers = (ctypes.c_void_p * max(1, len(self._arguments)))(
            *map(ctypes.addressof, self._arguments)
        )
        words, three = ctypes.c_uint32 * 16, ctypes.c_uint32 * 3
        attributes = []
        if settings.cluster:
            attributes.append(_Attribute(CLUSTER_DIMENSION, b"", words(*_three(settings.cluster))))
        if settings.cooperative:
            attributes.append(_Attribute(COOPERATIVE, b"", words(1)))
        if settings.begins_early:
            attributes.append(_Attribute(PROGRAMMATIC_STREAM_SERIALIZATION, b"", words(1)))
        self._attributes = (_Attribute * max(1, len(attributes)))(*attributes)
        grid, block = three(*_three(settings.grid)), three(*_three(settings.block))
        self._config = _Config(grid, block, settings.shared_nbytes, None, self._attributes, len(attributes))
        self._launch = library().cuLaunchKernelEx

    def run(self, stream: int) -> None:
        """Launch on a stream.

        Raises:
            LaunchError: CUDA refuses it.
        """
        self._config.stream = stream
        status = self._launch(ctypes.byref(self._config), self._kernel, self._pointers, None)
        if status:
            check(status, self._where)


def _three(sizes: Sequence[int]) -> tuple[int, ...]:
    return (*sizes, *([1] * (3 - len(sizes))))
