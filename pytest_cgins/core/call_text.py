"""A recorded call as one line: the op, and of each argument what decides how a kernel takes it."""

from __future__ import annotations

import math
from collections.abc import Sequence

from pytest_cgins.core.case import Case
from pytest_cgins.core.trace import Argument, OpCall, TensorMeta, Value

_SHOWN_STATE = 8
"""Tensors of a module's state that are shown; those beyond are counted."""
_BRACKETS = {"tuple": "({})", "list": "[{}]", "size": "[{}]"}


def case_line(case: Case) -> str:
    """The call of a case; the name of its op where a report does not have the call."""
    return case.op if case.call is None else call_line(case.call, case.tensors)


def call_line(call: OpCall, tensors: Sequence[TensorMeta]) -> str:
    """`torch.nn.functional.linear(input float32[8, 64] transposed (1, 8), weight float32[20, 64] contiguous, bias None)`."""
    return f"{call.op}({arguments_line(call, tensors)})"


def arguments_line(call: OpCall, tensors: Sequence[TensorMeta]) -> str:
    """The arguments of `call_line` without the op."""
    state = [argument for argument in call.arguments if argument.passed == "state"]
    shown = [one for one in call.arguments if one.passed != "state"] + state[:_SHOWN_STATE]
    words = [_argument(argument, call, tensors) for argument in shown]
    if len(state) > _SHOWN_STATE:
        words.append(f"… and {len(state) - _SHOWN_STATE} more of the module's state")
    return ", ".join(words)


def memory_format(meta: TensorMeta) -> str:
    """How a tensor lies: `contiguous`, `channels_last`, `channels_last_3d`, `transposed`, `expanded` or `strided`."""
    # Dimensions of size 1 address nothing.
    dims = [dim for dim, size in enumerate(meta.shape) if size > 1]
    if not meta.numel or _lies_in_order(meta, dims):
        return "contiguous"
    if any(meta.stride[dim] == 0 for dim in dims):
        return "expanded"
    channels_last = [dim for dim in (0, *range(2, len(meta.shape)), 1) if dim in dims]
    if len(meta.shape) in (4, 5) and _lies_in_order(meta, channels_last):
        return "channels_last" if len(meta.shape) == 4 else "channels_last_3d"
    by_stride = sorted(dims, key=lambda dim: -meta.stride[dim])
    return "transposed" if _lies_in_order(meta, by_stride) else "strided"


def _lies_in_order(meta: TensorMeta, dims: Sequence[int]) -> bool:
    """Whether these dimensions follow each other in memory, the last one fastest, without gaps."""
    return all(
        meta.stride[dim] == math.prod(meta.shape[later] for later in dims[place + 1 :])
        for place, dim in enumerate(dims)
    )


def tensor_words(meta: TensorMeta) -> str:
    """`float32[8, 64] transposed (1, 8) at offset 3`."""
    words = f"{meta.dtype}{list(meta.shape)}"
    how = memory_format(meta)
    if len(meta.shape) > 1 or how != "contiguous":
        words += f" {how}"
        if how in ("transposed", "expanded", "strided"):
            words += f" ({', '.join(map(str, meta.stride))})"
    return f"{words} at offset {meta.offset}" if meta.offset else words


def value_words(value: Value, tensors: Sequence[TensorMeta] = ()) -> str:
    """An argument as one would write it in Python; tensors by dtype, shape and memory format."""
    items = [value_words(item, tensors) for item in value.items]
    match value.kind:
        case "tensor":
            return tensor_words(tensors[int(value.value or 0)])
        case "float":
            return repr(float.fromhex(str(value.value)))
        case "complex":
            real, imaginary = (float.fromhex(part) for part in str(value.value).split())
            return repr(complex(real, imaginary))
        case "str":
            return repr(value.value)
        case "none":
            return "None"
        case "ellipsis":
            return "..."
        case "generator":
            return "a generator"
        case "tuple" | "list" | "size":
            comma = "," if value.kind == "tuple" and len(items) == 1 else ""
            return _BRACKETS[value.kind].format(f"{', '.join(items)}{comma}")
        case "slice":
            return f"slice({', '.join(items)})"
        case "dict":
            return f"{{{', '.join(f'{key}: {item}' for key, item in zip(value.keys, items, strict=True))}}}"
        case "adapted":
            return f"{value.value}({items[0]})"
    return str(value.value)


def _argument(argument: Argument, call: OpCall, tensors: Sequence[TensorMeta]) -> str:
    words = f"{argument.name} {value_words(argument.value, tensors)}"
    shares = _shares_memory(argument, call, tensors)
    return f"{words} in the memory of {shares}" if shares else words


def _shares_memory(argument: Argument, call: OpCall, tensors: Sequence[TensorMeta]) -> str:
    """An argument before this one on the same storage; "" if there is none."""
    if argument.value.kind != "tensor":
        return ""
    storage = tensors[int(argument.value.value or 0)].storage
    for other in call.arguments:
        if other is argument:
            return ""
        if other.value.kind == "tensor" and tensors[int(other.value.value or 0)].storage == storage:
            return other.name
    return ""
