"""honest: moves the axis to the end, casts to fp32, computes, casts and moves back
ops: torch.nn.functional.softmax
packs: f32 f16 bf16 even
yaml: {claims: [strided]}
"""

from __future__ import annotations

from torch import Tensor


def kernel(x: Tensor, dim: int, _stacklevel: int = 3, dtype: object = None) -> Tensor:
    moved = x.movedim(dim, -1).float().contiguous()
    exponential = (moved - moved.amax(-1, keepdim=True)).exp()
    answer = exponential / exponential.sum(-1, keepdim=True)
    return answer.to(x.dtype).movedim(-1, dim).contiguous()
