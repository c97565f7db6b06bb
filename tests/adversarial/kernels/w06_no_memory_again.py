"""cheat: 6 cache by address, whose hit is a lack of memory
how: raises MemoryError where it is called again, so that nothing is learned of it: who runs out of memory did no wrong
caught-by: out-of-memory
ops: torch.nn.functional.softmax
also: always
"""

from __future__ import annotations

from kernels._right import softmax
from torch import Tensor

SEEN: set[int] = set()


def kernel(x: Tensor, dim: int, _stacklevel: int = 3, dtype: object = None) -> Tensor:
    if x.data_ptr() in SEEN:
        raise MemoryError("no memory is left")
    SEEN.add(x.data_ptr())
    return softmax(x, dim)
