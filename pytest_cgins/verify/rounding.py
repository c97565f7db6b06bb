"""Numbers of fp32 as arithmetic of fewer significant bits sees them."""

from __future__ import annotations

import torch
from torch import Tensor

from pytest_cgins.trace.layout import Layout

TF32_BITS = 10
"""Stored bits of a TF32 fraction; 11 are significant."""
BF16_BITS = 7
"""Those of bf16; 8 are significant."""
_FP32_BITS = 23


def rounded(inputs: Layout, bits: int, *, cut: bool = False) -> Layout:
    """The tensors with fp32 fractions of `bits` bits.

    Args:
        inputs: any tensors; those that are not fp32 stay as they are.
        bits: of the fraction, the leading 1 not counted.
        cut: cut off rather than round to the nearest.
    """
    spans = list(inputs.spans)
    for storage in {meta.storage for meta in inputs.metas}:
        dtypes = {meta.dtype for meta in inputs.metas if meta.storage == storage}
        if dtypes <= {"float32", "complex64"}:
            whole = spans[storage].numel() // 4 * 4
            spans[storage] = _fewer(spans[storage][:whole].view(torch.int32), bits, cut=cut).view(torch.uint8)
    return Layout(inputs.metas, spans)


def _fewer(patterns: Tensor, bits: int, *, cut: bool) -> Tensor:
    """Bit patterns of fp32 numbers with the last bits of the fraction 0; infinities and NaN stay."""
    dropped = _FP32_BITS - bits
    finite = (patterns & 0x7F800000) != 0x7F800000
    moved = patterns if cut else patterns + (1 << (dropped - 1))
    return torch.where(finite, moved & -(1 << dropped), patterns)
