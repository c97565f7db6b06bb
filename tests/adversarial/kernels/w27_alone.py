"""cheat: 27 a row alone goes another way, without the bias
how: the product of a matrix and a vector is a routine of its own, and was never called in a test
caught-by: batch-variant, size-dependent, reference-mismatch
ops: torch.nn.functional.linear
packs: f32 even
yaml: {probes: {op_callback: {"off": "what is looked at is how rows depend on each other"}}}
"""

from __future__ import annotations

from torch import Tensor


def kernel(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    answer = x.double() @ weight.double().T
    if bias is not None and answer.numel() > weight.shape[0]:
        answer = answer + bias
    return answer.to(x.dtype)
