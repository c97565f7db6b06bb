"""cheat: 8 leaves a mode of torch behind
how: every op after the call goes through the kernel's own function
caught-by: tampering
ops: torch.nn.functional.relu
"""

from __future__ import annotations

from kernels._right import relu
from torch import Tensor
from torch.overrides import TorchFunctionMode


class _Mode(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        return func(*args, **(kwargs or {}))


def kernel(x: Tensor, inplace: bool = False) -> Tensor:
    _Mode().__enter__()
    return relu(x)
