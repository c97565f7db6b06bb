"""One recorded call in a line: `input f32[8, 768], normalized_shape=(768,), eps=1e-05 → f32[8, 768]`."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from pytest_cgins.core import dtypes
from pytest_cgins.core.dtypes import ITEMSIZE
from pytest_cgins.core.model import Argument, TensorMeta, Trace, Value
from pytest_cgins.core.text import counted
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


def schema_name(argument: Argument) -> str:
    """The name that a schema line has for an argument: `self.gate.weight` is `gate_weight`."""
    if argument.passed != "state":
        return argument.name.replace(".", "_")
    plain = argument.name.removeprefix("self.").replace(".", "_")
    return f"_{plain}" if plain[:1].isdigit() else plain


def is_of_module(trace: Trace) -> bool:
    """Whether the op of a call is a class of modules."""
    return any(argument.passed == "state" for argument in trace.call.arguments)


def state_names(trace: Trace) -> tuple[str, ...]:
    """Names that a schema line may have for a module's state: not those of two things, or of an argument."""
    names = [schema_name(argument) for argument in arguments(trace)]
    state = (schema_name(argument) for argument in arguments(trace) if argument.passed == "state")
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
    said = f"{name}[{', '.join(map(str, meta.shape))}]"
    if not is_contiguous(meta):
        said += f" strides ({', '.join(map(str, meta.stride))})"
    if meta.offset * ITEMSIZE.get(meta.dtype, 1) % ALIGNMENT_NBYTES and meta.numel:
        said += f" starting {counted(meta.offset, 'element')} into its memory"
    return said


def is_contiguous(meta: TensorMeta) -> bool:
    """Whether elements lie in row-major order without gaps."""
    expected = 1
    for size, step in zip(reversed(meta.shape), reversed(meta.stride), strict=True):
        if size not in (0, 1) and step != expected:
            return meta.numel == 0
        expected *= size
    return True


def tensor_indices(value: Value) -> Iterator[int]:
    """Indices of the tensors in a value, in order."""
    if value.kind == "tensor":
        yield int(value.value or 0)
    for item in value.items:
        yield from tensor_indices(item)


def names_of_tensors(trace: Trace) -> dict[int, str]:
    """Name of the argument that each tensor is, or is in."""
    found: dict[int, str] = {}
    for argument in trace.call.arguments:
        indices = list(tensor_indices(argument.value))
        for place, index in enumerate(indices):
            name = argument.name if len(indices) == 1 else f"{argument.name}[{place}]"
            found.setdefault(index, one_line(name, _LONGEST_TEXT))
    return found


def outputs(trace: Trace, stand_in: str = "") -> str:
    """What comes back, as shapes; "unknown" where none was recorded."""
    if trace.gold is None:
        return "unknown"
    metas = [gold.meta for gold in trace.gold.tensors]
    said = plain(trace.gold.outputs, metas, stand_in)
    return (
        said[1:-1].rstrip(",")
        if trace.gold.outputs.kind in ("tuple", "list") and "(" not in said[1:]
        else said
    )


def facts(trace: Trace) -> list[str]:
    """What is changed in place, what shares memory, and what decides besides the arguments."""
    names = names_of_tensors(trace)
    said = []
    groups: dict[int, list[int]] = {}
    for index, meta in enumerate(trace.tensors):
        groups.setdefault(meta.storage, []).append(index)
    for indices in groups.values():
        shared = list(dict.fromkeys(names[index] for index in indices if index in names))
        if len(shared) > 1:
            said.append(f"{' and '.join(shared)} lie on the same memory")
    if trace.gold is not None:
        changed = [names.get(index, str(index)) for index, _ in trace.gold.mutated]
        if changed:
            said.append(f"changes {', '.join(changed)} in place")
        views = sorted({(place, names.get(index, str(index))) for place, index in trace.gold.aliases})
        returned = len(list(tensor_indices(trace.gold.outputs)))
        said += [
            f"{'the result' if returned == 1 else f'result {place}'} is memory of {name}"
            for place, name in views
            if place < returned
        ]
    context = trace.context
    said += [f"under autocast to {one.dtype} on {one.device_type}" for one in context.autocast]
    if context.default_dtype != "float32":
        said.append(f"default dtype {context.default_dtype}")
    if context.float32_matmul_precision != "highest":
        said.append(f"float32 matmul precision {context.float32_matmul_precision}")
    if context.deterministic:
        said.append("deterministic algorithms asked for")
    return [one_line(one, 160) for one in said]


def nbytes(trace: Trace) -> int:
    """Of all argument tensors."""
    return sum(math.prod(meta.shape) * ITEMSIZE.get(meta.dtype, 1) for meta in trace.tensors)
