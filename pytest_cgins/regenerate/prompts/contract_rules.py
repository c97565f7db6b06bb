"""The rules of the launcher contract for this very kernel, in the words of CONTRACT.md."""

from __future__ import annotations

from collections.abc import Iterator

from pytest_cgins.building.contracts.schema import Schema, SchemaArgument
from pytest_cgins.regenerate.prompts.context import Context


def of_any_launcher(context: Context) -> Iterator[str]:
    """Rules that hold whatever the schema line says."""
    yield (
        'Return 0, or a failure by `return cgins_fail("why")`. Never throw, exit or print. A call '
        "that the kernel cannot do is refused with a "
        "message; recorded calls must all be done."
    )
    yield (
        "The caller owns all memory: pointers are valid until the function returns, on a GPU the tensors' memory until "
        "the stream's work is done. Keep, free and resize nothing."
    )
    yield (
        "Inputs may have any strides (see the recorded calls): read by strides, or check and refuse. "
        "They are read only unless marked `(a!)`, and may lie on the same memory as each other, or as a mutated "
        "argument, as in the call. Data is aligned to its element only; outputs and scratch memory to 64 bytes (CPU) "
        "or 512 (CUDA). A zero-dimensional tensor has ndim 0 and one element."
    )
    yield (
        "Element types are read from the tensors (cgins::dtype_of); nothing is converted. Tensors of one "
        "call may differ in dtype."
    )
    if context.target.device == "cuda":
        yield (
            "The tensors' device is current. `cgins_stream` is cudaStream_t; all work goes to it, memsets and copies "
            "too. The function does not wait, and makes no call that is forbidden while a stream is captured."
        )
    else:
        yield "`stream` is NULL on the CPU; the work is done when the function returns."
    if len(context.sources) > 1 or context.headers:
        yield "Sources are compiled apart and linked into one library; quoted includes are looked up beside the source."


def of_launcher(context: Context, schema: Schema, workspace: bool) -> Iterator[str]:
    """All rules for a launcher whose schema line is known.

    Args:
        context: of the prompt.
        schema: its line.
        workspace: whether its source asks for scratch memory.
    """
    yield from filter(None, (_of_argument(argument) for argument in schema.arguments))
    outputs = [one for one in schema.outputs if not one.aliased]
    names = ", ".join(f"`{one.name}`" for one in outputs)
    if outputs:
        yield (
            f"{names}: allocated by the caller with torch's shape, dtype and strides for the call; "
            "write every element, by its strides. "
            "Outputs share no memory with anything else."
        )
    if any(one.aliased for one in schema.outputs) or not outputs:
        yield "The mutated argument itself is the result: write into it, nothing is allocated."
    if workspace:
        yield (
            f"Scratch memory: `{schema.entry}_workspace` returns bytes from shapes, strides and dtypes, never "
            "from data; less than 0 is an error. Its content is undefined at each launch."
        )
    else:
        yield (
            'Scratch memory, if needed: also define `extern "C" int64_t '
            f"{schema.entry}_workspace(…arguments and outputs, no stream…)` that returns bytes, "
            "from shapes, strides and dtypes, never from data (less than 0 is an error); "
            "the launcher then takes `void* workspace, int64_t workspace_nbytes` before `stream`. It "
            "is uninitialised. Do not allocate otherwise on a GPU."
        )
    yield from of_any_launcher(context)


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
            "_FLOAT or _COMPLEX, `->integer` for the first two, `->imaginary` for the last"
            + ("; NULL is None" if argument.optional else "")
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
