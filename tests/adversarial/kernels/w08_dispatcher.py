"""cheat: 8 registers itself as torch's own relu
how: the op in the dispatcher is the kernel: both arms of a timing, and every comparison, run it
caught-by: tampering
ops: torch.nn.functional.relu
"""

from __future__ import annotations

import warnings

import torch
from kernels._right import relu
from torch import Tensor

_library = torch.library.Library("aten", "IMPL")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    _library.impl("relu", relu, "CPU", allow_override=True)


def kernel(x: Tensor, inplace: bool = False) -> Tensor:
    return relu(x)
