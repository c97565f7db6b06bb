"""Lists the operators of ATen that do the same work, and those that do none.

Names are those of torch's schemas without underscores at either end, so that in-place and internal forms fall
together; operators that are not torch's go by their whole names, `namespace::name`. Versions of torch differ in what a function decomposes into, never much in these names.
"""

from __future__ import annotations

import re
from functools import lru_cache

from pytest_cgins.core.trace import OF_TORCH

_FAMILIES = {
    "contraction": r"((foreach_|sparse_|sparse_sampled_)?(mm|addmm)|smm|hspmm|sspaddmm|weight_int[48]pack_mm.*|bmm|baddbmm|addbmm|mv|addmv|dot|vdot|inner|matmul|"
    r"(mkl_|mkldnn_|q|fbgemm_|wrapped_(quantized_)?)?linear(_.+)?|addmm_activation|int_mm|scaled_mm.*|grouped_mm|addr|outer|ger|tensordot|kron|"
    r"scaled_grouped_mm.*|einsum|bilinear|trilinear|chain_matmul|(linalg_)?(multi_dot|vecdot|matmul)|"
    r"(cudnn_|mkldnn_|miopen_|nnpack_spatial_|slow_|thnn_|depthwise_|q)*conv(olution)?"
    r"(_?(transpose|depthwise|dilated|tbc|overrideable|mode|forward|backward|relu|add|pointwise|[123]d)(_out)?)*)",
    "normalisation": r"((native_|cudnn_|mkldnn_|miopen_|fused_)*(batch|layer|group|instance|rms)_norm(alization)?"
    r"(_legit.*|_no_update|_with_update.*|_backward.*|_impl_index.*)?|batch_norm_(elemt|stats|gather_stats.*|update_stats).*)",
    "softmax": r"((masked_|sparse_|special_)?(log_|safe_)?softmax(_backward(_data)?)?|(special_)?logsumexp)",
    "attention": r"(scaled_dot_product_.*|(cudnn_|flash_|efficient_)attention_(forward|backward).*|"
    r"native_multi_head_attention|transform_bias_rescale_qkv|multi_?head_attention_forward)",
    "pooling": r"((mkldnn_)?(adaptive_|fractional_)?(max|avg)_pool[123]d(_with_indices)?(_backward.*)?)",
    "recurrence": r"((cudnn_|mkldnn_)?(rnn|lstm|gru)(_tanh|_relu)?(_cell|_layer)?(_backward.*)?|thnn_fused_.*)",
}
"""Operators by what they compute, backward included: the expensive part of the ops that call them."""
_ALIKE = {
    "oneDNN's layout": r"to_mkldnn|mkldnn_reorder_.*",
    "relu": r"relu6?|threshold|hardtanh|leaky_relu|prelu(_kernel)?|rrelu(_with_noise)?",
    "add": r"(foreach_)?add|iadd|radd",
    "sub": r"(foreach_)?sub|subtract|rsub",
    "mul": r"(foreach_)?mul|multiply",
    "div": r"(foreach_)?div|divide|true_divide",
    "sum": r"sum|nansum|mean|nanmean|cumsum|segment_reduce",
    "relu_backward": r"(relu|threshold)_backward",
    "silu": r"silu|swish",
    "embedding": r"embedding|index_select|index|gather|take",
    "bag": r"embedding_bag(_forward_only)?",
    "solution": r"(linalg_|triangular_|cholesky_|lu_|ldl_)*(solve(_triangular|_ex)?|tensorsolve|lstsq)",
    "distance": r"cdist(_forward)?|euclidean_dist",
    "dropout": r"(native_|feature_|alpha_)?dropout",
    "nll_loss": r"cross_entropy(_loss)?|nll_loss(_nd|2d)?(_forward)?",
}
"""Light ones, which do an op's work if they are run on as much as it is."""
_PATTERNS = {name: re.compile(pattern) for name, pattern in (_FAMILIES | _ALIKE).items()}

INSTEAD = {
    "attention": ({"contraction", "softmax"},),
    "bag": ({"embedding"},),
    "contraction": ({"bag"}, {"recurrence"}, {"solution"}, {"distance"}),
    "embedding": ({"bag"},),
    "softmax": ({"attention"},),
    "sum": ({"contraction"}, {"bag"}, {"attention"}),
}
"""Families that together do a family's work: a weighted bag is a product, and a softmax is the attention to a unit matrix."""

_FREE = re.compile(
    r"(new_)?(empty|zeros|ones|full)(_like|_strided|_permuted)?|arange|range|eye|scalar_tensor|lift_fresh(_copy)?|"
    r"clone|copy|to_copy|to|contiguous|fill|zero|detach|alias|cat|stack|constant_pad_nd|resize(_as)?|set|"
    r"local_scalar_dense|item|is_.*|assert_.*|record_stream|pin_memory|(view|reshape|unsafe_view|reshape_alias)(_copy)?|"
    r"unsafe_(split|chunk).*|index_put|slice_scatter|select_scatter|as_strided(_copy)?|random|uniform|normal"
)


def plain(name: str) -> str:
    """A schema's name without namespace and outer underscores, `aten::_softmax` → `softmax`; others' stay whole."""
    namespace, _, short = name.rpartition("::")
    return short.strip("_") if namespace in OF_TORCH else name


@lru_cache(maxsize=8192)  # a kernel chooses the names of its own operators
def family(name: str) -> str:
    """What an operator, by its plain name, computes; its own name if that is in no table."""
    return next((label for label, pattern in _PATTERNS.items() if pattern.fullmatch(name)), name)


def is_heavy(name: str) -> bool:
    """Whether it is of a family whose work is heavy."""
    return family(name) in _FAMILIES


def is_free(name: str) -> bool:
    """Whether an operator only makes, moves or names memory."""
    return _FREE.fullmatch(name) is not None
