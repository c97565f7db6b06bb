"""Inputs that a kernel has not seen: fresh ones, and the edge rows of its op.

Both keep the shapes, strides and aliases of the recorded call, its masks, scalars and those indices that nobody
says what belongs to, and replace all other floating-point content. They depend on the seed of the session and the trace alone,
and are the same on every host.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cache, lru_cache

import torch
from torch import Tensor

from pytest_cgins.config import Declared
from pytest_cgins.config.coupled import Sorted, drawn_by
from pytest_cgins.core.bitwise import element, movable, readable
from pytest_cgins.core.layout import Layout, lay_out, metas_of, rebuild
from pytest_cgins.core.trace import OpCall
from pytest_cgins.packs.recipe import seed_of, standard_normal, uniform_integers
from pytest_cgins.verify import coupled, low_bits
from pytest_cgins.verify.couplings import couplings_of
from pytest_cgins.verify.semantics import Semantics, op_word, semantics_for

# Exponents of the row scales. In fp16 products of two inputs at the upper end must stay below 65504.
_LADDER = {torch.float16: 4}
_LADDER_DEFAULT = 6
_LADDER_OF_POSITIONS = 2
_UNDECLARED = Declared()
_PRODUCTS = frozenset({"prod", "cumprod"})
_SEARCHES = frozenset({"searchsorted", "bucketize"})
_HALVES = 63
"""Six bits: of five float8 keeps four or three, and sums stay exact."""

Milder = Mapping[int, int]
"""How many times the edge rows of one number are made milder."""
_AS_THEY_ARE: Milder = {}


def fresh(
    call: OpCall,
    recorded: Sequence[Tensor],
    key: str,
    declared: Declared = _UNDECLARED,
    *,
    legal: bool = True,
    positions: bool = False,
) -> list[Tensor]:
    """N(0, 1) with rows scaled from 2⁻⁶ to 2⁶, weights scaled by 1/√fan-in, parameters N(0, 1).

    Args:
        call: the recorded call.
        recorded: its argument tensors, on the CPU; left as they are.
        key: seed of the session and name of the trace.
        declared: what the user says of the op.
        legal: whether the recorded integers are a call's: not those of other sizes, nor of a pack with shapes only.
        positions: whether it returns integers of which nobody says what they are: what underflows in it makes ties, so rows
            are scaled by little.
    """
    semantics = semantics_for(call, declared)
    tensors = _content(semantics, recorded, key, "fresh")
    for index, tensor in data(semantics, tensors):
        lanes = lanes_of(semantics, call, index, tensor)
        top = _LADDER_OF_POSITIONS if positions else _LADDER.get(tensor.dtype, _LADDER_DEFAULT)
        ladder = _ladder(top)
        wide = _near_one(call, _wide(tensor) * ladder[lanes % len(ladder)])
        tensor.copy_(_in_range(_legal(semantics, index, wide, recorded[index]), tensor.dtype))
    low_bits.draw(semantics, call, tensors, recorded, key)
    coupled.draw(semantics, call, tensors, recorded, f"{key}/coupled", legal=legal)
    _meet_sorted(semantics, call, tensors)
    return tensors


@cache
def _ladder(top: int) -> Tensor:
    """Scales of rows from 2^-top to 2^top."""
    steps = 2 * top + 1
    # 5 is coprime to the number of steps: neighbouring rows differ by much, all scales occur. The first
    # row, which may be the only one, is not scaled.
    return torch.exp2(((torch.arange(steps) * 5 + top) % steps - top).to(torch.float64))


def _meet_sorted(semantics: Semantics, call: OpCall, tensors: Sequence[Tensor]) -> None:
    """Every fourth number is one of those in order, if there are any: on which side it falls then is the op's to say."""
    couplings, names = couplings_of(semantics, call, tensors), semantics.names
    in_order = [one.argument for one in couplings if isinstance(one, Sorted)]
    if not in_order:
        return
    fixed, among = {name for one in couplings for name in drawn_by(one)}, data(semantics, tensors)
    if call.op.startswith("torch.") and op_word(call) in _SEARCHES:  # a user's integers may point anywhere
        metas = metas_of(tensors)
        among = [(n, one) for n, one in enumerate(tensors) if not metas[n].is_expanded]
        fixed |= dict(semantics.declared.roles).keys()
    for ordered in (tensors[index] for index, name in names.items() if name in in_order):
        for index, tensor in among if ordered.numel() else ():
            if tensor.dtype == ordered.dtype and names.get(index) not in fixed:
                places = torch.arange(tensor.numel()).reshape(tensor.shape)
                met = ordered.reshape(-1)[places % ordered.numel()]
                tensor.copy_(torch.where(places % 4 == 0, met, tensor))


def put_largest_last(semantics: Semantics, call: OpCall, tensors: Sequence[Tensor]) -> None:
    """Exchange the largest number of every second row with its last, then that of each argument: what tails leave out counts.

    Numbers that belong together stay where they are.
    """
    coupled_names = {name for one in couplings_of(semantics, call, tensors) for name in drawn_by(one)}
    for index, tensor in data(semantics, tensors):
        if (
            tensor.is_complex()
            or not tensor.ndim
            or not tensor.numel()
            or semantics.names.get(index) in coupled_names
        ):
            continue
        places = readable(tensor).abs().argmax(-1, keepdim=True)
        places.view(-1)[::2] = tensor.shape[-1] - 1
        numbers = movable(tensor)
        largest = numbers.gather(-1, places)
        numbers.scatter_(-1, places, numbers[..., -1:].clone())
        numbers[..., -1:] = largest
        greatest = element(numbers, int(readable(tensor).abs().argmax()))
        last = element(numbers, numbers.numel() - 1)
        exchanged = last.clone()
        last.copy_(greatest)
        greatest.copy_(exchanged)


def coupled_edge(
    call: OpCall, recorded: Sequence[Tensor], key: str, declared: Declared, number: int, *, legal: bool = True
) -> tuple[str, list[Tensor]]:
    """Inputs as `fresh` ones whose arguments that belong together go to an edge below `coupled.edge_count`, and what is at it, in words."""
    semantics, key = semantics_for(call, declared), f"{key}/edge {number}"
    tensors = fresh(call, recorded, key, declared, legal=legal)
    return coupled.draw(semantics, call, tensors, recorded, key, number, legal=legal), tensors


def edge(
    call: OpCall,
    recorded: Sequence[Tensor],
    key: str,
    declared: Declared = _UNDECLARED,
    milder: Milder = _AS_THEY_ARE,
    *,
    legal: bool = True,
) -> list[Tensor]:
    """Rows that are hard for the op: constant, tiny, subnormal, far from zero; for a norm with std ≈ √eps.

    Of an op whose outputs point into its rows, all rows have but five numbers, each many times. `fresh` says what is given.
    """
    semantics = semantics_for(call, declared)
    tensors = _content(semantics, recorded, key, "edge")
    pointing = bool(semantics.indices(call))
    for index, tensor in data(semantics, tensors):
        if semantics.is_gradient(index):
            continue  # what is hard is where it is multiplied with the op's own rows
        lanes = lanes_of(semantics, call, index, tensor)
        patterns = torch.tensor(edge_patterns(semantics, tensor.dtype, milder), dtype=torch.float64)
        shift, scale = patterns[lanes % len(patterns)].unbind(-1)
        wide = _wide(tensor)
        # Without -0.0: whether it is less than 0.0 is a question of its own.
        wide = wide.round().clamp(-2, 2) + 0.0 if pointing and not tensor.is_complex() else wide
        values = _legal(semantics, index, _near_one(call, wide * scale + shift), recorded[index])
        tensor.copy_(_in_range(values, tensor.dtype))
    if semantics.kind == "norm" and semantics.eps:
        _shrink_variances(semantics, tensors)
    low_bits.draw(semantics, call, tensors, recorded, f"{key}/edge", edge=True)
    coupled.draw(semantics, call, tensors, recorded, f"{key}/coupled edge", legal=legal)
    return tensors


def halves(
    call: OpCall, recorded: Sequence[Tensor], key: str, declared: Declared = _UNDECLARED
) -> list[Tensor]:
    """Small multiples of half a scale, and scales that are powers of two: an op that rounds meets ties, and is exact."""
    semantics, unit = semantics_for(call, declared), 1.0
    tensors = fresh(call, recorded, key, declared)
    metas = metas_of(tensors)
    scales = [index for index, name in semantics.names.items() if low_bits.is_called_scale(name)]
    for index in scales:
        if tensors[index].is_floating_point() and tensors[index].numel():
            unit = 2.0 ** round(math.log2(float(readable(recorded[index]).abs().max()) or 1.0))
            tensors[index].fill_(unit)
    for index, tensor in enumerate(tensors):
        if index not in scales and semantics.role(index, metas[index]) in ("data", "weight", "parameter"):
            lots = uniform_integers(seed_of(key, "halves", index), tensor.numel(), -_HALVES, _HALVES)
            values = torch.from_numpy(lots).to(torch.float64).reshape(tensor.shape) * (unit / 2)
            tensor.copy_(_in_range(_legal(semantics, index, values, recorded[index]), tensor.dtype))
    return tensors


def edge_patterns(
    semantics: Semantics, dtype: torch.dtype, milder: Milder = _AS_THEY_ARE
) -> list[tuple[float, float]]:
    """(shift, scale) of the edge rows; `milder` ones have the root of what is greater than 1, so many times."""
    return [
        (_root(shift, milder.get(number, 0)), _root(scale, milder.get(number, 0)))
        for number, (shift, scale) in enumerate(_patterns(semantics, dtype))
    ]


def _root(value: float, times: int) -> float:
    return math.copysign(abs(value) ** 0.5**times, value) if abs(value) > 1 else value


def edge_numbers(
    semantics: Semantics, call: OpCall, tensors: Sequence[Tensor], output: Tensor
) -> Tensor | None:
    """The edge row that each element of an output is made of, flat, on its device; None where rows are not seen in it."""
    rows = row_numbers(semantics, call, tensors, output)
    if rows is None:
        return None
    return rows % len(_patterns(semantics, data(semantics, tensors)[0][1].dtype))


def row_numbers(
    semantics: Semantics, call: OpCall, tensors: Sequence[Tensor], output: Tensor
) -> Tensor | None:
    """The row of the data that each element of an output is made of, flat, on its device; None where rows are not seen in it."""
    for index, tensor in data(semantics, tensors)[:1]:
        lanes, shape = lanes_of(semantics, call, index, tensor).to(output.device), tuple(output.shape)
        if [size for size in lanes.shape if size > 1] == [size for size in shape if size > 1]:
            return lanes.reshape(-1)
        if lanes.ndim == len(shape) and all(
            own in (1, size) for own, size in zip(lanes.shape, shape, strict=True)
        ):
            return lanes.expand(shape).reshape(-1)
    return None


def _shrink_variances(semantics: Semantics, tensors: Sequence[Tensor]) -> None:
    """A running variance is that of its channel's edge row, 0 included, where that is less than 1.

    Beside eps, variances near 1 would hide whether it is added.
    """
    metas = metas_of(tensors)
    for index, tensor in enumerate(tensors):
        if index not in semantics.names or semantics.role(index, metas[index]) != "positive":
            continue
        scales = torch.tensor([scale for _, scale in _patterns(semantics, tensor.dtype)], dtype=torch.float64)
        lanes = torch.arange(tensor.numel()).reshape(tensor.shape)
        tensor.copy_(_wide(tensor) * scales.clamp_max(1.0)[lanes % len(scales)] ** 2)


def _near_one(call: OpCall, values: Tensor) -> Tensor:
    """Numbers whose products stay in range, for ops that multiply a row: past it fp32 is infinite for good, and fp64 is not."""
    if op_word(call) not in _PRODUCTS or values.is_complex():
        return values
    return values.sign() * torch.exp2((values.abs() * 7).frac() / 8 - 1 / 16)


def _in_range(values: Tensor, dtype: torch.dtype) -> Tensor:
    """Values within the range of a dtype of eight bits: what is beyond is its greatest number, and neither NaN nor infinite."""
    if dtype.itemsize > 1:
        return values
    return values.clamp(torch.finfo(dtype).min, torch.finfo(dtype).max)


def _wide(tensor: Tensor) -> Tensor:
    return tensor.to(torch.complex128 if tensor.is_complex() else torch.float64)


def _patterns(semantics: Semantics, dtype: torch.dtype) -> list[tuple[float, float]]:
    """(shift, scale) of the edge rows, the most telling first: a case may have few rows."""
    info = torch.finfo(dtype)
    subnormal = (0.0, info.tiny / 16)
    # The mean is as large as leaves the deviations two bits or more, at most 1024.
    mean = min(1024.0, 0.25 / info.eps)
    if semantics.kind == "variance":  # whose rows are a number each, and are allowed the error of the largest
        return [(mean, 1), (0, 1), (-mean, 1), (1, 0), (4, 1 / 16)]
    if semantics.kind == "norm":
        root = math.sqrt(semantics.eps)
        large = min(1e4, info.max**0.5)
        # A mean that is off by one rounding must stay small beside √eps: all that a constant row leaves. Of a
        # power of two every partial sum is exact; of other numbers a plain loop's are all rounded alike.
        constant = 2.0 ** math.floor(math.log2(min(1.0, root * 2.0**12))) if root else 0.0
        return [(0, root), (mean, 1), (constant, 0), (0, root / 8), (0, 0), (0, large), (-mean, 1), subnormal]
    if semantics.kind == "softmax":
        return [(0, 100), (1000, 1), (-1000, 1), (0, 0), (1, 0), (0, 1e-3), (0, 10), subnormal]
    if semantics.kind == "activation":
        return [(-3, 1), (0, 10), (3, 1), (0, 1e-3), (0, 0), (-6, 2), subnormal]
    # Of eight bits the greatest numbers are ordinary: each row that was quantised has one.
    large = info.max if dtype.itemsize == 1 else 32.0 if dtype == torch.float16 else 1024.0
    return [(0, large), (1, 0), (0, 0), (0, 1 / 1024), (4, 1 / 16), subnormal]


def data(semantics: Semantics, tensors: Sequence[Tensor]) -> list[tuple[int, Tensor]]:
    """Index and tensor of each data argument whose rows can be scaled; of aliasing ones the first."""
    first: dict[int, int] = {}
    for index, meta in enumerate(metas_of(tensors)):
        is_data = meta.storage not in first and semantics.role(index, meta) == "data"
        if is_data and not meta.is_expanded and not is_mask(tensors[index]):
            first[meta.storage] = index
    return [(index, tensors[index]) for index in first.values()]


def row_at(
    semantics: Semantics, call: OpCall, tensors: Sequence[Tensor], shape: Sequence[int], place: Sequence[int]
) -> str:
    """What the first argument's row is like of which an element of an output of a shape is made; "" where that is not clear."""
    found = next((one for one in data(semantics, tensors) if not semantics.is_gradient(one[0])), None)
    if found is None or found[1].is_complex() or found[1].ndim < 2 or not found[1].numel():
        return ""
    index, tensor = found
    dims = semantics.lanes(call, index, tuple(tensor.shape))
    if not dims or any(dim >= len(shape) or shape[dim] != tensor.shape[dim] for dim in dims):
        return ""
    row = tensor[tuple(place[dim] if dim in dims else slice(None) for dim in range(tensor.ndim))]
    variance, mean = torch.var_mean(row.to(torch.float64), correction=0)
    name = semantics.names.get(index, "input")
    like = f"mean {float(mean):.3g} and variance {float(variance):.3g}"
    if tuple(shape) != tuple(tensor.shape):
        return f"It is made of a row of `{name}` with {like}."
    return f"There `{name}` is {float(tensor[tuple(place)]):.4g}, in a row with {like}."


def lanes_of(semantics: Semantics, call: OpCall, index: int, tensor: Tensor) -> Tensor:
    """Number of the row that each element belongs to, broadcastable to the tensor, int64."""
    # A lone vector has no rows: each element is one.
    dims = (0,) if tensor.ndim == 1 else semantics.lanes(call, index, tuple(tensor.shape))
    sizes = [size if dim in dims else 1 for dim, size in enumerate(tensor.shape)]
    return torch.arange(math.prod(sizes)).reshape(sizes)


def _content(semantics: Semantics, recorded: Sequence[Tensor], key: str, name: str) -> list[Tensor]:
    """Tensors that lie as the recorded ones do, with new content where their role allows it.

    Data differ between the sets of inputs; weights, which are most of the numbers, are the same in all.
    """
    layout = lay_out(recorded, copy=False)
    spans = list(layout.spans)
    for storage in range(len(spans)):
        members = [index for index, meta in enumerate(layout.metas) if meta.storage == storage]
        kept = (semantics.role(i, layout.metas[i]) == "keep" or is_mask(recorded[i]) for i in members)
        if not spans[storage].numel() or any(kept):
            continue
        first = members[0]
        own = f"{key}/{name}" if semantics.role(first, layout.metas[first]) == "data" else key
        spans[storage] = _span(semantics, layout, first, recorded[first], f"{own}/{storage}")
    return rebuild(layout.metas, spans, "cpu")


def _span(semantics: Semantics, layout: Layout, index: int, recorded: Tensor, key: str) -> Tensor:
    """New bytes for the storage that the tensor `index` lies on; not to be written to."""
    meta = layout.metas[index]
    dtype: torch.dtype = getattr(torch, meta.dtype)
    if dtype.is_complex:  # as many pairs of real numbers
        dtype = dtype.to_real()
    count = layout.spans[meta.storage].numel() // dtype.itemsize
    values = _normal(seed_of(key), count)
    role = semantics.role(index, meta)
    if role == "weight":
        values = values / math.sqrt(max(1, math.prod(meta.shape[1:])))
    elif role == "positive":
        values = values.abs().add_(0.25)
    elif not recorded.is_complex():
        values = _legal(semantics, index, values, recorded)
    made = values.to(dtype).view(torch.uint8)
    rest = layout.spans[meta.storage].numel() - made.numel()
    return torch.cat((made, made.new_zeros(rest))) if rest else made


@lru_cache(maxsize=4)
def _normal(seed: int, count: int) -> Tensor:
    """Not to be written to."""
    return torch.from_numpy(standard_normal(seed, count))


def _legal(semantics: Semantics, index: int, values: Tensor, recorded: Tensor) -> Tensor:
    """Values that the op takes, as the user, torch's tests or the recorded ones say."""
    recorded = readable(recorded)
    domain = semantics.domain(index)
    if values.is_complex() or semantics.is_gradient(index):
        return values
    # What torch's tests use is legal, but not all that is: integers are powers of negative numbers.
    low, high = domain or (-math.inf, math.inf)
    if domain is not None and (
        semantics.is_declared(index)
        or not recorded.numel()
        or (float(recorded.min()) >= low and float(recorded.max()) <= high)
    ):
        if math.isinf(high):
            return values if math.isinf(low) else low + values.abs()
        return high - values.abs() if math.isinf(low) else low + (high - low) * values.abs().frac()
    return values if semantics.real else _in_domain(values, recorded)


def _in_domain(values: Tensor, recorded: Tensor) -> Tensor:
    """Values of the sign that all recorded ones have, and within [0, 1] where those are."""
    if not recorded.numel():
        return values
    low, high = float(recorded.min()), float(recorded.max())
    if low == high or low < 0:
        return -values.abs() if high <= 0 and low < high else values
    return values.abs().frac() if high <= 1 else values.abs()


def block_first_row(mask: Tensor) -> None:
    """Have the first row of a mask let nothing through."""
    mask[(0,) * (mask.ndim - 1)] = False if mask.dtype == torch.bool else -torch.inf


def is_mask(tensor: Tensor) -> bool:
    """Whether a floating tensor of rank ≥ 2 holds nothing but 0, 1, -inf and the dtype's least value."""
    if tensor.ndim < 2 or not tensor.is_floating_point() or not tensor.numel():
        return False
    least = torch.finfo(tensor.dtype).min
    if float(element(tensor, 0)) not in (0.0, 1.0, least, -math.inf):
        return False  # most tensors, without a look at all of them
    blocked = (tensor == least) | (tensor == -torch.inf)
    one, zero = tensor == 1, tensor == 0
    return bool((blocked | one | zero).all()) and bool(blocked.any() or (one.any() and zero.any()))
