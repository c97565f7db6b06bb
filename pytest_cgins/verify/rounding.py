"""Numbers as arithmetic of fewer significant bits sees them, and an op whose products are made in such arithmetic."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from pytest_cgins.core.layout import Layout
from pytest_cgins.verify.probe_support.dispatch_mode import DispatchMode

TF32_BITS = 10
"""Stored bits of a TF32 fraction; 11 are significant."""
BF16_BITS = 7
"""Stored mantissa bits of bf16; 8 are significant."""
_INTEGERS = {torch.float32: torch.int32, torch.float64: torch.int64}
_MOST_STEPS = 1 << 27
"""Products that are added up one by one; more would take longer than a second or two."""


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
            numbers = spans[storage][:whole].view(torch.float32)
            spans[storage] = fewer_bits(numbers, bits, cut=cut).view(torch.uint8)
    return Layout(inputs.metas, spans)


def fewer_bits(numbers: Tensor, bits: int, *, cut: bool = False) -> Tensor:
    """Numbers of fp32 or fp64 with the last bits of the fraction 0; infinities and NaN stay."""
    patterns = numbers.contiguous().view(_INTEGERS[numbers.dtype])
    stored = 23 if numbers.dtype == torch.float32 else 52
    exponent = (1 << (numbers.element_size() * 8 - 1)) - (1 << stored)
    dropped = stored - bits
    finite = (patterns & exponent) != exponent
    moved = patterns if cut else patterns + (1 << (dropped - 1))
    return torch.where(finite, moved & -(1 << dropped), patterns).view(numbers.dtype)


@dataclass(frozen=True, slots=True, kw_only=True)
class Arithmetic:
    """How products are made."""

    operand: Callable[[Tensor], Tensor] | None = None
    """What becomes of both factors of a product, in fp64; None leaves them as they are."""
    total: torch.dtype | None = None
    """What each partial sum is rounded to, from the first product to the last; None: not before the end."""
    begins_with_bias: bool = False
    """Whether what is added to a product is the first of these sums, or comes last."""


class Products(DispatchMode):  # type: ignore[no-untyped-call]
    """Has the products of an op made in another arithmetic; the op runs in fp64."""

    def __init__(self, arithmetic: Arithmetic) -> None:
        super().__init__()
        self._arithmetic = arithmetic
        self.made = False
        """Whether there was a product that could be."""

    def dispatch(self, func: Any, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """See `DispatchMode`."""
        name = func.__name__.partition(".")[0]
        if name not in _FACTORS:
            return func(*args, **named)
        place, given, how = _FACTORS[name], list(args), self._arithmetic
        factors = [given[index] for index in place]
        if how.operand is not None:
            self.made = True
            for index in place:
                given[index] = how.operand(given[index])
        elif (
            how.total is not None
            and name != "convolution"
            and not named
            and len(args) == len(place) + place[0]
        ):
            rows, columns = factors
            if rows.numel() * columns.shape[-1] <= _MOST_STEPS:
                self.made = True
                return _one_by_one(rows, columns, args[0] if place[0] else None, how)
        return func(*given, **named)


_FACTORS = {"mm": (0, 1), "bmm": (0, 1), "addmm": (1, 2), "baddbmm": (1, 2), "convolution": (0, 1)}
"""Operators that torch's products become, and which of their arguments are multiplied."""


def _one_by_one(rows: Tensor, columns: Tensor, bias: Tensor | None, how: Arithmetic) -> Tensor:
    """A product whose every partial sum is rounded, in the order in which a plain loop adds up."""
    assert how.total is not None
    total = torch.zeros((*rows.shape[:-1], columns.shape[-1]), dtype=rows.dtype, device=rows.device)
    if bias is not None and how.begins_with_bias:
        total = total + bias
    for k in range(rows.shape[-1]):
        total = (total + rows[..., k, None] * columns[..., k, None, :]).to(how.total).to(rows.dtype)
    return total + bias if bias is not None and not how.begins_with_bias else total
