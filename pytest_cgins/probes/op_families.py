"""Which operators of ATen do the same work, and which do none.

Names are those of torch's schemas without underscores at either end, so that in-place and internal forms fall
together; operators that are not torch's go by their whole names, `namespace::name`. Versions of torch differ in what a function decomposes into, never much in these names.
"""

from __future__ import annotations

import re

_FAMILIES = {
    "matrix product": r"((foreach_|sparse_|sparse_sampled_)?(mm|addmm)|smm|hspmm|sspaddmm|weight_int[48]pack_mm.*|bmm|baddbmm|addbmm|mv|addmv|dot|vdot|inner|matmul|linear|linear_backward|"
    r"mkl_linear|mkldnn_linear.*|linear_pointwise.*|addmm_activation|int_mm|scaled_mm.*|grouped_mm|"
    r"scaled_grouped_mm.*|einsum|bilinear|trilinear)",
    "convolution": r"(cudnn_|mkldnn_|miopen_|nnpack_spatial_|slow_|thnn_|depthwise_)*conv(olution)?"
    r"(_?(transpose|depthwise|dilated|tbc|overrideable|mode|forward|backward|relu|add|pointwise|[123]d)(_out)?)*",
    "normalisation": r"((native_|cudnn_|mkldnn_|miopen_|fused_)*(batch|layer|group|instance|rms)_norm(alization)?"
    r"(_legit.*|_no_update|_with_update.*|_backward.*|_impl_index.*)?|batch_norm_(elemt|stats|gather_stats.*|update_stats).*)",
    "softmax": r"((masked_|sparse_|special_)?(log_|safe_)?softmax(_backward(_data)?)?)",
    "attention": r"(scaled_dot_product_.*|(cudnn_|flash_|efficient_)attention_(forward|backward).*|"
    r"native_multi_head_attention|transform_bias_rescale_qkv)",
    "pooling": r"((mkldnn_)?(adaptive_|fractional_)?(max|avg)_pool[123]d(_with_indices)?(_backward.*)?)",
    "recurrence": r"((cudnn_|mkldnn_)?(rnn|lstm|gru)(_cell|_layer)?(_backward.*)?|thnn_fused_.*)",
}
"""By what they compute, backwards included."""
_PATTERNS = {name: re.compile(pattern) for name, pattern in _FAMILIES.items()}

INSTEAD = {
    "attention": ({"matrix product", "softmax"},),
    "convolution": ({"im2col", "matrix product"},),
}
"""Families that together do a family's work."""

_FREE = re.compile(
    r"(new_)?(empty|zeros|ones|full)(_like|_strided|_permuted)?|arange|range|eye|scalar_tensor|lift_fresh(_copy)?|"
    r"clone|copy|to_copy|to|contiguous|fill|zero|detach|alias|cat|stack|constant_pad_nd|resize(_as)?|set|"
    r"local_scalar_dense|item|is_.*|assert_.*|record_stream|pin_memory|(view|reshape|unsafe_view|reshape_alias)(_copy)?|"
    r"unsafe_(split|chunk).*|index_put|slice_scatter|select_scatter|as_strided(_copy)?|random|uniform|normal"
)
SMALL = frozenset({"add", "sum", "mul"})
"""What stands beside a family's operator without making another op of it: a bias, its gradient."""


OF_TORCH = frozenset(
    {
        "",
        "aten",
        "mkl",
        "mkldnn",
        "mkldnn_prepacked",
        "onednn",
        "prim",
        "prims",
        "quantized",
        "_quantized",
        "sparse",
    }
)
"""Namespaces of torch's own operators; in all others a name says nothing about the work."""


def plain(name: str) -> str:
    """A schema's name without namespace and outer underscores, `aten::_softmax` → `softmax`; others' stay whole."""
    namespace, _, short = name.rpartition("::")
    return short.strip("_") if namespace in OF_TORCH else name


def family(name: str) -> str:
    """What an operator, by its plain name, computes; its own name if that is in no table."""
    return next((label for label, pattern in _PATTERNS.items() if pattern.fullmatch(name)), name)


def is_tabled(name: str) -> bool:
    """Whether it is of a family with other members."""
    return family(name) in _PATTERNS


def is_free(name: str) -> bool:
    """Whether an operator only makes, moves or names memory."""
    return _FREE.fullmatch(name) is not None
