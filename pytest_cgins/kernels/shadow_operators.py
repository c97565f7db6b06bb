"""Declarations of torch's C++ operators for the shadow headers, from the schemas that torch ships.

Only the operators whose names stand in a source are declared: all 2500 would cost seconds. A body calls
`torch.ops.aten.NAME.OVERLOAD`, so a declaration needs no more than the schema has.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from pytest_cgins.errors import InfrastructureError

# Written by hand in tensor.h, with more than the operator has, or without a call of torch.
BY_HAND = {
    "size", "stride", "dim", "numel", "is_contiguous", "contiguous", "item", "data", "is_floating_point", "is_complex", "storage_offset", "get_device",
    "requires_grad_", "index", "index_put_", "layout",
}  # fmt: skip
BASE_TYPES = {
    "Tensor": "const at::Tensor&", "int": "int64_t", "SymInt": "int64_t", "float": "double", "bool": "bool",
    "Scalar": "const at::Scalar&", "str": "std::string_view", "ScalarType": "at::ScalarType",
    "MemoryFormat": "at::MemoryFormat", "Device": "at::Device", "Layout": "at::Layout",
    "Generator": "at::Generator",
}  # fmt: skip
LIST_TYPES = {
    "Tensor": "at::TensorList", "int": "at::IntArrayRef", "SymInt": "at::IntArrayRef",
    "float": "at::ArrayRef<double>", "Scalar": "at::ArrayRef<at::Scalar>",
}  # fmt: skip
RETURN_TYPES = {
    "Tensor": "at::Tensor", "int": "int64_t", "SymInt": "int64_t", "float": "double", "bool": "bool",
    "Scalar": "at::Scalar", "ScalarType": "at::ScalarType",
}  # fmt: skip
DEFAULTS = {
    "True": "true", "False": "false", "None": "{}", "Mean": "at::Reduction::Mean", "long": "at::kLong",
    "contiguous_format": "at::MemoryFormat::Contiguous", "preserve_format": "at::MemoryFormat::Preserve",
}  # fmt: skip


class UnknownTypeError(Exception):
    """An overload has a type that the shadow headers do not have; it is left out."""


def declarations(identifiers: Iterable[str]) -> tuple[str, str]:
    """C++ declarations of the operators among some identifiers.

    Args:
        identifiers: names that stand in the sources.

    Returns:
        What goes into the class `at::Tensor`, and what goes behind it.

    Raises:
        InfrastructureError: torch's schemas are missing.
    """
    methods: list[str] = []
    functions: list[str] = []
    known = _schemas()
    for name in sorted(set(identifiers) - BY_HAND):
        for text, variants in known.get(name, ()):
            try:
                signature = _Signature(text)
            except UnknownTypeError:
                continue
            if "method" in variants:
                methods.append(signature.method())
            if "function" in variants:
                functions.append(signature.function())
    return "\n".join(methods), "\n".join(["namespace at {", *functions, "}"])


@lru_cache(maxsize=1)
def _schemas() -> dict[str, list[tuple[str, str]]]:
    """Schemas and variants by the name that the C++ function has."""
    spec = find_spec("torchgen")
    root = Path(spec.origin).parent if spec is not None and spec.origin is not None else Path()
    file = root / "packaged/ATen/native/native_functions.yaml"
    if not file.is_file():
        raise InfrastructureError(
            f"{file}: torch's schemas are missing, and the shadow headers are made from them",
            remedy="install torch again, or build with the real headers",
        )
    found: dict[str, list[tuple[str, str]]] = {}
    for entry in re.split(r"^- func: ", file.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]:
        text, _, rest = entry.partition("\n")
        variants = re.search(r"^  variants: (.*)$", rest, re.MULTILINE)
        name, _, overload = text.partition("(")[0].partition(".")
        is_out = re.search(r"\(\w!\) ?\w*(?=[,)].*->)", text.partition("*, ")[2]) and "out" in overload
        cpp_name = f"{name}_out" if is_out else name
        found.setdefault(cpp_name, []).append((text, variants[1] if variants else "function"))
    return found


class _Signature:
    """One overload as C++ text."""

    def __init__(self, text: str) -> None:
        from torchgen.model import FunctionSchema  # type: ignore[import-untyped]

        schema = FunctionSchema.parse(text)
        self._name = str(schema.name.name)
        self._overload = schema.name.overload_name or "default"
        self._inplace = schema.name.name.inplace
        self._arguments = list(schema.arguments.flat_all)
        self._positional = len(schema.arguments.flat_positional)
        self._out = list(schema.arguments.out)
        options = schema.arguments.tensor_options
        self._options = [argument.name for argument in options.all()] if options else []
        defaults = [argument.default for argument in options.all()] if options else []
        self._option_default = "" if None in defaults else f" = {_default(defaults[0])}" if defaults else ""
        self._result = self._result_type([str(each.type) for each in schema.returns])
        self._parameters = list(self._all_parameters())

    def method(self) -> str:
        parameters = ", ".join(text for name, text in self._parameters if name != "self")
        return f"{self._result} {self._cpp_name()}({parameters}) const {{\n{self._body('*this')}}}"

    def function(self) -> str:
        parameters = ", ".join(text for _, text in self._parameters)
        return f"inline {self._result} {self._cpp_name()}({parameters}) {{\n{self._body('self')}}}"

    def _cpp_name(self) -> str:
        return f"{self._name}_out" if self._out else self._name

    def _result_type(self, returns: list[str]) -> str:
        if self._inplace:
            return "at::Tensor&"
        if self._out:
            if len(self._out) == 1:
                return "at::Tensor&"
            return f"std::tuple<{', '.join(['at::Tensor&'] * len(self._out))}>"
        types = []
        for text in returns:
            bare = re.sub(r"\(.*?\)", "", text)
            item = RETURN_TYPES.get(bare.removesuffix("[]"))
            if item is None:
                raise UnknownTypeError(text)
            types.append(f"std::vector<{item}>" if bare.endswith("[]") else item)
        if len(types) < 2:
            return types[0] if types else "void"
        return f"std::tuple<{', '.join(types)}>"

    def _all_parameters(self) -> Iterator[tuple[str, str]]:
        """Names and texts; tensor options are one parameter, outputs come first, as in torch's C++."""
        for argument in self._out:
            yield argument.name, f"at::Tensor& {argument.name}"
        for argument in self._arguments:
            if argument in self._out:
                continue
            if argument.name in self._options:
                if argument.name == self._options[0]:
                    yield "options", f"const at::TensorOptions& options{self._option_default}"
                continue
            kind = "at::Tensor&" if argument.is_write else _cpp_type(argument.type)
            if kind == "at::Generator":
                raise UnknownTypeError("a generator that has to be given")
            if "\\" in (argument.default or ""):
                raise UnknownTypeError(argument.default)
            default = "" if argument.default is None else f" = {_default(argument.default)}"
            yield argument.name, f"{kind} {argument.name}{default}"

    def _body(self, own: str) -> str:
        given = []
        for argument in self._arguments:
            name = own if argument.name == "self" else argument.name
            if argument.name in self._options:
                member = {"pin_memory": "pinned_memory"}.get(argument.name, argument.name)
                name = f"options.{member}_opt()"
            elif argument.name == "memory_format" and self._options:
                name = "(memory_format.has_value() ? memory_format : options.memory_format_opt())"
            given.append(f"cgins_shadow::to_object({name})")
        keywords = ", ".join(f'"{argument.name}"' for argument in self._arguments[self._positional :])
        lines = [
            f'static cgins_shadow::Operator cgins_operator("{self._name}", "{self._overload}", {{{keywords}}});',
            f"const cgins_shadow::Object cgins_arguments[] = {{{', '.join(given) or 'cgins_shadow::none()'}}};",
            f"cgins_shadow::Object cgins_result = cgins_shadow::call(cgins_operator, cgins_arguments, {len(given)});",
            *self._returning(own),
        ]
        return "".join(f"  {line}\n" for line in lines)

    def _returning(self, own: str) -> list[str]:
        if self._inplace:
            return [f"({own}).refresh();", f"return const_cast<at::Tensor&>({own});"]
        if self._out:
            names = [argument.name for argument in self._out]
            back = names[0] if len(names) == 1 else f"{{{', '.join(names)}}}"
            return [*(f"{name}.refresh();" for name in names), f"return {back};"]
        if "requires_grad" not in self._options and self._options and self._result == "at::Tensor":
            return [
                "at::Tensor cgins_tensor(std::move(cgins_result));",
                "if (options.requires_grad()) cgins_tensor.requires_grad_(true);",
                "return cgins_tensor;",
            ]
        return [f"return cgins_shadow::as<{self._result}>(std::move(cgins_result));"]


def _cpp_type(kind: Any) -> str:
    """The C++ type of a parameter.

    Raises:
        UnknownTypeError: there is none.
    """
    text = re.sub(r"\(.*?\)", "", str(kind))
    optional = text.endswith("?")
    bare = text.removesuffix("?")
    listed = re.fullmatch(r"(\w+)\[(\d*)\]", bare)
    if listed is None:
        found = BASE_TYPES.get(bare)
        if found is not None and optional:
            value = found.removeprefix("const ").removesuffix("&")
            return (
                f"const std::optional<{value}>&" if found.startswith("const") else f"std::optional<{value}>"
            )
    elif listed[1] == "bool" and listed[2] and not optional:
        return f"std::array<bool, {listed[2]}>"
    else:
        found = LIST_TYPES.get(listed[1])
        if found is not None and optional:
            return "at::OptionalIntArrayRef" if "Int" in found else f"std::optional<{found}>"
    if found is None:
        raise UnknownTypeError(text)
    return found


def _default(text: str) -> str:
    """A schema's default as C++."""
    if text.startswith("["):
        return "{" + text[1:-1] + "}"
    if text.startswith(("'", '"')):
        return '"' + text[1:-1] + '"'
    return DEFAULTS.get(text, text)
