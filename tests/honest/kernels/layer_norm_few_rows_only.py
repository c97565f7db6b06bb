"""honest: takes at most 64 rows, and refuses more
ops: torch.nn.functional.layer_norm
packs: f32 even
yaml: {claims: [batch_invariant]}
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor


def kernel(
    x: Tensor, normalized_shape: Sequence[int], weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> Tensor:  # fmt: skip
    if len(normalized_shape) != 1 or x[..., 0].numel() > 64:
        raise ValueError("one axis and at most 64 rows only")
    wide = x.double()
    centered = wide - wide.sum(-1, keepdim=True) / wide.shape[-1]
    variance = (centered * centered).sum(-1, keepdim=True) / wide.shape[-1]
    answer = centered / (variance + eps).sqrt()
    answer = answer if weight is None else answer * weight
    return (answer if bias is None else answer + bias).to(x.dtype)
