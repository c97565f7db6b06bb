"""How the processor rounds, and what it makes of subnormal numbers: `-ffast-math` has a library switch it at load.

It belongs to the thread, and outlives the kernel: a later one's right answers would be wrong. Nobody is blamed, since
the compiler's own start-up code does it. Threads of a kernel's own pool, which it shares with later ones if they link
the same OpenMP, are out of reach.
"""

from __future__ import annotations

import ctypes
from functools import cache

import torch

_FE_TONEAREST = 0
# Taken before any kernel could replace them.
_flush_subnormals = torch.set_flush_denormal
_round = getattr(ctypes.CDLL(None), "fesetround", None)


def restore() -> None:
    """Have this thread round to nearest and keep subnormal numbers, as new processes do."""
    _flush_subnormals(False)
    round_to_nearest()


def round_to_nearest() -> None:
    """Only that: settings of Python are read by its arithmetic."""
    if _round is not None:
        _round(_FE_TONEAREST)


@cache
def start_threads() -> None:
    """Start torch's threads, unless they run: they take over how the thread computes that first needs them."""
    torch.zeros(2**17).add_(1.0)
