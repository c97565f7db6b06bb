"""Kernels in the place of a model's ops: each call of an op goes to its kernel, if that can take it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from pytest_cgins.core.errors import CginsError, ContractError, LaunchError
from pytest_cgins.core.layout import metas_of
from pytest_cgins.core.trace import TensorMeta, Value
from pytest_cgins.packs.call import flatten
from pytest_cgins.packs.context import capture
from pytest_cgins.packs.fingerprint import form_of
from pytest_cgins.packs.ops import qualified_name
from pytest_cgins.packs.signature import call_of
from pytest_cgins.packs.values import decode

if TYPE_CHECKING:
    from pytest_cgins.building.loading.callable import BoundCall, LoadedKernel
    from pytest_cgins.building.loading.returned import Plan

NEW = "its form was not met in the first run"
FIRST = "first call of a form, which tells what the op gives"
GRADIENTS = "gradients are asked for"


@dataclass(slots=True)
class Tally:
    """What became of the calls of one op in a run."""

    swapped: int = 0
    """Answered by the kernel."""
    left: Counter[str] = field(default_factory=Counter)
    """Answered by torch, by the reason."""
    failed: int = 0
    """Of those that torch answered: in which the kernel began, and failed."""


@dataclass(slots=True)
class _Form:
    """What calls of one form give."""

    tree: Value
    """How the outputs are put together."""
    outputs: tuple[TensorMeta, ...]
    """Their shapes and strides."""
    mutates: bool
    """Whether the op has changed an argument."""
    answered: bool = False
    """Whether the kernel has."""
    plan: Plan | None = None
    """What answers further calls, if the kernel need not be bound to each of them: that takes longer than most launches."""
    order: tuple[int, ...] = ()
    """Of the call's tensors, as they are met in its arguments, for the plan."""


class Swap:
    """Takes the calls of ops, as the handler of an `Interceptor`.

    The form of a call's outputs is learned from torch, as kernels are given memory for them: in one run that it is shown,
    or from the first call of each form. A call that the kernel refuses, or whose form is new, is torch's, and the reason
    is counted.

    Args:
        kernels: by qualified name of the op.
        device: `cpu` or `cuda:0`.
        learns: whether it goes on to learn forms after the run that it is shown.
    """

    def __init__(self, kernels: Mapping[str, LoadedKernel], device: str, *, learns: bool = False) -> None:
        self._kernels = kernels
        self._device = torch.device(device)
        self._learns = learns
        self._forms: dict[Hashable, _Form | str] = {}
        self._names: dict[Callable[..., Any], str] = {}
        self.learning = True
        """Whether torch answers, and forms are taken down."""
        self.tallies: dict[str, Tally] = {op: Tally() for op in kernels}
        """By op, since `reset`."""

    def reset(self) -> None:
        """Count anew."""
        self.tallies = {op: Tally() for op in self._kernels}

    def __call__(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Answer a call of an op.

        Raises:
            LaunchError: the kernel of an op that changes its arguments failed in a later call of a form, perhaps after it
                had changed some.
        """
        op = self._names.get(func) or self._names.setdefault(func, qualified_name(func))
        tally = self.tallies[op]
        by_torch = partial(func, *args, **kwargs)
        try:
            form_key, met = form_of((args, kwargs))
            key = (func, capture(), form_key)
        except CginsError as error:
            return self._left(tally, error.what, by_torch)
        if self.learning:
            return self._learned(key, by_torch, met)
        if self._learns and key not in self._forms:
            tally.left[FIRST] += 1
            return self._learned(key, by_torch, met)
        form = self._forms.get(key, NEW)
        if isinstance(form, str):
            return self._left(tally, form, by_torch)
        tensors, kept = met, None
        try:
            if form.plan is not None:
                tensors = [met[index] for index in form.order]
                outputs = form.plan(tensors)
            else:
                call, tensors = call_of(op, func, args, kwargs)
                self._require_fit(tensors)
                kept = [tensor.clone() for tensor in tensors] if form.mutates and not form.answered else None
                bound = self._kernels[op].bind(call, tensors, form.outputs, str(self._device))
                outputs = bound.run()
                self._plan(form, bound, tensors, met)
        except CginsError as error:
            if isinstance(error, LaunchError):
                tally.failed += 1
                self._put_back(tensors, form, kept, error)
            # It would say so again each time, and the time that takes is no kernel's.
            self._forms[key] = error.what
            return self._left(tally, error.what, by_torch)
        form.answered = True
        tally.swapped += 1
        return decode(form.tree, outputs)

    @staticmethod
    def _plan(
        form: _Form, bound: BoundCall, tensors: Sequence[torch.Tensor], met: Sequence[torch.Tensor]
    ) -> None:
        """Keep what answers further calls of the form, where their tensors can be told from their order."""
        places = {id(tensor): index for index, tensor in enumerate(met)}
        if all(id(tensor) in places for tensor in tensors):
            form.order = tuple(places[id(tensor)] for tensor in tensors)
            form.plan = bound.plan(tensors)

    @staticmethod
    def _put_back(
        tensors: Sequence[torch.Tensor], form: _Form, kept: Sequence[torch.Tensor] | None, error: LaunchError
    ) -> None:
        """Undo what a kernel has changed before it failed; the first call of a form keeps what that takes."""
        if form.mutates and kept is None:
            raise error
        for tensor, before in zip(tensors, kept or tensors, strict=True):
            if before is not tensor:
                tensor.copy_(before)

    def _learned(self, key: Hashable, by_torch: Callable[[], Any], given: Sequence[torch.Tensor]) -> Any:
        before = [_changes(tensor) for tensor in given]
        result = by_torch()
        self._forms.setdefault(key, _form_of(result, mutates=before != [*map(_changes, given)]))
        return result

    def _require_fit(self, tensors: Sequence[torch.Tensor]) -> None:
        if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
            raise ContractError(GRADIENTS)
        elsewhere = {tensor.device for tensor in tensors} - {self._device}
        if elsewhere:
            raise ContractError(f"a tensor of the call is on {min(map(str, elsewhere))}")

    @staticmethod
    def _left(tally: Tally, why: str, by_torch: Callable[[], Any]) -> Any:
        tally.left[why] += 1
        return by_torch()


def _changes(tensor: torch.Tensor) -> int:
    """How often torch has written to it; inference tensors do not count."""
    return 0 if tensor.is_inference() else tensor._version


def _form_of(result: object, *, mutates: bool) -> _Form | str:
    """The form of a result, or why there is none that a kernel could fill."""
    try:
        tree, outputs = flatten(result)
        return _Form(tree, metas_of(outputs), mutates)
    except CginsError as error:
        return error.what
