"""What contract and gate demand of one kernel: schema line, prototype, arguments, what is checked."""

from __future__ import annotations

from pathlib import Path

from pytest_cgins.building.contracts import launch_line
from pytest_cgins.building.contracts import schema as schemas
from pytest_cgins.building.contracts.schema import Schema, schema_name
from pytest_cgins.building.contracts.source import wants_workspace
from pytest_cgins.core.dtypes import DTYPES, ITEMSIZE
from pytest_cgins.core.errors import SourceError
from pytest_cgins.core.trace import Trace
from pytest_cgins.regenerate.prompts import blocks, calls, schema_line, templating
from pytest_cgins.regenerate.prompts.context import Context
from pytest_cgins.verify.probes.registry import switched_on

FIRST_WITH_OWN_FEATURES = 90
"""Of the architectures that have features which later ones lack, and which need an `a` behind the number."""


def described_contract(context: Context) -> dict[str, object]:
    """What the templates in `templates/contract` say of a kernel."""
    it, special = context.implementation, context.implementation.specialized
    traces = [trace for _, trace in context.traces]
    arch = context.hardware.arch.removeprefix("sm_")
    facts: dict[str, object] = {
        "lacks_own_features": arch.isdigit() and int(arch) >= FIRST_WITH_OWN_FEATURES,
        "flags": [flag for flag in it.flags if "/" not in flag],
        "builds": [
            " ".join(f"-D{name}={value}" for name, value in special.named(build).items())
            for build in special.builds
        ]
        if special is not None
        else [],
    }
    if it.contract not in ("launcher", "device"):
        return facts | {
            "parameters": _parameters(traces),
            "state_tensors": _state_tensors(traces),
            "is_module": any(calls.is_of_module(trace) for trace in traces),
        }
    line, wrong = line_of(context)
    return facts | {"line": line, "wrong": wrong} | (_by_schema(context, line) if line else {"free": []})


def line_of(context: Context) -> tuple[str, str]:
    """The schema line without its mark, and what was wrong with the main source's.

    It is that of the main source if it fits the op, else the given or derived one; "" if there is none.
    """
    names = {
        schema_name(argument.name): None for _, trace in context.traces for argument in calls.arguments(trace)
    }
    wrong = ""
    for files in (context.sources, context.candidate):
        text = files.get(context.main, "")
        if not text:
            continue
        try:
            line, _ = schemas.locate(text, Path(context.main))
            schema = schemas.parse(line, context.main)
            if names:
                schemas.match(schema, list(names), context.main)
            return line, ""
        except SourceError as error:
            wrong = wrong or str(error)
    if context.schema:
        return context.schema, wrong
    traces = [trace for _, trace in context.traces]
    return schema_line.derive(context.config, context.entry, context.implementation, traces), wrong


def _by_schema(context: Context, line: str) -> dict[str, object]:
    schema = schemas.parse(line)
    text = context.files.get(context.main, "")
    state = {name for _, trace in context.traces for name in calls.state_names(trace)}
    workspace = wants_workspace(text, schema.entry)
    declared = [f'extern "C" {each}' for each in schemas.prototype(schema, workspace=True).splitlines()]
    plain = [f'extern "C" {each}' for each in schemas.prototype(schema).splitlines()]
    allocated = [output.name for output in schema.outputs if not output.aliased]
    return {
        "schema": schema,
        # What of the line may be another one: of a new kernel for a module the state that it does not read.
        "free": [
            argument.name
            for argument in schema.arguments
            if context.target.goal == "generate" and argument.name in state
        ],
        "workspace": workspace,
        "prototype": "\n".join(declared if workspace else plain),
        "sized": next(each for each in declared if "_workspace(" in each).rstrip(";"),
        "allocated": allocated,
        "is_mutated": not allocated or any(output.aliased for output in schema.outputs),
        "launched": _launched(context, schema, text) if context.implementation.contract == "device" else [],
    }


def _launched(context: Context, schema: Schema, text: str) -> list[str]:
    """Prototypes of the kernels that a source's launch lines ask for; none if it has no such lines yet."""
    try:
        line = launch_line.locate(text, Path(context.main))
        return launch_line.prototypes(launch_line.read(line, schema, context.main), schema)
    except SourceError:
        return []


def _state_tensors(traces: list[Trace]) -> list[str]:
    """Names of the tensors that a module brings, in the order of the call that has most of them."""
    names = [
        [
            blocks.one_line(argument.name, 60)
            for argument in trace.call.arguments
            if argument.passed == "state" and argument.value.kind == "tensor"
        ]
        for trace in traces
    ]
    return max(names, key=len, default=[])


def _parameters(traces: list[Trace]) -> list[str]:
    """`weight=None`: names in the order of calls, with the defaults that were recorded."""
    defaults: dict[str, str] = {}
    for trace in traces:
        for argument in calls.arguments(trace):
            if argument.passed != "state":
                name = blocks.one_line(argument.name, 60)
                value = calls.plain(argument.value, trace.tensors)
                defaults[name] = defaults.get(name) or (f"={value}" if argument.passed == "default" else "")
    return [f"{name}{default}" for name, default in defaults.items() if not name.startswith("_")]


def checks(context: Context) -> dict[str, object]:
    """Tolerance and probes in force, for `templates/checks.md`."""
    entry = context.entry
    dtypes = sorted({trace.dtype for _, trace in context.traces if "float" in trace.dtype})
    outputs = {
        tensor.meta.dtype for _, trace in context.traces if trace.gold for tensor in trace.gold.tensors
    }
    excused = {exception.probe for exception in entry.exceptions}
    probes = switched_on("full", excused)
    known, contract = templating.sentences("probes.txt"), context.implementation.contract
    sentences = (
        known.get(name) or known.get(f"{name}@{context.target.device}") or known.get(f"{name}@{contract}")
        for name in probes
        if name != "repeat" or entry.repeatability.kind == "exact"
    )
    return {
        "dtypes": dtypes,
        "grids": sorted(dtype for dtype in outputs if ITEMSIZE[dtype] == 1 and dtype != "bool"),
        "limits": [(dtype, *DTYPES[dtype].limits) for dtype in dtypes or ["float32"]],
        "probes": probes,
        "tried": [sentence for sentence in sentences if sentence],
        "fixed": [name if dim is None else f"{name}[{dim}]" for name, dim in entry.semantics.fixed],
        "excused": sorted(excused),
    }
