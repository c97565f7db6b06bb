"""The Python of an exported package: a function for each kernel, and what it registers with torch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pytest_cgins.building.builders.binding import Operator, names_of
from pytest_cgins.building.contracts.schema import SchemaArgument
from pytest_cgins.building.torch_library.reference import ReferenceCall

_TEMPLATES = Path(__file__).parent / "template"


def template(file: str, **values: str) -> str:
    """A file of a package, with the values in their places."""
    return (_TEMPLATES / f"{file}.txt").read_text(encoding="utf-8").format_map(values)


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """A kernel as it goes into a package."""

    operator: Operator
    """Its operator."""
    call: ReferenceCall
    """The op that it replaces, as called with the operator's arguments."""
    devices: tuple[str, ...]
    """Devices that it has a kernel for."""
    reference: str
    """The op's name in the package: `torch.nn.functional.gelu`, or `_op_NAME.function` of a copied one."""
    source: str = ""
    """Source of a Python module with the op, where it is copied into the package; else ""."""


def text(namespace: str, exported: list[Exported], files: list[str]) -> str:
    """`__init__.py` of a package.

    Args:
        namespace: of `torch.ops`.
        exported: the kernels, those of backward ops among them.
        files: libraries, in the order in which they are loaded.
    """
    copied = [f"_op_{one.operator.name}" for one in exported if one.source]
    names = ", ".join([*copied, "_support"])
    listed = "".join(f"\n    {file!r}," for file in files)
    parts = [_function(one) for one in exported]
    parts += [_registration(one, exported) for one in exported]
    scalars = any("_number(" in part for part in parts)
    number = "from ._support import number as _number\n" if scalars else ""
    head = template("__init__.py", namespace=namespace, names=names, number=number, files=f"[{listed}\n]")
    public = [one.operator.name for one in exported]
    return "\n\n".join([head, *parts, f"__all__ = {public}\n"])


def signature(operator: Operator) -> str:
    """Parameters of the package's function, with the schema line's defaults."""
    listed: list[str] = []
    optional = keyword = False
    for argument in operator.schema.arguments:
        has_default = argument.has_default or argument.type == "Generator"
        if optional and not has_default and not keyword:
            listed.append("*")
            keyword = True
        optional = optional or has_default
        default = None if argument.type == "Generator" else argument.default
        listed.append(f"{argument.name}={default!r}" if has_default else argument.name)
    return ", ".join(listed)


def _function(one: Exported) -> str:
    operator = one.operator
    passed = ", ".join(_passed(argument) for argument in operator.schema.arguments)
    call = f"torch.ops.{operator.namespace}.{operator.name}({passed})"
    lines = [f'"""`{one.call.op}` by a kernel for {" and ".join(one.devices)}."""']
    if operator.mutated:
        tensors = [argument.name for argument in operator.schema.arguments if argument.type == "Tensor"]
        lines.append(f"_support.refuse_gradients({operator.qualified!r}, {', '.join(tensors)})")
    kinds = operator.output_kinds
    if "argument" not in kinds:
        lines.append(f"return {call}")
    else:
        new = [output.name + "_" for output in operator.schema.outputs if not output.aliased]
        lines.append(f"{', '.join(new)} = {call}" if new else call)
        returned = [output.aliased or output.name + "_" for output in operator.schema.outputs]
        lines.append(f"return {', '.join(returned)}")
    body = "\n".join(f"    {line}" for line in lines)
    return f"def {operator.name}({signature(operator)}):\n{body}\n"


def _passed(argument: SchemaArgument) -> str:
    name = argument.name
    if argument.type == "Scalar":
        return f"*_support.parts({name})"
    if argument.type == "Generator":
        return f"_support.seed({name})"
    if argument.list and argument.type != "Tensor":
        return f"_support.listed({name})"
    return name


def _registration(one: Exported, exported: list[Exported]) -> str:
    operator, call = one.operator, one.call
    parameters = ", ".join(call.parameters)
    fields = [
        f"name={operator.qualified!r}",
        f"arguments={call.parameters!r}",
        f"reference=lambda {parameters}: {call.expression(one.reference)}",
        f"outputs={operator.output_kinds!r}",
    ]
    if operator.mutated:
        fields.append(f"mutated={operator.mutated!r}")
    if operator.mutated or call.gradients:
        fields.append("differentiable=False")
    kernels = [_backward(other, one) for other in exported if other.call.forward == call.op]
    if kernels and not operator.mutated:
        listed = "".join(f"\n            {kernel}," for kernel in kernels)
        fields.append(f"backward=({listed}\n        )")
    body = "".join(f"        {field},\n" for field in fields)
    return f"_support.register(\n    _support.Operator(\n{body}    ),\n    _LIBRARY,\n)\n"


def _backward(backward: Exported, forward: Exported) -> str:
    own = set(forward.call.parameters)
    given = []
    for argument in backward.operator.schema.arguments:
        parts = names_of(argument)
        if argument.name == "grad_output" or set(parts) <= own:
            given += parts
        else:  # an argument of the op that the forward's kernel does not take has its default
            given.append(_passed_default(argument))
    name = f"torch.ops.{backward.operator.namespace}.{backward.operator.name}"
    parameters = ", ".join(["grad_output", *forward.call.parameters])
    return (
        f"_support.BackwardKernel(lambda {parameters}: {name}({', '.join(given)}), "
        f"{backward.call.gradients!r}, {backward.devices!r})"
    )


def _passed_default(argument: SchemaArgument) -> str:
    if argument.type == "Scalar":
        return f"*_support.parts({argument.default!r})"
    if argument.list and argument.type != "Tensor":
        return repr([argument.default] if isinstance(argument.default, int | float) else argument.default)
    return repr(argument.default)
