"""Outputs that are real numbers rounded to a coarse grid: float8, int8, uint8.

Two right kernels may put such a number on either side of a rounding boundary, and the answers then differ by a
whole step of the grid: 6 to 12% in `float8_e4m3fn`. A tolerance as wide as a step would also let truncation pass. So the
number is judged by what it was before it was rounded. With v the op's fp64 reference before the last cast, Q the op's
own rounding, T the unit of error of v by the derived rule (`tolerance`) and C, c its limits, an answer y passes iff

    Q(v − C·T) ≤ y ≤ Q(v + C·T),    |y − Q(v)| ≤ 1 step,    and    #{y ≠ Q(v)} ≤ n + 3·√n + 1.

The first line says that an element is off only if an error that a right kernel may make carries v over the boundary.
n is the number of elements within c·rms(z_t)·T of a boundary, those that a typical error can carry over: for v spread
evenly over steps of length s a kernel that errs by σ moves 2·|error|/s of its numbers, and n/N is 2·c·σ/s. 3·√n is the
spread of such a count. One step is widened to what torch's own answer is off.

Whether an output is of this kind is not asked but tried: the op runs once more with its last rounding left out, and
only if rounding what that gives is torch's own answer, element by element, is the output such a one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import itemgetter
from typing import Any

import torch
from torch import Tensor

from pytest_cgins.core.bitwise import E8M0, countable, movable, readable
from pytest_cgins.core.layout import Layout
from pytest_cgins.core.text import counted
from pytest_cgins.core.trace import Context, OpCall
from pytest_cgins.verify import low_bits
from pytest_cgins.verify import tolerance as rules
from pytest_cgins.verify.locate import number, position
from pytest_cgins.verify.reference import Answers, KeepWide, answers, wider

GRIDS = frozenset({torch.float8_e4m3fn, torch.float8_e5m2, torch.int8, torch.uint8})
"""Dtypes that real numbers are quantised to."""
_LEAVES_EXACT = {
    "add", "alias", "cat", "clamp", "clamp_max", "clamp_min", "clone", "detach", "expand", "maximum", "minimum", "permute",
    "reshape", "select", "slice", "stack", "squeeze", "sub", "t", "transpose", "unsqueeze", "_unsafe_view", "view", "where",
}  # fmt: skip
"""Operators between rounding and cast: limits, zero points, other layouts. What was not rounded passes them likewise."""
_ARITHMETIC = frozenset({"add", "clamp", "clamp_max", "clamp_min", "maximum", "minimum", "sub", "where"})
_BEFORE_PACKING = (torch.int16, torch.int32)
"""Dtypes of rounded numbers on their way into bytes."""
_SHIFTS = frozenset({"__lshift", "bitwise_left_shift"})
_POWERS = tuple(2**bits for bits in range(9))
_Parts = tuple[tuple[int, Tensor], ...]
_TIE = 2.0**-21
"""Relative distance from a boundary at which it may be a tie; they are broken before a zero point is added, or after."""
_SPREAD = 3.0
"""Standard deviations by which a count may exceed what is expected."""


class KeepExact(KeepWide):  # type: ignore[no-untyped-call]
    """Leaves out the last rounding of a number: casts to a coarse grid, and `round` before them.

    Args:
        dtype: to which casts to narrower dtypes are turned; None leaves those to other dtypes as they are.
    """

    def __init__(self, dtype: torch.dtype | None) -> None:
        super().__init__(dtype)
        # By id, with the tensor itself: an id is free again once its tensor is.
        self._exact: dict[int, tuple[Tensor, Tensor]] = {}
        # Integers that one number or several were rounded to: those numbers, and the bits by which each is shifted.
        self._parts: dict[int, tuple[Tensor, _Parts]] = {}

    def dispatch(self, func: Any, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """See `DispatchMode`."""
        name = func.overloadpacket.__name__
        plain = name.rstrip("_")
        if low_bits.rounds_to(func, args, named) in GRIDS and self._dtype is None:
            return low_bits.unrounded(func, args, named)
        if plain == "copy" and args[0].is_floating_point():  # into a buffer that `grids` made wide
            return func(args[0], self._exact_of(args[1]), *args[2:], **named)
        if args and (parts := self._packed(func, plain, args, named)):
            return self._as_integers(parts)
        rounds_to_wide = named.get("dtype") in _BEFORE_PACKING and id(args[0]) in self._exact
        if named.get("dtype") in (*GRIDS, E8M0) or rounds_to_wide:
            if plain != "_to_copy":  # memory that is filled later
                return func(*args, **{**named, "dtype": self._dtype or torch.float32})
            if args[0].is_floating_point():
                exact = self._exact_of(args[0])
                wide = func(exact, **{**named, "dtype": self._dtype or exact.dtype})
                return self._as_integers(((0, wide),))
        if plain in ("round", "trunc", "floor", "ceil") and "decimals" not in named:
            exact = self._exact_of(args[0]).clone()
        elif (plain in _LEAVES_EXACT or _is_cast_to_real(plain, named)) and self._has_exact((args, named)):
            given = self._replaced(args)
            if plain in ("add", "sub") and self._has_exact(args[0]) and self._has_exact(args[1]):
                # A zero point was rounded for itself: of a number and what is added to it, the one of more elements is the number.
                few = int(args[1].numel() <= args[0].numel())
                given = (*given[:few], args[few], *given[few + 1 :])
            exact = super().dispatch(func, given, self._replaced(named))
        else:
            return super().dispatch(func, args, named)
        result = super().dispatch(func, args, named)
        self._exact[id(result)] = (result, exact)
        return result

    def kept(self, returned: Tensor) -> Tensor:
        """Numbers that were packed, along an axis behind the others."""
        _, parts = self._parts.get(id(returned), (returned, ()))
        if len(parts) < 2:
            return returned
        return torch.stack([part for _, part in sorted(parts, key=itemgetter(0))], -1)

    def _packed(self, func: Any, plain: str, args: tuple[Any, ...], named: dict[str, Any]) -> _Parts:
        """What an operator makes of integers whose numbers are known; nothing if that is not packing."""
        _, parts = self._parts.get(id(args[0]), (None, ()))
        other = args[1] if len(args) > 1 else None
        if not parts:
            return ()
        if isinstance(other, int) and (plain in _SHIFTS or (plain == "mul" and other in _POWERS)):
            bits = other if plain in _SHIFTS else _POWERS.index(other)
            return tuple((shift + bits, part) for shift, part in parts)
        if plain in ("__or", "bitwise_or", "add") and id(other) in self._parts:
            joined = (*parts, *self._parts[id(other)][1])
            return joined if len({shift for shift, _ in joined}) == len(joined) else ()
        masks = plain in ("__and", "bitwise_and") and isinstance(other, int) and other + 1 in _POWERS
        # An index is one of an integer.
        recast = (
            plain == "_to_copy" and not _is_cast_to_real(plain, named) and named.get("dtype") != torch.int64
        )
        if masks or recast or (plain == "view" and isinstance(other, torch.dtype)):
            return parts
        if plain in _LEAVES_EXACT and (len(parts) == 1 or plain not in _ARITHMETIC):
            return tuple((shift, func(part, *args[1:], **named)) for shift, part in parts)
        return ()

    def _as_integers(self, parts: _Parts) -> Tensor:
        """One tensor in place of the integers."""
        (first, whole), *others = parts
        whole = whole if first == 0 and not others else whole * 2.0**first
        for bits, part in others:
            whole = whole + part * 2.0**bits
        self._parts[id(whole)] = (whole, parts)
        return whole

    def _exact_of(self, tensor: Tensor) -> Tensor:
        return self._exact.get(id(tensor), (tensor, tensor))[1]

    def _has_exact(self, value: Any) -> bool:
        if isinstance(value, dict):
            value = tuple(value.values())
        if isinstance(value, tuple | list):
            return any(map(self._has_exact, value))
        return id(value) in self._exact

    def _replaced(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {name: self._replaced(item) for name, item in value.items()}
        if isinstance(value, tuple | list):
            return type(value)(map(self._replaced, value))
        return self._exact_of(value) if isinstance(value, Tensor) else value


def _is_cast_to_real(name: str, named: dict[str, Any]) -> bool:
    dtype = named.get("dtype")
    return name == "_to_copy" and isinstance(dtype, torch.dtype) and dtype.is_floating_point


@dataclass(frozen=True, slots=True)
class Packed:
    """Several numbers in each byte."""

    count: int
    signed: bool
    """Whether they are in two's complement."""

    def unpack(self, codes: Tensor) -> Tensor:
        """The numbers of bytes, flat, int16; the lowest bits first."""
        bits = 8 // self.count
        shifts = bits * torch.arange(self.count, dtype=torch.int16, device=codes.device)
        numbers: Tensor = (codes.reshape(-1, 1).view(torch.uint8).to(torch.int16) >> shifts) & (2**bits - 1)
        sign = 2 ** (bits - 1) if self.signed else 0
        return ((numbers ^ sign) - sign).reshape(-1)

    def spread(self, positions: Tensor) -> Tensor:
        """Row-major numbers of all numbers in the bytes with these."""
        beside = torch.arange(self.count, device=positions.device)
        return (positions[:, None] * self.count + beside).reshape(-1)


@dataclass(frozen=True, slots=True, kw_only=True)
class GridFault:
    """Why an answer is wrong."""

    message: str
    wrong: Tensor
    """Where, flat over the compared elements."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GridLimits:
    """What is allowed on a grid."""

    compared: int
    """Elements that are looked at."""
    near: int
    """Those that a typical error can carry over a rounding boundary."""
    most: int
    """How many may be off."""
    steps: int
    """By how many steps one may be off."""
    step: float
    """What a step is, as a median."""
    error: float
    """How far from a boundary the exact value of one that is off may lie, as a median."""

    def __str__(self) -> str:
        """In words, after the name of the grid."""
        return (
            f"in steps of {self.step:.3g}: {self.most} of {counted(self.compared, 'element')} may be off, by "
            f"{counted(self.steps, 'step')}, where the exact value lies within {self.error:.2g} of a rounding boundary; {self.near} lie so "
            "near one that errors as usual explain it"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """An output of real numbers that were rounded to a grid, before that rounding; flat, in row-major order."""

    dtype: torch.dtype
    """Of the output."""
    rounding: Callable[[Tensor], Tensor]
    """Q, float64 to float64."""
    exact: Tensor
    """v, float64: the fp64 reference before the last cast."""
    own: Tensor
    """Torch's own answer, in the output's dtype."""
    error: Tensor
    """C·T, float64: what a right kernel may err in v."""
    typical: Tensor
    """c·rms(z_t)·T, float64: what right kernels err in all of v together."""
    packed: Packed | None = None
    """How the numbers lie in the output's elements; None if each is one."""

    def looser(self, times: float, rms_times: float = 1.0) -> Grid:
        """A copy with so many times the errors of single elements, and of all together."""
        return replace(self, error=self.error * times, typical=self.typical * rms_times)

    def fault(self, answer: Tensor, positions: Tensor | None, shape: Sequence[int]) -> GridFault | None:
        """What is wrong with an answer; None if nothing is.

        Args:
            answer: flat, in the output's dtype.
            positions: row-major numbers of its elements; None if they are all.
            shape: sizes of the whole output.
        """
        if self.packed is not None:
            spread = None if positions is None else self.packed.spread(positions)
            alone = replace(self, packed=None)
            numbers = alone.fault(self.packed.unpack(answer), spread, (*shape, self.packed.count))
            return numbers and replace(numbers, wrong=numbers.wrong.reshape(-1, self.packed.count).any(-1))
        here = self if positions is None else self.at(positions)
        got, right, torchs = steps(answer), here._step(0.0), steps(here.own)
        low, high = here._step(-here.error), here._step(here.error)
        # Forms of NaN and infinity were compared before; of integers nobody but torch tells what they become.
        telling = here._telling() & torch.isfinite(readable(answer))
        blind = ~telling & (torch.zeros_like(telling) if answer.is_floating_point() else got != torchs)
        limits = here._limits(telling)
        off = (got - right).masked_fill(~telling, 0)
        wrong = (telling & ((got < low) | (got > high) | (off.abs() > limits.steps))) | blind
        count = int((off != 0).sum())
        if bool(wrong.any()):
            message = f"{int(wrong.sum())} of {counted(answer.numel(), 'element')} cannot be what the exact value rounds to"
        elif count > limits.most:
            wrong = off != 0
            message = (
                f"{count} of {counted(answer.numel(), 'element')} are off by a step of the grid, and the exact values of {limits.near} lie so "
                f"near a rounding boundary that rounding errors would explain it: at most {limits.most} may be off"
            )
        else:
            return None
        worst = int((off.abs() + wrong.to(off.dtype)).masked_fill(~wrong, -1).argmax())
        index = list(position(worst if positions is None else int(positions[worst]), shape))
        exact, error = float(here.exact[worst]), float(here.error[worst])
        rounded = number(here._rounded(0.0)[worst].item(), self.dtype)
        away = counted(abs(int(off[worst])), "step")
        message += (
            f". Worst is {index}: the exact value is {exact:.9g} ± {error:.2g}, which rounds to {rounded}; got "
            f"{number(answer[worst].item(), answer.dtype)}, {away} {'below' if off[worst] < 0 else 'above'}."
        )
        return GridFault(message=message, wrong=wrong)

    def limits(self, positions: Tensor | None) -> GridLimits:
        """What is allowed; of the elements with these row-major numbers, if they are not all."""
        here = self if positions is None else self.at(positions)
        return here._limits(here._telling())

    def _telling(self) -> Tensor:
        return torch.isfinite(self.exact) & torch.isfinite(readable(self.own))

    def _limits(self, telling: Tensor) -> GridLimits:
        near = int((telling & (self._step(-self.typical) != self._step(self.typical))).sum())
        off = (steps(self.own) - self._step(0.0)).abs()[telling]
        return GridLimits(
            compared=telling.numel(),
            near=near,
            most=math.floor(near + _SPREAD * math.sqrt(near) + 1),
            steps=max(1, int(off.max())) if off.numel() else 1,
            step=self._median(2 * rules.half_ulp(self.exact, self.dtype), telling)
            if self.dtype.is_floating_point
            else 1.0,
            error=self._median(self.error, telling),
        )

    def _median(self, values: Tensor, telling: Tensor) -> float:
        return float(values[telling].median()) if bool(telling.any()) else 0.0

    def at(self, positions: Tensor) -> Grid:
        """Of the elements with these row-major numbers alone."""
        if self.packed is not None:
            positions = self.packed.spread(positions)
        own = movable(self.own)[positions].view(self.own.dtype)
        exact, error, typical = (one[positions] for one in (self.exact, self.error, self.typical))
        return replace(self, exact=exact, own=own, error=error, typical=typical)

    def _rounded(self, shift: Tensor | float) -> Tensor:
        return _rounded_into(self.exact, shift, self.rounding, self.dtype)

    def _step(self, shift: Tensor | float) -> Tensor:
        """Number of the step to which v rounds when it is moved."""
        return steps(self._rounded(shift))


def steps(values: Tensor) -> Tensor:
    """Numbers of steps of the grid from zero, int16: neighbours differ by 1, both zeros are 0."""
    if not values.is_floating_point():
        return values.to(torch.int16)
    codes = values.contiguous().view(torch.uint8).to(torch.int16)
    return torch.where(codes >= 128, 128 - codes, codes)


def _rounded_into(
    values: Tensor, shift: Tensor | float, rounding: Callable[[Tensor], Tensor], dtype: torch.dtype
) -> Tensor:
    """What is in range stays there: beyond it some versions of torch give NaN, others the greatest number."""
    info = torch.finfo(dtype) if dtype.is_floating_point else torch.iinfo(dtype)
    low, high = values.clamp(max=float(info.min)), values.clamp(min=float(info.max))
    moved = torch.maximum(torch.minimum(values + shift, high), low)
    return rounding(moved).to(dtype)


def grids(  # noqa: PLR0917
    call: OpCall,
    inputs: Layout,
    context: Context,
    device: str,
    known: Answers,
    rows_of: Callable[[Tensor], Tensor | None],
    *,
    exact: bool = False,
) -> dict[int, Grid]:
    """What outputs of a call were before they were rounded to a grid, by their number; those that were.

    `rows_of` numbers the row that each element of an output is made of. Of an op that has to be `exact` no error moves a tie.
    """
    candidates = [index for index, answer in enumerate(known.answer) if answer.dtype in (*GRIDS, E8M0)]
    if not candidates:
        return {}
    try:
        wide = _with_wide_buffers(inputs, known.mutated)
        unrounded = answers(
            call, wide, context, device, mutated=known.mutated, conditioning=not exact, mode=KeepExact
        )
    except (RuntimeError, TypeError, ValueError, IndexError, NotImplementedError):
        return {}  # it computes with the codes
    if len(unrounded.answer) != len(known.answer) or unrounded.note:
        return {}
    if exact and not all(map(all_exact, unrounded.answer32, unrounded.reference)):
        return {}
    halves = {meta.dtype for meta in inputs.metas} & {"float16", "bfloat16"}
    half = torch.float16 if halves == {"float16"} else torch.bfloat16
    found: dict[int, Grid] = {}
    for index in candidates:
        own, rows = countable(known.answer[index]), rows_of(known.answer[index])
        grid = _grid(own, unrounded, index, half, rows, exact=exact)
        if grid is not None:
            found[index] = grid
    return found


def _with_wide_buffers(inputs: Layout, mutated: Sequence[int]) -> Layout:
    """The arguments, with room for numbers that are not rounded in those that the op fills."""
    metas, spans = list(inputs.metas), list(inputs.spans)
    storages = [meta.storage for meta in metas]
    for index in mutated:
        meta, dtype = metas[index], getattr(torch, metas[index].dtype)
        if dtype in GRIDS and storages.count(meta.storage) == 1:
            spans[meta.storage] = spans[meta.storage].view(dtype).to(torch.float32).view(torch.uint8)
            metas[index] = replace(meta, dtype="float32")
    return Layout(tuple(metas), spans)


def _scale(unrounded: Answers, index: int, half: torch.dtype, rows: Tensor | None) -> rules.Scale:
    """The derived rule's unit for an output before its last rounding.

    In fp32, if torch's own value is as near as fp32 allows; else with the limits of the half precision in which
    the op rounds on its way.
    """
    own, single = unrounded.answer[index], unrounded.answer32[index]
    perturbed = None if unrounded.perturbed is None else unrounded.perturbed[index]
    unit = partial(rules.derive, unrounded.reference[index], perturbed=perturbed, rows=rows)
    wide = wider(own.dtype, torch.float32)
    fp32 = unit(single.to(wide), single)
    if rules.assess(own.reshape(-1), rules.against_reference(fp32)).passed:
        return fp32
    return replace(unit(own.to(wide), single), constants=rules.constants(half))


def all_exact(single: Tensor, reference: Tensor) -> bool:
    """Whether fp32 gives what fp64 does, and no NaN."""
    return torch.equal(single.to(reference.dtype), reference)


def _grid(
    answer: Tensor, unrounded: Answers, index: int, half: torch.dtype, rows: Tensor | None, *, exact: bool
) -> Grid | None:
    value, packed = unrounded.answer[index], None
    is_wider = value.ndim == answer.ndim + 1 and value.numel() > 0
    if is_wider and 8 % value.shape[-1] == 0 and answer.element_size() == 1:
        packed = Packed(value.shape[-1], bool((value < -0.5).any()))
        answer = packed.unpack(answer.contiguous()).reshape(*answer.shape, packed.count)
        rows = None if rows is None else rows.repeat_interleave(packed.count)
    alike = value.shape == answer.shape == unrounded.reference[index].shape
    if not value.is_floating_point() or value.dtype in GRIDS or not alike:
        return None
    flat, v = answer.contiguous().reshape(-1), value.reshape(-1).to(torch.float64)
    scale = _scale(unrounded, index, half, rows)
    error, typical = scale.unit * scale.peak_limit, scale.unit * scale.rms_limit
    if exact:
        error, typical = torch.zeros_like(v), torch.zeros_like(v)
    # A library's product in float8 may add up in another order than the same in fp32.
    is_near = answer.dtype.is_floating_point and scale.constants == rules.constants(torch.float32)
    margins = (error,) if exact else (v.abs() * _TIE, error) if is_near else (v.abs() * _TIE,)
    tried = ((rounding, margin) for margin in margins for rounding in _roundings(answer.dtype))
    rounding = next((rounding for rounding, margin in tried if _gives(v, margin, rounding, flat)), None)
    if rounding is None:
        return None
    return Grid(
        dtype=answer.dtype,
        rounding=rounding,
        exact=scale.reference,
        own=flat,
        error=error,
        typical=typical,
        packed=packed,
    )


def _roundings(dtype: torch.dtype) -> tuple[Callable[[Tensor], Tensor], ...]:
    """What may come before a cast to the dtype: a cast to float8 rounds by itself, one to integers cuts off."""
    if dtype.is_floating_point:
        return (torch.clone,)
    plain = (torch.round, torch.trunc, torch.floor, torch.ceil)
    return (*plain, _exponent) if dtype == torch.int16 else plain


def _exponent(values: Tensor) -> Tensor:
    """Codes of the exponents to which numbers are cast."""
    return countable(values.clamp(min=0).to(torch.float32).to(E8M0)).to(torch.float64)


def _gives(values: Tensor, margin: Tensor, rounding: Callable[[Tensor], Tensor], own: Tensor) -> bool:
    """Whether rounding the values gives torch's own answer, but where a margin carries them over a boundary."""
    low, high = (steps(_rounded_into(values, shift, rounding, own.dtype)) for shift in (-margin, margin))
    telling = torch.isfinite(values) & torch.isfinite(readable(own))
    return bool(telling.any()) and bool(((steps(own) >= low) & (steps(own) <= high))[telling].all())
