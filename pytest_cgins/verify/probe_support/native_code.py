"""A launcher has no need of torch, so while its function runs under the watch, the code of torch's libraries is not executable.

Whoever enters it, from whatever thread and however the address was found, is noted by the handler of the fault, which makes
the code executable again; in a forked child the fault is fatal. Extensions do need torch: their libraries are looked into by
`verify.probes.libraries`. It is evaded by a kernel that makes the code executable itself, and not done on a GPU.
"""

from __future__ import annotations

import ctypes
import gc
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

TORCH = "torch's code: "
"""Before a symbol of torch's that a launcher ran."""
MOST_CALLS = 16
"""Calls that are guarded: each costs some milliseconds."""

_GUARDED = ("libtorch_cpu.so", "libtorch_python.so")
_EXECUTABLE, _READABLE = 5, 1
_SIGSEGV, _SIGINFO = 11, 4


class _Action(ctypes.Structure):
    _fields_ = (
        ("handler", ctypes.c_void_p),
        ("mask", ctypes.c_ulong * 16),
        ("flags", ctypes.c_int),
        ("restorer", ctypes.c_void_p),
    )


class _Fault(ctypes.Structure):
    _fields_ = (("numbers", ctypes.c_int * 4), ("address", ctypes.c_uint64))


class Symbol(ctypes.Structure):
    """`Dl_info` of C: a file, where it lies, a symbol in it, and where that lies."""

    _fields_ = (
        ("file", ctypes.c_char_p),
        ("base", ctypes.c_void_p),
        ("name", ctypes.c_char_p),
        ("address", ctypes.c_void_p),
    )


class Guarded:
    """A C function in whose calls torch's code is not executable.

    Args:
        function: the launcher's.
        told: is called with `TORCH` and the symbol, when the call is over.
    """

    def __init__(self, function: Any, told: Callable[[str], None]) -> None:
        self._function, self._told = function, told
        self._left = MOST_CALLS
        self._entered: list[int] = []
        self._process = os.getpid()
        self._c = ctypes.CDLL(None)
        self._protect = self._c.mprotect
        self._protect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
        self._ranges = _code()
        # Held: C has its address.
        self._handler = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)(self._fault)
        self._ours = _Action(handler=ctypes.cast(self._handler, ctypes.c_void_p).value, flags=_SIGINFO)
        self._before = _Action()

    def __call__(self, *arguments: Any) -> int:
        """Call the function."""
        if not self._left or not self._ranges:
            return int(self._function(*arguments))
        self._left -= 1
        collects = gc.isenabled()
        gc.disable()  # it may end tensors
        self._c.sigaction(_SIGSEGV, ctypes.byref(self._ours), ctypes.byref(self._before))
        self._set(_READABLE)
        try:
            return int(self._function(*arguments))
        finally:
            self._set(_EXECUTABLE)
            self._c.sigaction(_SIGSEGV, ctypes.byref(self._before), None)
            if collects:
                gc.enable()
            for address in self._entered[:1]:
                self._told(TORCH + self._name(address))
            self._entered.clear()

    def _set(self, protection: int) -> None:
        for begin, nbytes in self._ranges:
            self._protect(begin, nbytes, protection)

    def _fault(self, _signal: int, fault: int, _context: int) -> None:
        address = int(_Fault.from_address(fault).address)
        if os.getpid() == self._process and any(0 <= address - begin < size for begin, size in self._ranges):
            self._entered.append(address)
            self._set(_EXECUTABLE)
        else:  # the kernel's own fault, or a child's: it happens again, and ends the process
            self._c.sigaction(_SIGSEGV, ctypes.byref(self._before), None)

    def _name(self, address: int) -> str:
        symbol = symbol_at(address)
        return symbol.name.decode(errors="replace") if symbol and symbol.name else f"{address:#x}"


def symbol_at(address: int) -> Symbol | None:
    """What the loader knows of an address; None if it is in no library."""
    symbol = Symbol()
    return symbol if _dladdr(address, ctypes.byref(symbol)) else None


_dladdr = ctypes.CDLL(None).dladdr
_dladdr.argtypes = (ctypes.c_void_p, ctypes.c_void_p)


def _code() -> list[tuple[int, int]]:
    """Where torch's code lies in this process: address and bytes."""
    found = []
    for line in Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace").splitlines():
        words = line.split(maxsplit=5)
        if len(words) == 6 and "x" in words[1] and words[5].endswith(_GUARDED):
            begin, _, end = words[0].partition("-")
            found.append((int(begin, 16), int(end, 16) - int(begin, 16)))
    return found
