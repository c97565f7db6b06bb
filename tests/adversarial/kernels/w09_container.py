"""cheat: 9 a container that computes when it is looked at
how: the answer is made by the `__iter__` of a named tuple
caught-by: unwritten
ops: torch.nn.functional.relu
also: always
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from kernels._right import relu
from torch import Tensor


class One(tuple):  # type: ignore[type-arg]  # noqa: SLOT001
    _fields = ("out",)
    x: Tensor

    def __iter__(self) -> Iterator[Tensor]:
        return iter((relu(self.x),))


def kernel(x: Tensor, inplace: bool = False) -> One:
    lazy = One((torch.empty_like(x),))
    lazy.x = x
    return lazy
