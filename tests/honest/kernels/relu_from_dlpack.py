"""honest: numpy's answer by DLPack, in memory that numpy holds
ops: torch.nn.functional.relu
packs: f32
also: always
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor


def kernel(x: Tensor, inplace: bool = False) -> Tensor:
    numbers = np.from_dlpack(x)
    return torch.from_dlpack(np.where(numbers < 0, np.float32(0), numbers))
