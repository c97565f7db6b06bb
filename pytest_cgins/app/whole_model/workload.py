"""One run of a user's model, made by a function that is named on the command line."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from pytest_cgins.core.errors import ConfigError
from pytest_cgins.core.text import nearest

Run = Callable[[], object]


@dataclass(frozen=True, slots=True)
class Workload:
    """A user's model with its inputs."""

    run: Run
    """Runs it once."""
    tensors: tuple[torch.Tensor, ...] | None = None
    """Its parameters, buffers and inputs that are floating-point numbers; None if a function keeps them to itself."""


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
        return _run_of(given[0], given[1], device)
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


def _run_of(model: Callable[..., object], inputs: object, device: str) -> Workload:
    tensors: tuple[torch.Tensor, ...] | None = None
    moved = _moved(inputs, device)
    if isinstance(model, torch.nn.Module):
        model = model.to(device)
        own = {id(one): one for one in (*model.parameters(), *model.buffers(), *_tensors(moved))}
        tensors = tuple(one for one in own.values() if one.is_floating_point())
    if isinstance(moved, Mapping):
        return Workload(lambda: model(**moved), tensors)
    arguments = moved if isinstance(moved, tuple) else (moved,)
    return Workload(lambda: model(*arguments), tensors)


def _tensors(inputs: Any) -> Iterator[torch.Tensor]:
    if isinstance(inputs, torch.Tensor):
        yield inputs
    elif isinstance(inputs, Mapping):
        yield from _tensors(tuple(inputs.values()))
    elif isinstance(inputs, tuple | list):
        for one in inputs:
            yield from _tensors(one)


def _moved(inputs: Any, device: str) -> Any:
    if isinstance(inputs, torch.Tensor):
        return inputs.to(device)
    if isinstance(inputs, Mapping):
        return {name: _moved(one, device) for name, one in inputs.items()}
    if type(inputs) in (tuple, list):
        return type(inputs)(_moved(one, device) for one in inputs)
    return inputs
