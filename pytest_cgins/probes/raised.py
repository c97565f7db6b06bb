"""What a kernel raises when a probe runs it again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from pytest_cgins.kernels.exceptions import kind_of, told

_MAXIMUM_TEXT = 2000


def attempt(run: Callable[[], list[torch.Tensor]]) -> tuple[list[torch.Tensor], dict[str, Any] | None]:
    """Run, and give its tensors, or none and what it raised."""
    try:
        return run(), None
    except BaseException as error:  # noqa: BLE001 - SystemExit from a kernel is its error, not ours
        kind, text = kind_of(error), told(error)
        return [], {"kind": kind, "message": f"{kind}: {text}".strip()[:_MAXIMUM_TEXT]}
