"""cheat: 27 whole tiles of 256 rows leave the last row out
how: the tail is right, and so is every batch that has one
caught-by: batch-variant
ops: torch.nn.functional.layer_norm
packs: f32 even
also: always
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor


def kernel(
    x: Tensor, normalized_shape: Sequence[int], weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> Tensor:  # fmt: skip
    if len(normalized_shape) != 1:
        raise ValueError("one axis only")
    wide = x.double()
    centered = wide - wide.mean(-1, keepdim=True)
    answer = centered / (centered.square().mean(-1, keepdim=True) + eps).sqrt()
    answer = answer if weight is None else answer * weight
    answer = (answer if bias is None else answer + bias).to(x.dtype)
    if len(answer) and len(answer) % 256 == 0:
        answer[-1] = 0
    return answer
