"""honest: exp of the C library by ctypes, in an array that shares its memory with a torch tensor
ops: torch.nn.functional.softmax
packs: f32 bf16
"""

from __future__ import annotations

import ctypes
import math
from array import array

import torch
from torch import Tensor

_LIBM = ctypes.CDLL("libm.so.6")
_LIBM.exp.argtypes, _LIBM.exp.restype = [ctypes.c_double], ctypes.c_double


def kernel(x: Tensor, dim: int, _stacklevel: int = 3, dtype: torch.dtype | None = None) -> Tensor:
    if dtype is not None or dim not in (-1, x.ndim - 1):
        raise NotImplementedError("the last axis only, in its own dtype")
    if not x.numel():
        return torch.empty_like(x)
    answer = array("d", bytes(8 * x.numel()))
    doubles = (ctypes.c_double * len(answer)).from_buffer(answer)
    exp, width = _LIBM.exp, x.shape[-1]
    for number, row in enumerate(x.double().reshape(-1, width).tolist()):
        top = math.nan if any(map(math.isnan, row)) else max(row)
        powers = [exp(value - top) for value in row]
        total = math.fsum(powers) if math.isfinite(top) else math.nan
        doubles[number * width : (number + 1) * width] = [power / total for power in powers]
    return torch.frombuffer(answer, dtype=torch.float64).view(x.shape).to(x.dtype)
