"""Which rows of its arguments an op does not read: padding, unused pages and experts, keys that are not to be seen.

Where the gradient of the outputs, weighted by lot, is 0 all along the last dimension, nothing that was asked about depends on
the row, or not by its slope alone, as of a maximum. So torch is asked whether its answer stays when such rows hold something
else: of all, then of halves of those with which it does not.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pytest_cgins.core.bitwise import all_same
from pytest_cgins.core.layout import Layout, rebuild
from pytest_cgins.core.trace import Context, OpCall
from pytest_cgins.packs.call import flatten, invoke
from pytest_cgins.packs.context import restore
from pytest_cgins.verify.reference import KeepWide, widen
from pytest_cgins.verify.tolerance import all_finite

_SMALL = 1.0
"""The greatest number at which an op is asked for its slopes once more."""
_MOST_RUNS = 16
"""Of the op, to find the rows with which its answer stays."""

Rows = dict[int, Tensor]
"""By index of an argument, which of its rows: bool, of its shape but for the last dimension; of one dimension, each number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOp:
    """A call of an op, of which is asked what it reads: in fp64 on the CPU."""

    call: OpCall
    inputs: Layout
    context: Context
    mutated: Sequence[int]
    """Indices of the arguments that it changes, which count among the outputs."""
    seen: Callable[[Tensor], Tensor]
    """The part of an output that is asked about."""

    def flat(self) -> Rows:
        """Rows by which the outputs have no slope, neither as they are nor at numbers that saturate nothing.

        Rows that make an output row of their own are read, though it may not change with them: a query that sees one key.

        Raises:
            Exception: whatever the op raises, and RuntimeError where it has no gradient.
        """
        rows = {index: _flat(gradient) for index, gradient in self._slopes(self._wide()).items()}
        for index, gradient in self._slopes(_small(self._wide())).items():
            rows[index] &= _flat(gradient)
        rows = {index: one & ~self._own(index, one) for index, one in rows.items() if bool(one.any())}
        return {index: one for index, one in rows.items() if bool(one.any())}

    def _own(self, index: int, rows: Tensor) -> Tensor:
        """Rows of an argument that make the output row in their place, where that changes with another argument."""
        odd = torch.arange(rows.numel()).reshape(rows.shape) % 2 == 1
        gradient = self._slopes(_small(self._wide()), odd).get(index)
        own = torch.zeros_like(rows)
        if gradient is None or rows.ndim < 2 or not bool(gradient[odd].any()) or bool(gradient[~odd].any()):
            return own
        small = _small(self._wide())
        moved = [
            tensor / 2 if tensor.is_floating_point() and number != index else tensor.clone()
            for number, tensor in enumerate(small)
        ]
        for before, after in zip(self._run(small), self._run(moved), strict=True):
            if _beside(own, after):
                own[..., : after.shape[-2]] |= (before != after).any(-1)
        return own

    def _slopes(self, tensors: list[Tensor], rows: Tensor | None = None) -> dict[int, Tensor]:
        """Gradients of the outputs, or of some of their rows, weighted by lot, by index of the argument; 0 where there is none."""
        generator = torch.Generator().manual_seed(0)
        with torch.enable_grad():
            leaves = {
                index: tensor.requires_grad_()
                for index, tensor in enumerate(tensors)
                if tensor.is_floating_point() and tensor.ndim and tensor.numel()
            }
            parts = [output for output in self._run(tensors) if output.requires_grad]
            weights = [torch.randn(part.shape, generator=generator, dtype=part.dtype) for part in parts]
            weights = weights if rows is None else [_at(rows, weight) for weight in weights]
            total = sum((part * weight).sum() for part, weight in zip(parts, weights, strict=True))
            gradients = torch.autograd.grad([torch.as_tensor(total)], [*leaves.values()], allow_unused=True)
        return {
            index: torch.zeros_like(leaf) if gradient is None else gradient
            for (index, leaf), gradient in zip(leaves.items(), gradients, strict=True)
        }

    def unread(self, flat: Rows, content: Sequence[float]) -> Rows:
        """Those of some rows that may hold something else, in turns, and the answer stays."""
        usual = self._run(self._wide())
        groups = deque((index, rows) for index, rows in flat.items())
        unread: Rows = {}
        for _ in range(_MOST_RUNS):
            if not groups:
                break
            index, rows = groups.popleft()
            tensors = self._wide()
            fill(tensors[index], rows, content)
            if all_same(self._run(tensors), usual):
                unread[index] = unread.get(index, torch.zeros_like(rows)) | rows
            elif int(rows.sum()) > 1:
                half = rows & (rows.reshape(-1).cumsum(0).reshape(rows.shape) <= int(rows.sum()) // 2)
                groups.extend([(index, half), (index, rows & ~half)])
        return unread

    def _wide(self) -> list[Tensor]:
        wide = widen(self.inputs, torch.float64)
        return rebuild(wide.metas, wide.spans, "cpu")

    def _run(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        plain = Context(
            default_dtype="float64", rng_seed=self.context.rng_seed, grad_enabled=torch.is_grad_enabled()
        )
        with KeepWide(torch.float64), restore(plain, "cpu"):
            given = [tensor.clone() if tensor.requires_grad else tensor for tensor in tensors]
            outputs = [*flatten(invoke(self.call, given))[1], *(given[index] for index in self.mutated)]
            return [self.seen(output) for output in outputs if output.is_floating_point()]


def _at(rows: Tensor, weights: Tensor) -> Tensor:
    """The weights of some rows, where the output has as many or the first of them; else none."""
    is_beside = _beside(rows, weights)
    return weights * rows[..., : weights.shape[-2], None] if is_beside else torch.zeros_like(weights)


def _beside(rows: Tensor, output: Tensor) -> bool:
    shape = output.shape
    return output.ndim == rows.ndim + 1 and shape[:-2] == rows.shape[:-1] and shape[-2] <= rows.shape[-1]


def _flat(gradient: Tensor) -> Tensor:
    zero = gradient == 0
    return zero.all(-1) if zero.ndim > 1 else zero


def _small(tensors: list[Tensor]) -> list[Tensor]:
    """The tensors with finite numbers brought to a size at which no exponential leaves the rest nothing."""
    return [
        tensor * min(1.0, _SMALL / max(float(tensor.abs().max()), _SMALL))
        if tensor.is_floating_point() and tensor.numel() and all_finite(tensor)
        else tensor
        for tensor in tensors
    ]


def fill(tensor: Tensor, rows: Tensor, content: Sequence[float]) -> None:
    """Have some rows hold numbers, in turns."""
    count = int(rows.sum())
    values = torch.tensor(content).repeat(-(-count // len(content)))[:count].to(tensor.dtype)
    tensor[rows] = values[:, None] if tensor.ndim > 1 else values
