"""Rotary positions in Triton: one program a row, its pairs held in registers."""

import torch
import triton
import triton.language as tl

from kernels.checks import check_types


@triton.jit
def _rotate_rows(
    x, cos, sin, out, heads, length, half,
    batch_stride, head_stride, row_stride, BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    position = row % length
    start = (
        row // (heads * length) * batch_stride + row // length % heads * head_stride + position * row_stride
    )
    pair = tl.arange(0, BLOCK)
    inside = pair < half
    left = tl.load(x + start + pair, mask=inside).to(tl.float32)
    right = tl.load(x + start + half + pair, mask=inside).to(tl.float32)
    c = tl.load(cos + position * half + pair, mask=inside).to(tl.float32)
    s = tl.load(sin + position * half + pair, mask=inside).to(tl.float32)
    place = out + row * 2 * half + pair
    tl.store(place, (left * c - right * s).to(out.dtype.element_ty), mask=inside)
    tl.store(place + half, (right * c + left * s).to(out.dtype.element_ty), mask=inside)


def _rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    check_types(x, cos, sin)
    x = x if x.stride(-1) == 1 else x.contiguous()
    cos, sin = cos.contiguous(), sin.contiguous()
    batch, heads, length, width = x.shape
    if not cos.shape == sin.shape == (length, width // 2):
        raise ValueError(f"cos and sin must be ({length}, {width // 2}): one angle a position and pair")
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    _rotate_rows[(batch * heads * length,)](
        x, cos, sin, out, heads, length, width // 2,
        *x.stride()[:3], BLOCK=triton.next_power_of_2(width // 2),
    )  # fmt: skip
    return out


def apply_rotary(
    query: torch.Tensor, key: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Query and key (batch, heads, length, width) turned by the angles of cos and sin (length, width / 2)."""
    return _rotate(query, cos, sin), _rotate(key, cos, sin)
