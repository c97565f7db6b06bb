"""Other values of a call's arguments, tried until torch takes one that counts."""

from __future__ import annotations

import ast
import inspect
import random
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from pytest_cgins.core.bitwise import readable
from pytest_cgins.core.errors import TraceError
from pytest_cgins.core.layout import lay_out
from pytest_cgins.core.trace import Argument, OpCall, Value
from pytest_cgins.packs.call import relocate, with_value
from pytest_cgins.packs.ops import resolve
from pytest_cgins.verify.couplings import couplings_of
from pytest_cgins.verify.forgery_check import blind_to
from pytest_cgins.verify.input_sets import InputSet, InputSetBuilder
from pytest_cgins.verify.semantics import is_eps, is_position, semantics_for
from pytest_cgins.verify.tolerance import all_finite

NAME = "arguments"
SMALL_EPS = 1e-3
_AXES = frozenset({"dim", "axis"})
_INDICES = (torch.int32, torch.int64)
_WORDS = (
    "none", "mean", "sum", "batchmean", "tanh", "zeros", "constant", "reflect", "replicate", "circular",
    "border", "reflection", "same", "valid", "nearest", "nearest-exact", "linear", "bilinear", "bicubic",
    "area", "trilinear", "floor", "trunc", "amax", "amin", "prod", "left", "right", "ij", "xy", "fro",
    "nuc",
)  # fmt: skip
"""What strings of torch's ops say: torch takes those that an argument may have."""
CALMING = frozenset({"p", "dropout_p", "dropout", "training"})
"""What makes a random op none: a share of 0 of what is dropped, and a model that is not trained."""
_FARTHER = (-3, -6, -9, -12, 4, 8, 12)
"""Powers of two by which a number is multiplied where one that is near does not count."""
VECTORS = frozenset({"weight", "bias"})
"""Tensors that may be left out."""
_SEEN = 0.7
"""Part of a mask that lets through."""

Change = tuple[Argument, Tensor | None]
"""Another argument, and the tensor that it is, if it is one."""


class ValueSearch:
    """Asks torch on the CPU, where what is illegal is an exception."""

    def __init__(
        self, builder: InputSetBuilder, original: InputSet, draw: random.Random, others: Sequence[OpCall]
    ) -> None:
        self._maker, self._base, self._others, self.draw = builder, original, others, draw
        self._torch = original.call.op.startswith("torch.")

    def first(self, given: Sequence[Change], argument: Argument) -> tuple[InputSet, list[Change]] | None:
        """The set of the first value that torch takes and that counts beside those given, and all that was changed."""
        return next(self.each(given, argument), None)

    def each(self, given: Sequence[Change], argument: Argument) -> Iterator[tuple[InputSet, list[Change]]]:
        """The same of all values."""
        before = self.answer(given)
        for change in self._candidates(argument):
            changes = [*given, change]
            input_set = self.legal(changes, before)
            if input_set is not None:
                yield input_set, changes

    def turned(self, argument: Argument) -> InputSet | None:
        """The call along another axis, its tensors turned with it: sizes along an axis belong to other arguments, too.

        Indices stay within all axes, so that a kernel that goes along the recorded one does not refuse them.
        """
        tensors = self._base.tensors()
        rank = max((tensor.ndim for tensor in tensors), default=0)
        least = min((min(tensor.shape) for tensor in tensors if tensor.ndim == rank > 0), default=0)
        for tensor in tensors:
            if tensor.dtype in _INDICES and least:
                tensor.remainder_(least)
        old = int(argument.value.value or 0)
        others = [dim for dim in range(rank) if dim != old % rank]
        for new in self.draw.sample(others, len(others)):
            moved = [
                tensor.movedim(old, new).contiguous() if tensor.ndim == rank else tensor for tensor in tensors
            ]
            base = replace(self._base, layout=lay_out(moved))
            changes = [(with_value(argument, replace(argument.value, value=new)), None)]
            input_set = ValueSearch(self._maker, base, self.draw, ()).legal(changes, self.answer([]))
            if input_set is not None:
                return input_set
        return None

    def but_one(self, changes: Sequence[Change]) -> Iterator[InputSet]:
        """Sets with all changes but one, where that is more than one: some count beside some others alone."""
        before = self.answer([])
        for left_out in changes if len(changes) > 2 else ():
            input_set = self.legal([change for change in changes if change is not left_out], before)
            if input_set is not None:
                yield input_set

    def legal(self, changes: Sequence[Change], before: Sequence[Tensor]) -> InputSet | None:
        """The set with changes, if torch takes them and answers otherwise than before."""
        try:
            if self._belong_otherwise(changes):
                return None
            state = torch.get_rng_state()
            answers = self.answer(changes)
            # Equal answers prove nothing: of one weight dropout leaves all or nothing.
            is_random = not torch.equal(state, torch.get_rng_state())
            if is_random or not _counts(answers, before) or not _equal(answers, self.answer(changes, seed=2)):
                return None
            input_set = self._made(changes)
        except Exception:  # noqa: BLE001 - an op of a user may refuse by any exception
            return None
        is_told = input_set.mutated == self._base.mutated and not blind_to(input_set.expected)
        return input_set if is_told else None

    def _belong_otherwise(self, changes: Sequence[Change]) -> bool:
        """Whether arguments belong together in another way then, as offsets do that hold their end: torch reads on if they do not."""
        calls = ((self._base.call, self._base.tensors()), self._changed(changes))
        before, after = (couplings_of(semantics_for(each[0], self._maker.declared), *each) for each in calls)
        return before != after

    def _changed(self, changes: Sequence[Change]) -> tuple[OpCall, list[Tensor]]:
        tensors = self._base.tensors()
        news: dict[str, Argument] = {}
        for argument, tensor in changes:
            if tensor is not None:
                argument = replace(argument, value=Value(kind="tensor", value=len(tensors)))  # noqa: PLW2901
                tensors.append(tensor)
            news[argument.name] = argument
        arguments = tuple(news.get(argument.name, argument) for argument in self._base.call.arguments)
        return replace(self._base.call, arguments=arguments), tensors

    def answer(self, changes: Sequence[Change], seed: int | None = None) -> list[Tensor]:
        """Torch's own with changes."""
        call, tensors = self._changed(changes)
        context = self._base.context if seed is None else replace(self._base.context, rng_seed=seed)
        return replace(self._base, call=relocate(call, "cpu"), context=context, device="cpu").answer(tensors)

    def _made(self, changes: Sequence[Change]) -> InputSet:
        call, tensors = self._changed(changes)
        shown = ", ".join(
            f"{argument.name}={_shown(argument.value) if tensor is None else 'tensor'}"
            for argument, tensor in changes
        )
        input_set = self._maker.make(f"other {shown}", tensors, probe=NAME, call=call)
        return replace(input_set, origin=self._base)

    def _candidates(self, argument: Argument) -> Iterator[Change]:
        """Other values: recorded ones first, then what its kind may be."""
        old, name = argument.value, argument.name
        passed = with_value(argument, old)
        as_tensor = replace(passed, value=Value(kind="tensor", value=0))
        if old.kind == "tensor" and name in VECTORS:
            yield replace(passed, value=Value(kind="none")), None
        if old.kind == "none" and name in VECTORS and self._torch:
            metas = self._base.layout.metas
            widths = dict.fromkeys(size for meta in metas for size in reversed(meta.shape))
            generator = torch.Generator().manual_seed(self.draw.getrandbits(60))
            kind = next((meta.dtype for meta in metas if "float" in meta.dtype), "float32")
            for width in widths:
                numbers = torch.rand(width, generator=generator).add_(0.5)
                yield as_tensor, numbers.to(getattr(torch, kind))
        if old.kind in ("tensor", "none") and name in VECTORS:
            return
        if "mask" in name and self._torch:
            yield from ((as_tensor, mask) for mask in self._masks(old))
            return
        if old.kind == "tensor":
            later = self._later(name, self._base.tensors()[int(old.value or 0)])
            yield from ((as_tensor, positions) for positions in later)
            return
        arguments = (argument for call in self._others for argument in call.arguments)
        recorded = dict.fromkeys(argument.value for argument in arguments if argument.name == name)
        news = [value for value in recorded if value != old and value.kind not in ("tensor", "none")]
        news = [] if old.kind == "int" and "seed" in name.lower() else news
        self.draw.shuffle(news)
        for value in (*news, *self._values(name, old)):
            if value != old:
                yield replace(passed, value=value), None

    def _masks(self, old: Value) -> Iterator[Tensor]:
        """Numbers that are added in the place of booleans, and booleans in the place of anything else."""
        tensors = self._base.tensors()
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

    def _later(self, name: str, positions: Tensor) -> Iterator[Tensor]:
        """Positions of tokens that are a few later, in each sequence others, if nobody says what they are."""
        declared = self._maker.declared
        said = {name for name, _ in declared.roles} | {coupling.argument for coupling in declared.coupled}
        whole = positions.dtype in _INDICES and positions.ndim > 0 and positions.numel() > 0
        if whole and name not in said and is_position(name):
            length, rows = positions.shape[-1], positions[..., :1].numel()
            first = self.draw.randint(0, length - 1)
            later = 1 + (first + torch.arange(rows)) % max(2, length)
            yield positions + later.reshape(*positions.shape[:-1], 1).to(positions.dtype)

    def _values(self, name: str, old: Value) -> Iterator[Value]:
        if old.kind == "bool":
            yield replace(old, value=not old.value)
        elif old.kind == "int":
            yield from (replace(old, value=number) for number in self._whole(name, int(old.value or 0)))
        elif old.kind == "float":
            number = float.fromhex(str(old.value))
            if name in CALMING:
                yield Value(kind="float", value=(0.0).hex())
            factor = self.draw.uniform(0.5, 0.9)
            if is_eps(name):
                factor *= 1024 if number <= SMALL_EPS else 8
            # A bound may bind far below its value, or far above.
            powers = (0,) if not number or name in CALMING else (0, *_FARTHER)
            for power in powers:
                yield Value(kind="float", value=((number or 0.5) * factor * 2.0**power).hex())
        elif old.kind == "str":
            words = _WORDS if self._torch else _words_of(self._base.call.op, name)
            yield from (replace(old, value=word) for word in self.draw.sample(words, len(words)))
        elif old.kind == "none" and self._torch:
            yield Value(kind="float", value=self.draw.uniform(0.1, 0.4).hex())
            yield from (Value(kind="int", value=number) for number in self.draw.sample((-1, 0, 1, 2), 4))
            yield from (Value(kind="str", value=op_word) for op_word in self.draw.sample(_WORDS, len(_WORDS)))
        elif old.kind in ("tuple", "list", "size"):
            yield from self._lists(name, old)

    def _lists(self, name: str, old: Value) -> Iterator[Value]:
        """One item another, or all of them the same."""
        items = list(old.items)
        for number in self.draw.sample(range(len(items)), len(items)):
            for other in self._values(name, items[number]):
                yield replace(old, items=(*items[:number], other, *items[number + 1 :]))
                yield replace(old, items=(other,) * len(items))

    def _whole(self, name: str, old: int) -> list[int]:
        """Whole numbers; of an op of a user only such as are of the old one's kind."""
        near = [old + 1, old - 1, 2 * old]
        if "seed" in name.lower():
            return [self.draw.getrandbits(31)]
        if self._torch:
            near = [*near, -old, *range(-2, 5)]
        elif old > 0:
            near = [one for one in near if one > 0]
        self.draw.shuffle(near)
        return [*dict.fromkeys(near)]


def _words_of(op: str, name: str) -> tuple[str, ...]:
    """Strings that an op of a user compares something with, and usual ones: which an argument may have, it says when it is run."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(resolve(op.partition("@")[0]))))
    except (OSError, TypeError, SyntaxError, TraceError):
        return ()
    compared = [part for node in ast.walk(tree) if isinstance(node, ast.Compare) for part in ast.walk(node)]
    words = [part.value for part in compared if isinstance(part, ast.Constant)]
    usual = ("none", "mean", "sum") if name == "reduction" else ()
    return tuple(dict.fromkeys(word for word in (*words, *usual) if isinstance(word, str)))


def is_axis(argument: Argument) -> bool:
    """Whether an argument says along which axis."""
    return argument.value.kind == "int" and bool(_AXES & set(argument.name.lower().split("_")))


def _counts(answers: Sequence[Tensor], before: Sequence[Tensor]) -> bool:
    """Whether answers are other ones of the same kind, and as finite."""
    if [answer.dtype for answer in answers] != [answer.dtype for answer in before] or _equal(answers, before):
        return False
    is_finite = all(map(all_finite, answers)) or not all(map(all_finite, before))
    return is_finite and all(answer.numel() for answer in answers)


def _equal(answers: Sequence[Tensor], others: Sequence[Tensor]) -> bool:
    return all(
        tensor.shape == other.shape
        and torch.equal(readable(tensor).nan_to_num(), readable(other).nan_to_num())
        for tensor, other in zip(answers, others, strict=True)
    )


def _shown(value: Value) -> str:
    if value.kind == "float":
        return f"{float.fromhex(str(value.value)):.3g}"
    if value.items:
        return f"({', '.join(map(_shown, value.items))})"
    return str(value.kind if value.value is None else value.value)
