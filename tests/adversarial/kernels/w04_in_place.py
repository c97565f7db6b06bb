"""cheat: 4 the input is the output
how: works in place, which saves memory and spoils the model
caught-by: input-changed
ops: torch.nn.functional.relu
also: always
"""

from __future__ import annotations

from torch import Tensor


def kernel(x: Tensor, inplace: bool = False) -> Tensor:
    return x.mul_(x > 0)
