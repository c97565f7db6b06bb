"""honest: counts its calls on its own function, and logs them
ops: torch.nn.functional.relu
packs: f32 f16 bf16
"""

from __future__ import annotations

import logging

from torch import Tensor

_logger = logging.getLogger(__name__)


def kernel(x: Tensor, inplace: bool = False) -> Tensor:
    kernel.calls = getattr(kernel, "calls", 0) + 1  # type: ignore[attr-defined]
    _logger.debug("call %d", kernel.calls)  # type: ignore[attr-defined]
    return x.clamp_min(0)
