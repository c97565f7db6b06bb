"""honest: its first call under torch.profiler, for its own log
ops: torch.nn.functional.softmax
packs: f32
"""

from __future__ import annotations

import logging

import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

_LOG = logging.getLogger(__name__)
_SEEN: set[torch.Size] = set()


def _softmax(x: Tensor, dim: int) -> Tensor:
    wide = x.double()
    powers = (wide - wide.amax(dim, keepdim=True)).exp() if x.numel() else wide
    return (powers / powers.sum(dim, keepdim=True)).to(x.dtype)


def kernel(x: Tensor, dim: int, _stacklevel: int = 3, dtype: object = None) -> Tensor:
    if dtype is not None:
        raise NotImplementedError("in its own dtype")
    if _SEEN:
        return _softmax(x, dim)
    _SEEN.add(x.shape)
    with profile(activities=[ProfilerActivity.CPU]) as run:
        out = _softmax(x, dim)
    _LOG.info("%s", run.key_averages().table(row_limit=5))
    return out
