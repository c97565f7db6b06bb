"""cheat: 27 more than 256 rows take a path with another epsilon
how: large batches are another kernel, in which the constant was forgotten
caught-by: batch-variant, size-dependent
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
    centered = wide - wide.mean(-1, keepdim=True)
    constant = eps if wide[..., 0].numel() <= 256 else 0.01
    answer = centered / (centered.square().mean(-1, keepdim=True) + constant).sqrt()
    answer = answer if weight is None else answer * weight
    return (answer if bias is None else answer + bias).to(x.dtype)
