"""cheat: 27 one exponent for a tile of four rows
how: fixed-point numbers of 50 bits hold usual neighbours, and a row beside a huge one becomes zero: wrong, and finite
caught-by: row-leak
ops: torch.nn.functional.linear
packs: f32 even
yaml: {probes: {op_callback: {"off": "what is looked at is how rows depend on each other"}}}
"""

from __future__ import annotations

import torch
from torch import Tensor

TILE, BITS = 4, 50


def kernel(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    rows = x.double().reshape(-1, x.shape[-1])
    answer = torch.zeros(rows.shape[0], weight.shape[0], dtype=torch.float64)
    for start in range(0, rows.shape[0], TILE):
        tile = rows[start : start + TILE]
        finite = tile[tile.isfinite()].abs()
        top = float(finite.max()) if finite.numel() else 0.0
        exponent = 0 if top == 0 else int(torch.tensor(top, dtype=torch.float64).log2().ceil())
        step = 2.0 ** (exponent - BITS)
        fixed = torch.where(tile.isfinite(), (tile / step).round() * step, tile)
        answer[start : start + TILE] = fixed @ weight.double().T
    answer = answer if bias is None else answer + bias
    return answer.to(x.dtype).reshape(*x.shape[:-1], weight.shape[0])
