"""Which ops are recorded when none are named: those that compute, and that someone may write a kernel for.

Getters, views, factories, copies and comparisons are left out; so is dropout, whose kernel would have to
draw torch's own random numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch

from pytest_cgins.errors import RecordError

_FUNCTIONAL = """
linear bilinear embedding embedding_bag conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d
layer_norm group_norm batch_norm instance_norm rms_norm local_response_norm normalize
relu relu6 gelu silu mish elu selu celu leaky_relu prelu hardswish hardsigmoid hardtanh softplus softsign
logsigmoid glu softmax log_softmax scaled_dot_product_attention
max_pool1d max_pool2d max_pool3d avg_pool1d avg_pool2d avg_pool3d
adaptive_avg_pool1d adaptive_avg_pool2d adaptive_max_pool2d interpolate grid_sample pixel_shuffle
cross_entropy nll_loss mse_loss l1_loss smooth_l1_loss kl_div binary_cross_entropy_with_logits
cosine_similarity
"""
_ARITHMETIC = """
add sub mul div rsub addcmul addcdiv pow square neg abs exp exp2 expm1 log log2 log1p sqrt rsqrt reciprocal
sin cos tan tanh sigmoid erf lerp maximum minimum clamp
matmul mm bmm mv dot addmm addmv addbmm baddbmm einsum tensordot outer
sum mean var std prod amax amin argmax argmin logsumexp cumsum cumprod norm softmax log_softmax relu
topk sort layer_norm group_norm batch_norm instance_norm rms_norm prelu celu selu
conv1d conv2d conv3d max_pool1d max_pool2d max_pool3d
"""


_UNINITIALISED = frozenset(
    [
        "empty",
        "empty_like",
        "empty_strided",
        "empty_permuted",
        "new_empty",
        "new_empty_strided",
        "resize",
        "resize_as",
    ]
)


def refuse_uninitialised(name: str, func: object) -> None:
    """Raise RecordError for an op whose result is memory that nothing has been written to."""
    schema = getattr(func, "_schema", None)
    word = schema.name.rpartition("::")[2] if schema is not None else getattr(func, "__name__", "")
    if word.strip("_") in _UNINITIALISED:
        raise RecordError(
            f"{name} cannot be recorded: what it returns is not initialised, so that there is no gold",
            remedy="take it out of ops=[…], and record the ops that fill its result",
        )


def computing_words() -> frozenset[str]:
    """Names of the ops that compute, without their namespaces."""
    return frozenset(_FUNCTIONAL.split()) | frozenset(_ARITHMETIC.split())


@cache
def default_ops() -> frozenset[Callable[..., Any]]:
    """The callables, in the forms in which models reach them: function, method, operator, in place."""
    found: set[Callable[..., Any]] = set()
    for name in _FUNCTIONAL.split():
        found |= _forms(torch.nn.functional, name)
    for name in _ARITHMETIC.split():
        found |= _forms(torch, name) | _forms(torch.Tensor, name)
    return frozenset(found)


def _forms(namespace: object, name: str) -> set[Callable[..., Any]]:
    spellings = (name, f"{name}_", f"__{name}__", f"__r{name}__", f"__i{name}__")
    return {getattr(namespace, form) for form in spellings if hasattr(namespace, form)}
