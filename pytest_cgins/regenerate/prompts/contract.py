"""What the contract demands of this very kernel: its line, its prototype, and what stands behind both."""

from __future__ import annotations

from pathlib import Path

from pytest_cgins.building.contracts import launch_line
from pytest_cgins.building.contracts import schema as schemas
from pytest_cgins.building.contracts.schema import Schema
from pytest_cgins.building.contracts.source import wants_workspace
from pytest_cgins.core.errors import SourceError
from pytest_cgins.core.model import Specialized, Trace
from pytest_cgins.regenerate.prompts import (
    blocks,
    calls,
    contract_rules,
    contract_text,
    languages,
    schema_line,
)
from pytest_cgins.regenerate.prompts.context import Context

_KEEP = "write it as it is here"
_MOST_STATE = 24
FIRST_WITH_OWN_FEATURES = 90
"""Of the architectures that have features which later ones lack, and which need an `a` behind the number."""


def described(context: Context) -> str:
    """The contract of the kernel that is to be written."""
    kind = context.implementation.contract
    if kind in ("launcher", "device"):
        parts = _with_schema(context, kind)
    elif kind == "torch-extension":
        parts = _extension(context)
    else:
        parts = _python(context)
    return blocks.section(
        f"Contract: {kind}",
        [*parts, "Compiler and language:", blocks.bullets(languages.advice(context)), *_options(context)],
    )


def line_of(context: Context) -> tuple[str, str]:
    """The schema line without its mark, and what was wrong with the main source's.

    It is that of the main source if it is one and fits the op, else the given or derived one; "" if there is none.
    """
    names = {calls.schema_name(one): None for _, trace in context.traces for one in calls.arguments(trace)}
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


def _with_schema(context: Context, kind: str) -> list[str]:
    line, wrong = line_of(context)
    if not line:
        return _unknown_line(context)
    schema = schemas.parse(line)
    said = [blocks.data("The line in the present source cannot be used", wrong)] if wrong else []
    if kind == "device":
        return [*said, *_device(context, line, schema)]
    workspace = wants_workspace(context.files.get(context.main, ""), schema.entry)
    prototype = "\n".join(
        f'extern "C" {one}' for one in schemas.prototype(schema, workspace=workspace).splitlines()
    )
    return [
        *said,
        f"{blocks.code(context.main)} has exactly one schema line, a comment. It is mandatory: {_kept(context, schema)}",
        blocks.fenced(f"// cgins: {line}", "cpp"),
        (
            "The prototype that follows from it is included before the first line: any other definition "
            'is a compile error. Define it `extern "C"`:'
        ),
        blocks.fenced(prototype, "cpp"),
        blocks.bullets(contract_rules.of_launcher(context, schema, workspace)),
        "What `#include <cgins.h>` has (it is included for you as well):",
        blocks.fenced(contract_text.STRUCTS, "cpp"),
    ]


def _kept(context: Context, schema: Schema) -> str:
    """What of a line may be another one: of a new kernel for a module the state that it does not read."""
    names = {name for _, trace in context.traces for name in calls.state_names(trace)}
    free = [argument.name for argument in schema.arguments if argument.name in names]
    if context.target.goal != "generate" or not free:
        return _KEEP
    shown = ", ".join(map(blocks.code, free[:_MOST_STATE])) + (", …" if len(free) > _MOST_STATE else "")
    return (
        f"{_KEEP}, but for what it names of the module's state ({shown}): leave out of it what the kernel does not read, "
        "and the prototype has no such parameter either. The order is free"
    )


def _unknown_line(context: Context) -> list[str]:
    return [
        (f"{blocks.code(context.main)} needs exactly one schema line, `// cgins: NAME(TYPE argument, "
            "…) -> Tensor` in torch's schema language, with "
        "the argument names of the recorded calls (a module's `self.a.b` is `a_b`, a first digit gets a "
            "`_` before it; what two attributes would be called has no name). It may go on in the comment "
            "lines below, up to the one with `->`. NAME is none of C's library (`exp`). An "
            "argument may be left out where every call passes its default, and a module's state where the "
            "kernel does not read it; one that the op has not needs a default. Types: Tensor, "
            "Tensor?, Tensor(a!) (changed in place), Tensor[], Tensor?[], "
        "int, int?, int[], int[]?, float, float?, float[], bool, bool?, bool[], Scalar, str, ScalarType, Generator?. Parameters in "
            "C: const DLTensor* (NULL is None), int64_t, const "
        "int64_t* + int64_t NAME_len, double, bool, const cgins_scalar*, const char* + int64_t "
            "NAME_len, const DLDataType*, uint64_t (a seed); a const pointer for int?, float?, bool? (NULL is None). Then "
            "outputs as DLTensor* (`-> (Tensor a, Tensor b)` names them, a list is DLTensor* const* + int64_t "
            "out_len, `-> Tensor(a!)` is the mutated argument and has none), then cgins_stream."),
        blocks.bullets(contract_rules.of_any_launcher(context)),
        blocks.fenced(contract_text.STRUCTS, "cpp"),
    ]  # fmt: skip


def _device(context: Context, line: str, schema: Schema) -> list[str]:
    text = context.files.get(context.main, "")
    compiled: list[str] = []
    try:
        plan = (
            launch_line.read(launch_line.locate(text, Path(context.main)), schema, context.main)
            if text
            else None
        )
        compiled = launch_line.prototypes(plan, schema) if plan is not None else []
    except SourceError:
        compiled = []
    names = ", ".join(f"`{one.name}`" for one in schema.outputs if not one.aliased)
    return [
        (
            f"{blocks.code(context.main)} is a file of `__global__` functions and what they call, no "
            "host code, no <<<>>>. It has one schema line, "
            f"which is mandatory ({_kept(context, schema)}), and one or more launch lines:"
        ),
        blocks.fenced(f"// cgins: {line}", "cpp"),
        blocks.fenced(contract_text.LAUNCH_LINE, "text"),
        *(
            ["The kernels that the present launch lines ask for:", blocks.fenced("\n".join(compiled), "cuda")]
            if compiled
            else []
        ),
        blocks.bullets(
            [
                (
                    f"Outputs ({names or 'none: the mutated argument is the result'}) are allocated with "
                    "torch's shape, dtype and strides: write every element."
                ),
                (
                    "The compiler checks each launch line against its kernel: as many args as "
                    "parameters, pointers of the element type, const for inputs."
                ),
                "Calls that the kernel does not do are refused by require=(…); all recorded calls must be done.",
            ]
        ),
        "Helpers:",
        blocks.fenced(contract_text.DEVICE_HELPERS, "cpp"),
    ]


def _extension(context: Context) -> list[str]:
    names = _parameters([trace for _, trace in context.traces])
    state = _state_tensors([trace for _, trace in context.traces])
    return [
        (
            f"{blocks.code(context.main)} defines the function "
            f"{blocks.code(context.implementation.entry)} on `torch::Tensor`, as "
            "torch.utils.cpp_extension.load_inline takes it; "
            "no PYBIND11_MODULE, it is added. <torch/extension.h> is included for you. It is called "
            "with the op's own arguments: "
            f"{', '.join(names) or 'see the recorded calls'}; one that has the op's default in every call may be left out. "
            "Optional tensors are `const std::optional<torch::Tensor>&`."
        ),
        *(
            [
                (
                    "Behind these come the tensors of the module's state, in this order: "
                    f"{', '.join(map(blocks.code, state))}. Those at the end may be left out; numbers of the state "
                    "are not passed."
                )
            ]
            if state
            else []
        ),
        (
            "It returns the output tensor (several: a std::tuple or vector). Use ATen for "
            "allocation, checks (TORCH_CHECK), dispatch (AT_DISPATCH_FLOATING_TYPES_AND2) "
            "and at::parallel_for; the arithmetic must be the kernel's own, and at:: or torch:: "
            "operators that compute the op are refused. On CUDA launch on "
            "at::cuda::getCurrentCUDAStream() and use C10_CUDA_KERNEL_LAUNCH_CHECK()."
        ),
    ]


def _python(context: Context) -> list[str]:
    target = context.implementation.target
    names = _parameters([trace for _, trace in context.traces])
    return [
        (
            f"The target is {blocks.code(target)}: {blocks.code(context.main)} defines "
            f"{blocks.code(target.partition(':')[2])}, called with the op's own arguments, by name "
            "where the names "
            f"agree: ({', '.join(names)}). Keep these names, and the defaults of the op. It returns "
            "what the op returns, with the same shapes and dtypes."
        ),
        *(
            [
                (
                    "The op is a module: the first argument is a module of its class, whatever you call it, then "
                    "come these. Read parameters, buffers and plain attributes from it (`module.a.weight`), and "
                    "call neither it nor its children: they are what is replaced. What was not recorded of it "
                    "raises an error that names it."
                )
            ]
            if any(calls.is_of_module(trace) for _, trace in context.traces)
            else []
        ),
        *(
            ["Run in Triton's interpreter on the CPU (interpret: true)."]
            if context.implementation.interpret
            else []
        ),
    ]


def _state_tensors(traces: list[Trace]) -> list[str]:
    """Names of the tensors that a module brings, in the order of the call that has most of them."""
    found = [
        [
            blocks.one_line(one.name, 60)
            for one in trace.call.arguments
            if one.passed == "state" and one.value.kind == "tensor"
        ]
        for trace in traces
    ]
    return max(found, key=len, default=[])


def _parameters(traces: list[Trace]) -> list[str]:
    """`weight=None`: names in the order of calls, with the defaults that were recorded."""
    found: dict[str, str] = {}
    for trace in traces:
        for argument in calls.arguments(trace):
            if argument.passed != "state":
                name = blocks.one_line(argument.name, 60)
                default = (
                    f"={calls.plain(argument.value, trace.tensors)}" if argument.passed == "default" else ""
                )
                found[name] = found.get(name) or default
    return [f"{name}{default}" for name, default in found.items() if not name.startswith("_")]


def _options(context: Context) -> list[str]:
    """What cgins.yaml adds to the build."""
    it = context.implementation
    said = []
    if it.archs:
        said.append(f"built for {', '.join(blocks.code(arch) for arch in it.archs)}")
    elif it.device == "cuda" and it.contract != "python" and context.hardware.arch:
        said.append(f"built for {blocks.code(context.hardware.arch)}{_lacks(context.hardware.arch)}")
    if it.defines:
        said.append(
            "compiled with " + ", ".join(blocks.code(f"-D{name}={value}") for name, value in it.defines)
        )
    flags = [flag for flag in it.flags if "/" not in flag]
    if flags:
        said.append("compiled with the flags " + ", ".join(blocks.code(flag) for flag in flags))
    told = [f"This implementation is {', '.join(said)}."] if said else []
    return [*told, _specialized(it.specialized)] if it.specialized is not None else told


def _lacks(arch: str) -> str:
    """What a build for this architecture has not got, although the device has it."""
    number = arch.removeprefix("sm_")
    own = number.isdigit() and int(number) >= FIRST_WITH_OWN_FEATURES
    return (
        f", where what only {blocks.code(f'{arch}a')} has (as wgmma on sm_90a) does not assemble"
        if own
        else ""
    )


def _specialized(it: Specialized) -> str:
    """Which macros a source may look at, and that it must do without them."""
    macros = ", ".join(
        f"{blocks.code(macro)} is {blocks.code(size)}"
        for macro, size in zip(it.macros, it.sizes, strict=True)
    )
    builds = "; ".join(
        blocks.code(" ".join(f"-D{name}={value}" for name, value in it.named(build).items()))
        for build in it.builds
    )
    return (
        f"All sources are compiled several times, and the builds are linked into one library. Macros: {macros}. Builds: "
        f"{builds}; and one without these macros, for all other calls. A generated function looks at the arguments of a call "
        f"and takes the build whose macros they have. So under `#ifdef {it.macros[0]}` these numbers are constants of the call; "
        "nothing else is (element types, strides, other sizes). Without the macros the source must be right for all sizes: "
        "tests with other sizes call that build."
    )
