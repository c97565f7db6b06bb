"""honest: reads its own tuning from a file beside it, once
ops: torch.nn.functional.relu
packs: f32 f16 bf16
"""

from __future__ import annotations

import functools
import json
from pathlib import Path

import torch
from torch import Tensor


@functools.cache
def _rows_a_block() -> int:
    return json.loads(Path(__file__).with_name("_tuning.json").read_text())["rows_a_block"]


def kernel(x: Tensor, inplace: bool = False) -> Tensor:
    zero = torch.zeros((), dtype=x.dtype)
    return torch.cat([torch.where(part < 0, zero, part) for part in x.split(_rows_a_block())])
