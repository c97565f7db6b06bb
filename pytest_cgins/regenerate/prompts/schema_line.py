"""The schema line of a kernel that is not written yet: from a sibling, else from the recorded arguments.

Names and order are those of the recorded arguments, since a schema line is matched to them by name. Types come from
torch's own schemas of that name where one fits, which a separate process is asked for, and from recorded values.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from pytest_cgins.building.contracts import schema as schemas
from pytest_cgins.building.contracts.schema import SchemaArgument, schema_name
from pytest_cgins.building.contracts.source import read
from pytest_cgins.building.contracts.torch_schema import defaults, overloads
from pytest_cgins.config import Config, Implementation, KernelEntry
from pytest_cgins.core.errors import RegenerateError, SourceError
from pytest_cgins.core.trace import Argument, Trace, Value, tensor_indices
from pytest_cgins.regenerate.prompts import calls

_OF_C = (
    "abs acos asin atan atan2 cbrt ceil cos cosh erf erfc exp exp2 expm1 fabs floor fmax fmin fmod gamma hypot "
    "index ldexp log log10 log1p log2 main max min pow remainder round signal sin sinh sqrt tan tanh tgamma trunc"
)
_C_NAMES = frozenset(_OF_C.split())
_SCALARS = {"int": "int", "float": "float", "bool": "bool", "str": "str", "dtype": "ScalarType"}


def derive(
    config: Config, entry: KernelEntry, implementation: Implementation, traces: Sequence[Trace]
) -> str:
    """A schema line without its mark; "" for contracts that have none, and where nothing gives one.

    Args:
        config: the project.
        entry: the kernel.
        implementation: the one that is to be written.
        traces: of the op.

    Raises:
        RegenerateError: see `from_traces`.
    """
    if implementation.contract not in ("launcher", "device"):
        return ""
    own = [it for it in entry.implementations if it != implementation]
    others = [it for kernel in config.kernels if kernel.op == entry.op for it in kernel.implementations]
    for sibling in (*own, *others):
        line = _of_source(sibling)
        if line:
            return line
    return from_traces(entry.name, entry.op, traces) if traces else ""


def _of_source(implementation: Implementation) -> str:
    if implementation.contract not in ("launcher", "device") or not implementation.sources:
        return ""
    file = implementation.sources[0]
    try:
        line, _ = schemas.locate(read(file), file)
        schemas.parse(line)
    except SourceError:
        return ""
    return line


def from_traces(name: str, op: str, traces: Sequence[Trace]) -> str:
    """A line from recorded calls, checked; "" if some argument has no type in the schema language.

    Args:
        name: of the kernel.
        op: that it replaces.
        traces: its calls, at least one.

    Raises:
        RegenerateError: an argument was recorded with values that no type of the language takes all.
    """
    known: dict[str, SchemaArgument] = {}
    for declared in _known(op):
        known.setdefault(declared.name, declared)
    usual = defaults(op.partition("@")[0])
    arguments: list[tuple[str, str, str]] = []
    for argument in _order(traces):
        word = _type(argument, traces, known.get(argument.name))
        if argument.passed == "state" and (word is None or not _has_name(argument, traces)):
            continue  # of a module a line names what it can
        if word is None:
            _refuse_mixed(op, argument, traces)
            return ""
        default = _default_of(argument, traces, known.get(argument.name), usual)
        hidden = argument.name.startswith("_") and all(
            _default_text(it.value) == default
            for trace in traces
            for it in trace.call.arguments
            if it.name == argument.name
        )
        if default == "None" and not word.endswith("?"):
            word += "?" if word else ""
        if word and not hidden:
            arguments.append((word, schema_name(argument.name), default))
    line = (
        f"{_entry_name(name)}({', '.join(_spelled(arguments, _changed(traces)))}) -> {_returns(op, traces)}"
    )
    try:
        schemas.parse(line)
    except SourceError:
        return ""
    return line


def _has_name(argument: Argument, traces: Sequence[Trace]) -> bool:
    """Whether an attribute of a module has a name of its own wherever it was recorded."""
    met = [trace for trace in traces if any(other.name == argument.name for other in trace.call.arguments)]
    return all(schema_name(argument.name) in calls.state_names(trace) for trace in met)


def _entry_name(name: str) -> str:
    plain = re.sub(r"\W", "_", name)
    plain = f"_{plain}" if plain[:1].isdigit() else plain
    return f"{plain}_kernel" if plain in _C_NAMES or plain in schemas.C_KEYWORDS else plain


def _known(op: str) -> Iterable[SchemaArgument]:
    """Arguments of torch's own schemas of an op, `self` as functions call it."""
    for text in overloads(op.partition("@")[0]):
        try:
            schema = schemas.parse(text)
        except SourceError:
            continue
        yield from schema.arguments


def _order(traces: Sequence[Trace]) -> list[Argument]:
    """One argument a name, in the order of calls."""
    by_name: dict[str, Argument] = {}
    for trace in traces:
        for argument in calls.arguments(trace):
            by_name.setdefault(argument.name, argument)
    return list(by_name.values())


def _type(argument: Argument, traces: Sequence[Trace], known: SchemaArgument | None) -> str | None:
    """`Tensor?`; "" for an argument that may be left out, None where there is no type for it."""
    met = [it for trace in traces for it in trace.call.arguments if it.name == argument.name]
    present = [it.value for it in met if it.value.kind != "none"]
    only_default = all(it.passed == "default" for it in met)
    word = _word_of(present, known)
    if not word:
        return "" if only_default or not present else None
    if len(present) < len(met) and not word.endswith("?"):
        word += "?"
    return "Generator?" if word == "Generator" else word


def _refuse_mixed(op: str, argument: Argument, traces: Sequence[Trace]) -> None:
    """A model would be asked in vain: whatever type its line has, calls of another do not fit."""
    met = (it.value for trace in traces for it in trace.call.arguments if it.name == argument.name)
    words = {_of_value(value) for value in met if value.kind != "none"}
    types = sorted(word for word in words if word)
    if len(types) > 1 and None not in words:
        raise RegenerateError(
            f"{argument.name} of {op} was recorded as {', '.join(types)}: a schema line has one type for it",
            remedy="record calls of one type alone, or ask for a kernel without a schema line: --implementation triton",
        )


def _default_of(
    argument: Argument, traces: Sequence[Trace], known: SchemaArgument | None, usual: Mapping[str, str]
) -> str:
    """An argument's default in a schema line: as recorded, of the Python function, or of torch's schema."""
    met = [it for trace in traces for it in trace.call.arguments if it.name == argument.name]
    recorded = next((it.value for it in met if it.passed == "default"), None)
    if recorded is not None:
        return _default_text(recorded)
    if argument.name in usual:
        return usual[argument.name]
    is_plain = known is not None and isinstance(known.default, bool | int | float | str | None)
    return repr(known.default) if known is not None and known.has_default and is_plain else ""


def _spelled(arguments: Sequence[tuple[str, str, str]], changed: Sequence[str]) -> list[str]:
    """`Tensor(a!) x`, `float eps=1e-05`; what stands before an argument without default has none either."""
    marks = iter("abcdefghijklmnopqrstuvwxyz")
    last = max((position for position, (_, _, default) in enumerate(arguments) if not default), default=-1)
    lines = []
    for position, (word, name, default) in enumerate(arguments):
        marked = name in changed and word in ("Tensor", "Tensor?")
        spelled = f"Tensor({next(marks)}!){word[6:]}" if marked else word
        lines.append(f"{spelled} {name}" + (f"={default}" if default and position > last else ""))
    return lines


def _changed(traces: Sequence[Trace]) -> list[str]:
    """Names, as schema lines have them, of arguments that a call changes, in order."""
    names: dict[str, None] = {}
    for trace in traces:
        mutated = {index for index, _ in trace.gold.mutated} if trace.gold else set()
        for argument in calls.arguments(trace):
            if mutated.intersection(tensor_indices(argument.value)):
                names.setdefault(schema_name(argument.name))
    return list(names)


def _returns(op: str, traces: Sequence[Trace]) -> str:
    """What comes back: new tensors, or the mutated argument itself."""
    trace = next((it for it in traces if it.gold is not None), None)
    gradients = op.partition("@backward(")[2].rstrip(")")
    if gradients:
        return returned_gradients(gradients.split(","))
    if trace is None or trace.gold is None:
        return "Tensor"
    indices = tensor_indices(trace.gold.outputs)
    changed = _changed(traces)
    owners = dict(trace.gold.aliases)
    mutated = {index for index, _ in trace.gold.mutated}
    if len(indices) == 1 and len(changed) == 1 and owners.get(indices[0]) in mutated:
        return "Tensor(a!)"
    if trace.gold.outputs.kind == "list":
        return "Tensor[]"
    if len(indices) == 1:
        return "Tensor"
    return f"({', '.join(['Tensor'] * len(indices))})"


def returned_gradients(names: Sequence[str]) -> str:
    """What comes back from a backward with respect to some arguments."""
    words = [f"Tensor grad_{name.rpartition('.')[2]}" for name in names]
    return "Tensor" if len(words) == 1 else f"({', '.join(words)})"


def _word_of(present: Sequence[Value], known: SchemaArgument | None) -> str:
    """The type of some values, None apart; that of torch's schema where it is wider and fits them."""
    own = {_of_value(value) for value in present}
    if None in own:
        return ""
    words = {word for word in own if word}
    declared = (
        "" if known is None else known.type + ("[]" if known.list else "") + ("?" if known.optional else "")
    )
    if not words:
        return declared
    if declared and words <= _fitting(declared.rstrip("?")):
        return declared
    if len(words) == 1:
        return next(iter(words))
    if words <= {"int", "float", "bool"}:
        return "Scalar"
    if words <= {"int", "int[]"}:
        return "int[]"
    return ""


def _fitting(declared: str) -> set[str]:
    """Types of values that an argument of a declared type takes."""
    wider = {
        "Scalar": {"int", "float", "bool"},
        "float": {"int"},
        "int[]": {"int"},
        "float[]": {"float", "int[]", "int"},
    }
    return {declared} | wider.get(declared, set())


def _of_value(value: Value) -> str | None:
    """Type of one value; None where the schema language has none."""
    if value.kind == "tensor":
        return "Tensor"
    if value.kind in _SCALARS:
        return _SCALARS[value.kind]
    if value.kind == "generator":
        return "Generator"
    if value.kind in ("tuple", "list", "size"):
        items = {_of_value(item) for item in value.items if item.kind != "none"}
        if items == {"Tensor"}:
            return "Tensor?[]" if any(item.kind == "none" for item in value.items) else "Tensor[]"
        if items <= {"int"}:
            return "int[]"
        if items <= {"int", "float"}:
            return "float[]"
        return "bool[]" if items == {"bool"} else None
    return None


def _default_text(value: Value) -> str:
    """A recorded default as a schema line writes it; "" for what such a line cannot hold."""
    if value.kind == "none":
        return "None"
    if value.kind == "float":
        return calls.number(str(value.value))
    if value.kind in ("int", "bool"):
        return str(value.value)
    text = str(value.value)
    return f"'{text}'" if value.kind == "str" and text.isidentifier() else ""
