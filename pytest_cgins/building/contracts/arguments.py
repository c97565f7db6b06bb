"""Matching a recorded call of an op to what a kernel declares."""

from __future__ import annotations

import inspect
import itertools
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from inspect import Parameter
from keyword import iskeyword
from typing import Any

import torch

from pytest_cgins.building.contracts.schema import schema_name
from pytest_cgins.core.errors import ContractError, SourceError, TraceError
from pytest_cgins.core.text import counted, nearest
from pytest_cgins.core.trace import OpCall
from pytest_cgins.packs import backward
from pytest_cgins.packs.ops import resolve
from pytest_cgins.packs.signature import bind_given, schemas, takes
from pytest_cgins.packs.values import decode

Signature = list[Parameter]
VARIABLE = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)


def call_values(call: OpCall, tensors: Sequence[torch.Tensor]) -> dict[str, Any]:
    """Values of a call by parameter name, in the op's order, defaults included; without a module's state."""
    given = (argument for argument in call.arguments if argument.passed != "state")
    return {argument.name: decode(argument.value, tensors) for argument in given}


def state_values(call: OpCall, tensors: Sequence[torch.Tensor]) -> dict[str, Any]:
    """State of a call's module by the names that a schema line has for it, in the trace's order.

    `self.gate.weight` is `gate_weight`; what begins with a digit gets a `_` before it. A name that two
    things would have is left out, and so is what tells classes and kinds of attributes.
    """
    state = [argument for argument in call.arguments if argument.passed == "state"]
    names = [schema_name(argument.name) for argument in state]
    return {
        name: decode(argument.value, tensors)
        for name, argument in zip(names, state, strict=True)
        if names.count(name) == 1 and not argument.name.endswith("__")
    }


def require_defaults(
    call: OpCall, undeclared: Sequence[str], where: str, tensors: Sequence[torch.Tensor]
) -> None:
    """Check that parameters which a kernel does not take have the op's default in this call, or do not matter to it.

    None for a parameter that has no default is how a call says that there is nothing, as `bias=None` does.

    Raises:
        ContractError: one has another value.
    """
    for argument in call.arguments:
        names = {argument.name, schema_name(argument.name)}
        if names.isdisjoint(undeclared) or argument.passed in ("default", "state"):
            continue
        value = decode(argument.value, tensors)
        has_default, default = default_of(call, argument.name, tensors)
        if has_default and type(value) is type(default) and value == default:
            continue
        if value is None and _is_required(call.op, argument.name):
            continue
        if backward.is_derived(call.op) and not backward.reads(call, argument.name, tensors):
            continue
        usual = f", not its default {default!r}" if has_default else ", and it has no default"
        shown = f"a tensor of shape {tuple(value.shape)}" if isinstance(value, torch.Tensor) else repr(value)
        raise ContractError(
            f"{where}: contract not met: the kernel does not take {argument.name!r}, and the call passes "
            f"{shown}{usual}",
            remedy=f"declare {argument.name!r} in the kernel, or gate it on other traces",
        )


def require_passed(call: OpCall, required: Iterable[str], given: Collection[str], where: str) -> None:
    """Check that a call passes what a kernel requires and the op has in some overload, as `out` or `dim`.

    Raises:
        ContractError: it does not.
    """
    for name in required:
        if name not in given and _has_parameter(call.op, name):
            raise ContractError(
                f"{where}: contract not met: the kernel requires {name!r}, and the call does not pass it",
                remedy=f"gate it on traces whose calls pass {name!r}",
            )


def _has_parameter(op: str, name: str) -> bool:
    try:
        return takes(resolve(backward.parse(op)[0] if backward.is_derived(op) else op), name)
    except TraceError:  # an operator of others need not be loaded here
        return False


def _is_required(op: str, name: str) -> bool:
    """Whether an op is known to have no default for a parameter."""
    try:
        known = signatures(resolve(backward.parse(op)[0] if backward.is_derived(op) else op))
    except TraceError:
        return False
    own = [parameter for one in known for parameter in one if parameter.name == name]
    return bool(own) and all(parameter.default is Parameter.empty for parameter in own)


def default_of(call: OpCall, name: str, tensors: Sequence[torch.Tensor]) -> tuple[bool, object]:
    """Whether the op has a default for a parameter, and which: the call is bound again without it.

    The arguments of a backward are those of its op, whose defaults they have; its gradients have none.
    """
    derived = backward.is_derived(call.op)
    op = backward.parse(call.op)[0] if derived else call.op
    positional, keyword = [], {}
    before = True
    for argument in call.arguments:
        if argument.name == name:
            before = False
        elif derived and backward.is_gradient(argument.name):
            continue
        elif argument.passed not in ("default", "state"):
            value = decode(argument.value, tensors)
            if argument.passed == "positional" and before:
                positional.append(value)
            else:
                keyword[argument.name] = value
    try:
        bound = bind_given(resolve(op), tuple(positional), keyword)
    except (TypeError, TraceError):  # the op requires it; an operator of others need not be loaded here
        return False, None
    found = [value for parameter, value, passed in bound if (parameter, passed) == (name, "default")]
    return bool(found), found[0] if found else None


def signatures(function: Callable[..., object]) -> list[Signature]:
    """The parameters of each overload of a function: of Python, of pybind11 or of torch; [] where nothing tells.

    A parameter that has no name is positional-only.
    """
    if isinstance(function, torch._ops.OpOverload | torch._ops.OpOverloadPacket):
        return [
            [
                _parameter(
                    one.name,
                    Parameter.KEYWORD_ONLY if one.keyword_only else Parameter.POSITIONAL_OR_KEYWORD,
                    one.default if one.has_default else Parameter.empty,
                )
                for one in schema
            ]
            for schema in schemas(function)
        ]
    try:
        return [list(inspect.signature(function).parameters.values())]
    except (TypeError, ValueError):  # written in C; pybind11 writes signatures into the docstring
        doc, name = function.__doc__ or "", re.escape(getattr(function, "__name__", ""))
    several = re.match(rf"{name}\(\*args, \*\*kwargs\)\nOverloaded function\.\n", doc)
    starts = re.finditer(rf"^\d+\. {name}\(" if several else rf"\A{name}\(", doc, re.MULTILINE)
    return [_of_docstring(doc[start.end() :]) for start in starts]


def _of_docstring(text: str) -> Signature:
    """The parameters of `x: torch.Tensor, *, eps: float = 1e-05) -> torch.Tensor`, and whatever follows."""
    made: Signature = []
    kind: Any = Parameter.POSITIONAL_OR_KEYWORD
    for part in _until_closed(text):
        found = re.match(r"(?P<stars>\*{0,2})(?P<name>\w*)", part)
        assert found is not None
        stars, name = found["stars"], found["name"]
        if part == "/":
            made = [parameter.replace(kind=Parameter.POSITIONAL_ONLY) for parameter in made]
        elif stars == "*":
            kind = Parameter.KEYWORD_ONLY
            made += [Parameter(name, Parameter.VAR_POSITIONAL)] if name else []
        elif stars:
            made.append(Parameter(name, Parameter.VAR_KEYWORD))
        elif name:
            unnamed = re.fullmatch(r"arg\d+", name) and kind is Parameter.POSITIONAL_OR_KEYWORD
            default = re.search(r" = (.*)", part, re.DOTALL)
            made.append(
                _parameter(
                    name,
                    Parameter.POSITIONAL_ONLY if unnamed else kind,
                    default[1] if default else Parameter.empty,
                )
            )
    return made


def _parameter(name: str, kind: Any, default: object) -> Parameter:
    """A parameter; one whose name is a word of Python's own is passed by position."""
    if iskeyword(name) and kind is Parameter.POSITIONAL_OR_KEYWORD:
        kind = Parameter.POSITIONAL_ONLY
    return Parameter(f"{name}_" if iskeyword(name) else name, kind, default=default)


def _until_closed(text: str) -> Iterator[str]:
    """Parts between the commas of a text, up to the bracket that closes it; brackets and quotes keep a part together."""
    depth, begun, quote, before = 0, 0, "", ""
    for place, character in enumerate(text):
        if quote:
            quote = "" if character == quote and before != "\\" else quote
        elif character in "'\"":
            quote = character
        elif character in "([{<":
            depth += 1
        elif character in ",)" and depth == 0:
            yield text[begun:place].strip()
            begun = place + 1
            if character == ")":
                return
        elif character in ")]}" or (character == ">" and before != "-"):
            depth -= 1
        before = character


def match(
    call: OpCall,
    values: Mapping[str, Any],
    signatures: Sequence[Signature],
    where: str,
    tensors: Sequence[torch.Tensor],
    *,
    state: Mapping[str, Any] | None = None,
) -> tuple[list[Any], dict[str, Any]]:
    """The positional and the keyword arguments with which a function takes a call.

    By name what is named as the op's parameters are, the others in the op's order.

    Args:
        call: the op's call.
        values: its arguments, as `call_values` has them.
        signatures: of the function's overloads; the longest that takes the call is chosen, [] is any.
        where: what leads the messages.
        tensors: of the call.
        state: what a function may name besides, and gets behind the others in order: its tensors alone.

    Raises:
        SourceError: the function's parameters are not the op's.
        ContractError: it does not take one that is not the op's default in this call.
    """
    given = _Given(call, values, state or {}, where, tensors)
    if not signatures:
        return given.all_in_order(), {}
    refused: SourceError | ContractError | None = None
    for parameters in sorted(signatures, key=len, reverse=True):
        try:
            return given.to(parameters)
        except (SourceError, ContractError) as error:
            refused = refused or error
    assert refused is not None
    raise refused


class _Given:
    """What a call has for a function."""

    def __init__(
        self,
        call: OpCall,
        values: Mapping[str, Any],
        state: Mapping[str, Any],
        where: str,
        tensors: Sequence[torch.Tensor],
    ) -> None:
        self._call = call
        self._values = values
        self._named = {**state, **values}
        self._state = [value for value in state.values() if isinstance(value, torch.Tensor)]
        self._where = where
        self._tensors = tensors

    def to(self, parameters: Signature) -> tuple[list[Any], dict[str, Any]]:
        """The arguments for these parameters."""
        values, named = self._values, self._named
        names_known = all(
            parameter.name in named or parameter.default is not parameter.empty or parameter.kind in VARIABLE
            for parameter in parameters
        )
        if not names_known or any("." in name for name in values):
            return self._in_order(parameters)
        if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
            taken = set(named)
        else:
            taken = {parameter.name for parameter in parameters} & set(named)
        left_out = [name for name in values if name not in taken]
        for parameter in parameters:
            if parameter.name not in named and (meant := nearest(parameter.name, left_out)):
                raise SourceError(
                    f"{self._where}: its parameter {parameter.name!r} is not one of {self._call.op}'s",
                    remedy=meant,
                )
        require_defaults(self._call, left_out, self._where, self._tensors)
        ordered = [parameter.name for parameter in parameters if parameter.kind is parameter.POSITIONAL_ONLY]
        # A default that the caller left to the op is passed on: the kernel's own may differ.
        by_name = {name: named[name] for name in named if name in taken and name not in ordered}
        return [named[name] for name in ordered if name in named], by_name

    def _in_order(self, parameters: Signature) -> tuple[list[Any], dict[str, Any]]:
        """By name what has one of the op's names, in the op's order the others."""
        taken = [parameter for parameter in parameters if parameter.kind not in VARIABLE]
        rest = {name: value for name, value in self._values.items() if name not in {p.name for p in taken}}
        values = [*rest.values(), *self._state]
        others = [p for p in taken if p.name not in self._values and p.kind is not p.KEYWORD_ONLY]
        required = sum(parameter.default is parameter.empty for parameter in taken)
        unknown = [p for p in taken if p.name not in self._values and p.default is p.empty]
        require_passed(self._call, [p.name for p in unknown], self._named, self._where)
        if len(unknown) > len(values) or any(p.kind is p.KEYWORD_ONLY for p in unknown):
            raise self._unlike(parameters, required)
        if any(parameter.kind is parameter.VAR_POSITIONAL for parameter in parameters):
            by_name = {
                p.name: self._values[p.name]
                for p in taken
                if p.kind is p.KEYWORD_ONLY and p.name in self._values
            }
            return self.all_in_order(by_name), by_name
        require_defaults(self._call, list(rest)[len(others) :], self._where, self._tensors)
        given = {p.name: self._values[p.name] for p in taken if p.name in self._values}
        given |= {p.name: value for p, value in zip(others, values, strict=False)}
        # What comes first in the signature goes by position: a function in C may have no names.
        first = list(itertools.takewhile(lambda p: p.kind is not p.KEYWORD_ONLY and p.name in given, taken))
        return [given.pop(p.name) for p in first], given

    def all_in_order(self, by_name: Collection[str] = ()) -> list[Any]:
        """All arguments but these, without those at the end that the caller left to the op."""
        left = [one for one in self._call.arguments if one.passed != "state" and one.name not in by_name]
        passed = [index for index, one in enumerate(left) if one.passed != "default"]
        values = [self._values[one.name] for one in left]
        return [*values, *self._state] if self._state else values[: max(passed, default=-1) + 1]

    def _unlike(self, parameters: Signature, required: int) -> SourceError:
        op, names = self._call.op, [parameter.name for parameter in parameters]
        has = f"{op} has {len(self._values)} ({', '.join(self._values)})"
        unknown = next(
            (p.name for p in parameters if p.name not in self._named and p.kind is not p.POSITIONAL_ONLY), ""
        )
        if not unknown:
            return SourceError(
                f"{self._where}: it takes {counted(required, 'argument')}, {has}",
                remedy="take the op's own parameters, in its order",
            )
        return SourceError(
            f"{self._where}: its parameters ({', '.join(names)}) are not those of {op} ({', '.join(self._values)})",
            remedy=f"{unknown}: {nearest(unknown, self._values) or 'the op has no such parameter'}",
        )
