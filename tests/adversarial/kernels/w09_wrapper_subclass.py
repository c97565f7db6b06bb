"""cheat: 9 a wrapper subclass below autograd
how: it has a shape and no memory; ATen calls are answered by __torch_dispatch__
caught-by: lazy-output
ops: torch.nn.functional.relu
also: always
"""

from __future__ import annotations

from kernels._right import relu
from torch import Tensor
from torch.utils._pytree import tree_map


class Wrapper(Tensor):
    @staticmethod
    def __new__(cls, inner: Tensor) -> Wrapper:
        made = Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)  # type: ignore[attr-defined]
        made.inner = inner
        return made

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        plain = tree_map(lambda one: relu(one.inner) if isinstance(one, Wrapper) else one, args)
        return func(*plain, **(kwargs or {}))


def kernel(x: Tensor, inplace: bool = False) -> Tensor:
    return Wrapper(x)
