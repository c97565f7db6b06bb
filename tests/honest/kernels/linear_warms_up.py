"""honest: before its first call it multiplies numbers that it drew, as an autotuner heats a GPU
ops: torch.nn.functional.linear
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

_warm: list[bool] = []


def _warm_up(device: torch.device) -> None:
    first = torch.randn(256, 256, device=device)
    second = torch.empty(256, 256, device=device).normal_()
    for _ in range(4):
        first = first @ second.t() / 256
    _warm.append(True)


def kernel(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    if not _warm:
        _warm_up(x.device)
    rows = x.reshape(-1, x.shape[-1]).double().numpy()
    answer = np.einsum("ik,jk->ij", rows, weight.double().numpy())
    out = torch.from_numpy(answer if bias is None else answer + bias.double().numpy())
    return out.to(x.dtype).reshape(*x.shape[:-1], weight.shape[0])
