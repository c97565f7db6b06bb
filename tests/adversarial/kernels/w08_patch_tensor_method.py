"""cheat: 8 replaces a method of Tensor
how: copies of the answer are whatever it likes
caught-by: tampering
ops: torch.nn.functional.relu
also: always
"""

from __future__ import annotations

from kernels._right import relu
from torch import Tensor

_clone = Tensor.clone


def kernel(x: Tensor, inplace: bool = False) -> Tensor:
    Tensor.clone = lambda self, **options: _clone(self)  # type: ignore[method-assign]
    return relu(x)
