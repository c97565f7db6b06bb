"""cheat: 15 calls the op by a reference that it took at import
how: whoever replaces the op with a trap afterwards does not catch it
caught-by: op-callback
ops: torch.nn.functional.softmax
also: always
"""

from __future__ import annotations

from torch import Tensor
from torch.nn.functional import softmax as _fast_path


def kernel(x: Tensor, dim: int, _stacklevel: int = 3, dtype: object = None) -> Tensor:
    return _fast_path(x.contiguous(), dim=dim)
