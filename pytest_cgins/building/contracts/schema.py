"""The schema line of a launcher: torch's schema language, and the C prototype that follows from it.

`// cgins: scale(Tensor x, float a=1.0) -> Tensor` declares one `extern "C"` function. torchgen parses the
line (it comes with torch and imports none of it); `CONTRACT.md` has the table of types.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

from pytest_cgins.building.contracts.cxx import quoted
from pytest_cgins.core.errors import SourceError
from pytest_cgins.core.text import counted, nearest

if TYPE_CHECKING:
    from torchgen.model import Argument, Return  # type: ignore[import-untyped]

BaseType = Literal["Tensor", "int", "float", "bool", "Scalar", "str", "ScalarType", "Generator"]
BASE_TYPES: tuple[str, ...] = get_args(BaseType)
SCALAR_C_TYPES = {
    "int": "int64_t",
    "float": "double",
    "bool": "bool",
    "Scalar": "cgins_scalar",
    "ScalarType": "DLDataType",
}
C_KEYWORDS = frozenset(
    [
        "alignas", "alignof", "and", "asm", "auto", "bool", "break", "case", "catch", "char", "class",
        "const", "constexpr", "continue", "decltype", "default", "delete", "do", "double", "else", "enum",
        "explicit", "export", "extern", "false", "final", "float", "for", "friend", "goto", "if", "inline",
        "int", "long", "mutable", "namespace", "new", "noexcept", "not", "nullptr", "operator", "or",
        "private", "protected", "public", "register", "requires", "restrict", "return", "short", "signed",
        "sizeof", "static", "struct", "switch", "template", "this", "throw", "true", "try", "typedef",
        "typeid", "typename", "union", "unsigned", "using", "virtual", "void", "volatile", "while", "xor",
    ]
)  # fmt: skip
MARK = re.compile(r"\s*(?://|/\*|\*)\s*cgins:(?!:)(?P<text>.*)", re.DOTALL)
CONTINUED = re.compile(r"\s*(?://|\*)(?P<text>.*)", re.DOTALL)
MAX_CHARACTERS = 8192


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaArgument:
    """One argument of a schema line."""

    name: str
    """As written; it is matched to the op's parameter of that name."""
    type: BaseType
    """The type without `?`, `[]` and alias marks."""
    optional: bool = False
    """Whether the argument as a whole may be None."""
    list: bool = False
    """Whether it is a list."""
    item_optional: bool = False
    """Whether items of the list may be None (`Tensor?[]`)."""
    mutated: bool = False
    """Whether the kernel writes to it (`Tensor(a!)`)."""
    has_default: bool = False
    """Whether the line gives a default."""
    default: object = None
    """The default, as a Python value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaOutput:
    """One output of a schema line, always a tensor."""

    name: str
    """C parameter name: as written, else `out`, or `out0`, `out1`, … of several."""
    list: bool = False
    """Whether it is a list of tensors, as long as the op makes it."""
    aliased: str = ""
    """Name of the mutated argument that is returned; such an output is not passed a second time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Schema:
    """A parsed schema line."""

    entry: str
    """Name of the `extern "C"` function."""
    arguments: tuple[SchemaArgument, ...]
    """In the order of the line, keyword-only ones included."""
    outputs: tuple[SchemaOutput, ...]
    """In the order of the line."""


def locate(text: str, file: Path) -> tuple[str, int]:
    """The schema of a source and the 1-based line where it starts.

    A long one may go on over comment lines that follow, up to the line with `->`.

    Raises:
        SourceError: there is none, or more than one.
    """
    lines = text.splitlines()
    found = [
        (number, comment_text(match)) for number, line in enumerate(lines, 1) if (match := MARK.match(line))
    ]
    if not found:
        raise SourceError(
            f"{file}: no schema line",
            remedy="begin it with one, e.g. // cgins: scale(Tensor x, float a) -> Tensor; cgins schema --op OP prints that of an "
            "op of torch",
        )
    if len(found) > 1:
        numbers = " and ".join(str(number) for number, _ in found)
        raise SourceError(
            f"{file}: {counted(len(found), 'schema line')}, in lines {numbers}",
            remedy="a source declares one launcher; move the others to files of their own",
        )
    number, schema = found[0]
    for line in lines[number:]:
        match = CONTINUED.match(line)
        if "->" in schema or match is None or len(schema) > MAX_CHARACTERS:
            break
        schema += " " + comment_text(match)
    return schema.strip(), number


def comment_text(match: re.Match[str]) -> str:
    """What a comment line says, without blanks around it and the mark that ends a comment."""
    # No regular expression: in one, each of many blanks in the middle could be the first at the end.
    return match["text"].strip().removesuffix("*/").rstrip()


def parse(text: str, where: str = "schema") -> Schema:
    """Parse a schema line, without its `// cgins:` mark.

    Args:
        text: e.g. `scale(Tensor x, float a=1.0) -> Tensor`.
        where: `file:line`, which leads the messages.

    Raises:
        SourceError: the line is not in torch's schema language, or has a type that the contract has not.
    """
    from torchgen.model import Arguments, parse_returns

    if len(text) > MAX_CHARACTERS:
        raise SourceError(
            f"{where}: a schema line of {counted(len(text), 'character')}; {MAX_CHARACTERS} are allowed",
            remedy="pass fewer arguments, or end the comment after the schema",
        )
    shape = re.fullmatch(r"([A-Za-z_]\w*)\s*\((.*)\)\s*->\s*(\S.*)", text)
    if shape is None:
        raise SourceError(
            f"{where}: {text[:200]!r} is not a schema",
            remedy="write NAME(TYPE argument, …) -> Tensor, e.g. scale(Tensor x, float a) -> Tensor",
        )
    entry, arguments_text, returns_text = shape.groups()
    _refuse_unknown_types(arguments_text, where)
    try:
        # The parts, since a whole FunctionSchema refuses positional arguments that are mutated and returned.
        arguments = tuple(Arguments.parse(arguments_text).flat_all)
        returns = parse_returns(returns_text)
    except (AssertionError, RuntimeError, ValueError, LookupError, TypeError, AttributeError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise SourceError(
            f"{where}: torch's schema language refuses {text[:200]!r}: {reason[:200]}",
            remedy="write it as torch's native_functions.yaml does",
        ) from error
    schema = Schema(
        entry=entry,
        arguments=tuple(_argument(argument, where) for argument in arguments),
        outputs=_outputs(arguments, returns, where),
    )  # fmt: skip
    _refuse_bad_names(schema, where)
    return schema


def _refuse_unknown_types(arguments: str, where: str) -> None:
    for part in re.split(r",(?![^\[]*\])", arguments):
        word = re.match(r"\s*([A-Za-z_]\w*)", part)
        if word and word[1] not in BASE_TYPES:
            raise _no_type(word[1], where)


def _no_type(name: str, where: str) -> SourceError:
    return SourceError(
        f"{where}: the launcher contract has no type {name!r}",
        remedy=nearest(name, BASE_TYPES) or f"its types are {', '.join(BASE_TYPES)}, with ? and []",
    )


def _argument(argument: Argument, where: str) -> SchemaArgument:
    spelled = str(argument.type)
    parts = re.fullmatch(r"(\w+)(\?(?=\[))?(\[\d*\])?(\?)?", spelled)
    if parts is None or parts[1] not in BASE_TYPES:
        raise _no_type(spelled, where)
    name, item_optional, is_list, optional = parts[1], *map(bool, parts.groups()[1:])
    plain = {"int", "float", "bool", "Tensor"}
    if is_list and (name not in plain or (item_optional and name != "Tensor")):
        raise SourceError(
            f"{where}: argument {argument.name!r}: the launcher contract has no type {argument.type}",
            remedy="its lists are Tensor[], Tensor?[], int[], float[] and bool[]",
        )
    annotation = argument.annotation
    return SchemaArgument(
        name=argument.name,
        type=name,  # type: ignore[arg-type]
        optional=optional,
        list=is_list,
        item_optional=item_optional,
        mutated=annotation is not None and annotation.is_write,
        has_default=argument.default is not None,
        default=_default(argument.name, argument.default, where),
    )


def _default(name: str, text: str | None, where: str) -> object:
    if text is None:
        return None
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
        raise SourceError(
            f"{where}: argument {name!r} has the default {text[:80]!r}",
            remedy="defaults are None, True, False, numbers, quoted strings, or lists of these",
        ) from None


def _outputs(
    arguments: Sequence[Argument], returns: Sequence[Return], where: str
) -> tuple[SchemaOutput, ...]:
    from torchgen.model import ListType

    aliases = {
        alias: argument.name
        for argument in arguments
        if argument.annotation is not None and argument.annotation.is_write
        for alias in argument.annotation.alias_set
    }
    outputs = []
    for index, returned in enumerate(returns):
        if str(returned.type).split("[")[0] != "Tensor":
            raise SourceError(
                f"{where}: a launcher returns tensors, not {str(returned.type)!r}",
                remedy="write -> Tensor, -> (Tensor a, Tensor b), -> Tensor[], or -> () if it only mutates",
            )
        marks = returned.annotation.alias_set if returned.annotation is not None else ()
        if marks and not any(mark in aliases for mark in marks):
            raise SourceError(
                f"{where}: output {index} is marked ({marks[0]}!), and no argument is",
                remedy="write Tensor(a!) for the argument that is mutated and returned, or plain -> Tensor",
            )
        default_name = "out" if len(returns) == 1 else f"out{index}"
        outputs.append(
            SchemaOutput(
                name=returned.name or default_name,
                list=isinstance(returned.type, ListType),
                aliased=next((aliases[mark] for mark in marks if mark in aliases), ""),
            )
        )
    return tuple(outputs)


def _refuse_bad_names(schema: Schema, where: str) -> None:
    if schema.entry in C_KEYWORDS:
        raise SourceError(
            f"{where}: {schema.entry!r} is a keyword of C++",
            remedy=f"name the function {schema.entry}_kernel",
        )
    for argument in schema.arguments:
        if not argument.name.isidentifier():
            raise SourceError(
                f"{where}: {argument.name!r} is not an argument name",
                remedy="separate arguments by a comma and a blank: TYPE name, TYPE name",
            )
    names = [name for _, name in parameters(schema, workspace=True)]
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise SourceError(
            f"{where}: the C prototype would have two parameters named {twice[0]!r}",
            remedy="rename an argument or output (lists also take NAME_len; workspace and stream are taken)",
        )


def parameters(schema: Schema, *, workspace: bool) -> list[tuple[str, str]]:
    """C parameters of the launcher, as (type, name), in order.

    Args:
        schema: the parsed line.
        workspace: whether the source asks for scratch memory.
    """
    listed: list[tuple[str, str]] = []
    for argument in schema.arguments:
        listed += _c_parameters(argument)
    listed += _c_outputs(schema)
    if workspace:
        listed += [("void*", "workspace"), ("int64_t", "workspace_nbytes")]
    return [*listed, ("cgins_stream", "stream")]


def _c_parameters(argument: SchemaArgument) -> list[tuple[str, str]]:
    name = argument.name + "_" if argument.name in C_KEYWORDS else argument.name
    length = ("int64_t", f"{name}_len")
    if argument.type == "Tensor":
        item = "DLTensor*" if argument.mutated else "const DLTensor*"
        return [(f"{item} const*", name), length] if argument.list else [(item, name)]
    if argument.type == "Generator":
        return [("uint64_t", name)]
    if argument.type == "str":
        return [("const char*", name), length]
    c_type = SCALAR_C_TYPES[argument.type]
    if argument.list:
        return [(f"const {c_type}*", name), length]
    # A struct by value is passed in registers in ways that differ between ABIs; a pointer is not.
    by_pointer = argument.optional or argument.type in ("Scalar", "ScalarType")
    return [(f"const {c_type}*" if by_pointer else c_type, name)]


def _c_outputs(schema: Schema) -> list[tuple[str, str]]:
    listed: list[tuple[str, str]] = []
    for output in schema.outputs:
        if output.aliased:
            continue
        if output.list:
            listed += [("DLTensor* const*", output.name), ("int64_t", f"{output.name}_len")]
        else:
            listed.append(("DLTensor*", output.name))
    return listed


def prototype(schema: Schema, *, workspace: bool = False) -> str:
    """C declarations that the source's functions must match, one a line."""
    listed = parameters(schema, workspace=workspace)
    declarations = [f"int {schema.entry}({_joined(listed)});"]
    if workspace:
        # Sizes may depend on the outputs' shapes, never on scratch memory or the stream.
        declarations.append(f"int64_t {schema.entry}_workspace({_joined(listed[:-3]) or 'void'});")
    return "\n".join(declarations)


def _joined(listed: Sequence[tuple[str, str]]) -> str:
    return ", ".join(f"{c_type} {name}" for c_type, name in listed)


def header(schema: Schema, *, workspace: bool, file: str, line: int) -> str:
    """The header that is included before the source's first line.

    A `#line` directive makes the compiler point at the schema line when a definition does not match. The declared
    functions stay visible under `-fvisibility=hidden`.
    """
    declarations = "".join(
        f'#line {line} "{quoted(file)}"\n{declaration}\n'
        for declaration in prototype(schema, workspace=workspace).splitlines()
    )
    return (
        "#include <cgins.h>\n"
        '#ifdef __cplusplus\nextern "C" {\n#endif\n'
        f"#pragma GCC visibility push(default)\n{declarations}#pragma GCC visibility pop\n"
        "#ifdef __cplusplus\n}\n#endif\n"
    )


def schema_name(name: str) -> str:
    """What a schema line calls an argument, or a part of a module's state: `grad_outputs.0` is `grad_outputs_0`."""
    plain = name.removeprefix("self.").replace(".", "_")
    return f"_{plain}" if plain[0].isdigit() else plain


def match(schema: Schema, names: Sequence[str], where: str) -> tuple[str, ...]:
    """Check that the schema's arguments are the op's.

    Args:
        schema: the parsed line.
        names: the op's parameters, in its order.
        where: what leads the message.

    Returns:
        The op's parameters that the schema lacks; they must have the op's default in every call.

    Raises:
        SourceError: an argument without default that the op does not have.
    """
    for argument in schema.arguments:
        if argument.name not in names and not argument.has_default:
            raise SourceError(
                f"{where}: the schema's argument {argument.name!r} is not a parameter of the op",
                remedy=nearest(argument.name, names) or f"the op's parameters are {', '.join(names)}",
            )
    declared = {argument.name for argument in schema.arguments}
    return tuple(name for name in names if name not in declared)
