"""How the processor rounds, and what it makes of subnormal numbers: `-ffast-math` has a library switch it at load.

It belongs to the thread, and outlives the kernel: a later one's right answers would be wrong. For the compiler's own
start-up code nobody is blamed. It runs once a library, at the latest as a kernel first meets a set of inputs, so that
what more runs change than there are sets is the kernel's own doing: its caller's thread computes otherwise from then on.
What a call sets and puts back is its own affair. Threads of a kernel's own pool, which it shares with later ones if they
link the same OpenMP, are out of reach.
"""

from __future__ import annotations

import ctypes
import sys
from functools import cache
from typing import NamedTuple

import torch

_FE_TONEAREST = 0
# Taken before any kernel could replace them.
_flush_subnormals = torch.set_flush_denormal
_round = getattr(ctypes.CDLL(None), "fesetround", None)
_rounding = getattr(ctypes.CDLL(None), "fegetround", None)
_LEAST_NORMAL, _LEAST = sys.float_info.min, 5e-324


class State(NamedTuple):
    """How this thread computes."""

    flushes: bool
    """Whether subnormal operands or results are taken for 0."""
    rounding: int
    """The C library's number of the mode."""

    def changes_to(self, after: State) -> list[str]:
        """What is otherwise, in words."""
        flushed = {True: "flushed", False: "kept"}
        found = []
        if after.flushes != self.flushes:
            found.append(f"subnormal numbers from {flushed[self.flushes]} to {flushed[after.flushes]}")
        if after.rounding != self.rounding:
            found.append(f"the processor's rounding mode from {self.rounding} to {after.rounding}")
        return found


def state() -> State:
    """The present state."""
    half, one = 0.5, 1.0  # names, since constants are multiplied by the compiler
    flushes = _LEAST_NORMAL * half == 0.0 or _LEAST * one == 0.0
    return State(flushes, _FE_TONEAREST if _rounding is None else _rounding())


def put_back(before: State) -> None:
    """Have this thread compute as it did."""
    _flush_subnormals(before.flushes)
    if _round is not None:
        _round(before.rounding)


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
