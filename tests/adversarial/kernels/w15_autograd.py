"""cheat: 15 gets the op from autograd
how: the gradient of logsumexp is the softmax, and is computed by torch
caught-by: op-callback
ops: torch.nn.functional.softmax
"""

from __future__ import annotations

import torch
from torch import Tensor


def kernel(x: Tensor, dim: int, _stacklevel: int = 3, dtype: object = None) -> Tensor:
    with torch.enable_grad():
        leaf = x.detach().clone().requires_grad_()
        return torch.autograd.grad(
            torch.log_softmax(leaf, dim).logsumexp(dim).sum() + leaf.logsumexp(dim).sum(), leaf
        )[0]
