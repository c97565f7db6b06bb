"""Kernel regression gating for pytest."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_cgins.trace.ops import mark
    from pytest_cgins.trace.record import record

__version__ = "0.1.0"
__all__ = ["mark", "record"]


def __getattr__(name: str) -> object:
    # Lazy, since pytest imports this package at every start and these import torch.
    if name == "mark":
        from pytest_cgins.trace.ops import mark

        return mark
    if name == "record":
        from pytest_cgins.trace.record import record

        return record
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
