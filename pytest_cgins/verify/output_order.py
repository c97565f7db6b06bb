"""Answers of which several are right as a whole, brought into one form before they are compared.

`topk(sorted=False)` and `unique(sorted=False)` promise no order, and `mode` gives any of the values that come most often.
What is wrong in an answer stays wrong in its other form.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pytest_cgins.core.model import OpCall
from pytest_cgins.verify.indices import equal
from pytest_cgins.verify.semantics.call import integer_of, is_true, word

Arrangement = Callable[[Sequence[Tensor]], list[Tensor]]
"""From an answer to the form in which answers are compared."""


def arrangement(call: OpCall, argument: Tensor | None, own: Sequence[Tensor]) -> Arrangement | None:
    """How answers to a call are brought into one form; None where they are compared as they are.

    Args:
        call: the call, of any op.
        argument: its first argument, if that is a tensor.
        own: torch's answer.
    """
    if not call.op.startswith("torch.") or "@" in call.op or argument is None or not argument.ndim:
        return None
    name = word(call)
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
        as_often = equal(self.rows, values).sum(-1, keepdim=True) >= equal(self.rows, own).sum(
            -1, keepdim=True
        )
        right = inside & as_often & equal(pointed, values)
        # An index that points at neither is what is wrong, and not the value.
        alone = as_often & ~right & ~(inside & equal(pointed, own))
        chosen = (
            torch.where(right | alone, own, values),
            torch.where(right, self._column(self.own[1]), indices),
        )
        return [
            _lying_as(old, one.squeeze(-1) if self.kept is None else one.movedim(-1, self.kept))
            for old, one in zip(answer, chosen, strict=True)
        ]

    def _column(self, tensor: Tensor) -> Tensor:
        return tensor[..., None] if self.kept is None else tensor.movedim(self.kept, -1)


def _lying_as(old: Tensor, new: Tensor) -> Tensor:
    """New values in a tensor that lies as the old one: how answers lie is looked at as well."""
    return torch.empty_like(old).copy_(new)
