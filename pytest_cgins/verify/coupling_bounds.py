"""A coupling in one call: the size that it is about, what its lengths can be, and whether numbers are legal in it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from pytest_cgins.config.coupled import Coupling, Lengths, Offsets, Routing, Size, Sorted, Unique, written
from pytest_cgins.core.errors import ConfigError
from pytest_cgins.core.trace import OpCall, tensor_indices
from pytest_cgins.verify.couplings import Integers, couplings_of, lengths_of, tensors_of
from pytest_cgins.verify.semantics import Semantics


def _nothing() -> Integers:
    return np.zeros(0, dtype=np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """A coupling in one call."""

    coupling: Coupling
    index: int
    """The argument among the tensors."""
    recorded: Tensor
    size: int
    """The size that it is about; 0 for none."""
    page: int
    """The last factor of a size that is a product, else 0."""
    companions: Mapping[str, tuple[int, Tensor]]
    """Gates and counts of a routing: their index among the tensors, and what was recorded."""
    totals: Integers = field(default_factory=_nothing)
    """What the lengths of each row of offsets, or of lengths that add up, add up to."""
    least: Integers = field(default_factory=_nothing)
    """The shortest that each length can be."""
    most: Integers = field(default_factory=_nothing)
    """The longest that each length can be."""
    within: str = ""
    """The argument whose lengths none of these exceeds; "" for none."""
    step: int = 1
    """How many of these a length of that argument stands for: a page's size."""

    @property
    def name(self) -> str:
        """Of the argument."""
        return self.coupling.argument

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the argument."""
        return tuple(self.recorded.shape)

    @property
    def row(self) -> int:
        """Numbers along its last axis."""
        return self.shape[-1] if self.shape else 1

    @property
    def rows(self) -> npt.NDArray[np.generic]:
        """What was recorded of it, a row for each along the last axis."""
        wide = self.recorded.to(torch.float64 if self.recorded.is_floating_point() else torch.int64)
        rows: npt.NDArray[np.generic] = wide.reshape(-1, self.row).numpy()
        return rows

    def fail(self, problem: str) -> ValueError:
        """What a draw raises where the sizes leave nothing legal; it is told as a refusal of torch is."""
        return ValueError(f"{self.name} as {self.coupling.kind}: {problem}")


@dataclass(frozen=True, slots=True)
class _Binding:
    """Binds couplings to one call."""

    semantics: Semantics
    call: OpCall
    recorded: Sequence[Tensor]
    legal: bool
    """Whether the recorded integers are a call's."""

    def bind(self, coupling: Coupling) -> Iterator[Bound]:
        """The coupling of each tensor of an argument: none where the call leaves it out, or where it was recorded otherwise."""
        given = {argument.name: tensor_indices(argument.value) for argument in self.call.arguments}
        roles = (
            {"weights": coupling.weights, "counts": coupling.counts} if isinstance(coupling, Routing) else {}
        )
        companions = {
            role: (index, self.recorded[index])
            for role, name in roles.items()
            for index in given.get(name, ())[:1]
        }
        floats = isinstance(coupling, Sorted) and not coupling.size
        for index in given.get(coupling.argument, ()):
            tensor = self.recorded[index]
            if not floats and (tensor.is_floating_point() or tensor.dtype == torch.bool):
                raise ConfigError(
                    f"semantics says that {coupling.argument} of {self.call.op} holds {coupling.kind}, and it is {tensor.dtype}",
                    remedy="name an argument of integers",
                )
            if not tensor.numel():
                continue
            size = self._product(coupling.size, coupling) if coupling.size else 0
            page = self._product(coupling.size[-1:], coupling) if len(coupling.size) > 1 else 0
            bound = Bound(
                coupling=coupling, index=index, recorded=tensor, size=size, page=page, companions=companions
            )
            bound = self._with_limits(bound)
            if not self.legal or not self._is_refuted(bound, problem_in(bound, bound.rows)):
                yield bound

    def _with_limits(self, bound: Bound) -> Bound:
        """The same with what its lengths add up to, and what each of them can be."""
        coupling = bound.coupling
        if not isinstance(coupling, Offsets | Lengths):
            return bound
        own, whole = lengths_in(bound, bound.rows), adds_up(coupling)
        most = np.full(own.shape[1] if whole else own.size, bound.size)
        if isinstance(coupling, Offsets) and coupling.most:
            most = np.minimum(most, self._product(coupling.most, coupling))
        table = tensors_of(self.call, self.recorded).get(coupling.size[0][0])
        if not whole and table is not None and table.ndim > 1 and not table.is_floating_point():
            # A row has no pages behind the first that is none.
            pages = (table.reshape(-1, table.shape[-1]) >= 0).to(torch.int64).cumprod(1).sum(1).numpy()
            most = pages * (bound.size // table.shape[-1]) if len(pages) == len(most) else most
        totals = own.sum(1) if whole else _nothing()
        # What is behind the last segment is padding, and stays that.
        totals = totals if self.legal else np.full_like(totals, bound.size)
        return replace(bound, totals=totals, most=most, least=np.full_like(most, coupling.least))

    def limited(self, bound: Bound, other: Bound | None) -> Bound:
        """A bound whose lengths do not exceed what those of another argument can be, which has a bound or not."""
        coupling, name = bound.coupling, _within(bound.coupling)
        tensor = tensors_of(self.call, self.recorded).get(name)
        if tensor is None or not isinstance(coupling, Offsets | Lengths):
            return bound
        step = self._product(coupling.within[1:], coupling)
        numbers = tensor.reshape(-1).to(torch.int64).numpy()
        if other is not None:
            numbers = lengths_in(other, other.rows).reshape(-1)
        elif numbers.size == len(bound.most) + 1:
            numbers = np.diff(numbers)
        own, problem = lengths_in(bound, bound.rows).reshape(-1), ""
        if own.shape != numbers.shape or own.shape != bound.most.shape:
            problem = f"there are {own.size}, and {numbers.size} of {name}"
        elif self.legal and (own > numbers * step).any():
            worst = int(np.argmax(own - numbers * step))
            problem = f"length {own[worst]} exceeds {numbers[worst] * step} of {name}"
        if self._is_refuted(bound, problem):
            return bound
        reach = tokens_of(numbers if other is None else other.most, step)
        return replace(bound, most=np.minimum(bound.most, reach), within=name, step=step)

    def _is_refuted(self, bound: Bound, problem: str) -> bool:
        """Whether what was recorded is not what is known of an op, which need not hold of each call; what is declared must."""
        if problem and bound.coupling in self.semantics.declared.coupled:
            raise ConfigError(
                f"semantics says that {bound.name} of {self.call.op} holds {bound.coupling.kind}, and of the recorded ones {problem}",
                remedy=f"correct what coupled says of it, or take it out: {bound.name} then stays as recorded",
            )
        return bool(problem)

    def _product(self, size: Size, coupling: Coupling) -> int:
        """A size in this call."""
        return math.prod(self._factor(name, dim, coupling) for name, dim in size)

    def _factor(self, name: str, dim: int | None, coupling: Coupling) -> int:
        if name.isdecimal():
            return int(name)
        value = next((argument.value for argument in self.call.arguments if argument.name == name), None)
        if dim is None and value is not None:
            leaf = value.items[0] if value.items else value
            if leaf.kind == "int":
                return int(leaf.value or 0)
        elif value is not None and dim is not None:
            shapes = [self.recorded[index].shape for index in tensor_indices(value)[:1]]
            if shapes and dim < len(shapes[0]):
                return shapes[0][dim]
        raise ConfigError(
            f"semantics says that {coupling.argument} of {self.call.op} depends on {written(((name, dim),))}, which this call does not have",
            remedy='write a dimension that the argument has, e.g. "x[0]", or the name of an integer argument',
        )


def bounds_of(semantics: Semantics, call: OpCall, recorded: Sequence[Tensor], *, legal: bool) -> list[Bound]:
    """The bounds of a call in the order in which they are drawn.

    What adds up comes before that which it is within, which then has room for it; then what fits into any room.
    What is known of an op, and was recorded otherwise, is left out.

    Raises:
        ConfigError: what is declared is not what was recorded, or is within itself.
    """
    binding = _Binding(semantics, call, recorded, legal)
    couplings = couplings_of(semantics, call, recorded)
    bounds = {bound.index: bound for coupling in couplings for bound in binding.bind(coupling)}
    named = {bound.name: bound for bound in bounds.values()}

    def depth(bound: Bound, before: tuple[str, ...] = ()) -> int:
        if bound.name in before:
            raise ConfigError(f"{bound.name} of {call.op} is within itself", remedy="take one within out")
        other = named.get(_within(bound.coupling))
        return 0 if other is None else 1 + depth(other, (*before, bound.name))

    ordered = []
    for bound in sorted(bounds.values(), key=depth):
        named[bound.name] = binding.limited(bound, named.get(_within(bound.coupling)))
        ordered.append(named[bound.name])
    whole = [bound for bound in ordered if adds_up(bound.coupling)]
    return [*whole[::-1], *(bound for bound in ordered if not adds_up(bound.coupling))]


def _within(coupling: Coupling) -> str:
    """The argument whose lengths those of a coupling do not exceed; "" for none."""
    within = coupling.within if isinstance(coupling, Offsets | Lengths) else ()
    return within[0][0] if within else ""


def tokens_of(pages: Integers, step: int) -> Integers:
    """What so many pages hold at least, if there is a token in the last."""
    return np.where(pages > 0, (pages - 1) * step + 1, 0)


def pages_of(tokens: Integers, step: int) -> Integers:
    """How many pages hold so many tokens even if there is but one in the last."""
    return np.where(tokens > 0, (tokens - 2 + step) // step + 1, 0)


def adds_up(coupling: Coupling) -> bool:
    """Whether lengths add up to a total."""
    return isinstance(coupling, Offsets) or (isinstance(coupling, Lengths) and coupling.sum)


def lengths_in(bound: Bound, values: npt.NDArray[np.generic]) -> Integers:
    """The lengths that rows of offsets, or of lengths, stand for; of other kinds the numbers."""
    return lengths_of(bound.coupling, values.astype(np.int64), bound.size)


def problem_in(bound: Bound, values: npt.NDArray[np.generic]) -> str:
    """What is illegal in rows of numbers, in words; "" if nothing is known to be."""
    coupling = bound.coupling
    if isinstance(coupling, Offsets | Lengths):
        lengths, whole = lengths_in(bound, values), adds_up(coupling)
        if isinstance(coupling, Offsets) and coupling.first and values[:, 0].any():
            return f"the first is {values[:, 0].max()}, and not 0"
        if whole and lengths.size and int(lengths.sum(1).max()) > bound.size:
            return f"the last ends at {lengths.sum(1).max()}, beyond {written(coupling.size)}, which is {bound.size}"
        if isinstance(coupling, Offsets) and (lengths[:, :-1] % coupling.multiple).any():
            return f"a length is no multiple of {coupling.multiple}"
        flat = lengths if whole else lengths.reshape(-1)
        for wrong, than in ((flat < bound.least, "shorter"), (flat > bound.most, "longer")):
            if wrong.any():
                return f"a length is {flat[wrong][0]}, {than} than can be"
        return ""
    if isinstance(coupling, Sorted):
        if (np.diff(values) < 0).any():
            return "they fall"
        return f"one is {values.max()}" if coupling.size and int(values.max()) >= bound.size else ""
    numbers = values.astype(np.int64)
    numbers = numbers[numbers >= 0]
    if numbers.size and int(numbers.max()) >= bound.size:
        return f"one is {numbers.max()}, and {written(coupling.size)} is {bound.size}"
    twice = isinstance(coupling, Unique) and len(np.unique(numbers)) < numbers.size
    return "one comes twice" if twice else ""
