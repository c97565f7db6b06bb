"""The bugs of the second list as edits: convolutions, pools, attention, losses, products, backwards.

Kernels of this list share headers, so most edits are made in a header.
"""

from __future__ import annotations

Edit = list[tuple[str, str]]

# bf16 is rounded to bf16 at every step; everything wider to fp16.
_ROUNDED = "Wide(std::conditional_t<(sizeof(T) > 2), cgins::float16, T>(float({0})))"
_SCALED = """#include "operations.h"

struct Scaled {
  double factor;
  template <typename Wide>
  CGINS_HOST_DEVICE Wide operator()(Wide x) const {
    return x * Wide(factor);
  }
};
"""
_SHORT_SINE = "{{ const {0} s = x * x; return x * (1 - s / 6 * (1 - s / 20 * (1 - s / 42))); }}"
_SILU = "return gate / (1 + std::exp(-gate)) * up;"
_ADDED_MASKS = """if (mask_type == cgins::Dtype::float32) return Wide(static_cast<const float*>(mask_data)[i]);
    return Wide(static_cast<const T*>(mask_data)[i]);"""

# Where the C++ and the CUDA kernel share the text, or a header, they share the edit.
BOTH: dict[str, Edit] = {
    "conv2d-padding-off-by-one": [
        ("column * stride[1] - padding[1]}", "column * stride[1] - padding[1] + 1}")
    ],
    "relu-leaks": [("return x < 0 ? Wide(0) : x;", "return x < 0 ? x / 100 : x;")],
    "add-subtracts": [("return a + Wide(alpha) * b;", "return a - Wide(alpha) * b;")],
    "dropout-scales-in-evaluation": [
        ('#include "operations.h"\n', _SCALED),
        ("double, bool training", "double p, bool training"),
        ("Copy{}", "Scaled{1 / (1 - p)}"),
    ],
    "seeded_dropout-unscaled": [("Wide(input[at[1]]) * scale", "Wide(input[at[1]])")],
    "max_pool2d-starts-at-zero": [("best = -INFINITY", "best = 0")],
    "max_pool2d-short-window": [("c < columns.end; c +=", "c < columns.end - 1; c +=")],
    "conv_relu_pool-no-relu": [("Relu{}", "Copy{}")],
    "scaled_dot_product_attention-ignores-mask": [(_ADDED_MASKS, "return Wide(0);")],
    "scaled_dot_product_attention-causal-off-by-one": [
        ("causal && k > q)", "causal && k > q + 1)"),
        (
            "one_head ? first % queries + count : queries;",
            "(one_head ? first % queries + count : queries) + 1;",
        ),
    ],
    "apply_rotary-wrong-sign": [("- right * Wide(sin[i])", "+ right * Wide(sin[i])")],
    "apply_rotary-swapped-tables": [
        (
            "cos(cgins::data<T>(cosines)), sin(cgins::data<T>(sines))",
            "cos(cgins::data<T>(sines)), sin(cgins::data<T>(cosines))",
        )
    ],
    "silu_mul-sigmoid-for-silu": [(_SILU, "return 1 / (1 + std::exp(-gate)) * up;")],
    "silu_mul-swapped": [(_SILU, "return up / (1 + std::exp(-up)) * gate;")],
    "sin-short-polynomial": [
        ("{ return sinf(x); }", _SHORT_SINE.format("float")),
        ("{ return sin(x); }", _SHORT_SINE.format("double")),
    ],
    "sin-cosine": [("return sinf(x);", "return cosf(x);"), ("return sin(x);", "return cos(x);")],
    "gelu_backward-tanh-for-erf": [("if (!tanh_form) {", "if (false) {")],
    "gelu_backward-missing-density": [("return grad * (cdf + x * density);", "return grad * cdf;")],
    "relu_backward-passes-all": [("return x <= 0 ? Wide(0) : grad;", "return grad;")],
}

# The products of gemm.h; whoever calls them has to name T.
PANELS_IN_HALF: Edit = [
    ("template <typename Wide>\n__attribute__", "template <typename T, typename Wide>\n__attribute__"),
    (
        "total[r][c] += a[r * depth + k] * b[k * kColumns + c];",
        f"total[r][c] = {_ROUNDED.format('total[r][c] + a[r * depth + k] * b[k * kColumns + c]')};",
    ),
]
_FILTERS_BIAS_CPP: Edit = [("if (bias) shifts = widened<T>(bias);", "")]
_FILTERS_BIAS_CUDA: Edit = [("bias ? Wide(bias[group * conv.filters + filter]) : Wide(0)", "Wide(0)")]

CPP: dict[str, Edit] = {
    **BOTH,
    "conv2d-ignores-bias": _FILTERS_BIAS_CPP,
    "conv_relu_pool-ignores-bias": _FILTERS_BIAS_CPP,
    "conv2d-last-input-channel": [
        ("++c) patches[", "++c) if (k < depth - conv.kernel_height * conv.kernel_width) patches[")
    ],
    "conv2d-half-accumulation": [
        *PANELS_IN_HALF,
        ("multiply_panel(rows.data()", "multiply_panel<T>(rows.data()"),
    ],
    "batch_norm-missing-eps": [("(running_var)[c]) + Wide(eps))", "(running_var)[c]))")],
    "batch_norm-ignores-bias": [("bias ? Wide(cgins::data<T>(bias)[c]) : Wide(0)", "Wide(0)")],
    "batch_norm-ignores-mean": [("mean[c] = Wide(cgins::data<T>(running_mean)[c]);", "mean[c] = 0;")],
    "relu-unwritten-tail": [
        (
            "{ y[at[0]] = T(function(cgins::accumulator<T>(x[at[1]]))); }",
            "{ if (at[0] < cgins::numel(out) - 1) y[at[0]] = T(function(cgins::accumulator<T>(x[at[1]]))); }",
        )
    ],
    # Offsets are wrapped, so that the wrong read stays within the operand.
    "add-ignores-broadcast": [("Wide(b[at[2]])", "Wide(b[at[0] % cgins::numel(right)])")],
    "seeded_dropout-ignores-seed": [("hash(uint32_t(seed), uint32_t(at[2]))", "hash(0, uint32_t(at[2]))")],
    "scaled_dot_product_attention-unscaled": [
        ("Wide(q[c * a.query.column]) * Wide(a.scale)", "Wide(q[c * a.query.column])")
    ],
    "scaled_dot_product_attention-no-max-subtraction": [
        ("std::max(before, *std::max_element(score.begin(), score.begin() + count))", "0")
    ],
    "embedding-next-row": [
        (
            "index[cgins::offset_of(input, i)] * weight->strides[0]",
            "(index[cgins::offset_of(input, i)] + 1) % weight->shape[0] * weight->strides[0]",
        )
    ],
    "embedding-unwritten-last-column": [
        ("std::copy_n(x, width, y)", "std::copy_n(x, width - 1, y)"),
        ("c < width; ++c)", "c < width - 1; ++c)"),
    ],
    "cross_entropy-no-max-subtraction": [("std::fmax(largest, Wide(x[i * step]))", "0")],
    "cross_entropy-drops-last-class": [("i < width; ++i) sum +=", "i < width - 1; ++i) sum +=")],
    "cross_entropy-sums": [("reduce == Reduction::mean ? sum / counted : sum", "sum")],
    "matmul-tail-off-by-one": [("k < depth; ++k)", "k < depth - 1; ++k)")],
    "matmul-first-batch": [("other + matrix[2] + first", "other + first")],
    "matmul-ignores-stride": [
        ("first * p.other_column", "first"),
        ("y[k * p.other_row + c * p.other_column]", "y[k * p.columns + c]"),
    ],
    "layer_norm_backward-missing-mean": [("g - sum / width - normal", "g - normal")],
    "layer_norm_backward-last-row": [("weight_sum[i] +=", "if (row < in.count - 1) weight_sum[i] +=")],
}

CUDA: dict[str, Edit] = {
    **BOTH,
    "conv2d-ignores-bias": _FILTERS_BIAS_CUDA,
    "conv_relu_pool-ignores-bias": _FILTERS_BIAS_CUDA,
    "conv2d-last-input-channel": [
        (
            "const int64_t depth = conv.taps(), pixels",
            "const int64_t depth = conv.taps() - conv.kernel_height * conv.kernel_width, pixels",
        )
    ],
    "conv2d-half-accumulation": [
        (
            "template <typename Wide>\n__device__ void multiply_tiles",
            "template <typename T, typename Wide>\n__device__ void multiply_tiles",
        ),
        ("multiply_tiles(tiles, sum);", "multiply_tiles<T>(tiles, sum);"),
        ("sum[r][c] += a[r] * b[c];", f"sum[r][c] = {_ROUNDED.format('sum[r][c] + a[r] * b[c]')};"),
    ],
    "batch_norm-missing-eps": [("sqrt(Wide(var[c]) + Wide(eps))", "sqrt(Wide(var[c]))")],
    "batch_norm-ignores-bias": [("bias ? Wide(bias[c]) : Wide(0)", "Wide(0)")],
    "batch_norm-ignores-mean": [("Wide(input[at[1]]) - Wide(mean[c])", "Wide(input[at[1]])")],
    "relu-unwritten-tail": [
        (
            "y[at[0]] = T(function(cgins::accumulator<T>(x[at[1]])));",
            "if (i < elements.count - 1) y[at[0]] = T(function(cgins::accumulator<T>(x[at[1]])));",
        )
    ],
    "add-ignores-broadcast": [
        (
            "Elements<3> elements, Function function) {",
            "Elements<3> elements, Function function, int64_t size) {",
        ),
        ("Wide(b[at[2]])", "Wide(b[at[0] % size])"),
        ("(y, a, b, all, function)", "(y, a, b, all, function, cgins::numel(right))"),
    ],
    "seeded_dropout-ignores-seed": [("hash(seed, uint32_t(at[2]))", "hash(0, uint32_t(at[2]))")],
    "scaled_dot_product_attention-unscaled": [("float(*from) * float(a.scale)", "float(*from)")],
    "scaled_dot_product_attention-no-max-subtraction": [
        ("fmaxf(before, warp_reduce(score, [](float x, float y) { return fmaxf(x, y); }))", "0.0f")
    ],
    "embedding-next-row": [("index * table.stride[0]", "(index + 1) % table.count * table.stride[0]")],
    "embedding-unwritten-last-column": [("c < out.width; c += 32", "c < out.width - 1; c += 32")],
    "cross_entropy-no-max-subtraction": [("fmax(largest, Wide(x[i * rows.step]))", "0")],
    "cross_entropy-drops-last-class": [
        ("i < rows.width; i += kThreads) sum +=", "i < rows.width - 1; i += kThreads) sum +=")
    ],
    "cross_entropy-sums": [("mean ? sum / counted : sum", "sum")],
    "matmul-tail-off-by-one": [("l < p.depth ? Wide(other", "l < p.depth - 1 ? Wide(other")],
    "matmul-first-batch": [("other += matrix[2], ", "")],
    "matmul-ignores-stride": [
        ("other[l * p.other_row + column * p.other_column]", "other[l * p.columns + column]")
    ],
    "layer_norm_backward-missing-mean": [("Wide(weight[i]) - sum - normal", "Wide(weight[i]) - normal")],
    "layer_norm_backward-last-row": [("weight_sum += dy", "if (row < in.count - 1) weight_sum += dy")],
}
