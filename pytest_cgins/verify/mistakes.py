"""One mistake each, as another call of the same op: without its bias, with eps 0, with two arguments exchanged.

What torch answers to that other call is what a kernel with the mistake answers to the right one.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from pytest_cgins.core.bitwise import equal
from pytest_cgins.core.device import device_of
from pytest_cgins.core.trace import Argument, OpCall, TensorMeta, Value
from pytest_cgins.packs.backward import is_derived
from pytest_cgins.packs.call import with_value
from pytest_cgins.verify.input_sets import InputSet
from pytest_cgins.verify.semantics import Semantics, is_eps, lane_dims

Change = Callable[[OpCall, list[Tensor]], OpCall]
"""Gives the other call, and puts its tensors in the place of the right ones."""

_CHOICES = ({"none", "tanh"}, {"mean", "sum"}, {"floor", "trunc"})
"""Words of which an op takes either."""
_BLOCKS = (4, 8, 16, 32, 64, 128)
"""Widths of vectors and tiles: what is left over is a tail."""
_WHOLE = ("weight", "var", "scale", "gamma")
"""Parameters that are multiplied or divided by: left out, they are 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mistake:
    """A mistake that a kernel may make in a call."""

    words: str
    """What the other call is like: `without bias`."""
    change: Change
    """Makes it of the right one."""
    argument: str = ""
    """What it is about, where several ways to be wrong about it are told apart by nothing else: `dim` -1 and 2."""

    @property
    def subject(self) -> str:
        """The subject of a mistake: two mistakes with the same subject do not exclude each other."""
        return self.argument or self.words


def mistakes(input_set: InputSet, semantics: Semantics) -> Iterator[Mistake]:
    """All that can be made with a call, whose inputs are those of a set."""
    metas = input_set.layout.metas
    # An index that is too great ends the process on a GPU.
    indexed = any("int" in meta.dtype for meta in metas) and device_of(input_set.device).is_accelerator
    for argument in input_set.call.arguments:
        if not indexed or argument.value.kind == "float":
            yield from _scalars(argument, whole=input_set.call.op.startswith("torch."))
    for index, meta in enumerate(metas):
        name = semantics.names.get(index)
        if name is not None and meta.numel:
            yield from _left_out(index, name, meta)
            yield from _read_otherwise(index, name, meta)
    yield from _exchanged(metas, semantics)
    yield from _tails(metas, semantics)
    if semantics.kind == "norm" and not is_derived(input_set.call.op):
        yield from _unbiased(input_set, semantics)


def as_before(input_set: InputSet, base: InputSet) -> Iterator[Mistake]:
    """What differs between two calls taken as it was in the second: each alone, then all of it."""
    before = {argument.name: argument for argument in base.call.arguments}
    scalars = [one.name for one in input_set.call.arguments if one != before.get(one.name)]
    old, new = (one.tensors() for one in (base, input_set))
    names = {
        argument.name: int(argument.value.value or 0)
        for argument in input_set.call.arguments
        if argument.value.kind == "tensor" and int(argument.value.value or 0) < len(old)
    }
    changed = [*scalars, *(name for name, index in names.items() if not equal(old[index], new[index]))]
    for chosen in [*([name] for name in changed if len(changed) > 1), changed]:

        def change(call: OpCall, tensors: list[Tensor], chosen: Sequence[str] = chosen) -> OpCall:
            for name in chosen:
                if name in names:
                    tensors[names[name]] = old[names[name]]
            mixed = (before.get(one.name) if one.name in chosen else one for one in call.arguments)
            return replace(call, arguments=tuple(one for one in mixed if one is not None))

        listed = " and ".join(f"`{name}`" for name in chosen)
        yield Mistake(words=f"with {listed} as recorded", change=change)


# ---- scalars


def _scalars(argument: Argument, *, whole: bool) -> Iterator[Mistake]:
    """Other values of one scalar; what a whole number may be, of ops of torch alone, for others may count with it."""
    for value in _values(argument, whole=whole):
        shown = f"{float.fromhex(str(value.value)):g}" if value.kind == "float" else value.value
        words = f"with `{argument.name}` {shown}"
        yield Mistake(words=words, change=_with_value(argument.name, value), argument=argument.name)


def _values(argument: Argument, *, whole: bool) -> Iterator[Value]:
    value, name = argument.value, argument.name
    if value.kind == "float":
        number = float.fromhex(str(value.value))
        numbers = (0.0,) if is_eps(name) else (0.0, 1.0, -number)
        yield from (replace(value, value=other.hex()) for other in numbers if other != number)
    elif value.kind == "bool" and name != "sparse":  # of which nothing can be compared
        yield replace(value, value=not value.value)
    elif value.kind == "int" and whole:
        count = int(value.value or 0)
        counts = dict.fromkeys((-1, 0, 1, count - 1, count + 1))
        yield from (replace(value, value=other) for other in counts if other != count)
    elif value.kind == "str":
        words = next((words for words in _CHOICES if value.value in words), set())
        yield from (replace(value, value=word) for word in words - {value.value})
    elif value.kind == "none" and name == "scale":
        yield Value(kind="float", value=(1.0).hex())


def _with_value(name: str, value: Value) -> Change:
    def change(call: OpCall, tensors: list[Tensor]) -> OpCall:
        del tensors
        arguments = (
            with_value(argument, value) if argument.name == name else argument for argument in call.arguments
        )
        return replace(call, arguments=tuple(arguments))

    return change


# ---- tensors


def _on_tensors(change: Callable[[list[Tensor]], None]) -> Change:
    def changed(call: OpCall, tensors: list[Tensor]) -> OpCall:
        change(tensors)
        return call

    return changed


def _left_out(index: int, name: str, meta: TensorMeta) -> Iterator[Mistake]:
    """A parameter or a mask that does nothing."""
    word = name.lower().rpartition(".")[2]
    if "mask" in word:
        neutral: tuple[float, ...] = (1.0, 0.0) if meta.dtype == "bool" else (0.0,)
    elif "float" in meta.dtype and len(meta.shape) <= 1 and any(part in word for part in _WHOLE):
        neutral = (1.0,)
    elif "float" in meta.dtype and ("bias" in word or len(meta.shape) <= 1):
        neutral = (0.0,)
    else:
        return
    for value in neutral:

        def change(tensors: list[Tensor], value: float = value) -> None:
            tensors[index] = torch.full_like(tensors[index], value)

        yield Mistake(words=f"without `{name}`", change=_on_tensors(change))


def _read_otherwise(index: int, name: str, meta: TensorMeta) -> Iterator[Mistake]:
    """A matrix taken for its transpose, and memory that is read as if it were row-major."""

    def transposed(tensors: list[Tensor]) -> None:
        rows, columns = meta.shape
        tensors[index] = tensors[index].reshape(columns, rows).T

    def contiguous(tensors: list[Tensor]) -> None:
        tensor = tensors[index]
        tensors[index] = tensor.as_strided(meta.shape, _row_major(meta.shape)).clone()

    if len(meta.shape) == 2 and min(meta.shape) > 1 and "float" in meta.dtype:
        shape = "x".join(map(str, reversed(meta.shape)))
        yield Mistake(words=f"with `{name}` read as {shape}, transposed", change=_on_tensors(transposed))
    if _row_major(meta.shape) != meta.stride and _is_dense(meta):
        yield Mistake(words=f"with `{name}` read as if it were contiguous", change=_on_tensors(contiguous))


def _row_major(shape: Sequence[int]) -> tuple[int, ...]:
    steps = itertools.accumulate(reversed(shape[1:]), lambda step, size: step * size, initial=1)
    return tuple(reversed(list(steps))) if shape else ()


def _is_dense(meta: TensorMeta) -> bool:
    """Whether as many elements can be read from the first one on."""
    span = 1 + sum((size - 1) * step for size, step in zip(meta.shape, meta.stride, strict=True))
    return span >= meta.numel


def _exchanged(metas: Sequence[TensorMeta], semantics: Semantics) -> Iterator[Mistake]:
    """Two arguments of one form, each in the other's place."""
    named = [index for index in semantics.names if "float" in metas[index].dtype and metas[index].numel]
    for one, other in itertools.combinations(named, 2):
        if (metas[one].shape, metas[one].dtype) == (metas[other].shape, metas[other].dtype):

            def change(tensors: list[Tensor], one: int = one, other: int = other) -> None:
                tensors[one], tensors[other] = tensors[other].clone(), tensors[one].clone()

            words = f"with `{semantics.names[one]}` and `{semantics.names[other]}` exchanged"
            yield Mistake(words=words, change=_on_tensors(change))


def _tails(metas: Sequence[TensorMeta], semantics: Semantics) -> Iterator[Mistake]:
    """The end of the first argument, along one dimension, not looked at: 0 adds nothing to a sum."""
    first = next((i for i in semantics.names if semantics.role(i, metas[i]) == "data"), None)
    if first is None:
        return
    for dim, size in enumerate(metas[first].shape):
        for count in sorted({1, *(size % block for block in _BLOCKS if size > block)} - {0}):
            if count >= size:
                continue

            def change(tensors: list[Tensor], dim: int = dim, size: int = size, count: int = count) -> None:
                shorter = tensors[first].clone()
                shorter.narrow(dim, size - count, count).zero_()
                tensors[first] = shorter

            which = "last one" if count == 1 else f"last {count}"
            words = f"without the {which} of {size} along dimension {dim} of `{semantics.names[first]}`"
            yield Mistake(words=words, change=_on_tensors(change))


def _unbiased(input_set: InputSet, semantics: Semantics) -> Iterator[Mistake]:
    """A norm whose variance is divided by n - 1: the same with a smaller eps, and a weight that makes up for it."""
    call, metas = input_set.call, input_set.layout.metas
    given = {argument.name: argument.value for argument in call.arguments}
    eps = next((name for name, value in given.items() if is_eps(name) and value.kind == "float"), None)
    data = next((i for i in semantics.names if semantics.role(i, metas[i]) == "data"), None)
    weight = next((i for i, name in semantics.names.items() if "weight" in name), None)
    of_inputs = "training" not in given or given["training"].value is True
    if eps is None or data is None or not of_inputs or (weight is None and "weight" not in given):
        return
    meta = metas[data]
    count = _averaged(call, meta, given)
    if count < 2:
        return
    share = (count - 1) / count
    smaller = replace(given[eps], value=(float.fromhex(str(given[eps].value)) * share).hex())
    shape = given.get("normalized_shape")
    normalized = tuple(int(item.value or 0) for item in shape.items) if shape else meta.shape[1:2]

    def change(call: OpCall, tensors: list[Tensor]) -> OpCall:
        call = _with_value(eps, smaller)(call, tensors)
        if weight is not None:
            # In fp64: in half precision the factor would be lost.
            tensors[weight] = tensors[weight].double() * math.sqrt(share)
            return call
        tensors.append(torch.full(normalized, math.sqrt(share), dtype=torch.float64))
        return _with_value("weight", Value(kind="tensor", value=len(tensors) - 1))(call, tensors)

    yield Mistake(words="with the variance divided by n - 1 instead of n", change=change)


def _averaged(call: OpCall, meta: TensorMeta, given: Mapping[str, Value]) -> int:
    """How many numbers a variance is of."""
    rows = math.prod(meta.shape[dim] for dim in lane_dims(call, meta.shape))
    if "num_groups" in given:
        rows *= int(given["num_groups"].value or 1)
    elif "instance_norm" in call.op:
        rows *= meta.shape[1]
    return meta.numel // max(1, rows)
