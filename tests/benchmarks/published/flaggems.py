"""FlagGems' functions, which have the signatures of the operators of ATen that they replace."""

from __future__ import annotations

import ast
import importlib.util
from pathlib import Path

from catalogue import booleans, integers, normal, replaces_aten, uniform


def _registered():
    """Names of operators and of the functions that replace them, as the package itself lists them."""
    spec = importlib.util.find_spec("flag_gems")
    tree = ast.parse(Path(spec.origin).read_text())
    enable = next(node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "enable")
    listed = max(
        (node for node in ast.walk(enable) if isinstance(node, ast.Tuple)), key=lambda node: len(node.elts)
    )
    return {pair.elts[0].value: ast.unparse(pair.elts[1]) for pair in listed.elts}


FUNCTIONS = _registered()
X, Y = normal(64, 512), normal(64, 512)
POSITIVE, COUNTS = uniform(64, 512), integers(100, 64, 512)
CALLS = {
    **{name: ((X,), {}) for name in (
        "abs", "neg", "exp", "exp2", "cos", "sin", "tanh", "sigmoid", "relu", "silu", "erf", "isnan", "isinf",
        "isfinite", "atan", "gelu", "elu", "celu", "softplus", "log_sigmoid", "nan_to_num", "all", "any", "amax",
        "sum", "mean", "max", "min", "argmax", "argmin", "count_nonzero", "triu", "trace", "logical_not",
    )},
    **{name: ((POSITIVE,), {}) for name in ("log", "sqrt", "rsqrt", "reciprocal")},
    **{name: ((X, Y), {}) for name in (
        "add.Tensor", "sub.Tensor", "mul.Tensor", "maximum", "minimum", "eq.Tensor", "ne.Tensor", "lt.Tensor",
        "le.Tensor", "gt.Tensor", "ge.Tensor", "mse_loss", "isclose", "silu_backward", "gelu_backward",
        "sigmoid_backward", "tanh_backward",
    )},
    **{name: ((booleans(64, 512), booleans(64, 512)), {}) for name in ("logical_and", "logical_or", "logical_xor")},
    **{name: ((COUNTS, COUNTS.flip(0)), {}) for name in ("bitwise_and.Tensor", "bitwise_or.Tensor")},
    "bitwise_not": ((COUNTS,), {}),
    "div.Tensor": ((X, POSITIVE), {}),
    "pow.Tensor_Scalar": ((POSITIVE, 1.5), {}),
    "pow.Tensor_Tensor": ((POSITIVE, Y), {}),
    "where.self": ((X > 0, X, Y), {}),
    "clamp": ((X, -0.5, 0.5), {}),
    "lerp.Scalar": ((X, Y, 0.3), {}),
    "addcmul": ((X, Y, POSITIVE), {"value": 0.5}),
    "addcdiv": ((X, Y, POSITIVE), {"value": 0.5}),
    "threshold": ((X, 0.1, 0.0), {}),
    "masked_fill.Scalar": ((X, X > 0, -1.0), {}),
    "_softmax": ((X, -1, False), {}),
    "_log_softmax": ((X, -1, False), {}),
    "cumsum": ((X, -1), {}),
    "sum.dim_IntList": ((X, [-1]), {}),
    "mean.dim": ((X, [-1]), {}),
    "max.dim": ((X, -1), {}),
    "min.dim": ((X, -1), {}),
    "var_mean.correction": ((X, [-1]), {"correction": 1}),
    "std.correction": ((X, [-1]), {"correction": 1}),
    "linalg_vector_norm": ((X,), {}),
    "sort": ((X,), {}),
    "topk": ((X, 8), {}),
    "flip": ((X, [0, 1]), {}),
    "tile": ((X, [2, 2]), {}),
    "repeat": ((X, [2, 2]), {}),
    "cat": (([X, Y], 1), {}),
    "stack": (([X, Y],), {}),
    "gather": ((X, 1, integers(512, 64, 32)), {}),
    "index_select": ((X, 0, integers(64, 16)), {}),
    "embedding": ((X, integers(64, 16)), {}),
    "glu": ((X, -1), {}),
    "mm": ((X, Y.t().contiguous()), {}),
    "addmm": ((normal(64), X, Y.t().contiguous()), {}),
    "bmm": ((normal(4, 32, 64), normal(4, 64, 32)), {}),
    "mv": ((X, normal(512)), {}),
    "dot": ((normal(512), normal(512)), {}),
    "native_layer_norm": ((X, [512], normal(512), normal(512), 1e-5), {}),
    "native_group_norm": ((normal(4, 32, 64), normal(32), normal(32), 4, 32, 64, 8, 1e-5), {}),
    "avg_pool2d": ((normal(2, 8, 32, 32), [2, 2]), {}),
    "upsample_nearest2d": ((normal(2, 8, 16, 16), [32, 32]), {}),
}  # fmt: skip

for operator, (arguments, keywords) in CALLS.items():
    if operator in FUNCTIONS:
        base, _, overload = operator.partition(".")
        replaces_aten(
            operator.strip("_").replace(".", "_"), f"flag_gems.ops:{FUNCTIONS[operator]}",
            f"{base}.{overload or 'default'}", *arguments, **keywords,
        )  # fmt: skip
