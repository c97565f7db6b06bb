"""Kernels that are Python functions: `module:function` targets, and functions of torch extensions."""

from __future__ import annotations

import importlib
import inspect
import os
import sys
from collections.abc import Callable, Sequence
from functools import partial
from types import ModuleType
from typing import Any

import torch

from pytest_cgins.building.contracts import arguments
from pytest_cgins.building.loading import namespaces
from pytest_cgins.building.loading.exceptions import kind_of, told
from pytest_cgins.building.loading.imports import import_from
from pytest_cgins.building.loading.returned import Plan, tensors_of
from pytest_cgins.core.case import KernelSource
from pytest_cgins.core.errors import CginsError, ContractError, InfrastructureError, LaunchError, SourceError
from pytest_cgins.core.text import nearest
from pytest_cgins.core.trace import OpCall
from pytest_cgins.packs import backward
from pytest_cgins.packs.modules import is_module_call, keeping_state, rebuild
from pytest_cgins.packs.values import decode, has_adapted

INTERPRET = "TRITON_INTERPRET"
BACKENDS = {
    "cuda": "cuda-python", "cuda.bindings": "cuda-python", "cutlass": "nvidia-cutlass-dsl",
    "cutlass.cute": "nvidia-cutlass-dsl", "helion": "helion", "numba": "numba", "tilelang": "tilelang",
    "triton": "'pytest-cgins[triton]'",
}  # fmt: skip
"""What pip installs for modules in which kernels are written: a missing one is no fault of the kernel."""

_INTERPRETER = (
    "Triton's interpreter lacks parts of what its compiler takes: gate it with device: cuda on a GPU, too"
)


def import_target(source: KernelSource) -> Callable[..., object]:
    """Import a Python target, in its namespace if it has one.

    Raises:
        InfrastructureError: a package in which kernels are written is not installed.
        SourceError: the module or the function is missing, or the module fails to import.
        LaunchError: Triton is in this process in another mode than the kernel asks for.
    """
    _choose_triton_mode(source)
    name = f"{source.module}:{source.entry}"
    imported = ""
    try:
        if source.namespace is None:
            import_from(source.import_root)
            for imported in (*source.load, source.module):
                module = _load_library(imported) or importlib.import_module(imported)
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
            f"{name}: importing {imported or source.module} raised {kind_of(error)}: {told(error)}",
            remedy=f'install or correct the module "{missing}"' if missing else "fix the module",
        ) from error
    if source.operator:
        _require_registered(source)
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


def _load_library(path: str) -> ModuleType | None:
    """Load a library that registers operators, once in a process; None for the name of a module.

    Raises:
        LaunchError: it cannot be loaded.
    """
    if not os.path.isabs(path):  # noqa: PTH117
        return None
    try:
        torch.ops.load_library(path)  # type: ignore[no-untyped-call]
    except (OSError, RuntimeError) as error:
        raise LaunchError(
            f"{path}: {error}",
            remedy="build it against this torch, and name the libraries that it needs before it in load",
        ) from error
    return torch


def _require_registered(source: KernelSource) -> None:
    """Raise SourceError where what was loaded has not registered the operator."""
    namespace, name, *overload = source.operator.split(".")
    wanted = ".".join([f"{namespace}::{name}", *overload]).removesuffix(".default")
    known = [one for one in torch._C._dispatch_get_all_op_names() if one.startswith(f"{namespace}::")]
    if wanted in known or (not overload and any(one.partition(".")[0] == wanted for one in known)):
        return
    loaded = ", ".join(os.path.basename(one) for one in source.load)  # noqa: PTH119
    raise SourceError(
        f"{source.name}: no operator {wanted} is registered by {loaded}",
        remedy=nearest(wanted, known)
        or (f"it registers {', '.join(known[:8])}" if known else f"load what registers {namespace}::…"),
    )


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
        self._differentiable = _class_of(function)
        self._interpreted = interpreted
        self.name = name

    # Outputs are the function's own, and the device is that of the tensors.
    def bind(self, call: OpCall, tensors: Sequence[torch.Tensor], *_: object, **__: object) -> BoundFunction:
        """See `callable.LoadedKernel.bind`. By name where the names agree, else in the op's order."""
        if self._interpreted and any(tensor.dtype == torch.bfloat16 for tensor in tensors):
            # It also multiplies them as fp16 in tl.dot.
            raise ContractError(
                f"{self.name}: Triton's interpreter cuts bfloat16 off where a GPU rounds it",
                remedy="bfloat16 needs a GPU: name an implementation for device: cuda besides",
            )
        if self._differentiable is not None:
            return self._bind_differentiable(self._differentiable, call, tensors)
        values = arguments.call_values(call, tensors)
        signatures = arguments.signatures(self._function)
        if is_module_call(call):
            signatures = [self._behind_module(call, parameters) for parameters in signatures]
        positional, keyword = arguments.match(call, values, signatures, self.name, tensors)
        function = _anew(self._function, call, values, tensors)
        if is_module_call(call):
            module = rebuild(call, tensors)
            positional.insert(0, module)
            function = keeping_state(module, function)
        return BoundFunction(function, positional, keyword, self.name)

    def _bind_differentiable(
        self, cls: type[torch.autograd.Function], call: OpCall, tensors: Sequence[torch.Tensor]
    ) -> BoundFunction:
        """`Class.apply`: for a backward, the forward and autograd's pass through it, whose gradients are the answer."""
        signature = inspect.signature(cls.forward)
        if cls.setup_context is torch.autograd.Function.setup_context:
            signature = signature.replace(parameters=[*signature.parameters.values()][1:])  # without ctx

        def bind_forward(inner: OpCall, present: Sequence[torch.Tensor]) -> Callable[[], object]:
            values = arguments.call_values(inner, present)
            parameters = [*signature.parameters.values()]
            positional, keyword = arguments.match(inner, values, [parameters], self.name, present)
            given = signature.bind(*positional, **keyword)  # `apply` takes no keywords
            given.apply_defaults()
            return partial(self._function, *given.args)

        derived = backward.is_derived(call.op)
        run: Callable[[], object] = (
            backward.whole(call, tensors, bind_forward) if derived else bind_forward(call, tensors)
        )
        return BoundFunction(run, [], {}, self.name)

    def _behind_module(self, call: OpCall, parameters: list[inspect.Parameter]) -> list[inspect.Parameter]:
        """The parameters that are left for what `forward` takes."""
        first = parameters[0] if parameters else None
        if first is None or first.kind in (first.KEYWORD_ONLY, first.VAR_KEYWORD):
            raise SourceError(
                f"{self.name}: it takes no module",
                remedy=f"its first parameter is the module, the next ones are those of {call.op}.forward",
            )
        return parameters if first.kind is first.VAR_POSITIONAL else parameters[1:]


def _class_of(function: Callable[..., object]) -> type[torch.autograd.Function] | None:
    """The class whose `apply` a function is."""
    owner = getattr(function, "__self__", None)
    is_apply = getattr(function, "__name__", "") == "apply"
    return (
        owner if is_apply and isinstance(owner, type) and issubclass(owner, torch.autograd.Function) else None
    )


class ExtensionKernel:
    """A function of a torch extension, called with the op's arguments: by name where it names its own, else in order.

    The tensors of a module op's module follow, as the trace has them; by name they are what a schema line calls them.
    """

    def __init__(self, function: Callable[..., object], name: str) -> None:
        self._function = function
        self.name = name

    # Outputs are the function's own, and the device is that of the tensors.
    def bind(self, call: OpCall, tensors: Sequence[torch.Tensor], *_: object, **__: object) -> BoundFunction:
        """See `callable.LoadedKernel.bind`."""
        values, state = arguments.call_values(call, tensors), arguments.state_values(call, tensors)
        signatures = arguments.signatures(self._function)
        given = arguments.match(call, values, signatures, self.name, tensors, state=state)
        return BoundFunction(self._function, *given, self.name)


class BoundFunction:
    """A function with the arguments of one call."""

    def __init__(
        self, function: Callable[..., object], positional: list[Any], keyword: dict[str, Any], name: str
    ) -> None:
        self._name = name

        self._given = function, positional, keyword

        # Torch's arm of a timing is such a closure too (`packs.call.bound`): nothing else is to be timed.
        def bare() -> object:
            try:
                return function(*positional, **keyword)
            except Exception as error:  # whatever a user's kernel raises
                raise _raised(name, error) from error

        self.bare = bare

    def run(self) -> list[torch.Tensor]:
        """See `callable.BoundCall.run`."""
        return tensors_of(self.bare(), self._name)

    def plan(self, tensors: Sequence[torch.Tensor]) -> Plan | None:
        """See `callable.BoundCall.plan`."""
        function, positional, keyword = self._given
        name = self._name
        places = {id(tensor): index for index, tensor in enumerate(tensors)}
        kept = [*positional, *keyword.values()]
        indices = [places.get(id(value), -1) for value in kept]
        # A function that is given nothing has the tensors in its closure.
        if not kept or not all(
            index >= 0 or _is_constant(one) for index, one in zip(indices, kept, strict=True)
        ):
            return None
        constants = [None if index >= 0 else value for index, value in zip(indices, kept, strict=True)]
        count, names = len(positional), tuple(keyword)

        def run(given: Sequence[torch.Tensor]) -> list[torch.Tensor]:
            values = [
                constant if index < 0 else given[index]
                for index, constant in zip(indices, constants, strict=True)
            ]
            try:
                result = function(*values[:count], **dict(zip(names, values[count:], strict=True)))
            except Exception as error:  # as in `bare`
                raise _raised(name, error) from error
            return tensors_of(result, name)

        return run

    def poison(self) -> None:
        """Nothing to do: the function allocates its outputs itself."""

    def overrun(self) -> str:
        """Not to be known: the function allocates its outputs itself."""
        return ""

    @property
    def memory(self) -> list[torch.Tensor]:
        """See `callable.BoundCall.memory`."""
        return []


_CONSTANTS = (
    int, float, complex, str, type(None), torch.dtype, torch.device, torch.layout, torch.memory_format,
)  # fmt: skip


def _is_constant(value: object) -> bool:
    """Whether it can be passed again: not what a call may change, as a list, or uses up, as a generator."""
    return isinstance(value, _CONSTANTS) or (isinstance(value, tuple) and all(map(_is_constant, value)))


def _raised(name: str, error: Exception) -> LaunchError:
    remedy = _INTERPRETER if kind_of(error) == "InterpreterError" else ""
    return LaunchError(f"{name} raised {kind_of(error)}: {told(error)}", remedy=remedy)


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
