"""Kernels that are Python functions: `module:function` targets, and functions of torch extensions."""

from __future__ import annotations

import importlib
import inspect
import os
import re
import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch

from pytest_cgins.errors import (
    CginsError,
    ContractError,
    InfrastructureError,
    LaunchError,
    RecordError,
    SourceError,
)
from pytest_cgins.kernels import namespaces
from pytest_cgins.kernels.arguments import call_values, require_defaults
from pytest_cgins.kernels.imports import import_from
from pytest_cgins.model import KernelSource, OpCall, TensorMeta
from pytest_cgins.text import nearest
from pytest_cgins.trace.call import flatten
from pytest_cgins.trace.modules import is_module_call, rebuild
from pytest_cgins.trace.values import decode, has_adapted

INTERPRET = "TRITON_INTERPRET"
BACKENDS = {
    "cuda": "cuda-python",
    "cuda.bindings": "cuda-python",
    "cutlass": "nvidia-cutlass-dsl",
    "cutlass.cute": "nvidia-cutlass-dsl",
    "helion": "helion",
    "numba": "numba",
    "tilelang": "tilelang",
    "triton": "'pytest-cgins[triton]'",
}
"""What pip installs for modules in which kernels are written: a missing one is no fault of the kernel."""


def import_target(source: KernelSource) -> Callable[..., object]:
    """Import a Python target, in its namespace if it has one.

    Raises:
        InfrastructureError: a package in which kernels are written is not installed.
        SourceError: the module or the function is missing, or the module fails to import.
        LaunchError: Triton is in this process in another mode than the kernel asks for.
    """
    _choose_triton_mode(source)
    name = f"{source.module}:{source.entry}"
    try:
        if source.namespace is None:
            import_from(source.import_root)
            module = importlib.import_module(source.module)
        else:
            module = namespaces.import_module(source.module, source.namespace)
    except CginsError:
        raise
    except Exception as error:  # whatever a user's module raises
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        if missing in BACKENDS:
            raise InfrastructureError(
                f'{name}: the Python package "{missing}" is not installed in {sys.prefix}',
                remedy=f"pip install {BACKENDS[missing]}",
            ) from error
        raise SourceError(
            f"{name}: importing {source.module} raised {type(error).__name__}: {error}",
            remedy=f'install or correct the module "{missing}"' if missing else "mend the module",
        ) from error
    function: Any = module
    # What stands before the last name need not be callable: torch:ops.aten.gelu.default.
    for name in source.entry.split("."):
        parent, function = function, getattr(function, name, None)
        if function is None:
            break
    if not callable(function):
        functions = [key for key, value in getattr(parent, "__dict__", {}).items() if callable(value)]
        raise SourceError(
            f'{module.__file__}: module "{source.module}" has no function "{source.entry}"',
            remedy=nearest(name, functions) or "target is MODULE:FUNCTION",
        )
    return function  # type: ignore[no-any-return]


def _choose_triton_mode(source: KernelSource) -> None:
    """Turn Triton's interpreter on before Triton is imported: afterwards its own functions are fixed."""
    active = os.environ.get(INTERPRET) == "1"
    if source.interpret and not active:
        if "triton" in sys.modules:
            raise LaunchError(
                f"{source.module}:{source.entry}: Triton is already in this process, with its compiler",
                remedy=f"start the worker with {INTERPRET}=1, or give interpreted kernels a worker of their own",
            )
        os.environ[INTERPRET] = "1"
    elif active and not source.interpret and source.device == "cuda":
        raise LaunchError(
            f"{source.module}:{source.entry}: this process runs Triton's interpreter ({INTERPRET}=1)",
            remedy=f"unset {INTERPRET}, or set interpret: true and device: cpu for this implementation",
        )


class PythonKernel:
    """A Python callable, called with the op's own arguments; a module op's module is the first of them."""

    def __init__(self, function: Callable[..., object], name: str, *, interpreted: bool = False) -> None:
        self._function = function
        self._interpreted = interpreted
        self.name = name

    def bind(
        self,
        call: OpCall,
        tensors: Sequence[torch.Tensor],
        outputs: Sequence[TensorMeta],  # noqa: ARG002 - the function allocates its own
        device: str,  # noqa: ARG002 - follows from the tensors
    ) -> BoundFunction:
        """See `callable.LoadedKernel.bind`. By name where the names agree, else in the op's order."""
        if self._interpreted and any(tensor.dtype == torch.bfloat16 for tensor in tensors):
            # It also multiplies them as fp16 in tl.dot.
            raise ContractError(
                f"{self.name}: Triton's interpreter cuts bfloat16 off where a GPU rounds it",
                remedy="bfloat16 needs a GPU: name an implementation for device: cuda besides",
            )
        values = call_values(call, tensors)
        positional, keyword = self._match(call, values, tensors)
        function = _anew(self._function, call, values, tensors)
        if is_module_call(call):
            positional.insert(0, rebuild(call, tensors))
        return BoundFunction(function, positional, keyword, self.name)

    def _match(
        self, call: OpCall, values: dict[str, Any], tensors: Sequence[torch.Tensor]
    ) -> tuple[list[Any], dict[str, Any]]:
        try:
            parameters = list(inspect.signature(self._function).parameters.values())
        except (TypeError, ValueError):  # written in C, without a signature
            return _without_trailing_defaults(call, values), {}
        if is_module_call(call):
            parameters = self._behind_module(call, parameters)
        if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
            taken = set(values)
        else:
            taken = {parameter.name for parameter in parameters} & set(values)
        by_name = all(
            parameter.name in values
            or parameter.default is not parameter.empty
            or parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
            for parameter in parameters
        ) and not any("." in name for name in values)
        if not by_name:
            return self._in_order(call, values, parameters, tensors), {}
        left_out = [name for name in values if name not in taken]
        for parameter in parameters:
            if parameter.name not in values and (meant := nearest(parameter.name, left_out)):
                raise SourceError(
                    f"{self.name}: its parameter {parameter.name!r} is not one of {call.op}'s", remedy=meant
                )
        require_defaults(call, left_out, self.name, tensors)
        ordered = [parameter.name for parameter in parameters if parameter.kind is parameter.POSITIONAL_ONLY]
        # A default that the caller left to the op is passed on: the kernel's own may differ.
        keyword = {name: values[name] for name in values if name in taken and name not in ordered}
        return [values[name] for name in ordered if name in values], keyword

    def _behind_module(self, call: OpCall, parameters: list[inspect.Parameter]) -> list[inspect.Parameter]:
        """The parameters that are left for what `forward` takes."""
        first = parameters[0] if parameters else None
        if first is None or first.kind in (first.KEYWORD_ONLY, first.VAR_KEYWORD):
            raise SourceError(
                f"{self.name}: it takes no module",
                remedy=f"its first parameter is the module, the next ones are those of {call.op}.forward",
            )
        return parameters if first.kind is first.VAR_POSITIONAL else parameters[1:]

    def _in_order(
        self,
        call: OpCall,
        values: dict[str, Any],
        parameters: list[inspect.Parameter],
        tensors: Sequence[torch.Tensor],
    ) -> list[Any]:
        places = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
        required = sum(parameter.default is parameter.empty for parameter in places)
        keyword_only = [p for p in parameters if p.kind is p.KEYWORD_ONLY and p.default is p.empty]
        if required > len(values) or keyword_only:
            names = [parameter.name for parameter in parameters]
            unknown = next(name for name in names if name not in values)
            raise SourceError(
                f"{self.name}: its parameters ({', '.join(names)}) are not those of {call.op} "
                f"({', '.join(values)})",
                remedy=f"{unknown}: {nearest(unknown, values) or 'the op has no such parameter'}",
            )
        if any(parameter.kind is parameter.VAR_POSITIONAL for parameter in parameters):
            return _without_trailing_defaults(call, values)
        require_defaults(call, list(values)[len(places) :], self.name, tensors)
        return list(values.values())[: len(places)]


class ExtensionKernel:
    """A function of a torch extension, called with the op's arguments in the op's order.

    The tensors of a module op's module follow, as the trace has them.
    """

    def __init__(self, function: Any, name: str) -> None:
        self._function = function
        self.name = name

    def bind(
        self,
        call: OpCall,
        tensors: Sequence[torch.Tensor],
        outputs: Sequence[TensorMeta],  # noqa: ARG002 - the function allocates its own
        device: str,  # noqa: ARG002 - follows from the tensors
    ) -> BoundFunction:
        """See `callable.LoadedKernel.bind`."""
        values = call_values(call, tensors)
        given = len(values)
        state = [a for a in call.arguments if a.passed == "state" and a.value.kind == "tensor"]
        values |= {argument.name: decode(argument.value, tensors) for argument in state}
        # pybind11 has no signature object; the first line of its docstring names every parameter.
        signature = (self._function.__doc__ or "").partition("->")[0]
        count = len(re.findall(r"\barg\d+:", signature))
        if count > len(values):
            raise SourceError(
                f"{self.name}: it takes {count} arguments, {call.op} has {len(values)} ({', '.join(values)})",
                remedy="take the op's own parameters, in its order",
            )
        if count == 0:
            taken = list(values.values()) if len(values) > given else _without_trailing_defaults(call, values)
            return BoundFunction(self._function, taken, {}, self.name)
        require_defaults(call, list(values)[count:given], self.name, tensors)
        return BoundFunction(self._function, list(values.values())[:count], {}, self.name)


class BoundFunction:
    """A function with the arguments of one call."""

    def __init__(
        self, function: Callable[..., object], positional: list[Any], keyword: dict[str, Any], name: str
    ) -> None:
        self._function = function
        self._positional = positional
        self._keyword = keyword
        self._name = name

    def run(self) -> list[torch.Tensor]:
        """See `callable.BoundCall.run`."""
        try:
            result = self._function(*self._positional, **self._keyword)
        except Exception as error:  # whatever a user's kernel raises
            raise LaunchError(f"{self._name} raised {type(error).__name__}: {error}") from error
        if isinstance(result, torch.Tensor):
            return [result]
        try:
            return flatten(result)[1]
        except RecordError as error:
            raise LaunchError(
                f"{self._name} returned {type(result).__name__}: {error.what}",
                remedy="return tensors, or tuples, lists and dicts of them",
            ) from error

    def poison(self) -> None:
        """Nothing to do: the function allocates its outputs itself."""

    def overrun(self) -> str:
        """Not to be known: the function allocates its outputs itself."""
        return ""

    @property
    def memory(self) -> list[torch.Tensor]:
        """See `callable.BoundCall.memory`."""
        return []


def _anew(
    function: Callable[..., object], call: OpCall, values: dict[str, Any], tensors: Sequence[torch.Tensor]
) -> Callable[..., object]:
    """The function, with objects of adapters made again for every run: one run may change them."""
    adapted = {
        id(values[argument.name]): argument.value
        for argument in call.arguments
        if argument.passed != "state" and has_adapted(argument.value)
    }
    if not adapted:
        return function

    def run(*positional: Any, **keyword: Any) -> object:
        made = {key: decode(value, tensors) for key, value in adapted.items()}
        own = {name: made.get(id(value), value) for name, value in keyword.items()}
        return function(*(made.get(id(value), value) for value in positional), **own)

    return run


def _without_trailing_defaults(call: OpCall, values: dict[str, Any]) -> list[Any]:
    given = [index for index, argument in enumerate(call.arguments) if argument.passed != "default"]
    return list(values.values())[: max(given, default=-1) + 1]
