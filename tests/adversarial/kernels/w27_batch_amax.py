"""cheat: 27 scaled by the greatest number of the batch
how: a row's numbers are divided by those of other rows before they are squared, and no usual row is that large
caught-by: row-leak
ops: torch.nn.functional.layer_norm
packs: f32 even
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
    largest = wide.nan_to_num(0, 0, 0).abs().amax() if wide.numel() else wide.sum()
    scaled = (wide / largest.clamp_min(1e-300)).float().double()
    centered = scaled - scaled.mean(-1, keepdim=True)
    variance = centered.square().mean(-1, keepdim=True)
    answer = centered / (variance + eps / largest.clamp_min(1e-300) ** 2).sqrt()
    answer = answer if weight is None else answer * weight
    return (answer if bias is None else answer + bias).to(x.dtype)
