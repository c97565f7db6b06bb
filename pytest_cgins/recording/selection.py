"""Which ops are recorded when none are named: those that compute, and that someone may write a kernel for.

Getters, views, factories, copies and comparisons are left out; so is dropout, whose kernel would have to
draw torch's own random numbers. What works in place is asked of torch itself, so that an op of a later version
is recorded too: it computes unless it is listed as one that does not.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch

from pytest_cgins.core.errors import RecordError

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
index_add index_copy index_put index_reduce scatter scatter_add scatter_reduce
"""
_NOT_COMPUTED_IN_PLACE = """
as_strided squeeze unsqueeze swapaxes swapdims t transpose mkldnn_transpose
set resize resize_as resize_as_sparse sparse_resize sparse_resize_and_clear detach requires_grad rename share_memory
copy fill zero
bernoulli cauchy exponential geometric log_normal normal random uniform rrelu
dropout alpha_dropout feature_dropout feature_alpha_dropout
eq ge greater greater_equal gt le less less_equal lt ne not_equal logical_and logical_not logical_or logical_xor
apply map map2
"""
"""Views, changes of the tensor object, copies and fills, random numbers, comparisons, and Python applied to each element."""
_IN_PLACE_OPERATORS = "__iand__ __ior__ __ixor__ __ilshift__ __irshift__ __ifloordiv__ __imod__"
"""Those whose plain forms, which mostly make masks and indices, are not recorded."""


_UNINITIALISED = frozenset(
    [
        "empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided", "resize",
        "resize_as",
    ]
)  # fmt: skip


def refuse_uninitialised(name: str, func: object) -> None:
    """Raise RecordError for an op whose result is memory that nothing has been written to."""
    schema = getattr(func, "_schema", None)
    word = schema.name.rpartition("::")[2] if schema is not None else getattr(func, "__name__", "")
    if word.strip("_") in _UNINITIALISED:
        raise RecordError(
            f"{name} cannot be recorded: its result is uninitialised memory, so there is no gold",
            remedy="take it out of ops=[…], and record the ops that fill its result",
        )


def computes(name: str) -> bool:
    """Whether an op of ATen is one that computes, by its name without the namespace: `gelu`, `index_add_`."""
    word = name.strip("_")
    return word in _words() or (name.endswith("_") and word in _in_place_words())


@cache
def _words() -> frozenset[str]:
    return frozenset(_FUNCTIONAL.split()) | frozenset(_ARITHMETIC.split())


@cache
def _in_place_words() -> frozenset[str]:
    names = {name for namespace in (torch.Tensor, torch, torch.nn.functional) for name in dir(namespace)}
    words = {name[:-1] for name in names if name.endswith("_") and not name.startswith("_")}
    return frozenset(words.difference(_NOT_COMPUTED_IN_PLACE.split()))


@cache
def default_ops() -> frozenset[Callable[..., Any]]:
    """The callables, in the forms in which models reach them: function, method, operator, in place."""
    found: set[Callable[..., Any]] = set()
    for name in _FUNCTIONAL.split():
        found |= _forms(torch.nn.functional, name)
    for name in _ARITHMETIC.split():
        found |= _forms(torch, name) | _forms(torch.Tensor, name)
    in_place = [f"{name}_" for name in _in_place_words()] + _IN_PLACE_OPERATORS.split()
    for namespace in (torch.nn.functional, torch, torch.Tensor):
        found |= {getattr(namespace, name) for name in in_place if hasattr(namespace, name)}
    return frozenset(found)


def _forms(namespace: object, name: str) -> set[Callable[..., Any]]:
    spellings = (name, f"{name}_", f"__{name}__", f"__r{name}__", f"__i{name}__")
    return {getattr(namespace, form) for form in spellings if hasattr(namespace, form)}
