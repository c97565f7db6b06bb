"""One run of a user's model, made by a function that is named on the command line."""

from __future__ import annotations

import copy
import importlib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map

from pytest_cgins.core.errors import ConfigError
from pytest_cgins.core.text import nearest

Run = Callable[[], object]


@dataclass(frozen=True, slots=True)
class Workload:
    """A user's model with its inputs."""

    run: Run
    """Runs it once."""
    model: torch.nn.Module | None = None
    """The model; None if a function keeps it to itself."""
    inputs: Any = None
    """What it is given: a tensor, a tuple, or a mapping of keywords."""

    @property
    def tensors(self) -> tuple[torch.Tensor, ...] | None:
        """Its parameters, buffers and inputs that are floating-point numbers; None where nobody knows."""
        if self.model is None:
            return None
        all_of_them = (*self.model.parameters(), *self.model.buffers(), *tree_leaves(self.inputs))
        own = {id(one): one for one in all_of_them}
        return tuple(filter(_is_floating, own.values()))

    def widened(self, dtype: torch.dtype, *, moved: float = 0.0) -> Workload:
        """A copy whose weights and inputs have another dtype.

        Args:
            dtype: of all floating-point numbers.
            moved: each of them is changed by this share of itself, up or down by lot.
        """
        model = copy.deepcopy(self.model)
        assert model is not None
        inputs = tree_map(lambda one: one.to(dtype, copy=True) if _is_floating(one) else one, self.inputs)
        wide = run_of(model.to(dtype), inputs)
        if moved:
            for number, one in enumerate(wide.tensors or ()):
                lot = torch.Generator(one.device).manual_seed(number)
                signs = torch.empty_like(one).bernoulli_(generator=lot).mul_(2).sub_(1)
                one.data.mul_(signs.mul_(moved).add_(1))
        return wide


def _is_floating(leaf: object) -> bool:
    return isinstance(leaf, torch.Tensor) and leaf.is_floating_point()


_FORMS = "return a function of no arguments, or (model, inputs)"


def made(name: str, device: str) -> Workload:
    """What runs the model once, on its inputs.

    Args:
        name: `MODULE:FUNCTION`. The function takes nothing, or the device; it gives a function of no arguments, or a model
            and its inputs (a tensor, a tuple for arguments, a mapping for keywords), which are then moved to the device.
        device: `cpu` or `cuda:0`.

    Raises:
        ConfigError: there is no such function, it raises, or gives something else.
    """
    factory = _found(name)
    try:
        takes_device = "device" in inspect.signature(factory).parameters
        given = factory(device=device) if takes_device else factory()
    except Exception as error:  # whatever a user's function raises
        raise ConfigError(
            f"{name} raised {type(error).__name__}: {error}", remedy="it must run by itself, or with device="
        ) from error
    if isinstance(given, tuple) and len(given) == 2 and callable(given[0]):
        model, inputs = given
        return run_of(
            model.to(device) if isinstance(model, torch.nn.Module) else model, _moved(inputs, device)
        )
    if callable(given) and not isinstance(given, torch.nn.Module):
        return Workload(given)
    raise ConfigError(f"{name} returned {type(given).__name__}", remedy=_FORMS)


def _found(name: str) -> Callable[..., Any]:
    module_name, _, function = name.partition(":")
    if not module_name or not function.isidentifier():
        raise ConfigError(
            f"{name!r} names no function", remedy="write MODULE:FUNCTION, such as models.bert:make"
        )
    try:
        module = importlib.import_module(module_name)
    except Exception as error:  # whatever a user's module raises
        raise ConfigError(
            f"{name}: importing {module_name} raised {type(error).__name__}: {error}",
            remedy="modules are looked up in the folder of cgins.yaml, and then in this one",
        ) from error
    factory = getattr(module, function, None)
    if not callable(factory):
        known = [one for one, value in vars(module).items() if callable(value)]
        raise ConfigError(
            f"{name}: {module_name} has no function {function}",
            remedy=nearest(function, known) or "name one of its own",
        )
    made_by: Callable[..., Any] = factory
    return made_by


def run_of(model: Callable[..., object], inputs: Any) -> Workload:
    """A model with its inputs, where both are."""
    module = model if isinstance(model, torch.nn.Module) else None
    if isinstance(inputs, Mapping):
        return Workload(lambda: model(**inputs), module, inputs)
    arguments = inputs if isinstance(inputs, tuple) else (inputs,)
    return Workload(lambda: model(*arguments), module, inputs)


def _moved(inputs: Any, device: str) -> Any:
    if isinstance(inputs, torch.Tensor):
        return inputs.to(device)
    if isinstance(inputs, Mapping):
        return {name: _moved(one, device) for name, one in inputs.items()}
    if type(inputs) in (tuple, list):
        return type(inputs)(_moved(one, device) for one in inputs)
    return inputs
