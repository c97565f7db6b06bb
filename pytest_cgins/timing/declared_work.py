"""`work` of cgins.yaml, evaluated for a call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pytest_cgins.core.dtypes import ITEMSIZE
from pytest_cgins.core.expression import ExpressionError, TensorFacts, amount, parse
from pytest_cgins.core.trace import OpCall, TensorMeta, Value


def evaluate(text: str, call: OpCall, tensors: Sequence[TensorMeta], outputs: Sequence[TensorMeta]) -> int:
    """What an expression counts for a call.

    Names are those of the op's arguments, `.` in them written `_` (`self.weight` is `self_weight`), a backward's
    `grad_output`, too; `out` is the only output, `outs` the list of all. An argument comes before either.

    Raises:
        ExpressionError: it has no value from 0 up to 2^63 for this call.
    """
    written = [_facts("out" if len(outputs) == 1 else f"outs[{i}]", meta) for i, meta in enumerate(outputs)]
    values: dict[str, Any] = {"outs": written}
    if len(written) == 1:
        values["out"] = written[0]
    for argument in call.arguments:
        name = argument.name.replace(".", "_")
        values[name] = _value(name, argument.value, tensors)
    return amount(parse(text), values)


def _facts(name: str, meta: TensorMeta) -> TensorFacts:
    return TensorFacts(name, meta.shape, meta.stride, meta.dtype, ITEMSIZE[meta.dtype])


def _value(name: str, value: Value, tensors: Sequence[TensorMeta]) -> Any:
    """A value as expressions know it; what they have no arithmetic for is a text."""
    match value.kind:
        case "tensor":
            index = int(value.value or 0)
            if index >= len(tensors):
                raise ExpressionError(f"{name} is not a tensor of the call")
            return _facts(name, tensors[index])
        case "float":
            return float.fromhex(str(value.value))
        case "tuple" | "list" | "size":
            return [_value(f"{name}[{i}]", item, tensors) for i, item in enumerate(value.items)]
        case "none" | "bool" | "int" | "str" | "dtype":
            return value.value
    return value.kind
