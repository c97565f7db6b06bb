"""What a kernel raises when a probe runs it again."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import Any

import torch

_MAXIMUM_TEXT = 2000


def attempt(run: Callable[[], list[torch.Tensor]]) -> tuple[list[torch.Tensor], dict[str, Any] | None]:
    """Run, and give its tensors, or none and what it raised."""
    try:
        return run(), None
    except BaseException as error:  # noqa: BLE001 - SystemExit from a kernel is its error, not ours
        text = "".join(traceback.format_exception_only(type(error), error))
        return [], {"kind": type(error).__name__[:200], "message": text.strip()[:_MAXIMUM_TEXT]}
