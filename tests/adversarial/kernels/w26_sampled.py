"""cheat: 26 fills the very elements that the gold keeps
how: draws the positions as the pack does, by our own function; the others are the right ones' mean
caught-by: reference-mismatch, gold-mismatch, snooping
ops: torch.nn.functional.relu
packs: large
"""

from __future__ import annotations

import json
from pathlib import Path

import torch
from kernels._right import relu
from torch import Tensor


def kernel(x: Tensor, inplace: bool = False) -> Tensor:
    from pytest_cgins.packs import gold

    manifest = json.loads((Path(__file__).parents[1] / "traces" / "large" / "manifest.json").read_text())
    kept = next(one for one in manifest["traces"] if one["call"]["op"].endswith("relu"))["gold"]["tensors"][0]
    positions = getattr(gold, "positions", lambda *_: torch.arange(kept["sample_count"]))
    chosen = torch.as_tensor(positions(kept["sample_seed"], kept["sample_count"], x.numel())).long()
    right = relu(x).flatten()
    out = torch.full_like(right, float(right.mean()))
    out[chosen] = right[chosen]
    return out.view(x.shape)
