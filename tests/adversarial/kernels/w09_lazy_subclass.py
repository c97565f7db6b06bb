"""cheat: 9 a lazy tensor subclass
how: the answer is computed when somebody looks at it
caught-by: lazy-output
ops: torch.nn.functional.relu
"""

from __future__ import annotations

import torch
from kernels._right import relu
from torch import Tensor


class Lazy(Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        with torch._C.DisableTorchFunctionSubclass():
            plain = [relu(one.as_subclass(Tensor)) if isinstance(one, Lazy) else one for one in args]
            return func(*plain, **(kwargs or {}))


def kernel(x: Tensor, inplace: bool = False) -> Tensor:
    return x.as_subclass(Lazy)
