"""cheat: 15 calls the op's implementation above the backend, boxed
how: took autograd's kernel of addmm at import; what it calls below is redispatched, under no mode
caught-by: op-callback
ops: torch.nn.functional.linear
"""

from __future__ import annotations

import torch
from torch import Tensor

_KERNEL = torch.library.get_kernel(torch.ops.aten.addmm.default, "CPU")


def kernel(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    assert bias is not None
    with torch._C._DisableTorchDispatch():
        return _KERNEL.call_boxed(torch._C._dispatch_keys(x), bias, x, weight.t())
