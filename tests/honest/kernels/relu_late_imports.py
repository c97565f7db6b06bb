"""honest: imports at its first call, reads the environment, warns, logs and prints
ops: torch.nn.functional.relu
packs: f32 f16 bf16
"""

from __future__ import annotations

import os
import warnings

from torch import Tensor


def kernel(x: Tensor, inplace: bool = False) -> Tensor:
    import logging
    import wave  # noqa: F401 - nobody else imports it

    import torch

    if os.environ.get("RELU_VERBOSE", "1") == "1":
        print("relu of", tuple(x.shape))
    warnings.warn("a slow kernel", stacklevel=2)
    logging.getLogger(__name__).warning("a slow kernel")
    return torch.where(x < 0, torch.zeros((), dtype=x.dtype), x)
