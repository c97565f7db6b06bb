"""A trace pack as a trace set of flashinfer-bench: a definition for each form of a call, a workload for each trace.

Sizes that differ between the traces of a form are variable axes, the others constant ones. Floating-point inputs
that a pack keeps as recipes become `random`; indices, masks and kept bytes become safetensors files. A recorded call
becomes Python code: a function `run` of its tensors and numbers that calls the op.
"""

from __future__ import annotations

import argparse
import json
import keyword
import re
import sys
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from pytest_cgins.core.call_text import memory_format, value_words
from pytest_cgins.core.errors import RecordError, TraceError
from pytest_cgins.core.text import counted
from pytest_cgins.core.trace import Argument, OpCall, TensorMeta, Trace, Value, tensor_indices
from pytest_cgins.packs.recipe import seed_of
from pytest_cgins.packs.replay import load_inputs
from pytest_cgins.packs.store import PackReader, open_pack
from pytest_cgins.recording.importers.flashinfer import DTYPES
from pytest_cgins.recording.importers.references import imported_code, module_name
from pytest_cgins.recording.importers.registry import Exported


@dataclass(slots=True)
class Call:
    """What a call needs, and the code that makes it."""

    code: str = ""
    """A module with the function `run`."""
    parameters: list[str] = field(default_factory=list)
    """Of `run`, in order."""
    tensors: dict[str, int] = field(default_factory=dict)
    """Index of the argument tensor, by parameter."""
    scalars: dict[str, bool | int | float] = field(default_factory=dict)
    """Value of each parameter that is a number."""


def call_of(call: OpCall) -> Call:
    """The code for a call.

    Raises:
        RecordError: if it cannot be said by a function of tensors and numbers.
    """
    if "@" in call.op or any(argument.passed == "state" for argument in call.arguments):
        raise RecordError("a backward or a module is not a function of its arguments alone")
    made = Call()
    passed = [argument for argument in call.arguments if argument.passed != "default"]
    arguments = [_passed(argument, made) for argument in passed]
    made.code = _module(call.op, arguments, made)
    return made


def _passed(argument: Argument, made: Call) -> str:
    # A pack's names become code here, and a pack may be anybody's.
    if argument.passed == "keyword" and (
        not argument.name.isidentifier() or keyword.iskeyword(argument.name)
    ):
        raise RecordError(f"{argument.name[:80]!r} is not a parameter name")
    text = _render(argument.value, _identifier(argument.name), made)
    return text if argument.passed == "positional" else f"{argument.name}={text}"


def _identifier(name: str) -> str:
    text = re.sub(r"\W", "_", name)
    return f"{text}_" if keyword.iskeyword(text) or not text.isidentifier() else text


def _render(value: Value, name: str, made: Call | None) -> str:
    """The expression of an argument; tensors and numbers become parameters of a call, all else is written out.

    Without a call numbers are, too: sizes and the like.
    """
    if value.kind == "tensor":
        assert made is not None
        index = int(value.value or 0)
        # A tensor that is passed twice is one parameter.
        known = next((key for key, other in made.tensors.items() if other == index), None)
        if known is None:
            made.parameters.append(name)
            made.tensors[name] = index
        return known or name
    if value.kind in ("bool", "int", "float"):
        number = float.fromhex(str(value.value)) if value.kind == "float" else value.value
        assert isinstance(number, bool | int | float)
        # JSON has no infinities.
        if isinstance(number, float) and number - number != 0:
            return f"float({str(number)!r})"
        if made is None:
            return repr(number)
        made.parameters.append(name)
        made.scalars[name] = number
        return name
    if value.kind in ("tuple", "list", "size", "dict", "slice"):
        return _container(value, name, made)
    return _literal(value)


def _container(value: Value, name: str, made: Call | None) -> str:
    call = made if tensor_indices(value) else None
    items = [_render(item, f"{name}_{number}", call) for number, item in enumerate(value.items)]
    if value.kind == "dict":
        return "{" + ", ".join(f"{key!r}: {item}" for key, item in zip(value.keys, items, strict=True)) + "}"
    if value.kind == "slice":
        return f"slice({', '.join(items)})"
    listed = ", ".join(items)
    return f"[{listed}]" if value.kind == "list" else f"({listed}{',' * (len(items) == 1)})"


def _literal(value: Value) -> str:
    if value.kind in ("none", "ellipsis", "str", "complex"):
        return value_words(value)
    if value.kind in ("dtype", "memory_format", "layout"):
        return f"torch.{value.value}"
    raise RecordError(f"an argument is a {value.kind}, which a reference there cannot say")


def _module(op: str, arguments: list[str], made: Call) -> str:
    parameters = ", ".join(made.parameters)
    if op.startswith("torch."):
        return f"import torch\n\n\ndef run({parameters}):\n    return {op}({', '.join(arguments)})\n"
    module, _, function = op.rpartition(".")
    code = _source(module)
    if function == "run" and _plain(arguments) == made.parameters:
        return code
    called = "_run" if function == "run" else function
    kept = "\n\n_run = run\n" if function == "run" else ""
    return f"{code}{kept}\n\ndef run({parameters}):\n    return {called}({', '.join(arguments)})\n"


def _plain(arguments: list[str]) -> list[str]:
    """Arguments that are passed under their own names."""
    return [text.partition("=")[2] or text for text in arguments]


def _source(module: str) -> str:
    """Source of a project's module, found without importing anything."""
    for path in _places(module):
        if path.is_file():
            return imported_code(path.read_text(encoding="utf-8"))
    raise RecordError(
        f"the source of {module} is not found", remedy="export from the folder that the op is imported from"
    )


def _places(module: str) -> Iterator[Path]:
    inside = Path(*module.split("."))
    for root in dict.fromkeys(["", *sys.path]):
        yield Path(root) / inside.with_suffix(".py")
        yield Path(root) / inside / "__init__.py"


_NAMESPACE = uuid.UUID("6d0a1c52-5b9e-5d0f-9c5e-2f3a6c8a7b11")


@dataclass(frozen=True, slots=True)
class _Form:
    """What the traces of one definition share."""

    op: str
    code: str
    inputs: tuple[tuple[str, str, int | None], ...]
    """(name, dtype, rank) of each input; rank None for a scalar."""
    outputs: tuple[tuple[str, int], ...]
    """(dtype, rank) of each output."""


def run(pack: Path, out: Path, args: argparse.Namespace) -> Exported:
    """Write the traces of a pack to a new or empty folder, with `args.values` the values of every tensor.

    Raises:
        RecordError: if `out` has files.
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise RecordError(f"{out} already exists", remedy="export into a new folder")
    reader = open_pack(pack)
    made = Exported()
    forms: dict[_Form, list[tuple[Trace, Call]]] = {}
    for trace in reader.pack.traces:
        try:
            form, call = _form(trace)
        except TraceError as error:
            made.left_out.append((f"{trace.call.op} {trace.signature}", error.what))
            continue
        forms.setdefault(form, []).append((trace, call))
    for form, traces in forms.items():
        for group in _groups(traces):
            _write(form, group, reader, out, made, values=args.values)
    return made


def _form(trace: Trace) -> tuple[_Form, Call]:
    gold = trace.gold
    if gold is None:
        raise RecordError("tier shapes has no outputs, and a definition says what they are")
    if gold.mutated:
        raise RecordError("the op changes its arguments, and a reference there returns its outputs")
    if trace.context.rng_seed is not None:
        raise RecordError("the op draws random numbers")
    if gold.outputs.kind not in ("tensor", "tuple", "list"):
        raise RecordError(f"the op returns a {gold.outputs.kind}")
    if any(item.kind != "tensor" for item in gold.outputs.items):
        raise RecordError("the op returns more than tensors")
    call = call_of(trace.call)
    inputs: list[tuple[str, str, int | None]] = []
    for name, index in call.tensors.items():
        inputs.append((name, trace.tensors[index].dtype, len(trace.tensors[index].shape)))
    for name, value in call.scalars.items():
        kinds = {bool: "bool", int: "int64", float: "float32"}
        inputs.append((name, kinds[type(value)], None))
    order = {name: place for place, name in enumerate(call.parameters)}
    inputs.sort(key=lambda item: order[item[0]])
    outputs = tuple((tensor.meta.dtype, len(tensor.meta.shape)) for tensor in gold.tensors)
    for dtype in [*(dtype for _, dtype, _ in inputs), *(dtype for dtype, _ in outputs)]:
        if dtype not in DTYPES:
            raise RecordError(f"the format has no {dtype}")
    return _Form(trace.call.op, call.code, tuple(inputs), outputs), call


def _groups(traces: list[tuple[Trace, Call]]) -> Iterator[list[tuple[Trace, Call]]]:
    """All traces together, if the sizes of the outputs are sizes of inputs, else each alone."""
    columns = _columns(traces)
    known = {column for column, is_output in columns if not is_output}
    if all(column in known or len(set(column)) == 1 for column, _ in columns):
        yield traces
    else:
        yield from ([trace] for trace in traces)


def _shapes(trace: Trace, call: Call) -> Iterator[tuple[tuple[int, ...], bool]]:
    """Shape of every input and output tensor, and whether it is an output."""
    assert trace.gold is not None
    yield from ((trace.tensors[index].shape, False) for index in call.tensors.values())
    yield from ((tensor.meta.shape, True) for tensor in trace.gold.tensors)


def _columns(traces: Sequence[tuple[Trace, Call]]) -> list[tuple[tuple[int, ...], bool]]:
    """For every dimension of every tensor, its sizes in the traces."""
    rows = [
        [(size, is_output) for shape, is_output in _shapes(trace, call) for size in shape]
        for trace, call in traces
    ]
    return [(tuple(size for size, _ in column), column[0][1]) for column in zip(*rows, strict=True)]


def _write(
    form: _Form,
    traces: list[tuple[Trace, Call]],
    reader: PackReader,
    out: Path,
    made: Exported,
    *,
    values: bool,
) -> None:
    axes: dict[tuple[int, ...], str] = {}
    variable = 0
    for column, _ in _columns(traces):
        if column not in axes:
            constant = len(set(column)) == 1
            axes[column] = f"n{column[0]}" if constant else f"axis{variable}"
            variable += not constant
    kind = module_name(form.op.split("@")[0].rpartition(".")[2])
    text = repr((form, sorted(axes.values()), [trace.id for trace, _ in traces] if len(traces) == 1 else ""))
    name = f"{module_name(*form.op.split('.')[-2:])}_{seed_of(text) % 16**8:08x}"
    definition = _definition(form, traces, axes, name, kind)
    _put(out / "definitions" / kind / f"{name}.json", json.dumps(definition, indent=2) + "\n")
    lines = []
    for place, (trace, call) in enumerate(traces):
        identity = str(uuid.uuid5(_NAMESPACE, f"{name}/{trace.id}"))
        stored = f"blob/workloads/{kind}/{name}/{name}_{identity}.safetensors"
        inputs = _stored(trace, call, reader, out=out, path=stored, made=made, values=values)
        inputs |= {key: {"type": "scalar", "value": value} for key, value in call.scalars.items()}
        ordered = {key: inputs[key] for key in definition["inputs"]}
        sizes = {axis: column[place] for column, axis in axes.items() if len(set(column)) > 1}
        workload = {"axes": sizes, "inputs": ordered, "uuid": identity}
        lines.append({"definition": name, "solution": None, "workload": workload, "evaluation": None})
    _put(out / "workloads" / kind / f"{name}.jsonl", "".join(json.dumps(line) + "\n" for line in lines))
    made.definitions[name] = len(lines)


def _definition(
    form: _Form, traces: list[tuple[Trace, Call]], axes: dict[tuple[int, ...], str], name: str, kind: str
) -> dict[str, Any]:
    columns = iter(_columns(traces))
    call = traces[0][1]
    # Columns stand in the order of `_shapes`: input tensors as the call names them, then outputs.
    shapes = {
        key: [axes[next(columns)[0]] for _ in traces[0][0].tensors[index].shape]
        for key, index in call.tensors.items()
    }
    outputs = {}
    for number, (dtype, rank) in enumerate(form.outputs):
        key = "output" if len(form.outputs) == 1 else f"output_{number}"
        while key in call.parameters:
            key += "_"
        outputs[key] = {"shape": [axes[next(columns)[0]] for _ in range(rank)], "dtype": dtype}
    return {
        "name": name,
        "op_type": kind,
        "description": f"Calls of {form.op}, recorded with pytest-cgins.",
        "axes": {
            axis: {"type": "const", "value": column[0]} if len(set(column)) == 1 else {"type": "var"}
            for column, axis in axes.items()
        },
        "inputs": {
            key: {"shape": None if rank is None else shapes[key], "dtype": dtype}
            for key, dtype, rank in form.inputs
        },
        "outputs": outputs,
        "reference": form.code,
    }


def _stored(
    trace: Trace, call: Call, reader: PackReader, *, out: Path, path: str, made: Exported, values: bool
) -> dict[str, Any]:
    """The input specifications of a trace's tensors; values that matter are written to a file."""
    kept = {
        name: index for name, index in call.tensors.items() if values or _matters(trace, trace.tensors[index])
    }
    specs: dict[str, Any] = {name: {"type": "random"} for name in call.tensors}
    if kept:
        tensors = load_inputs(trace, reader, "cpu")
        file = out / path
        file.parent.mkdir(parents=True, exist_ok=True)
        save_file({name: tensors[index].contiguous().clone() for name, index in kept.items()}, file)
        specs |= {name: {"type": "safetensors", "path": path, "tensor_key": name} for name in kept}
    strided = [meta for meta in trace.tensors if memory_format(meta) != "contiguous"]
    if strided:
        made.notes.append(
            f"{trace.call.op} {trace.signature}: {counted(len(strided), 'input is', 'inputs are')} not contiguous; the format has no strides"
        )
    return specs


def _matters(trace: Trace, meta: TensorMeta) -> bool:
    """Whether a tensor's values are part of the trace, rather than one draw of many."""
    dtype: torch.dtype = getattr(torch, meta.dtype)
    recipe = trace.storages[meta.storage].recipe
    return recipe is None or not dtype.is_floating_point or recipe.masked is not None


def _put(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
