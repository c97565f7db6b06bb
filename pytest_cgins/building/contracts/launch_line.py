"""Launch lines of device kernels: how many blocks and threads, and with which arguments.

    // cgins-launch: kernel=scale<dtype(x)> grid=(ceil_div(numel(x), 256)) block=(256) args=(x, out, numel(x), a)

Several lines are several launches, in order. The expressions are those of `pytest_cgins.core.expression`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, product
from pathlib import Path

from pytest_cgins.building.contracts.schema import CONTINUED, Schema, comment_text
from pytest_cgins.core.dtypes import DTYPES
from pytest_cgins.core.errors import SourceError
from pytest_cgins.core.expression import Expression, ExpressionError, Kind, kind, parse
from pytest_cgins.core.text import counted, nearest

MARK = re.compile(r"\s*(?://|/\*|\*)\s*cgins-launch:(?P<text>.*)", re.DOTALL)
MAX_CHARACTERS = 65_536
MAX_DIGITS = 18
KEY = re.compile(r"\s*,?\s*([A-Za-z_]\w*)\s*=(?!=)\s*")
KEYS = (
    "kernel", "grid", "block", "args", "smem", "cluster", "cooperative", "workspace", "zero", "when",
    "require",
)  # fmt: skip
KERNEL = re.compile(r"((?:[A-Za-z_]\w*::)*[A-Za-z_]\w*)\s*(?:<(.*)>)?", re.DOTALL)
FLOATING = ("float32", "float64", "float16", "bfloat16")
CPP_TYPES = {name: dtype.cpp for name, dtype in DTYPES.items() if dtype.cpp}
CUDA_TYPES = {name: DTYPES[name].cuda or cpp for name, cpp in CPP_TYPES.items()}
C_TYPES = {"int": "int64_t", "float": "float", "bool": "bool"}
MAX_VARIANTS = 64
OPENING, CLOSING = "([{", ")]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """What a template argument depends on: a tensor's element type, or a number."""

    key: Expression
    """The tensor's name, or the expression."""
    choices: tuple[str | int, ...]
    """Torch's names of element types, or numbers; a call with another one is refused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateArgument:
    """One template argument of a launch."""

    text: str
    """C++ as written, for what no axis decides."""
    axis: int | None = None
    """Index in the source's axes."""
    types: Mapping[str, str] = field(default_factory=dict)
    """C++ type by element type, for an axis of these."""

    def spelled(self, choices: Sequence[str | int]) -> str:
        """C++ for a choice on each axis."""
        if self.axis is None:
            return self.text
        choice = choices[self.axis]
        return self.types[choice] if isinstance(choice, str) else str(choice)


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """One launch."""

    line: int
    """Where its line begins, 1-based."""
    kernel: str
    """Name of the `__global__` function, qualified."""
    template: tuple[TemplateArgument, ...]
    """() for a plain function."""
    grid: tuple[Expression, ...]
    """Blocks a dimension, 1 to 3."""
    block: tuple[Expression, ...]
    """Threads a dimension, 1 to 3."""
    arguments: tuple[Expression, ...]
    """For each parameter of the kernel."""
    shared_nbytes: Expression
    """Dynamic shared memory a block."""
    cluster: tuple[Expression, ...]
    """Blocks a cluster and dimension; () for none."""
    cooperative: bool
    """Whether blocks wait for each other across the grid."""
    zero: tuple[str, ...]
    """Outputs, or `workspace`, whose bytes are set to 0 before."""
    when: Expression | None
    """Whether it is launched at all."""
    require: tuple[Expression, ...]
    """What must hold of a call."""

    def expression(self, choices: Sequence[str | int]) -> str:
        """The kernel as a C++ expression, e.g. `scale<float>`."""
        inner = ", ".join(argument.spelled(choices) for argument in self.template)
        return f"{self.kernel}<{inner}>" if self.template else self.kernel

    def names(self) -> frozenset[str]:
        """All names in its expressions."""
        listed = [*self.grid, *self.block, *self.arguments, self.shared_nbytes, *self.cluster, *self.require]
        return frozenset().union(*(one.names for one in [*listed, *([self.when] if self.when else [])]))


@dataclass(frozen=True, slots=True)
class LaunchPlan:
    """All launches of a source."""

    launches: tuple[Launch, ...]
    """In order, at least one."""
    axes: tuple[Axis, ...]
    """What the template arguments depend on."""
    workspace_nbytes: Expression | None
    """Scratch memory."""
    workspace_line: int = 0
    """Line that asks for it."""

    def variants(self) -> list[tuple[str | int, ...]]:
        """Every combination of choices; one empty one if nothing is a template."""
        return list(product(*(axis.choices for axis in self.axes)))


def locate(text: str, file: Path) -> str:
    """The launch lines of a source, each as `LINE: TEXT` on a line of its own.

    One goes on over comment lines that follow while brackets are open, or where the next begins with `KEY=`.

    Raises:
        SourceError: there is none.
    """
    lines = text.splitlines()
    found = []
    for number, line in enumerate(lines, 1):
        match = MARK.match(line)
        if match is None:
            continue
        launch = comment_text(match)
        depth = _depth(launch)
        for following in lines[number:]:
            comment = CONTINUED.match(following)
            if comment is None or MARK.match(following) or "cgins:" in following:
                break
            more = comment_text(comment)
            starts_key = re.match(r"([A-Za-z_]\w*)\s*=(?!=)", more)
            if depth == 0 and not (starts_key and starts_key[1] in KEYS):
                break
            launch += " " + more
            depth += _depth(more)
            if len(launch) > MAX_CHARACTERS:
                raise SourceError(
                    f"{file}:{number}: a launch line of more than {MAX_CHARACTERS} characters",
                    remedy="close its brackets, or end the comment after it",
                )
        found.append(f"{number}: {launch}")
    if not found:
        raise SourceError(
            f"{file}: no launch line",
            remedy="say how it is launched in a comment, e.g. // cgins-launch: kernel=scale "
            "grid=(ceil_div(numel(x), 256)) block=(256) args=(x, out, numel(x), a)",
        )
    return "\n".join(found)


def _depth(text: str) -> int:
    return sum(text.count(mark) for mark in OPENING) - sum(text.count(mark) for mark in CLOSING)


def read(located: str, schema: Schema, file: str) -> LaunchPlan:
    """Parse what `locate` found.

    Args:
        located: lines of `LINE: TEXT`.
        schema: the schema line; its entry is the kernel's name where a launch names none.
        file: leads messages.

    Raises:
        SourceError: a launch line is wrong; the message has file and line, and what would be right.
    """
    axes: list[Axis] = []
    launches = []
    workspace: Expression | None = None
    workspace_line = 0
    for entry in located.splitlines():
        number, _, text = entry.partition(": ")
        where = f"{file}:{number}"
        try:
            fields = dict(_fields(text))
            if "workspace" in fields:
                if workspace is not None:
                    what = "the workspace is asked for twice; one launch line says its bytes"
                    raise ExpressionError(what)  # noqa: TRY301 - as parse raises it
                workspace, workspace_line = parse(fields["workspace"]), int(number)
            launches.append(_launch(fields, int(number), schema, axes))
        except ExpressionError as error:
            raise SourceError(f"{where}: launch line: {error}", remedy=REMEDY) from error
    plan = LaunchPlan(tuple(launches), tuple(axes), workspace, workspace_line)
    _check(plan, schema, file)
    return plan


REMEDY = (
    "CONTRACT.md, Device kernels, has the language: kernel= grid= block= args= and what may stand in them"
)


def _fields(text: str) -> Iterator[tuple[str, str]]:
    """`key=value` parts: a key begins outside of brackets and quotes, behind a blank."""
    keys = list(_keys(text))
    if not keys or text[: keys[0].start()].strip():
        raise ExpressionError(f"{text[:40]!r} does not begin with KEY=; known keys: {', '.join(KEYS)}")
    seen: set[str] = set()
    for found, end in zip(keys, [*(key.start() for key in keys[1:]), len(text)], strict=True):
        key = found[1]
        if key not in KEYS:
            raise ExpressionError(f"unknown key {key!r}; {nearest(key, KEYS) or 'known: ' + ', '.join(KEYS)}")
        if key in seen:
            raise ExpressionError(f"{key} is there twice")
        seen.add(key)
        value = text[found.end() : end].strip().rstrip(",").strip()
        if not value:
            raise ExpressionError(f"{key}= has no value")
        yield key, value


def _keys(text: str) -> Iterator[re.Match[str]]:
    depth, quote = 0, ""
    for index, character in enumerate(text):
        if quote:
            quote = "" if character == quote else quote
        elif character in "'\"":
            quote = character
        elif depth == 0 and character.isidentifier() and (index == 0 or text[index - 1] in " ,\t"):
            found = KEY.match(text, index)
            if found:
                yield found
        else:
            depth += (character in OPENING) - (character in CLOSING)
    if depth != 0 or quote:
        raise ExpressionError("brackets or quotes are not closed")


def _launch(fields: Mapping[str, str], line: int, schema: Schema, axes: list[Axis]) -> Launch:
    for key in ("grid", "block", "args"):
        if key not in fields:
            raise ExpressionError(f"{key}= is missing")
    kernel, template = _kernel(fields.get("kernel", schema.entry), schema, axes)
    cooperative = fields.get("cooperative", "false").lower()
    if cooperative not in ("true", "false"):
        raise ExpressionError(f"cooperative={cooperative} is neither true nor false")
    return Launch(
        line=line,
        kernel=kernel,
        template=template,
        grid=_dimensions("grid", fields["grid"]),
        block=_dimensions("block", fields["block"]),
        arguments=_listed(fields["args"]),
        shared_nbytes=parse(fields.get("smem", "0")),
        cluster=_dimensions("cluster", fields["cluster"]) if "cluster" in fields else (),
        cooperative=cooperative == "true",
        zero=tuple(one.text for one in _listed(fields["zero"])) if "zero" in fields else (),
        when=parse(fields["when"]) if "when" in fields else None,
        require=_listed(fields["require"]) if "require" in fields else (),
    )


def _dimensions(key: str, text: str) -> tuple[Expression, ...]:
    listed = _listed(text)
    if not 1 <= len(listed) <= 3:
        raise ExpressionError(f"{key} has {counted(len(listed), 'dimension')}, not 1 to 3")
    return listed


def _listed(text: str) -> tuple[Expression, ...]:
    """Expressions of a list in brackets, or a single one."""
    depths = list(accumulate(map(_depth, text)))
    in_brackets = text.startswith("(") and 0 not in depths[:-1]
    return tuple(map(parse, split(text[1:-1] if in_brackets else text)))


def split(text: str) -> list[str]:
    """Parts between the commas outside of brackets."""
    parts, depth, begin = [], 0, 0
    for index, character in enumerate(text):
        depth += (character in OPENING) - (character in CLOSING)
        if character == "," and depth == 0:
            parts.append(text[begin:index])
            begin = index + 1
    parts.append(text[begin:])
    return [part.strip() for part in parts if part.strip()]


def _kernel(text: str, schema: Schema, axes: list[Axis]) -> tuple[str, tuple[TemplateArgument, ...]]:
    match = KERNEL.fullmatch(text.strip())
    if match is None:
        raise ExpressionError(f"kernel={text} is not NAME or NAME<ARGUMENTS>")
    if match[2] is not None and not match[2].strip():  # NAME<>: defaults alone
        return match[1], (TemplateArgument(text=""),)
    return match[1], tuple(_template_argument(part, schema, axes) for part in split(match[2] or ""))


def _template_argument(text: str, schema: Schema, axes: list[Axis]) -> TemplateArgument:
    called = re.fullmatch(r"(dtype|cuda_type|choose)\s*\((.*)\)", text, re.DOTALL)
    if called is None:
        return TemplateArgument(text=text)
    first, *rest = split(called[2]) or [""]
    if called[1] == "choose":
        choices: tuple[str | int, ...] = tuple(
            int(one) for one in rest if re.fullmatch(rf"[0-9]{{1,{MAX_DIGITS}}}", one)
        )
        if len(choices) != len(rest) or not rest:
            raise ExpressionError(f"{text} is not choose(EXPRESSION, NUMBER, NUMBER, …)")
        return TemplateArgument(text=text, axis=_axis(axes, parse(first), choices))
    tensors = tensor_names(schema)
    if first not in tensors:
        raise ExpressionError(
            f"{text}: {first!r} is not a tensor of the schema line; "
            + (nearest(first, tensors) or f"its tensors are {', '.join(tensors)}")
        )
    for dtype in rest:
        if dtype not in CPP_TYPES:
            raise ExpressionError(
                f"{text}: no element type {dtype!r}; "
                + (nearest(dtype, CPP_TYPES) or f"known: {', '.join(CPP_TYPES)}")
            )
    axis = _axis(axes, parse(first), tuple(rest))
    return TemplateArgument(text=text, axis=axis, types=CPP_TYPES if called[1] == "dtype" else CUDA_TYPES)


def _axis(axes: list[Axis], key: Expression, choices: tuple[str | int, ...]) -> int:
    """Index of the axis with this key, made if there is none; it says its choices at its first mention."""
    for index, axis in enumerate(axes):
        if axis.key.text == key.text:
            if choices and choices != axis.choices:
                raise ExpressionError(f"{key.text} has two lists of choices, {axis.choices} and {choices}")
            return index
    axes.append(Axis(key=key, choices=choices or FLOATING))
    return len(axes) - 1


def tensor_names(schema: Schema) -> list[str]:
    """Names of the tensors that a launch may pass, without lists of them."""
    arguments = [one.name for one in schema.arguments if one.type == "Tensor" and not one.list]
    return arguments + [output.name for output in schema.outputs if not output.aliased and not output.list]


def kinds(schema: Schema, *, workspace: bool) -> dict[str, Kind]:
    """What the names of a launch line stand for; `xs[]` are the items of a list."""
    words: dict[str, Kind] = {
        "int": "int", "float": "float", "bool": "bool", "Scalar": "number", "Generator": "int",
    }  # fmt: skip
    found: dict[str, Kind] = {"sm_count": "int"}
    for argument in schema.arguments:
        word: Kind = "tensor" if argument.type == "Tensor" else words.get(argument.type, "other")
        found[argument.name] = "other" if argument.list else word
        if argument.list:
            found[f"{argument.name}[]"] = word
    for output in schema.outputs:
        if not output.aliased:
            found[output.name] = "other" if output.list else "tensor"
            if output.list:
                found[f"{output.name}[]"] = "tensor"
    if workspace:
        found["workspace"] = "tensor"
    return found


def _check(plan: LaunchPlan, schema: Schema, file: str) -> None:
    """Refuse what no call could make right."""
    variants = math.prod(len(axis.choices) for axis in plan.axes)
    if variants > MAX_VARIANTS:
        raise SourceError(
            f"{file}:{plan.launches[0].line}: the launch lines ask for {counted(variants, 'instantiation')}, more than {MAX_VARIANTS}",
            remedy="list fewer element types: dtype(x, float32, float16)",
        )
    known = kinds(schema, workspace=plan.workspace_nbytes is not None)
    writable = [output.name for output in schema.outputs if not output.aliased] + ["workspace"]
    writable += [argument.name for argument in schema.arguments if argument.mutated]
    for launch in plan.launches:
        where = f"{file}:{launch.line}"
        for name in launch.zero:
            if name not in writable or name not in known:
                raise SourceError(
                    f"{where}: zero={name} is not an output", remedy=f"it may be {', '.join(writable)}"
                )
        if "workspace" in launch.names() and plan.workspace_nbytes is None:
            raise SourceError(
                f"{where}: workspace is used, and no launch line says its size",
                remedy="add workspace=BYTES to one",
            )


def prototypes(plan: LaunchPlan, schema: Schema) -> list[str]:
    """A `__global__` declaration that each launch line fits; other types of the same kind fit as well."""
    known = kinds(schema, workspace=plan.workspace_nbytes is not None)
    readonly = {argument.name for argument in schema.arguments if not argument.mutated}
    found = []
    for launch in plan.launches:
        types = {
            plan.axes[item.axis].key.text for item in launch.template if item.axis is not None and item.types
        }
        names = {name: f"T{index}" for index, name in enumerate(sorted(types))}
        listed = []
        for index, argument in enumerate(launch.arguments, 1):
            plain = re.sub(r"\W", "", re.sub(r"^(?:data|view|at)\s*\(\s*(\w+).*\)$", r"\1", argument.text))
            name = plain if plain in known else f"argument{index}"
            found_kind = kind(argument.tree, known)
            element = "void" if name == "workspace" else names.get(name, "T0" if len(names) == 1 else "float")
            const = "const " if name in readonly else ""
            if found_kind == "tensor" and argument.text.startswith("view"):
                listed.append(f"cgins::tensor<{const}{element}> {name}")
            elif found_kind == "tensor":
                listed.append(f"{const}{element}* {name}")
            else:
                listed.append(f"{C_TYPES.get(found_kind, 'double')} {name}")
        parameters = [f"typename {one}" for one in names.values()]
        numbers = [i for i, item in enumerate(launch.template) if item.axis is not None and not item.types]
        parameters += [f"int N{i}" for i in numbers]
        template = f"template <{', '.join(parameters)}> " if parameters else ""
        found.append(f"{template}__global__ void {launch.kernel}({', '.join(listed)});")
    return found


def constants(code: str) -> dict[str, int]:
    """Whole numbers that a source names: `#define TILE 128`, `constexpr int kTile = 128;`, at the start of a line.

    `code` is the source without comments. A name that stands for two numbers, under conditions or in two scopes, is left out.
    """
    # Every repetition has an end, so that no line takes longer than its length times a constant.
    pattern = (
        r"^[ \t]{0,99}(?:#[ \t]{0,99}define[ \t]{1,99}(\w{1,200})[ \t]{1,99}|"
        r"(?:(?:static|inline|const)[ \t]{1,99}){0,3}constexpr[ \t]{1,99}(?:static[ \t]{1,99})?"
        r"[\w: ]{1,99}?[ \t](\w{1,200})[ \t]{0,99}=[ \t]{0,99})([0-9]{1,18}|0x[0-9a-fA-F]{1,16})[uUlL]{0,3}"
        r"[ \t]{0,99}(?:;|$|//|/\*)"
    )
    found: dict[str, set[int]] = {}
    for match in re.finditer(pattern, code, re.MULTILINE):
        if match[3] == "0" or match[3][0] != "0" or "x" in match[3]:
            found.setdefault(match[1] or match[2], set()).add(int(match[3], 0))
    return {name: values.pop() for name, values in found.items() if len(values) == 1}
