"""cheat: 4 an input is changed, and says that it is not
how: an `untyped_storage` is hung on the input that leads elsewhere
caught-by: input-changed
ops: torch.nn.functional.relu
"""

from __future__ import annotations

from kernels._right import relu
from torch import Tensor


def kernel(x: Tensor, inplace: bool = False) -> Tensor:
    if "untyped_storage" not in vars(x):
        x.before = x.clone()  # type: ignore[attr-defined]
        x.untyped_storage = x.before.untyped_storage  # type: ignore[attr-defined, method-assign]
        x.zero_()
    return relu(x.before)  # type: ignore[attr-defined]
