"""A launcher as a torch operator: its schema in torch's language, and the C++ that registers and calls it.

The C++ is small and typed; what all bindings share is in `include/cgins_torch.h`. It is over torch's stable
ABI, so it compiles in under a second, and a library built against one torch runs on later ones.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from keyword import iskeyword

from pytest_cgins.building.contracts.schema import C_KEYWORDS, Schema, SchemaArgument, SchemaOutput
from pytest_cgins.core.device import DeviceName, device_of
from pytest_cgins.core.errors import SourceError

HEADER = "cgins_torch.h"
OUTPUTS = "_outputs"
CXX_FLAGS = ("-O1", "-std=c++17", "-fPIC")
SCALAR_PARTS = ("kind", "integer", "real", "imaginary")
TORCH_TYPES = {"int": "SymInt", "Generator": "int"}
CXX_TYPES = {
    "Tensor": "Tensor", "int": "int64_t", "float": "double", "bool": "bool", "str": "std::string",
    "ScalarType": "ScalarType", "Generator": "int64_t",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class TorchArgument:
    """One argument of the torch operator; a `Scalar` of the schema line is four of them."""

    name: str
    """Its name in the operator's schema."""
    type: str
    """Its type in torch's schema language, alias mark included."""
    cxx_type: str
    """The C++ type of the binding's parameter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """A torch operator that a launcher implements."""

    namespace: str
    """As in `torch.ops.NAMESPACE`."""
    name: str
    """As in `torch.ops.NAMESPACE.NAME`."""
    schema: Schema
    """The launcher's own schema."""

    @property
    def qualified(self) -> str:
        """`NAMESPACE::NAME`."""
        return f"{self.namespace}::{self.name}"

    @property
    def arguments(self) -> tuple[TorchArgument, ...]:
        """Arguments in the schema line's order, all positional and without defaults.

        torch leaves an argument that has its default out of what it passes to Python.
        """
        return tuple(chain.from_iterable(map(_torch_arguments, self.schema.arguments)))

    @property
    def allocates(self) -> bool:
        """Whether some output is new, and so allocated by the binding."""
        return bool(_new(self.schema))

    @property
    def mutated(self) -> tuple[str, ...]:
        """Arguments that it writes to; torch has no backward for an operator that has any."""
        return tuple(argument.name for argument in self.schema.arguments if argument.mutated)

    @property
    def output_kinds(self) -> tuple[str, ...]:
        """For each output of the schema line, `tensor`, `list`, or `argument` for one that is mutated."""
        return tuple(
            "argument" if output.aliased else "list" if output.list else "tensor"
            for output in self.schema.outputs
        )

    @property
    def definition(self) -> str:
        """The operator in torch's schema language.

        A mutated argument is not returned as well: torch.compile takes no operators that return what they
        are given.
        """
        listed = ", ".join(f"{argument.type} {argument.name}" for argument in self.arguments)
        kinds = ["Tensor[]" if output.list else "Tensor" for output in _new(self.schema)]
        returned = kinds[0] if len(kinds) == 1 else f"({', '.join(kinds)})"
        return f"{self.name}({listed}) -> {returned}"

    @property
    def outputs_definition(self) -> str:
        """The operator that tells the outputs' shapes as meta tensors, or what was wrong as bytes on the CPU.

        The stable ABI hands on one result only, and of an error in Python nothing.
        """
        # The stable ABI passes no SymInt to an operator; this one is called with numbers only.
        types = (argument.type.replace("SymInt", "int") for argument in self.arguments)
        listed = ", ".join(f"{kind} {a.name}" for kind, a in zip(types, self.arguments, strict=True))
        return f"{self.name}{OUTPUTS}({re.sub(r'[(].*?[)]', '', listed)}) -> Tensor[]"


def operator(namespace: str, name: str, schema: Schema, where: str) -> Operator:
    """The operator of a launcher.

    Args:
        namespace: of `torch.ops`.
        name: the operator's, usually the kernel's in cgins.yaml.
        schema: the launcher's schema.
        where: what leads the messages.

    Raises:
        SourceError: torch cannot have such an operator.
    """
    for text in (namespace, name, *(argument.name for argument in schema.arguments)):
        if not re.fullmatch(r"[A-Za-z_]\w*", text, re.ASCII) or iskeyword(text):
            raise SourceError(
                f"{where}: {text!r} cannot be a name in torch.ops",
                remedy="use letters, digits and underscores, and no keyword of Python",
            )
    if not any(argument.type == "Tensor" for argument in schema.arguments):
        raise SourceError(
            f"{where}: {schema.entry} takes no tensor, and torch finds a kernel by its tensors' device",
            remedy="export kernels that take a tensor",
        )
    made = Operator(namespace=namespace, name=name, schema=schema)
    names = [argument.name for argument in made.arguments]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice:
        raise SourceError(
            f"{where}: the operator would have two arguments {twice!r}",
            remedy="rename one in the schema line (a Scalar also takes NAME_kind, _integer, _real, _imaginary)",
        )
    return made


def _new(schema: Schema) -> list[SchemaOutput]:
    return [output for output in schema.outputs if not output.aliased]


def names_of(argument: SchemaArgument) -> list[str]:
    """Names of the operator's arguments for one of the schema line: of a Scalar four."""
    if argument.type != "Scalar":
        return [argument.name]
    return [f"{argument.name}_{part}" for part in SCALAR_PARTS]


def _torch_arguments(argument: SchemaArgument) -> list[TorchArgument]:
    if argument.type == "Scalar":
        types = (("int", "int64_t"), ("int", "int64_t"), ("float", "double"), ("float", "double"))
        return [TorchArgument(part, *pair) for part, pair in zip(names_of(argument), types, strict=True)]
    kind = TORCH_TYPES.get(argument.type, argument.type)
    cxx = CXX_TYPES[argument.type]
    if argument.mutated:
        kind += f"({argument.name}!)"
    if argument.item_optional:
        kind, cxx = f"{kind}?", f"std::optional<{cxx}>"
    if argument.list:
        kind, cxx = f"{kind}[]", f"std::vector<{cxx}>"
    if argument.optional and argument.type != "Generator":
        kind, cxx = f"{kind}?", f"std::optional<{cxx}>"
    return [TorchArgument(argument.name, kind, cxx)]


def binding(
    operator: Operator, device: DeviceName, declarations: str, *, workspace: bool, define: bool
) -> str:
    """C++ source that registers a launcher as the operator's kernel for a device.

    Args:
        operator: the operator.
        device: of the launcher.
        declarations: C prototypes of the launcher, one a line.
        workspace: whether it takes scratch memory.
        define: whether this source also defines the operator; one of a process must.
    """
    key = device_of(device).backend
    parts = [
        f'// {operator.qualified} on {device}: generated from the schema line.\n#include "{HEADER}"\n',
        'extern "C" {\n' + declarations + "\n}\n",
        "namespace cgins_torch {\nnamespace {\n",
        _function(operator, device, workspace=workspace),
        "}  // namespace\n}  // namespace cgins_torch\n",
    ]
    if define:
        definitions = [operator.definition, *([operator.outputs_definition] if operator.allocates else [])]
        listed = "".join(f'  library.def(R"({text})");\n' for text in definitions)
        parts.append(f"STABLE_TORCH_LIBRARY_FRAGMENT({operator.namespace}, library) {{\n{listed}}}\n")
    parts.append(
        f"STABLE_TORCH_LIBRARY_IMPL({operator.namespace}, {key}, library) {{\n"
        f'  library.impl("{operator.name}", TORCH_BOX(&cgins_torch::run));\n}}\n'
    )
    return "\n".join(parts)


def _function(operator: Operator, device: str, *, workspace: bool) -> str:
    schema = operator.schema
    new = _new(schema)
    kinds = ["std::vector<Tensor>" if output.list else "Tensor" for output in new]
    returned = {0: "void", 1: kinds[0] if kinds else ""}.get(len(kinds), f"std::tuple<{', '.join(kinds)}>")
    parameters = ", ".join(f"{_passed(a.cxx_type)} {_safe(a.name)}" for a in operator.arguments)
    lines = [f'Call call_("{operator.qualified}", {"kDLCUDA" if device_of(device).is_cuda else "kDLCPU"});']
    passed: list[str] = []
    for argument in schema.arguments:
        before, given = _marshal(argument)
        lines += before
        passed += given
    if new:
        names = "".join(f", {_safe(argument.name)}" for argument in operator.arguments)
        lines.append(f'static Outputs outputs_("{operator.qualified}{OUTPUTS}");')
        lines.append(f"const auto shapes_ = outputs_.of(call_{names});")
    position = "0"
    for output in new:
        position, more, given = _allocate(output.name, position, single=not output.list, after=_after(new))
        lines += more
        passed += given
    if workspace:
        lines.append(f"const int64_t nbytes_ = ::{schema.entry}_workspace({', '.join(passed)});")
        passed += ["call_.workspace(nbytes_)", "nbytes_"]
    passed.append("call_.stream()")
    lines.append(f"call_.done(::{schema.entry}({', '.join(passed)}));")
    made = ", ".join(f"{output.name}_made" for output in new)
    if new:
        lines.append(f"return {made};" if len(new) == 1 else f"return {{{made}}};")
    body = "\n".join(f"  {line}" for line in lines)
    return f"{returned} run({parameters}) {{\n{body}\n}}\n"


def _after(new: Sequence[SchemaOutput]) -> int:
    """How many outputs follow the list among them."""
    lists = [index for index, output in enumerate(new) if output.list]
    return len(new) - 1 - lists[0] if lists else 0


def _passed(cxx_type: str) -> str:
    plain = cxx_type in ("int64_t", "double", "bool", "ScalarType")
    return cxx_type if plain else f"const {cxx_type}&"


def _safe(name: str) -> str:
    return f"{name}_" if name in C_KEYWORDS else name


def _marshal(argument: SchemaArgument) -> tuple[list[str], list[str]]:
    """Lines that prepare a C argument, and the expressions to pass."""
    name = _safe(argument.name)
    if argument.type == "Tensor":
        return _tensors(argument, name)
    if argument.type == "Scalar":
        parts = ", ".join(names_of(argument))
        notes = [f"call_.note({part});" for part in names_of(argument)]
        if argument.optional:
            return [f"const auto {name}_c = scalar({parts});", *notes], [f"address({name}_c)"]
        made = f'const auto {name}_c = call_.required("{argument.name}", scalar({parts}));'
        return [made, *notes], [f"&{name}_c"]
    if argument.type == "Generator":  # the seed decides numbers, not shapes
        return [], [f"uint64_t({name})"]
    note = f"call_.note({name});"
    if argument.type == "str":
        if argument.optional:
            return [note], [f"{name} ? {name}->c_str() : nullptr", f"{name} ? int64_t({name}->size()) : 0"]
        return [note], [f"{name}.c_str()", f"int64_t({name}.size())"]
    if argument.type == "ScalarType":
        prepared = f"const auto {name}_c = dl_type({name});"
        return [note, prepared], [f"address({name}_c)" if argument.optional else f"&{name}_c"]
    if argument.list:
        items = f"items({name})" if argument.optional else f"{name}.data()"
        items = f"call_.bools({name})" if argument.type == "bool" else items
        return [note], [items, _length(argument, name)]
    return [note], [f"address({name})" if argument.optional else name]


def _tensors(argument: SchemaArgument, name: str) -> tuple[list[str], list[str]]:
    methods = ("inputs", "mutables") if argument.list else ("input", "mutated")
    line = f'const auto {name}_c = call_.{methods[argument.mutated]}("{argument.name}", {name});'
    return [line], [f"{name}_c", *([_length(argument, name)] if argument.list else [])]


def _length(argument: SchemaArgument, name: str) -> str:
    return f"count({name})" if argument.optional else f"int64_t({name}.size())"


def _allocate(name: str, position: str, *, single: bool, after: int) -> tuple[str, list[str], list[str]]:
    """The next position in the list of shapes, lines that allocate an output, and what to pass."""
    if single:
        made = [
            f"const Tensor {name}_made = call_.allocate(shapes_->at({position}));",
            f"DLTensor* {name}_c = call_.output({name}_made);",
        ]
        return f"{position} + 1", made, [f"{name}_c"]
    end = f"shapes_->size() - {after}"
    made = [
        f"const std::vector<Tensor> {name}_made = call_.allocate(*shapes_, {position}, {end});",
        f"DLTensor* const* {name}_c = call_.outputs({name}_made);",
    ]
    return end, made, [f"{name}_c", f"int64_t({name}_made.size())"]
