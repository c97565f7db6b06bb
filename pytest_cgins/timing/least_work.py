"""The least that any implementation of an op must do: bytes that it reads and writes, and multiply-adds.

Of an op that is not known here it is certain that it writes its outputs, and nothing else. What is counted must hold for
every right implementation: no argument that it could leave out, no product that an algorithm saves.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from pytest_cgins.core.trace import OpCall, TensorMeta

_ELEMENTWISE = frozenset(
    ["relu", "gelu", "silu", "mish", "sigmoid", "tanh", "elu", "selu", "celu", "leaky_relu", "relu6", "hardswish",
     "hardsigmoid", "hardtanh", "logsigmoid", "softplus", "softsign", "tanhshrink", "softmax", "log_softmax",
     "softmin", "sin", "cos", "erf", "exp", "log", "sqrt", "rsqrt", "abs", "neg", "square", "reciprocal",
     "layer_norm", "rms_norm", "group_norm", "instance_norm", "batch_norm", "add", "sub"]
)  # fmt: skip
"""Ops that read every element of their first tensor and write as many."""
_REDUCTIONS = frozenset(["sum", "mean", "cumsum", "cumprod", "prod", "logsumexp", "norm", "var", "std"])
_PRODUCTS = frozenset(
    ["linear", "matmul", "mm", "bmm", "addmm", "baddbmm", "scaled_mm", "scaled_mm_v2", "int_mm"]
)
_ADDED = frozenset(["addmm", "baddbmm"])
_CONVOLUTIONS = frozenset(["conv1d", "conv2d", "conv3d"])
_ATTENTION = "scaled_dot_product_attention"


@dataclass(frozen=True, slots=True)
class Work:
    """What a call cannot do without."""

    nbytes: int = 0
    """Bytes that are read or written at least once."""
    flops: int = 0
    """Floating-point operations, a multiply-add being two."""
    dtype: str = "float32"
    """Type of the first tensor."""


def least(call: OpCall, tensors: Sequence[TensorMeta], outputs: Sequence[TensorMeta]) -> Work:
    """The least work of a call; outputs that share an argument's memory are left out."""
    word = call.op.rsplit(".", 1)[-1].lower().strip("_")
    written = _touched(outputs)
    if not call.op.startswith("torch.") or "@" in call.op or not tensors:
        return Work(written)
    first = tensors[0]
    if word in _ELEMENTWISE or word in _REDUCTIONS:
        return Work(_touched(tensors[:1]) + written, 0, first.dtype)
    if word in _PRODUCTS:
        factors = tensors[1:3] if word in _ADDED else tensors[:2]
        return Work(_touched(factors) + written, _product_flops(factors, outputs), first.dtype)
    if word in _CONVOLUTIONS and len(tensors) > 1 and outputs:
        return Work(_touched(tensors[1:2]) + written, _convolution_flops(tensors, outputs[0]), first.dtype)
    if word == _ATTENTION and len(tensors) >= 3 and outputs:
        return Work(_touched(tensors[:1]) + written, _attention_flops(call, tensors), first.dtype)
    return Work(written)


def _product_flops(factors: Sequence[TensorMeta], outputs: Sequence[TensorMeta]) -> int:
    """Operations of a matrix product, less what algorithms like Strassen's save: at no size in use a half.

    Equal rows of an expanded factor have equal products, which need not be computed twice.
    """
    if not outputs or any(not factor.shape or factor.is_expanded for factor in factors):
        return 0
    return outputs[0].numel * factors[0].shape[-1]


def _convolution_flops(tensors: Sequence[TensorMeta], output: TensorMeta) -> int:
    """One multiply-add a channel and output.

    Winograd's and Fourier's algorithms save products of the window, and none of the channels; outputs beyond as
    many as there are inputs may be of the padding alone.
    """
    data, weight = tensors[:2]
    if (
        len(weight.shape) < 3
        or len(data.shape) < len(weight.shape) - 1
        or data.is_expanded
        or weight.is_expanded
    ):
        return 0
    window = len(weight.shape) - 2
    places = min(math.prod(output.shape[-window:]), math.prod(data.shape[-window:]))
    return 2 * output.numel * places * weight.shape[1] // max(1, math.prod(output.shape[-window:]))


def _attention_flops(call: OpCall, tensors: Sequence[TensorMeta]) -> int:
    """Operations of both products, half of them for a causal mask; none with a mask, which may hide all keys."""
    given = {argument.name: argument.value for argument in call.arguments}
    query, key, value = tensors[:3]
    masked = "attn_mask" in given and given["attn_mask"].kind != "none"
    if masked or min(len(meta.shape) for meta in tensors[:3]) < 2:
        return 0
    if any(meta.is_expanded for meta in tensors[:3]):
        return 0
    keys = min(query.shape[-2], key.shape[-2])  # with a causal mask a query sees no more than come before it
    return math.prod(query.shape[:-1]) * keys * (query.shape[-1] + value.shape[-1])


def _touched(tensors: Sequence[TensorMeta]) -> int:
    return sum(meta.unique_nbytes for meta in tensors)
