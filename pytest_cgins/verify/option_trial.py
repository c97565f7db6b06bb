"""Other values of a call's plain arguments, and of its masks, tried until torch takes one that makes a difference."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from pytest_cgins.core.layout import lay_out, rebuild
from pytest_cgins.core.model import Argument, OpCall, Value
from pytest_cgins.packs.call import relocate, with_value
from pytest_cgins.packs.recipe import seed_of
from pytest_cgins.verify.blindness import blind_to
from pytest_cgins.verify.input_sets import InputSet, InputSetBuilder
from pytest_cgins.verify.reference import answer
from pytest_cgins.verify.semantics import Semantics

NAME = "arguments"
LIMIT_BYTES = 512 << 10
"""Larger arguments are not run some dozens of times."""
_MOST = 8
"""Arguments that are changed by themselves."""
_SMALL_EPS = 1e-3
_LEFT = frozenset(
    {
        "inplace",
        "out",
        "dtype",
        "device",
        "layout",
        "generator",
        "memory_format",
        "pin_memory",
        "requires_grad",
    }
    | {"size_average", "reduce", "training", "sparse", "sorted", "stable", "max_norm"}
)
"""What says where an answer lies, and of which type, and what torch itself has given up."""
_WORDS = (
    *("none", "mean", "sum", "batchmean", "tanh", "zeros", "constant", "reflect", "replicate", "circular"),
    *("border", "reflection", "same", "valid", "nearest", "nearest-exact", "linear", "bilinear", "bicubic"),
    *(
        "area",
        "trilinear",
        "floor",
        "trunc",
        "amax",
        "amin",
        "prod",
        "left",
        "right",
        "ij",
        "xy",
        "fro",
        "nuc",
    ),
)
"""What strings of torch's ops say: torch takes those that an argument may have."""
_CALMING = frozenset({"p", "dropout_p", "dropout", "training"})
"""What makes a random op none: a share of 0 of what is dropped, and a model that is not trained."""
_VECTORS = frozenset({"weight", "bias"})
"""Tensors that may be left out."""
_SEEN = 0.7
"""Part of a mask that lets through."""


def sets(
    builder: InputSetBuilder, semantics: Semantics, base: InputSet, key: str, others: Sequence[OpCall]
) -> list[InputSet]:
    """Each plain argument with another value by itself, then as many at once as torch takes, and all of these but one.

    Of a random op, values with which it is none: what is drawn shows no option, and these are compared as of other ops.

    Args:
        builder: of the trace.
        semantics: of its call.
        base: the set whose numbers are taken; it is small.
        key: of the probe.
        others: what else was recorded of the op: its values come first.
    """
    if base.call.op.endswith("_"):
        return []
    trial = _Trial(replace(builder, random={}), base, random.Random(seed_of(key)), others)  # noqa: S311
    fixed = {argument for argument, _ in semantics.declared.fixed}
    arguments = [
        one
        for one in base.call.arguments
        if one.passed != "state"
        and one.name not in fixed
        and (one.name in _CALMING if builder.random else one.name not in _LEFT)
    ]
    trial.draw.shuffle(arguments)
    made: list[InputSet] = []
    together, last = list[Change](), base
    for argument in arguments:
        one = trial.first([], argument) if len(made) < _MOST else None
        if one is not None:
            made.append(one[0])
            both = trial.first(together, argument) if together else one
            together = both[1] if both is not None else together
            last = both[0] if both is not None else last
    if len(together) > 1:
        made.append(last)
    return [*made, *trial.but_one(together)]


def axes(builder: InputSetBuilder, semantics: Semantics, ranked: InputSet) -> list[InputSet]:
    """The call in a dimension more along its middle axis, along the outer two, and normalized over two axes, if torch takes it.

    Args:
        builder: of the trace.
        semantics: of its call.
        ranked: the set in a dimension more.
    """
    trial = _Trial(builder, ranked, random.Random(0), ())  # noqa: S311 - nothing is drawn
    before = trial.answer([])
    fixed = {argument for argument, _ in semantics.declared.fixed}
    made = [
        trial.legal(changes, before)
        for changes in _other_axes(ranked)
        if not fixed & {argument.name for argument, _ in changes}
    ]
    return [
        replace(one, expected=replace(one.expected, name=f"{one.expected.name} in a dimension more"))
        for one in made
        if one is not None
    ]


def _other_axes(ranked: InputSet) -> Iterator[list[Change]]:
    """What to change of a call so that it runs along other axes of its first argument."""
    tensors = rebuild(ranked.layout.metas, ranked.layout.spans, "cpu")
    for argument in ranked.call.arguments:
        if argument.name == "dim":
            middle, outer = _whole_numbers((-2,))[0], _whole_numbers((0, -1))
            yield [(with_value(argument, middle), None)]
            yield [(with_value(argument, Value(kind="tuple", items=outer)), None)]
        elif argument.name == "normalized_shape" and len(argument.value.items) == 1 and tensors[0].ndim > 1:
            shape = tuple(tensors[0].shape[-2:])
            wide = [
                (one, tensors[int(one.value.value or 0)].expand(shape).contiguous())
                for one in ranked.call.arguments
                if one.name in _VECTORS and one.value.kind == "tensor"
            ]
            yield [
                (replace(argument, value=replace(argument.value, items=_whole_numbers(shape))), None),
                *wide,
            ]


def _whole_numbers(numbers: Sequence[int]) -> tuple[Value, ...]:
    return tuple(Value(kind="int", value=number) for number in numbers)


Change = tuple[Argument, Tensor | None]
"""Another argument, and the tensor that it is, if it is one."""


class _Trial:
    """Asks torch on the CPU, where what is illegal is an exception."""

    def __init__(
        self, builder: InputSetBuilder, base: InputSet, draw: random.Random, others: Sequence[OpCall]
    ) -> None:
        self._maker, self._base, self._others, self.draw = builder, base, others, draw
        self._torch = base.call.op.startswith("torch.")

    def first(self, given: Sequence[Change], argument: Argument) -> tuple[InputSet, list[Change]] | None:
        """The set of the first value that torch takes and that counts beside those given, and all that was changed."""
        before = self.answer(given)
        for change in self._candidates(argument):
            changes = [*given, change]
            made = self.legal(changes, before)
            if made is not None:
                return made, changes
        return None

    def but_one(self, changes: Sequence[Change]) -> Iterator[InputSet]:
        """Sets with all changes but one, where that is more than one: some count beside some others alone."""
        before = self.answer([])
        for left_out in changes if len(changes) > 2 else ():
            made = self.legal([change for change in changes if change is not left_out], before)
            if made is not None:
                yield made

    def legal(self, changes: Sequence[Change], before: Sequence[Tensor]) -> InputSet | None:
        """The set with changes, if torch takes them and answers otherwise than before."""
        try:
            state = torch.get_rng_state()
            answers = self.answer(changes)
            # Equal answers prove nothing: of one weight dropout leaves all or nothing.
            is_random = not torch.equal(state, torch.get_rng_state())
            if is_random or not _counts(answers, before) or not _equal(answers, self.answer(changes, seed=2)):
                return None
            made = self._made(changes)
        except Exception:  # noqa: BLE001 - an op of a user may refuse by any exception
            return None
        return made if made.mutated == self._base.mutated and not blind_to(made.expected) else None

    def _changed(self, changes: Sequence[Change]) -> tuple[OpCall, list[Tensor]]:
        tensors = rebuild(self._base.layout.metas, self._base.layout.spans, "cpu")
        news: dict[str, Argument] = {}
        for argument, tensor in changes:
            if tensor is not None:
                argument = replace(argument, value=Value(kind="tensor", value=len(tensors)))  # noqa: PLW2901
                tensors.append(tensor)
            news[argument.name] = argument
        call = self._base.call
        return replace(call, arguments=tuple(news.get(one.name, one) for one in call.arguments)), tensors

    def answer(self, changes: Sequence[Change], seed: int | None = None) -> list[Tensor]:
        call, tensors = self._changed(changes)
        context = self._base.context if seed is None else replace(self._base.context, rng_seed=seed)
        return answer(relocate(call, "cpu"), lay_out(tensors), context, "cpu", mutated=self._base.mutated)

    def _made(self, changes: Sequence[Change]) -> InputSet:
        call, tensors = self._changed(changes)
        shown = ", ".join(
            f"{one.name}={_shown(one.value) if tensor is None else 'tensor'}" for one, tensor in changes
        )
        made = self._maker.make(f"other {shown}", tensors, probe=NAME, call=call)
        return replace(made, origin=self._base)

    def _candidates(self, argument: Argument) -> Iterator[Change]:
        """Other values: recorded ones first, then what its kind may be."""
        old, name = argument.value, argument.name
        passed = with_value(argument, old)
        if old.kind == "tensor" and name in _VECTORS:
            yield replace(passed, value=Value(kind="none")), None
        if old.kind == "none" and name in _VECTORS and self._torch:
            metas = self._base.layout.metas
            widths = dict.fromkeys(size for meta in metas for size in reversed(meta.shape))
            generator = torch.Generator().manual_seed(self.draw.getrandbits(60))
            kind = next((meta.dtype for meta in metas if "float" in meta.dtype), "float32")
            for width in widths:
                yield (
                    replace(passed, value=Value(kind="tensor", value=0)),
                    torch.rand(width, generator=generator).add_(0.5).to(getattr(torch, kind)),
                )
        if old.kind in ("tensor", "none") and name in _VECTORS:
            return
        if "mask" in name and self._torch:
            for mask in self._masks(old):
                yield replace(passed, value=Value(kind="tensor", value=0)), mask
            return
        recorded = dict.fromkeys(
            one.value for call in self._others for one in call.arguments if one.name == name
        )
        news = [value for value in recorded if value != old and value.kind not in ("tensor", "none")]
        self.draw.shuffle(news)
        for value in (*news, *self._values(name, old)):
            if value != old:
                yield replace(passed, value=value), None

    def _masks(self, old: Value) -> Iterator[Tensor]:
        """Numbers that are added in the place of booleans, and booleans in the place of anything else."""
        tensors = rebuild(self._base.layout.metas, self._base.layout.spans, "cpu")
        floats = [tensor for tensor in tensors if tensor.is_floating_point() and tensor.ndim > 1]
        recorded = tensors[int(old.value or 0)] if old.kind == "tensor" else None
        shapes = [(one.shape[-2], other.shape[-2]) for one in floats for other in floats]
        generator = torch.Generator().manual_seed(self.draw.getrandbits(60))
        for shape in [tuple(recorded.shape)] if recorded is not None else dict.fromkeys(shapes):
            if recorded is None or recorded.dtype != torch.bool:
                seen = torch.rand(shape, generator=generator) < _SEEN
                seen[..., 0] = True
                yield seen
            if floats and (recorded is None or recorded.dtype == torch.bool):
                yield torch.rand(shape, generator=generator).mul_(-4).to(floats[0].dtype)

    def _values(self, name: str, old: Value) -> Iterator[Value]:
        if old.kind == "bool":
            yield replace(old, value=not old.value)
        elif old.kind == "int":
            yield from (replace(old, value=number) for number in self._whole(int(old.value or 0)))
        elif old.kind == "float":
            number = float.fromhex(str(old.value))
            if name in _CALMING:
                yield Value(kind="float", value=(0.0).hex())
            factor = self.draw.uniform(0.5, 0.9)
            if {"eps", "epsilon"} & set(name.lower().split("_")):
                factor *= 1024 if number <= _SMALL_EPS else 8
            yield Value(kind="float", value=(number * factor if number else factor / 2).hex())
        elif old.kind == "str" and self._torch:
            yield from (replace(old, value=word) for word in self.draw.sample(_WORDS, len(_WORDS)))
        elif old.kind == "none" and self._torch:
            yield Value(kind="float", value=self.draw.uniform(0.1, 0.4).hex())
            yield from (Value(kind="int", value=number) for number in self.draw.sample((-1, 0, 1, 2), 4))
            yield from (Value(kind="str", value=word) for word in self.draw.sample(_WORDS, len(_WORDS)))
        elif old.kind in ("tuple", "list", "size"):
            yield from self._lists(name, old)

    def _lists(self, name: str, old: Value) -> Iterator[Value]:
        """One item another, or all of them the same."""
        items = list(old.items)
        for number in self.draw.sample(range(len(items)), len(items)):
            for other in self._values(name, items[number]):
                yield replace(old, items=(*items[:number], other, *items[number + 1 :]))
                yield replace(old, items=(other,) * len(items))

    def _whole(self, old: int) -> list[int]:
        """Whole numbers; of an op of a user only such as are of the old one's kind."""
        near = [old + 1, old - 1, 2 * old]
        if self._torch:
            near = [*near, -old, *range(-2, 5)]
        elif old > 0:
            near = [one for one in near if one > 0]
        self.draw.shuffle(near)
        return [*dict.fromkeys(near)]


def _counts(answers: Sequence[Tensor], before: Sequence[Tensor]) -> bool:
    """Whether answers are other ones of the same kind, and as finite."""
    if [one.dtype for one in answers] != [one.dtype for one in before] or _equal(answers, before):
        return False
    finite = [all(bool(one.isfinite().all()) for one in some) for some in (answers, before)]
    return all(one.numel() for one in answers) and finite[0] >= finite[1]


def _equal(answers: Sequence[Tensor], others: Sequence[Tensor]) -> bool:
    return all(
        one.shape == other.shape and torch.equal(one.nan_to_num(), other.nan_to_num())
        for one, other in zip(answers, others, strict=True)
    )


def _shown(value: Value) -> str:
    if value.kind == "float":
        return f"{float.fromhex(str(value.value)):.3g}"
    return (
        f"({', '.join(map(_shown, value.items))})"
        if value.items
        else str(value.kind if value.value is None else value.value)
    )
