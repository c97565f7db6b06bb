"""Kernels in the place of a model's ops: each call of an op goes to its kernel, if that can take it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from pytest_cgins.building.loading.callable import LoadedKernel
from pytest_cgins.core.errors import CginsError, ContractError
from pytest_cgins.core.layout import lay_out
from pytest_cgins.core.trace import TensorMeta, Value
from pytest_cgins.packs.call import flatten
from pytest_cgins.packs.context import capture
from pytest_cgins.packs.fingerprint import fingerprint
from pytest_cgins.packs.ops import qualified_name
from pytest_cgins.packs.signature import call_of
from pytest_cgins.packs.values import decode

NEW = "its form was not met in the first run"


@dataclass(slots=True)
class Tally:
    """What became of the calls of one op in a run."""

    swapped: int = 0
    """Answered by the kernel."""
    left: Counter[str] = field(default_factory=Counter)
    """Answered by torch, by the reason."""


@dataclass(frozen=True, slots=True)
class _Form:
    """What calls of one form give."""

    tree: Value
    """How the outputs are put together."""
    outputs: tuple[TensorMeta, ...]
    """Their shapes and strides."""


class Swap:
    """Takes the calls of ops, as the handler of an `Interceptor`.

    It is shown one run in which torch answers: the form of the outputs of each call is learned, as kernels are given
    memory for them. A call that the kernel refuses, or whose form is new, is torch's, and the reason is counted.

    Args:
        kernels: by qualified name of the op.
        device: `cpu` or `cuda:0`.
    """

    def __init__(self, kernels: Mapping[str, LoadedKernel], device: str) -> None:
        self._kernels = kernels
        self._device = torch.device(device)
        self._forms: dict[Hashable, _Form | str] = {}
        self.learning = True
        """Whether torch answers, and forms are taken down."""
        self.tallies: dict[str, Tally] = {op: Tally() for op in kernels}
        """By op, since `reset`."""

    def reset(self) -> None:
        """Count anew."""
        self.tallies = {op: Tally() for op in self._kernels}

    def __call__(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Answer a call of an op."""
        op = qualified_name(func)
        tally = self.tallies[op]
        try:
            key = (func, capture(), fingerprint((args, kwargs)))
        except CginsError as error:
            return self._left(tally, error.what, func, args, kwargs)
        if self.learning:
            result = func(*args, **kwargs)
            self._forms.setdefault(key, _form_of(result))
            return result
        form = self._forms.get(key, NEW)
        if isinstance(form, str):
            return self._left(tally, form, func, args, kwargs)
        try:
            call, tensors = call_of(op, func, args, kwargs)
            self._require_here(tensors)
            outputs = self._kernels[op].bind(call, tensors, form.outputs, str(self._device)).run()
        except CginsError as error:
            # It would say so again each time, and the time that takes is no kernel's.
            self._forms[key] = error.what
            return self._left(tally, error.what, func, args, kwargs)
        tally.swapped += 1
        return decode(form.tree, outputs)

    def _require_here(self, tensors: Sequence[torch.Tensor]) -> None:
        elsewhere = {tensor.device for tensor in tensors} - {self._device}
        if elsewhere:
            raise ContractError(f"a tensor of the call is on {min(map(str, elsewhere))}")

    @staticmethod
    def _left(
        tally: Tally, why: str, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        tally.left[why] += 1
        return func(*args, **kwargs)


def _form_of(result: object) -> _Form | str:
    """The form of a result, or why there is none that a kernel could fill."""
    try:
        tree, outputs = flatten(result)
        return _Form(tree, lay_out(outputs, copy=False).metas)
    except CginsError as error:
        return error.what
