"""Outputs of which several are right: positions of equal values, and answers in any order.

A position is right if the value there equals the one at the op's own position, both as the argument has them, in its
own dtype. It must lie where the op looks, in a pool's window or before the element of a running maximum, come once in
its row where the op's positions do, and be the op's own where that promises an order of equal values.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pytest_cgins.config import IndexOutput
from pytest_cgins.core.errors import ConfigError
from pytest_cgins.core.trace import OpCall, Value
from pytest_cgins.core.verdict import Reason
from pytest_cgins.verify.locate import number, position
from pytest_cgins.verify.semantics import integer_of, is_true, op_word

Window = Callable[[Tensor], Tensor]
"""Maps positions (rows, positions of a row) to whether each lies where the op looks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexFault:
    """What is wrong with positions."""

    reason: Reason
    message: str
    """A sentence without its subject."""
    wrong: Tensor
    """True where positions are wrong, flat."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Indices:
    """The values that an output of positions points into, and the order in which they lie."""

    declared: IndexOutput
    """The argument that the positions point into."""
    values: Tensor
    """Values of that argument, (rows, values of a row)."""
    order: Tensor
    """Row-major numbers of the output's elements, (rows, positions of a row)."""
    shape: tuple[int, ...]
    """Sizes of the output."""
    distinct: bool
    """Whether a position comes once in its row."""
    window: Window | None
    """Where the op looks, if that is not the whole row."""

    def fault(self, answer: Tensor, expected: Tensor) -> IndexFault | None:
        """The first thing wrong with positions; None if they are right.

        Args:
            answer: of the kernel, any integer dtype, of the output's shape.
            expected: of the op, likewise.
        """
        got, right = (self.rows(one) for one in (answer, expected))
        size = self.values.shape[1]
        # What points nowhere in the op's own answer, such as -1 for "none", is compared as it is.
        nowhere = (right < 0) | (right >= size)
        outside = torch.where(nowhere, got != right, (got < 0) | (got >= size))
        if bool(outside.any()):
            within = f"0 to {size - 1}" if size else "nothing"
            message = f"{{count}} indices point outside of {self._target()}, which has {within}"
            return self._fault(Reason.INDEX_OUT_OF_RANGE, message, outside, got, right)
        pointed, wanted = (
            self.values.gather(1, at.clamp(0, size - 1)) if size else at for at in (got, right)
        )
        other = ~(equal(pointed, wanted) | nowhere)
        if bool(other.any()):
            message = f"{{count}} indices point at another value of {self._target()} than the op's"
            return self._fault(Reason.INDEX_MISMATCH, message, other, got, right)
        if self.window is not None and bool((missed := ~self.window(got) & ~nowhere).any()):
            message = (
                f"{{count}} indices point at an equal value of {self._target()} where the op does not look"
            )
            return self._fault(Reason.INDEX_MISMATCH, message, missed, got, right)
        if self.distinct and bool((again := _repeated(got) & ~nowhere).any()):
            message = f"{{count}} indices come a second time in their row of {self._target()}, and the op gives each once"
            return self._fault(Reason.INDEX_REPEATED, message, again, got, right)
        if self.declared.stable and bool((moved := got != right).any()):
            message = f"{{count}} indices of equal values of {self._target()} are not in the order that the op promises"
            return self._fault(Reason.UNSTABLE_ORDER, message, moved, got, right)
        return None

    def rows(self, indices: Tensor) -> Tensor:
        """Positions, (rows, positions of a row)."""
        return indices.reshape(-1).to(torch.int64)[self.order]

    def _target(self) -> str:
        if not self.declared.dims:
            return f"`{self.declared.into}` flattened"
        dims = ", ".join(map(str, self.declared.dims))
        return f"`{self.declared.into}` along {'dimension' if len(self.declared.dims) == 1 else 'dimensions'} {dims}"

    def _fault(self, reason: Reason, message: str, wrong: Tensor, got: Tensor, right: Tensor) -> IndexFault:
        flat = torch.zeros(math.prod(self.shape), dtype=torch.bool, device=wrong.device)
        flat[self.order[wrong]] = True
        first = int(flat.to(torch.uint8).argmax())
        row = int((self.order == first).nonzero()[0, 0])
        here = self.order[row] == first
        shown = " the op's is ".join(
            f"{int(one[row][here])}, which is {self._value(row, int(one[row][here]))};"
            for one in (got, right)
        ).rstrip(";")
        count, at = f"{int(flat.sum())} of {flat.numel()}", list(position(first, self.shape))
        message = f"{message.format(count=count)}. First is {at}: {shown}."
        return IndexFault(reason=reason, message=message, wrong=flat)

    def _value(self, row: int, index: int) -> str:
        if not 0 <= index < self.values.shape[1]:
            return "nowhere"
        return number(self.values[row, index].item(), self.values.dtype)


def indices_of(
    declared: IndexOutput, op: str, argument: Tensor | None, answer: Tensor, window: Window | None = None
) -> Indices:
    """What an output of positions in an argument is compared with.

    Raises:
        ConfigError: positions of this shape cannot point along these dimensions.
    """
    if argument is None:
        raise ConfigError(
            f'output {declared.number} of {op} has index_into "{declared.into}", which is not a tensor',
            remedy="write the name of an argument that is a tensor",
        )
    order = torch.arange(answer.numel(), device=answer.device).reshape(answer.shape)
    rank = argument.ndim
    if not declared.dims or not rank:
        rows, along = argument.reshape(1, -1), order.reshape(1, -1)
    else:
        _check_dims(declared, op, rank)
        dims = sorted(dim % rank for dim in declared.dims)
        rows = _to_end(argument, dims)
        along = _to_end(order, dims) if answer.ndim == rank else order[..., None]
        if along.shape[:-1] != rows.shape[:-1]:
            raise ConfigError(
                f"output {declared.number} of {op} has shape {tuple(answer.shape)}: it holds no positions along "
                f"dim {list(declared.dims)} of {declared.into}, which has shape {tuple(argument.shape)}",
                remedy="run cgins traces audit: it proposes what fits",
            )
        rows, along = (one.reshape(math.prod(one.shape[:-1]), one.shape[-1]) for one in (rows, along))
    own = answer.reshape(-1).to(torch.int64)[along]
    several = along.shape[1] > 1
    distinct = (
        declared.distinct if declared.distinct is not None else several and not bool(_repeated(own).any())
    )
    return Indices(
        declared=declared,
        values=rows,
        order=along,
        shape=tuple(answer.shape),
        distinct=distinct,
        window=window,
    )


def _check_dims(declared: IndexOutput, op: str, rank: int) -> None:
    beyond = [dim for dim in declared.dims if not -rank <= dim < rank]
    if not beyond and len({dim % rank for dim in declared.dims}) < len(declared.dims):
        raise ConfigError(
            f"outputs names a dimension of {declared.into} twice, by {list(declared.dims)}",
            remedy="write each once",
        )
    if beyond:
        raise ConfigError(
            f"outputs speaks of dimension {beyond[0]} of {declared.into}, and in this call of {op} it has {rank}",
            remedy=f"write one from {-rank} to {rank - 1}",
        )


def _to_end(tensor: Tensor, dims: Sequence[int]) -> Tensor:
    """Some dimensions as one, the last."""
    moved = tensor.movedim(tuple(dims), tuple(range(-len(dims), 0)))
    rest = moved.shape[: moved.ndim - len(dims)]
    return moved.reshape(*rest, math.prod(moved.shape[len(rest) :]))


def equal(one: Tensor, other: Tensor) -> Tensor:
    """Both zeros are, and NaN is equal to NaN."""
    return one.eq(other) | (one.ne(one) & other.ne(other))


def _repeated(indices: Tensor) -> Tensor:
    """Where a number comes again in its row."""
    ordered, at = indices.sort(dim=1, stable=True)
    again = torch.zeros_like(ordered, dtype=torch.bool)
    again[:, 1:] = ordered[:, 1:] == ordered[:, :-1]
    return torch.zeros_like(again).scatter_(1, at, again)


# ---- where torch's ops look


def window_of(call: OpCall, argument: Tensor | None, answer: Tensor) -> Window | None:
    """Where torch's pools and its running extremes look; None for all other ops."""
    name = op_word(call).removesuffix("_with_indices")
    if argument is None or not call.op.startswith("torch."):
        return None
    if name in ("cummax", "cummin"):
        return lambda got: got <= torch.arange(got.shape[1], device=got.device)
    if "max_pool" not in name or "fractional" in name:
        return None
    rank = int(name[-2])
    into, out = argument.shape[-rank:], answer.shape[-rank:]
    given = {one.name: one.value for one in call.arguments}
    if name.startswith("adaptive"):
        lows, highs, steps = _adaptive(into, out)
    else:
        kernel = _integers(given["kernel_size"], rank)
        stride = _integers(given.get("stride"), rank) or kernel
        padding = _integers(given.get("padding"), rank) or [0] * rank
        steps = _integers(given.get("dilation"), rank) or [1] * rank
        lows = [[o * s - p for o in range(n)] for n, s, p in zip(out, stride, padding, strict=True)]
        highs = [
            [low + (k - 1) * step + 1 for low in line]
            for line, k, step in zip(lows, kernel, steps, strict=True)
        ]

    def within(got: Tensor) -> Tensor:
        inside = torch.ones_like(got, dtype=torch.bool)
        here = torch.arange(got.shape[1], device=got.device)
        rest = got
        for size, count, low, high, step in reversed(list(zip(into, out, lows, highs, steps, strict=True))):
            at, rest = rest % size, rest // size
            window, here = here % count, here // count
            first, last = (torch.tensor(ends, device=got.device)[window] for ends in (low, high))
            inside &= (at >= first) & (at < last) & ((at - first) % step == 0)
        return inside

    return within


def _adaptive(into: Sequence[int], out: Sequence[int]) -> tuple[list[list[int]], list[list[int]], list[int]]:
    """First and last but one of each window, along each dimension, and steps within it."""
    lows = [[o * n // m for o in range(m)] for n, m in zip(into, out, strict=True)]
    highs = [[-(-(o + 1) * n // m) for o in range(m)] for n, m in zip(into, out, strict=True)]
    return lows, highs, [1] * len(into)


def _integers(value: Value | None, count: int) -> list[int]:
    """An integer for each of some dimensions; none where nothing is said."""
    if value is None or value.kind == "none":
        return []
    given = [int(item.value or 0) for item in value.items] if value.items else [value.value]
    given = [int(one) for one in given if one is not None]
    return given * count if len(given) == 1 else given


# ---- what an output may point into


def candidates(number: int, arguments: Mapping[str, Tensor], answer: Tensor) -> Iterator[Indices]:
    """Arguments, and dimensions of them, along which all elements of an output are positions."""
    for name, argument in arguments.items():
        # Of one number everywhere, or all along the dimension, any position would be right.
        if argument.numel() < 2 or argument.is_complex() or bool((argument == argument.reshape(-1)[0]).all()):
            continue
        for dims in (*((dim,) for dim in range(-1, -argument.ndim - 1, -1)), ()):
            declared = IndexOutput(number=number, into=name, dims=dims)
            try:
                target = indices_of(declared, "", argument, answer)
            except ConfigError:
                continue
            own, values = target.rows(answer), target.values
            tells = bool((values != values[:, :1]).any(1).all())
            if tells and own.numel() and bool(((own >= 0) & (own < values.shape[1])).all()):
                yield target


def chooses_extremes(target: Indices, answers: Sequence[Tensor]) -> bool:
    """Whether positions are such as an op chooses: its other output holds the values there, or they are in order."""
    own = target.rows(answers[target.declared.number])
    values = target.values.gather(1, own)
    for other in answers:
        alike = other.dtype == values.dtype and tuple(other.shape) == target.shape
        if alike and bool(equal(other.reshape(-1)[target.order], values).all()):
            return True
    if values.shape[1] == 1:
        return any(bool(equal(values, end(target.values, 1, True)).all()) for end in (torch.amax, torch.amin))
    down, up = (bool(one.all()) for one in (values[:, 1:] <= values[:, :-1], values[:, 1:] >= values[:, :-1]))
    return target.distinct and (down or up)


Arrangement = Callable[[Sequence[Tensor]], list[Tensor]]
"""Maps an answer to the form in which answers are compared."""


def arrangement(call: OpCall, argument: Tensor | None, own: Sequence[Tensor]) -> Arrangement | None:
    """How answers to a call, whose first argument is this tensor, are brought into one form; None where they are compared as they are."""
    if not call.op.startswith("torch.") or "@" in call.op or argument is None or not argument.ndim:
        return None
    name = op_word(call)
    dim = integer_of(call, "dim", -1 if name in ("topk", "mode") else None)
    unsorted = not is_true(call, "sorted", default=True)
    if name == "topk" and unsorted and dim is not None and len(own) == 2:
        return lambda answer: _in_order(answer, dim)
    if name == "unique" and unsorted and dim is None:
        inverse = is_true(call, "return_inverse", default=False)
        return lambda answer: _unique_in_order(answer, inverse=inverse)
    if name == "mode" and dim is not None and len(own) == 2:
        return _OneMode(argument.movedim(dim, -1), tuple(own), None if own[0].ndim < argument.ndim else dim)
    return None


def _in_order(answer: Sequence[Tensor], dim: int) -> list[Tensor]:
    """Values in ascending order, with their indices."""
    at = answer[0].argsort(dim=dim, stable=True)
    return [_lying_as(one, one.gather(dim, at)) for one in answer]


def _unique_in_order(answer: Sequence[Tensor], *, inverse: bool) -> list[Tensor]:
    """Values in ascending order, with what is where by their new numbers, and their counts."""
    values, *others = answer
    ordered, at = values.sort(stable=True)
    arranged = [ordered]
    if inverse:
        numbers = others.pop(0)
        new = torch.empty_like(at).scatter_(0, at, torch.arange(len(at), device=at.device))
        known = (numbers >= 0) & (numbers < len(at))
        renamed = new[numbers.clamp(0, max(0, len(at) - 1))] if len(at) else numbers
        arranged.append(torch.where(known, renamed, numbers).to(numbers.dtype))
    return [*arranged, *(counts[at] for counts in others)]


@dataclass(frozen=True, slots=True)
class _OneMode:
    """Torch's mode in place of another value that comes as often, if the index points at it."""

    rows: Tensor
    own: tuple[Tensor, ...]
    kept: int | None
    """The dimension of size 1 that answers have; None if they have none."""

    def __call__(self, answer: Sequence[Tensor]) -> list[Tensor]:
        values, indices = (self._column(one) for one in answer)
        own = self._column(self.own[0])
        at = indices.to(torch.int64)
        inside = (at >= 0) & (at < self.rows.shape[-1])
        pointed = self.rows.gather(-1, torch.where(inside, at, 0))
        often, most = (equal(self.rows, value).sum(-1, keepdim=True) for value in (values, own))
        as_often = often >= most
        right = inside & as_often & equal(pointed, values)
        # An index that points at neither is what is wrong, and not the value.
        alone = as_often & ~right & ~(inside & equal(pointed, own))
        index = torch.where(right, self._column(self.own[1]), indices)
        chosen = torch.where(right | alone, own, values), index
        return [
            _lying_as(old, one.squeeze(-1) if self.kept is None else one.movedim(-1, self.kept))
            for old, one in zip(answer, chosen, strict=True)
        ]

    def _column(self, tensor: Tensor) -> Tensor:
        return tensor[..., None] if self.kept is None else tensor.movedim(self.kept, -1)


def _lying_as(old: Tensor, new: Tensor) -> Tensor:
    """New values in a tensor that lies as the old one: how answers lie is looked at as well."""
    return torch.empty_like(old).copy_(new)
