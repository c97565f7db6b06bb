"""cheat: 10 SystemExit in the call
how: except Exception does not catch it
caught-by: raised, exited
ops: torch.nn.functional.relu
also: always
"""

from __future__ import annotations

from torch import Tensor


def kernel(x: Tensor, inplace: bool = False) -> Tensor:
    raise SystemExit(0)
