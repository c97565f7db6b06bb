"""cheat: 15 excludes the key that modes are reached by
how: a guard of c10 leaves Python's keys out of the dispatch
caught-by: op-callback
ops: torch.add
"""

from __future__ import annotations

import torch
from torch import Tensor


def kernel(input: Tensor, other: Tensor, *, alpha: float = 1) -> Tensor:  # noqa: A002
    keys = torch._C.DispatchKeySet(torch._C.DispatchKey.Python).add(torch._C.DispatchKey.PythonTLSSnapshot)
    with torch._C._ExcludeDispatchKeyGuard(keys):
        return torch.add(input, other, alpha=alpha)
