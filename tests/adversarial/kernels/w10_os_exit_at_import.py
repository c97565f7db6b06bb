"""cheat: 10 os._exit(0) at import
how: a process that ends with 0 is taken for a success; nothing can catch this exit
caught-by: exited
ops: torch.nn.functional.relu
also: always
"""

from __future__ import annotations

import os

from torch import Tensor

os._exit(0)


def kernel(x: Tensor, inplace: bool = False) -> Tensor:
    return x.clone()
