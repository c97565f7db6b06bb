"""One recorded call in a line: `input f32[8, 768], normalized_shape=(768,), eps=1e-05 → f32[8, 768]`."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from pytest_cgins.building.contracts.schema import schema_name
from pytest_cgins.core import dtypes
from pytest_cgins.core.call_text import memory_format
from pytest_cgins.core.dtypes import ITEMSIZE
from pytest_cgins.core.text import counted
from pytest_cgins.core.trace import Argument, TensorMeta, Trace, Value, tensor_indices
from pytest_cgins.regenerate.prompts.blocks import one_line

SHORT = {**dtypes.SHORT, "bool": "bool"}
_STAND_IN = "T"
_LONGEST_TEXT = 60
_MOST_ITEMS = 12
ALIGNMENT_NBYTES = 16


def arguments(trace: Trace) -> Iterator[Argument]:
    """What a call passes and a kernel may name: a module's classes and lists of names are left out."""
    for argument in trace.call.arguments:
        if not (argument.passed == "state" and argument.name.endswith("__")):
            yield argument


def is_of_module(trace: Trace) -> bool:
    """Whether the op of a call is a class of modules."""
    return any(argument.passed == "state" for argument in trace.call.arguments)


def state_names(trace: Trace) -> tuple[str, ...]:
    """Names that a schema line may have for a module's state: not those of two things, or of an argument."""
    names = [schema_name(argument.name) for argument in arguments(trace)]
    state = (schema_name(argument.name) for argument in arguments(trace) if argument.passed == "state")
    return tuple(name for name in state if names.count(name) == 1)


def plain(value: Value, tensors: Sequence[TensorMeta], stand_in: str = "") -> str:
    """A value in a line.

    Args:
        value: the tree.
        tensors: what its tensor leaves point to.
        stand_in: a dtype that is written `T`; "" for none.
    """
    if value.kind == "tensor":
        index = int(value.value or 0)
        return tensor(tensors[index], stand_in) if index < len(tensors) else "tensor"
    if value.kind == "float":
        return number(str(value.value))
    if value.kind == "complex":
        return "+".join(number(part) for part in str(value.value).split()) + "j"
    if value.kind == "str":
        return repr(one_line(str(value.value), _LONGEST_TEXT))
    if value.kind in ("none", "bool", "int"):
        return str(value.value)
    if value.kind in ("dtype", "device", "memory_format", "layout"):
        return one_line(f"torch.{value.value}" if value.kind == "dtype" else str(value.value), _LONGEST_TEXT)
    items = [plain(item, tensors, stand_in) for item in value.items[:_MOST_ITEMS]]
    if len(value.items) > _MOST_ITEMS:
        items.append(f"… {len(value.items)} in all")
    if value.kind == "dict":
        pairs = zip(value.keys, items, strict=False)
        return "{" + ", ".join(f"{one_line(key, _LONGEST_TEXT)!r}: {item}" for key, item in pairs) + "}"
    if value.kind == "slice":
        return ":".join(items)
    if value.kind == "list":
        return f"[{', '.join(items)}]"
    if value.kind in ("tuple", "size"):
        return f"({', '.join(items)}{',' if len(items) == 1 else ''})"
    return one_line(str(value.value) if value.value is not None else value.kind, _LONGEST_TEXT)


def number(text: str) -> str:
    """A float from its hex form, with digits enough to be read back."""
    try:
        return repr(float.fromhex(text))
    except (ValueError, OverflowError):
        return one_line(text, _LONGEST_TEXT)


def tensor(meta: TensorMeta, stand_in: str = "") -> str:
    """Dtype and shape, and how it lies in memory where that is not plain."""
    name = _STAND_IN if meta.dtype == stand_in else SHORT.get(meta.dtype, meta.dtype)
    text = f"{name}[{', '.join(map(str, meta.shape))}]"
    if memory_format(meta) != "contiguous":
        text += f" strides ({', '.join(map(str, meta.stride))})"
    if meta.offset * ITEMSIZE.get(meta.dtype, 1) % ALIGNMENT_NBYTES and meta.numel:
        text += f" starting {counted(meta.offset, 'element')} into its memory"
    return text


def names_of_tensors(trace: Trace) -> dict[int, str]:
    """Name of the argument that each tensor is, or is in."""
    names: dict[int, str] = {}
    for argument in trace.call.arguments:
        indices = tensor_indices(argument.value)
        for number, index in enumerate(indices):
            name = argument.name if len(indices) == 1 else f"{argument.name}[{number}]"
            names.setdefault(index, one_line(name, _LONGEST_TEXT))
    return names


def outputs(trace: Trace, stand_in: str = "") -> str:
    """What comes back, as shapes; "unknown" where none was recorded."""
    if trace.gold is None:
        return "unknown"
    metas = [gold.meta for gold in trace.gold.tensors]
    text = plain(trace.gold.outputs, metas, stand_in)
    return (
        text[1:-1].rstrip(",")
        if trace.gold.outputs.kind in ("tuple", "list") and "(" not in text[1:]
        else text
    )


def facts(trace: Trace) -> list[str]:
    """What is changed in place, what shares memory, and what decides besides the arguments."""
    names = names_of_tensors(trace)
    lines = []
    groups: dict[int, list[int]] = {}
    for index, meta in enumerate(trace.tensors):
        groups.setdefault(meta.storage, []).append(index)
    for indices in groups.values():
        shared = list(dict.fromkeys(names[index] for index in indices if index in names))
        if len(shared) > 1:
            lines.append(f"{' and '.join(shared)} lie on the same memory")
    if trace.gold is not None:
        changed = [names.get(index, str(index)) for index, _ in trace.gold.mutated]
        if changed:
            lines.append(f"changes {', '.join(changed)} in place")
        views = sorted({(position, names.get(index, str(index))) for position, index in trace.gold.aliases})
        returned = len(tensor_indices(trace.gold.outputs))
        lines += [
            f"{'the result' if returned == 1 else f'result {position}'} is memory of {name}"
            for position, name in views
            if position < returned
        ]
    context = trace.context
    lines += [f"under autocast to {it.dtype} on {it.device_type}" for it in context.autocast]
    if context.default_dtype != "float32":
        lines.append(f"default dtype {context.default_dtype}")
    if context.float32_matmul_precision != "highest":
        lines.append(f"float32 matmul precision {context.float32_matmul_precision}")
    if context.deterministic:
        lines.append("deterministic algorithms asked for")
    return [one_line(line, 160) for line in lines]


def nbytes(trace: Trace) -> int:
    """Of all argument tensors."""
    return sum(math.prod(meta.shape) * ITEMSIZE.get(meta.dtype, 1) for meta in trace.tensors)
