"""What the contract demands of this very kernel: its line, its prototype, and what stands behind both."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from pytest_cgins.errors import SourceError
from pytest_cgins.kernels import launch_line
from pytest_cgins.kernels import schema as schemas
from pytest_cgins.kernels.schema import Schema, SchemaArgument
from pytest_cgins.kernels.source import wants_workspace
from pytest_cgins.model import Trace
from pytest_cgins.regenerate.prompts import blocks, calls, contract_text, languages, schema_line
from pytest_cgins.regenerate.prompts.context import Context

_KEEP = "write it as it is here"


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
        f"{blocks.code(context.main)} has exactly one schema line, a comment. It is mandatory: {_KEEP}",
        blocks.fenced(f"// cgins: {line}", "cpp"),
        (
            "The prototype that follows from it is included before the first line: any other definition "
            'is a compile error. Define it `extern "C"`:'
        ),
        blocks.fenced(prototype, "cpp"),
        blocks.bullets(_rules(context, schema, workspace)),
        "What `#include <cgins.h>` has (it is included for you as well):",
        blocks.fenced(contract_text.STRUCTS, "cpp"),
    ]


def _unknown_line(context: Context) -> list[str]:
    return [
        (f"{blocks.code(context.main)} needs exactly one schema line, `// cgins: NAME(TYPE argument, "
            "…) -> Tensor` in torch's schema language, with "
        "the argument names of the recorded calls (a module's `self.a.b` is `a_b`). Types: Tensor, "
            "Tensor?, Tensor(a!) (changed in place), Tensor[], "
        "int, int?, int[], float, float?, bool, Scalar, str, ScalarType, Generator?. Parameters in "
            "C: const DLTensor* (NULL is None), int64_t, const "
        "int64_t* + int64_t NAME_len, double, bool, const cgins_scalar*, const char* + int64_t "
            "NAME_len; then outputs as DLTensor*, then cgins_stream."),
        blocks.fenced(contract_text.STRUCTS, "cpp"),
    ]  # fmt: skip


def _rules(context: Context, schema: Schema, workspace: bool) -> Iterable[str]:
    yield (
        'Return 0, or a failure by `return cgins_fail("why")`. Never throw, exit or print. A call '
        "that the kernel cannot do is refused with a "
        "message; recorded calls must all be done."
    )
    yield from filter(None, (_of_argument(argument) for argument in schema.arguments))
    outputs = [one for one in schema.outputs if not one.aliased]
    names = ", ".join(f"`{one.name}`" for one in outputs)
    if outputs:
        yield (
            f"{names}: allocated by the caller with torch's shape, dtype and strides for the call; "
            "write every element, by its strides. "
            "Outputs share no memory with inputs."
        )
    if any(one.aliased for one in schema.outputs) or not outputs:
        yield "The mutated argument itself is the result: write into it, nothing is allocated."
    yield (
        "Inputs may have any strides (see the recorded calls): read by strides, or check and refuse. "
        "Data is aligned to its element only; outputs to 64 bytes (CPU) or 512 (CUDA)."
    )
    yield (
        "Element types are read from the tensors (cgins::dtype_of); nothing is converted. Tensors of one "
        "call may differ in dtype."
    )
    if workspace:
        yield (
            f"Scratch memory: `{schema.entry}_workspace` returns bytes from shapes and dtypes alone; its "
            "content is undefined at each launch."
        )
    else:
        yield (
            'Scratch memory, if needed: also define `extern "C" int64_t '
            f"{schema.entry}_workspace(…arguments and outputs, no stream…)` that returns bytes; "
            "the launcher then takes `void* workspace, int64_t workspace_nbytes` before `stream`. It "
            "is uninitialised. Do not allocate otherwise on a GPU."
        )
    if context.target.device == "cuda":
        yield (
            "The tensors' device is current. `cgins_stream` is cudaStream_t; all work goes to it, and "
            "the function does not wait."
        )
    else:
        yield "`stream` is NULL on the CPU; the work is done when the function returns."


def _of_argument(argument: SchemaArgument) -> str:
    name = f"`{argument.name}`"
    if argument.type == "Tensor":
        if argument.list:
            return f"{name}: {argument.name}_len tensors" + (
                ", items may be NULL (None)" if argument.item_optional else ""
            )
        if argument.mutated:
            return f"{name}: changed in place" + ("; NULL is None" if argument.optional else "")
        return f"{name}: NULL is None" if argument.optional else ""
    if argument.type == "str":
        return f"{name}: UTF-8 with a zero byte behind its {argument.name}_len bytes" + (
            "; NULL is None" if argument.optional else ""
        )
    if argument.type == "Scalar":
        return (
            f"{name}: `{name[1:-1]}->real` is always set, as a double; `->kind` is CGINS_BOOL, _INT, "
            "_FLOAT or _COMPLEX, `->integer` for the first two"
        )
    if argument.type == "ScalarType":
        return f"{name}: `cgins::dtype_of(*{argument.name})`" + (
            "; NULL is None" if argument.optional else ""
        )
    if argument.type == "Generator":
        return f"{name}: a 64-bit seed; the same seed gives the same numbers"
    if argument.list:
        return f"{name}: {argument.name}_len values; a single number arrives as a list of one" + (
            "; NULL and 0 are None" if argument.optional else ""
        )
    return f"{name}: pointer, NULL is None" if argument.optional else ""


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
            f"which is mandatory ({_KEEP}), and one or more launch lines:"
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
            ["Run in Triton's interpreter on the CPU (interpret: true)."]
            if context.implementation.interpret
            else []
        ),
    ]


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
    if it.defines:
        said.append(
            "compiled with " + ", ".join(blocks.code(f"-D{name}={value}") for name, value in it.defines)
        )
    flags = [flag for flag in it.flags if "/" not in flag]
    if flags:
        said.append("compiled with the flags " + ", ".join(blocks.code(flag) for flag in flags))
    return [f"This implementation is {', '.join(said)}."] if said else []
