"""How the op that a kernel replaces is called with the arguments of the kernel's operator."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain

from pytest_cgins.building.builders.binding import names_of
from pytest_cgins.building.contracts import schema as schemas
from pytest_cgins.building.contracts.schema import Schema
from pytest_cgins.core.errors import SourceError
from pytest_cgins.core.text import counted
from pytest_cgins.packs import backward, signature
from pytest_cgins.packs.ops import ModuleOp, resolve


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceCall:
    """A call of an op with a schema's arguments, by name."""

    op: str
    """Qualified name of the op; of a backward, with its mark."""
    schema: Schema
    """The launcher's schema."""
    first: str
    """The argument that is passed by position; "" for none. torch's methods take no other by name."""
    named: tuple[str, ...]
    """The arguments that are passed by keyword. Those that the op does not have are not passed."""

    @property
    def parameters(self) -> tuple[str, ...]:
        """Names of the operator's arguments: those of the schema, a Scalar in four parts."""
        return tuple(chain.from_iterable(map(names_of, self.schema.arguments)))

    @property
    def gradients(self) -> tuple[str, ...]:
        """For a backward: the arguments of its op that it gives the gradients of; else ()."""
        return backward.parse(self.op)[1] if backward.is_derived(self.op) else ()

    @property
    def forward(self) -> str:
        """For a backward: the op that it is of; else ""."""
        return backward.parse(self.op)[0] if backward.is_derived(self.op) else ""

    def expression(self, function: str) -> str:
        """The call in Python; `_number` makes a Scalar of its four parts."""
        if self.gradients:
            return f"[{', '.join(f'torch.empty_like({name})' for name in self.gradients)}]"
        passed = [self._value(self.first)] if self.first else []
        return f"{function}({', '.join([*passed, *(f'{name}={self._value(name)}' for name in self.named)])})"

    def _value(self, name: str) -> str:
        names = names_of(next(argument for argument in self.schema.arguments if argument.name == name))
        return name if names == [name] else f"_number({', '.join(names)})"


def call_of(op: str, schema: Schema, where: str) -> ReferenceCall:
    """How an op is called with a schema's arguments.

    Args:
        op: its qualified name.
        schema: the launcher's schema.
        where: what leads the messages.

    Raises:
        SourceError: the op has not the schema's arguments, or is one that a library cannot call.
        TraceError: there is no such op.
    """
    if backward.is_derived(op):
        forward, names = backward.parse(op)
        parameters = [backward.SINGLE, *parameters_of(forward, where)]
        if len(schema.outputs) != len(names) or any(o.list or o.aliased for o in schema.outputs):
            raise SourceError(
                f"{where}: {op} gives {counted(len(names), 'gradient')}, the schema line declares {counted(len(schema.outputs), 'output')}",
                remedy="declare one output for each argument that gets a gradient",
            )
    else:
        parameters = parameters_of(op, where)
    schemas.match(schema, parameters, where)
    present = [a.name for a in schema.arguments if a.name in parameters and a.type != "Generator"]
    first = parameters[0] if parameters and parameters[0] in present else ""
    return ReferenceCall(
        op=op, schema=schema, first=first, named=tuple(name for name in present if name != first)
    )


def parameters_of(op: str, where: str) -> list[str]:
    """Names of an op's parameters, in order.

    Raises:
        SourceError: it is a class of modules, or nothing knows its parameters.
        TraceError: there is no such op.
    """
    function = resolve(op)
    if isinstance(function, ModuleOp):
        raise SourceError(
            f"{where}: {op} is a class of modules, and an operator takes tensors and plain data only",
            remedy="gate a function that the module's forward calls, and export the kernel for that",
        )
    listed = signature.parameters(function)
    if not listed:
        raise SourceError(
            f"{where}: the parameters of {op} have no names",
            remedy="name the kernel's op by a function with a signature",
        )
    return listed
