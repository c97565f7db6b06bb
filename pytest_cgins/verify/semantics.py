"""What verification must know of an op to choose inputs that tell right from wrong.

Ops of torch and functions that users mark are recognised alike, by the words in their names and
parameters; whatever is not recognised is treated as an op over its last axis.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pytest_cgins.model import OpCall, TensorMeta, Value
from pytest_cgins.trace.backward import is_derived, is_gradient
from pytest_cgins.trace.inputs import TABLES

Kind = Literal["norm", "softmax", "activation", "other"]
Role = Literal["data", "weight", "parameter", "positive", "keep"]

_ACTIVATIONS = frozenset(
    ["gelu", "relu", "silu", "swish", "mish", "sigmoid", "tanh", "elu", "selu", "celu", "leaky_relu",
     "relu6", "hardswish", "hardsigmoid", "hardtanh", "logsigmoid", "softplus", "softsign", "tanhshrink"]
)  # fmt: skip
# Ops whose floating arguments may take any real value, so that fresh inputs need not keep the sign of
# the recorded ones. log, sqrt, pow and their like are not among them.
_REAL = frozenset(
    ["linear", "bilinear", "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d",
     "conv_transpose3d", "matmul", "mm", "bmm", "addmm", "baddbmm", "einsum", "embedding",
     "scaled_dot_product_attention", "add", "sub", "mul", "cat", "stack", "max_pool2d", "avg_pool2d",
     "adaptive_avg_pool2d", "sum", "mean", "sin", "cos", "erf", "exp", "abs", "neg", "square", "dropout"]
)  # fmt: skip
_CHOOSERS = frozenset(
    ["max", "min", "topk", "sort", "median", "kthvalue", "mode", "maximum",
     "minimum", "amax", "amin", "cummax", "cummin", "fmax", "fmin"]
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Semantics:
    """How the inputs of one call are to be chosen."""

    kind: Kind
    """Family of the op: which edge rows it gets."""
    real: bool
    """Whether any real number is a legal input; otherwise fresh inputs keep the recorded sign."""
    eps: float
    """The constant under the root of a norm; 1e-5 for all others."""
    names: dict[int, str]
    """Parameter name of each tensor argument, by its index among the tensors."""

    def is_gradient(self, index: int) -> bool:
        """Whether a tensor argument is what autograd brings to an output: any real number may come."""
        return is_gradient(self.names.get(index, ""))

    def role(self, index: int, meta: TensorMeta) -> Role:
        """What a tensor argument is to the op."""
        name = self.names.get(index, "").lower()
        if not ("float" in meta.dtype or "complex" in meta.dtype) or "mask" in name or not meta.shape:
            return "keep"
        if name in TABLES:
            return "keep"
        if self.is_gradient(index):
            return "data"
        if "var" in name.split("_"):
            return "positive"
        if len(meta.shape) == 1:
            # The only tensor of a call is its data, whatever its rank.
            return "data" if len(self.names) == 1 else "parameter"
        return "weight" if "weight" in name or name.startswith("self.") else "data"


def of(call: OpCall) -> Semantics:
    """Semantics of a call, by the words in its op's and parameters' names; a backward has those of its op."""
    word = _word(call).strip("_")
    eps = next((a.value for a in call.arguments if "eps" in a.name.lower()), None)
    kind: Kind = "other"
    if "norm" in word and eps is not None:
        kind = "norm"
    elif "softmax" in word or "softmin" in word or word == "cross_entropy":
        kind = "softmax"
    elif word in _ACTIVATIONS:
        kind = "activation"
    return Semantics(
        kind=kind,
        # A cross entropy's class weights and probabilities are not negative.
        real=(kind != "other" and word != "cross_entropy") or word in _REAL,
        eps=_number(eps, 1e-5),
        names={index: argument.name for argument in call.arguments for index in _tensors(argument.value)},
    )


def lane_dims(call: OpCall, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Dimensions of the data that number independent rows; the others lie within a row.

    A softmax's rows run along `dim`, a cross entropy's along the classes, a layer norm's along its
    normalized shape, a batch norm's over all but the channels; any other op's along the last axis.
    """
    rank = len(shape)
    word = _word(call)
    given = {argument.name: argument.value for argument in call.arguments}
    if "batch_norm" in word and rank > 1:
        return (1,)
    if "group_norm" in word or "instance_norm" in word:
        return (0,)
    if "softmax" in word and (dim := given.get("dim")) is not None and dim.kind == "int":
        along = int(dim.value or 0) % rank
        return tuple(d for d in range(rank) if d != along)
    if word == "cross_entropy" and rank > 1:
        return tuple(d for d in range(rank) if d != 1)
    within = 1
    if (normalized := given.get("normalized_shape")) is not None and normalized.items:
        within = len(normalized.items)
    return tuple(range(max(0, rank - within)))


def chooses(call: OpCall) -> bool:
    """Whether a backward sends gradients to the elements that its op chose: among equal ones any may be."""
    return is_derived(call.op) and bool(_CHOOSERS & set(_word(call).strip("_").split("_")))


def _word(call: OpCall) -> str:
    return call.op.partition("@")[0].rsplit(".", 1)[-1].lower()


def _tensors(value: Value) -> list[int]:
    if value.kind == "tensor":
        return [int(value.value or 0)]
    return [index for item in value.items for index in _tensors(item)]


def _number(value: Value | None, default: float) -> float:
    if value is None or value.kind != "float":
        return default
    return float.fromhex(str(value.value))
