"""Kernel regression gating for pytest."""

from __future__ import annotations

import logging
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pytest_cgins.app.whole_model.patch import patch
    from pytest_cgins.packs.adapters import adapter
    from pytest_cgins.packs.ops import mark
    from pytest_cgins.recording.record import record

__version__ = "0.1.0"
__all__ = ["adapter", "mark", "patch", "record"]

logging.getLogger(__name__).addHandler(logging.NullHandler())

# Lazy, since pytest imports this package at every start and these import torch.
_HOMES = {
    "adapter": "pytest_cgins.packs.adapters",
    "mark": "pytest_cgins.packs.ops",
    "patch": "pytest_cgins.app.whole_model.patch",
    "record": "pytest_cgins.recording.record",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
