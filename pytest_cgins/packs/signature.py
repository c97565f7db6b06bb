"""Binding a call's arguments to the names of the op's parameters.

Most of torch's ops are builtins that `inspect.signature` cannot read. Their names come from torch's own
schemas, with `self` as `input` for functions, which is what their Python callers write.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import lru_cache
from types import FunctionType
from typing import Any, Literal, NamedTuple

import torch
from torch._jit_internal import boolean_dispatched
from torch.overrides import get_testing_overrides

from pytest_cgins.core.errors import RecordError
from pytest_cgins.core.trace import Argument, OpCall
from pytest_cgins.packs import modules
from pytest_cgins.packs.ops import ModuleOp
from pytest_cgins.packs.values import encode

Passed = Literal["positional", "keyword", "default", "state"]


_PYTHON_TYPES: dict[str, tuple[type, ...]] = {
    "Tensor": (torch.Tensor,),
    "int": (int,),
    "float": (int, float),
    "bool": (bool,),
    "str": (str,),
    "number": (int, float, complex),
    "ScalarType": (torch.dtype,),
    "Generator": (torch.Generator,),
}
"""What a schema's type accepts; types that are not here accept anything."""


class Parameter(NamedTuple):
    """One parameter of a torch schema."""

    name: str
    type: str
    keyword_only: bool
    has_default: bool
    default: object


class Bound(NamedTuple):
    """One argument, by its parameter's name."""

    name: str
    value: object
    passed: Passed


def bind(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Bound]:
    """Give each argument its parameter's name, in the order of the op's signature.

    Defaults of the signature are listed as `default`. Where nothing knows the names, positional
    arguments are called `args.0`, `args.1`, …. The first argument of a module op is the module; in its
    place the module's state follows the others, as `state`.

    Raises:
        RecordError: for a module that cannot be taken apart.
    """
    if hasattr(type(func), "bind_arguments"):  # a backward binds by its op
        bound: list[Bound] = func.bind_arguments(args, kwargs)  # type: ignore[attr-defined]
        return bound
    if not isinstance(func, ModuleOp):
        return bind_given(func, args, kwargs)
    if not args or not isinstance(args[0], torch.nn.Module):
        raise RecordError(
            f"{func.name} was called without a module",
            remedy="pass a module of the class first, and then what forward takes",
        )
    state = [Bound(name, value, "state") for name, value in modules.state(args[0])]
    return bind_given(func, args[1:], kwargs) + state


def call_of(
    op: str, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[OpCall, list[torch.Tensor]]:
    """A call of `op` as data, and its tensors by their indices.

    Raises:
        RecordError: it has a module that cannot be taken apart, or what is neither a tensor nor plain data.
    """
    tensors: list[torch.Tensor] = []
    arguments = tuple(
        Argument(name=name, value=encode(value, tensors), passed=passed)
        for name, value, passed in bind(func, args, kwargs)
    )
    return OpCall(op=op, arguments=arguments), tensors


def bind_given(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Bound]:
    """`bind` for what the caller passes, without the module of a module op and its state."""
    signature = _python_signature(func)
    if signature is not None:
        return _bind_python(signature, args, kwargs)
    bound = _bind_overload(func, args, kwargs)
    if bound is None and "out" in kwargs:
        # Torch's overload that writes to `out` takes, besides it, what the one takes that returns new tensors.
        bound = _bind_overload(func, args, {name: value for name, value in kwargs.items() if name != "out"})
        if bound is not None:
            bound.append(Bound("out", kwargs["out"], "keyword"))
    if bound is not None:
        return bound
    stand_in = get_testing_overrides().get(func)
    if stand_in is not None:
        try:
            # The stand-in's defaults are placeholders, not the op's.
            named = _bind_python(inspect.signature(stand_in), args, kwargs)
            return [argument for argument in named if argument.passed != "default"]
        except TypeError:
            pass
    unnamed = [Bound(f"args.{index}", value, "positional") for index, value in enumerate(args)]
    return unnamed + [Bound(name, value, "keyword") for name, value in kwargs.items()]


def parameters(func: Callable[..., Any]) -> list[str]:
    """Names of an op's parameters, those of all overloads in the order of the first; [] if nothing knows them."""
    known = _python_signature(func)
    if known is not None:
        return list(known.parameters)
    return list(dict.fromkeys(parameter.name for schema in schemas(func) for parameter in schema))


def takes(func: Callable[..., Any], name: str) -> bool:
    """Whether an op has a parameter, in whichever overload: `out` of torch's own is one that most calls lack."""
    if name in parameters(func):
        return True
    overloads = [] if name != "out" or _python_signature(func) or _is_method(func) else _aten_schemas(func)
    return any(argument.is_out for schema in overloads for argument in schema.arguments)


@lru_cache(maxsize=1024)
def _python_signature(func: Callable[..., Any]) -> inspect.Signature | None:
    """What `inspect` knows, unless it is only `*args, **kwargs`."""
    # `F.max_pool2d` takes *args and chooses between two functions, of the same parameters, by `return_indices`.
    dispatched = boolean_dispatched.get(func) if isinstance(func, FunctionType) else None
    if dispatched is not None:
        func = dispatched["if_false"]
    try:
        signature = inspect.signature(func.__wrapped__ if isinstance(func, ModuleOp) else func)
    except (ValueError, TypeError):
        return None
    if isinstance(func, ModuleOp):
        signature = signature.replace(parameters=list(signature.parameters.values())[1:])
    kinds = {parameter.kind for parameter in signature.parameters.values()}
    return signature if kinds - {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD} else None


def _bind_python(signature: inspect.Signature, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Bound]:
    given = signature.bind(*args, **kwargs).arguments
    bound: list[Bound] = []
    for position, (name, parameter) in enumerate(signature.parameters.items()):
        if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
            items = given.get(name, ())
            bound += [Bound(f"{name}.{index}", item, "positional") for index, item in enumerate(items)]
        elif parameter.kind is inspect.Parameter.VAR_KEYWORD:
            bound += [Bound(key, item, "keyword") for key, item in given.get(name, {}).items()]
        elif name in given:
            positional = name not in kwargs and position < len(args)
            bound.append(Bound(name, given[name], "positional" if positional else "keyword"))
        else:
            bound.append(Bound(name, parameter.default, "default"))
    return bound


@lru_cache(maxsize=1024)
def schemas(func: Callable[..., Any]) -> list[list[Parameter]]:
    """Parameters of each overload that returns new tensors."""
    if isinstance(func, torch._ops.OpOverload):
        return [_parameters_of(func._schema, keep_self=True)]
    if isinstance(func, torch._ops.OpOverloadPacket):
        found = torch._C._jit_get_schemas_for_operator(func._qualified_op_name)
        return [_parameters_of(schema, keep_self=True) for schema in found]
    return [
        _parameters_of(schema, keep_self=_is_method(func))
        for schema in _aten_schemas(func)
        if not any(argument.is_out for argument in schema.arguments)
        and any("Tensor" in str(argument.type) for argument in schema.arguments)
    ]


def _aten_schemas(func: Any) -> list[Any]:
    found: list[Any] = torch._C._jit_get_schemas_for_operator(f"aten::{getattr(func, '__name__', '')}")
    return found


def _is_method(func: Any) -> bool:
    # Tensor methods alone take `self`, and no `out`; reflected and dunder operators have no schema by their name.
    return getattr(func, "__objclass__", None) is not None or getattr(func, "__name__", "").startswith("__")


def _parameters_of(schema: Any, *, keep_self: bool) -> list[Parameter]:
    return [
        Parameter(
            name="input" if argument.name == "self" and not keep_self else argument.name,
            type=str(argument.real_type),
            keyword_only=argument.kwarg_only,
            has_default=argument.has_default_value(),
            default=argument.default_value,
        )
        for argument in schema.arguments
    ]


def _bind_overload(
    func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> list[Bound] | None:
    """The arguments by the names of the first overload that takes them, or None."""
    fitting = (_bind_schema(schema, args, kwargs) for schema in schemas(func))
    return next((bound for bound in fitting if bound is not None), None)


def _bind_schema(
    schema: list[Parameter], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> list[Bound] | None:
    """The arguments by name, or None if the overload does not take them."""
    positional = [parameter for parameter in schema if not parameter.keyword_only]
    values = _gather(positional, args)
    if len(values) > len(positional) or set(kwargs) - {parameter.name for parameter in schema}:
        return None
    bound = []
    for index, parameter in enumerate(schema):
        if index < len(values) and not parameter.keyword_only:
            argument = Bound(parameter.name, values[index], "positional")
            if parameter.name in kwargs:
                return None
        elif parameter.name in kwargs:
            argument = Bound(parameter.name, kwargs[parameter.name], "keyword")
        elif parameter.has_default:
            bound.append(Bound(parameter.name, parameter.default, "default"))
            continue
        else:
            return None
        if not _fits(argument.value, parameter.type):
            return None
        bound.append(argument)
    return bound


def _gather(positional: list[Parameter], args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Arguments with a run of ints as one tuple, where a size is due: `x.permute(0, 2, 1)`."""
    for index, parameter in enumerate(positional[: len(args)]):
        tail = args[index:]
        last = index == len(positional) - 1 and parameter.type == "List[int]"
        if last and len(tail) > 1 and all(type(item) is int for item in tail):
            return (*args[:index], tail)
    return args


def _fits(value: object, kind: str) -> bool:
    """Whether a Python value can be passed for a schema type, as torch's argument parser sees it."""
    if kind.startswith("Optional["):
        return value is None or _fits(value, kind[len("Optional[") : -1])
    if kind.startswith("List["):
        item = kind[len("List[") : -1]
        if isinstance(value, (list, tuple)):
            return all(_fits(element, item) for element in value)
        return item in ("int", "float") and _fits(value, item)
    accepted = _PYTHON_TYPES.get(kind, (object,))
    return isinstance(value, accepted) and not (isinstance(value, bool) and kind == "int")
