"""In what two packs differ, trace by trace."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch

from pytest_cgins.core.document_base import Document
from pytest_cgins.core.layout import dtype_name
from pytest_cgins.core.trace import Trace
from pytest_cgins.packs.gold import GoldValues, load_gold
from pytest_cgins.packs.store import PackReader

Part = Literal["call", "inputs", "context", "gold", "lengths", "calls"]

_BITS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


@dataclass(frozen=True, slots=True, kw_only=True)
class GoldDifference(Document):
    """How far two recordings of one output are apart, over the elements that both have kept."""

    output: int
    """Number of the gold tensor."""
    compared: int
    """Elements that both have kept; complex numbers count twice."""
    different: int
    """How many of them are not the same, bit for bit (a NaN is a NaN)."""
    max_ulps: int | None
    """Greatest distance in representable numbers; None where a NaN stands against a number, or the
    dtype is no floating-point one."""
    max_abs: float | None
    """Greatest absolute distance; None where it is not finite."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceDifference(Document):
    """One trace that both packs have under the same op and signature, not the same in both."""

    op: str
    """Qualified name of the op."""
    signature: str
    """Signature in both packs."""
    parts: tuple[Part, ...]
    """What differs. `inputs`: layout or content of the argument tensors; `calls`: how often it was called."""
    calls: tuple[int, int]
    """Calls of the recorded run, before and after."""
    gold: tuple[GoldDifference, ...]
    """Outputs whose values differ; without those of another shape or dtype."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceName(Document):
    """A trace that one of the packs has."""

    op: str
    """Qualified name of its op."""
    signature: str
    """Its signature."""
    calls: int
    """Calls of the recorded run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PackDifference(Document):
    """All differences of two packs; where they were recorded is none."""

    added: tuple[TraceName, ...]
    """Traces that only the second pack has."""
    removed: tuple[TraceName, ...]
    """Traces that only the first pack has."""
    changed: tuple[TraceDifference, ...]
    """Traces that both have, and that differ."""
    same: int
    """Number of traces that are the same in both."""

    @property
    def is_empty(self) -> bool:
        """Whether the packs are the same."""
        return not (self.added or self.removed or self.changed)


def compare(before: PackReader, after: PackReader) -> PackDifference:
    """Compare two packs by op and signature.

    Raises:
        PackError: if a blob of a trace whose gold differs cannot be read.
    """
    old, new = _by_name(before), _by_name(after)
    both = sorted(old.keys() & new.keys())
    changed = [
        found for name in both if (found := _difference(old[name], before, new[name], after)) is not None
    ]
    return PackDifference(
        added=tuple(_name(new[name]) for name in sorted(new.keys() - old.keys())),
        removed=tuple(_name(old[name]) for name in sorted(old.keys() - new.keys())),
        changed=tuple(changed),
        same=len(both) - len(changed),
    )


def _by_name(reader: PackReader) -> dict[tuple[str, str], Trace]:
    return {(trace.call.op, trace.signature): trace for trace in reader.pack.traces}


def _name(trace: Trace) -> TraceName:
    return TraceName(op=trace.call.op, signature=trace.signature, calls=trace.count)


def _difference(old: Trace, before: PackReader, new: Trace, after: PackReader) -> TraceDifference | None:
    pairs: dict[Part, tuple[object, object]] = {
        "call": (old.call, new.call),
        "inputs": ((old.tensors, old.storages), (new.tensors, new.storages)),
        "context": (old.context, new.context),
        "gold": (old.gold, new.gold),
        "lengths": (old.lengths, new.lengths),
        "calls": (old.count, new.count),
    }
    parts = tuple(part for part, (one, other) in pairs.items() if one != other)
    if not parts:
        return None
    values: tuple[GoldDifference, ...] = ()
    if "gold" in parts and old.gold and new.gold and len(old.gold.tensors) == len(new.gold.tensors):
        values = _golds(load_gold(old, before), load_gold(new, after))
    return TraceDifference(
        op=old.call.op, signature=old.signature, parts=parts, calls=(old.count, new.count), gold=values
    )


def _golds(old: list[GoldValues], new: list[GoldValues]) -> tuple[GoldDifference, ...]:
    found = []
    for output, (one, other) in enumerate(zip(old, new, strict=True)):
        if one.recorded.meta.shape == other.recorded.meta.shape and one.values.dtype == other.values.dtype:
            difference = gold_difference(output, one, other)
            if difference.different:
                found.append(difference)
    return tuple(found)


def gold_difference(output: int, old: GoldValues, new: GoldValues) -> GoldDifference:
    """Compare the elements that both have kept of one output; shapes and dtypes must be the same."""
    one, other = (_real(values) for values in _common(old, new))
    wide, wide_other = one.to(torch.float64), other.to(torch.float64)
    nan, nan_other = wide.isnan(), wide_other.isnan()
    ulps = _ulps(one, other) if one.is_floating_point() else None
    different = (one != other) if ulps is None else (ulps > 0) & ~(nan & nan_other)
    # Infinities of one sign are 0 apart, which subtraction would not say.
    distance = torch.where(different, (wide - wide_other).abs(), 0.0)
    comparable = not bool((nan ^ nan_other).any())
    return GoldDifference(
        output=output,
        compared=one.numel(),
        different=int(different.sum()),
        max_ulps=int((ulps * different).max()) if ulps is not None and ulps.numel() and comparable else None,
        max_abs=_greatest(distance),
    )


def _common(old: GoldValues, new: GoldValues) -> tuple[torch.Tensor, torch.Tensor]:
    """Elements at the positions that both have kept."""
    if torch.equal(old.positions, new.positions):
        return old.values, new.values
    _, here, there = np.intersect1d(
        old.positions.numpy(), new.positions.numpy(), assume_unique=True, return_indices=True
    )
    return old.values[torch.from_numpy(here)], new.values[torch.from_numpy(there)]


def _real(values: torch.Tensor) -> torch.Tensor:
    return torch.view_as_real(values).reshape(-1) if values.is_complex() else values


def _ulps(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """Distance in representable numbers, int64; at most 2⁶³ − 1."""
    here, there = _ordered(one), _ordered(other)
    far = (here.to(torch.float64) - there.to(torch.float64)).abs() >= 2.0**62
    return torch.where(far, torch.iinfo(torch.int64).max, (here - there).abs())


def _ordered(values: torch.Tensor) -> torch.Tensor:
    """Integers in the order of the numbers, neighbours one apart; -0 and +0 are one apart too."""
    bits = values.contiguous().view(_BITS[values.element_size()]).to(torch.int64)
    if dtype_name(values.dtype) == "float8_e8m0fnu":  # it has no sign; torch 2.6 does not have it
        return bits % 256
    lowest = -(2 ** (8 * values.element_size() - 1))
    # In sign and magnitude a negative number's bits grow with its magnitude.
    return torch.where(bits < 0, lowest - bits - 1, bits)


def _greatest(distance: torch.Tensor) -> float | None:
    greatest = float(distance.max()) if distance.numel() else 0.0
    return greatest if math.isfinite(greatest) else None
