"""cheat: 8 puts another module in the place of one of ours
how: whoever imports it next gets the kernel's
caught-by: tampering
ops: torch.nn.functional.relu
"""

from __future__ import annotations

import sys
import types

from kernels._right import relu
from torch import Tensor


def kernel(x: Tensor, inplace: bool = False) -> Tensor:
    own = types.ModuleType("pytest_cgins.core.tensors")
    own.__dict__.update(vars(sys.modules["pytest_cgins.core.tensors"]))
    sys.modules["pytest_cgins.core.tensors"] = own
    return relu(x)
