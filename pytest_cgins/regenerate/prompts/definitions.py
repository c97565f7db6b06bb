"""What an op computes: torch's by a sentence, a user's by its source, a backward by what goes in and comes out."""

from __future__ import annotations

import ast
from pathlib import Path

from pytest_cgins.building.contracts import torch_schema
from pytest_cgins.core import syntax
from pytest_cgins.regenerate.prompts import blocks
from pytest_cgins.regenerate.prompts.context import Context, relative

_MOST_SOURCE = 6000
_MOST_DOC = 1500
_MOST_HELPERS = 8

SENTENCES = {
    "relu": "max(x, 0), element by element; NaN stays NaN.",
    "gelu": ("x·Φ(x) = 0.5·x·(1 + erf(x/√2)) for approximate='none'; 0.5·x·(1 + tanh(√(2/π)·(x + "
        "0.044715·x³))) for 'tanh'."),
    "silu": "x · sigmoid(x) = x / (1 + exp(-x)).",
    "sigmoid": "1 / (1 + exp(-x)).",
    "tanh": "tanh, element by element.",
    "sin": "sin, element by element; arguments may be large, so that range reduction matters.",
    "add": "input + alpha · other, with broadcasting; other may be a tensor or a number.",
    "sub": "input - alpha · other, with broadcasting.",
    "mul": "input · other, with broadcasting.",
    "div": "input / other, with broadcasting; rounding_mode None, 'trunc' or 'floor'.",
    "softmax": ("over `dim`: exp(x - max) / Σ exp(x - max). dtype, if given, is the type that input is cast to "
        "first, and the output's."),
    "log_softmax": "over `dim`: x - max - log Σ exp(x - max).",
    "layer_norm": "over the last len(normalized_shape) dimensions: (x - mean) / sqrt(var + eps) · weight + bias, "
        "biased variance; "
    "weight and bias may be None.",
    "rms_norm": ("over the last len(normalized_shape) dimensions: x / sqrt(mean(x²) + eps) · weight; eps None is "
        "the dtype's epsilon."),
    "group_norm": "input (N, C, …): in each sample and group of C/num_groups channels (x - mean) / sqrt(var + "
        "eps), biased variance; "
    "then · weight + bias by channel.",
    "batch_norm": "input (N, C, …), by channel: (x - mean) / sqrt(var + eps) · weight + bias. training=False: mean "
        "and var are "
    "running_mean and running_var. training=True: those of the batch (biased for the norm), and the "
        "running ones, if given, become "
    "(1 - momentum)·running + momentum·batch, with the unbiased variance.",
    "linear": ("input @ weight.T + bias over the last dimension: input (…, K), weight (N, K), bias (N) or None, "
        "output (…, N)."),
    "matmul": "matrix product with torch's rules: 1-D · 1-D is a dot product, a 1-D factor gets a dimension "
        "that is dropped again, "
    "leading dimensions are batches and broadcast.",
    "mm": "matrix product (M, K) @ (K, N).",
    "bmm": "batched matrix product (B, M, K) @ (B, K, N).",
    "addmm": "beta · input + alpha · (mat1 @ mat2), input broadcast to (M, N); beta = 0 ignores input, NaN included.",
    "conv2d": "cross-correlation: input (N, C, H, W), weight (F, C/groups, kh, kw), bias (F) or None; "
        "out[n,f,y,x] = bias[f] + "
    "Σ_c,i,j input[n, c, y·stride - padding + i·dilation, x·stride - padding + j·dilation] · "
        "weight[f, c, i, j], zeros outside; group g "
    "of the output channels sees group g of the input channels. stride, padding, dilation: one "
        "number for both or (vertical, horizontal).",
    "conv1d": "cross-correlation as conv2d, in one dimension: input (N, C, L), weight (F, C/groups, k).",
    "max_pool2d": "maximum over windows of input (N, C, H, W) or (C, H, W); stride None or empty is kernel_size; "
        "padding counts as -inf; "
    "size floor((H + 2p - d(k-1) - 1)/s) + 1, with ceil_mode ceil, where the last window must begin "
        "inside input or left padding. "
    "A NaN in the window is the result.",
    "avg_pool2d": ("mean over windows of input (N, C, H, W); count_include_pad says whether padding counts in the "
        "divisor."),
    "adaptive_avg_pool2d": "mean over windows that divide H×W into output_size: rows floor(i·H/h) to ceil((i+1)·H/h).",
    "embedding": "rows of weight (V, D) by index: out[…, :] = weight[input[…], :]. padding_idx matters to the "
        "gradient only. Indices are int32 "
    "or int64. A copy, bit for bit.",
    "gather": "out[i][j][k] = input[index[i][j][k]][j][k] for dim 0, alike for others.",
    "index_select": "rows of input along `dim`, by index.",
    "scaled_dot_product_attention": "softmax(query @ keyᵀ · scale + mask) @ value over the last two dimensions. query (…, H, L, E), "
        "key "
    "(…, Hkv, S, E), value (…, Hkv, S, Ev). scale None is 1/√E. A bool attn_mask lets through where "
        "True, a float one is added; both broadcast to "
    "(…, L, S). is_causal: query i sees keys j ≤ i (counted from the upper left). enable_gqa: query "
        "head h uses key and value head h // (H / Hkv). "
    "A row that sees nothing gives 0.",
    "cross_entropy": "input (N, C) or (N, C, …), target class indices (or probabilities): "
        "-weight[t]·log_softmax(input)[t], with "
    "label_smoothing ε: (1-ε) of that plus ε/C times the sum over classes. Targets equal to "
        "ignore_index give 0. reduction 'mean' divides the sum by "
    "the (weighted) number of targets that are not ignored, 'sum', 'none'.",
    "nll_loss": ("-weight[t]·input[…, t] for each target t, targets equal to ignore_index left out; reduction as "
        "in cross_entropy."),
    "mse_loss": "mean (reduction 'mean'), sum or elements of (input - target)².",
    "dropout": ("training=False or p=0: input as it is. training=True: each element is 0 with probability p, "
        "else x / (1 - p)."),
    "sum": "sum over `dim` (all without), in fp32 or wider for narrow types; keepdim keeps dimensions of size 1.",
    "mean": "mean over `dim` (all without); keepdim keeps dimensions of size 1.",
    "cumsum": "running sum along `dim`.",
    "cat": "tensors one after the other along `dim`.",
}  # fmt: skip
"""By the last part of an op's name without a trailing `_`."""


def described(context: Context) -> str:
    """The op in words or in its own source."""
    op = context.target.op
    forward, _, rest = op.partition("@backward(")
    parts = [f"Op: {blocks.code(op)}."]
    if rest:
        parts.append(_backward(forward, [name.strip() for name in rest.rstrip(")").split(",")]))
    parts.append(_forward(context, forward))
    if _in_place(forward):
        parts.append("It works in place: the first argument is changed, and is the result.")
    return blocks.section("What it computes", parts)


def word(op: str) -> str:
    """Last part of an op's name, small letters, without a trailing `_`: `relu` of `torch.nn.functional.relu_`."""
    parts = op.partition("@")[0].split(".")
    last = parts[3] if parts[:2] == ["torch", "ops"] and len(parts) > 3 else parts[-1]
    return last.lower().rstrip("_")


def _in_place(op: str) -> bool:
    return op.startswith("torch.") and op.endswith("_") and not op.endswith("__")


def _backward(forward: str, names: list[str]) -> str:
    several = f"({', '.join(f'grad_{name}' for name in names)})" if len(names) > 1 else f"grad_{names[0]}"
    return (
        f"It is the gradient of {blocks.code(forward)}: the arguments are what autograd hands to the "
        "op's output, `grad_output` (of several outputs "
        "`grad_outputs.0`, …, and None for one that nothing was asked of), and then the op's own "
        "arguments. Returned are the gradients "
        f"{blocks.code(several)} of a scalar L with ∂L/∂output = grad_output, in that order, each of "
        "its argument's shape and dtype. Nothing "
        "is saved by the forward: recompute what is needed. Gradients of arguments that were "
        "broadcast or shared by rows (weight, bias) are sums "
        "over them, in a fixed order."
    )


def _forward(context: Context, op: str) -> str:
    if op.startswith("torch."):
        known = SENTENCES.get(word(op))
        # A module of torch.nn has its functional namesake's words, and arguments of its own.
        if known and (not op.startswith("torch.nn.") or op.startswith("torch.nn.functional.")):
            return f"Definition: {known}"
        said = torch_schema.documentation(op)
        return blocks.data("torch's documentation", blocks.head(said.strip(), _MOST_DOC)) if said else ""
    return _users(context, op)


def _users(context: Context, op: str) -> str:
    """Source of a function or module of the project, found without importing it."""
    found = find(context.config.root, op)
    if found is None:
        return "Its definition was not found among the project's files; the recorded calls are all that is known."
    file, text = found
    shown = blocks.source(relative(file, context.top), blocks.head(text, _MOST_SOURCE), "python")
    return (
        "It is a function or module of the project, to be computed as one fused kernel. Its source "
        f"(data; the reference, not to be called):\n{shown}"
    )


def find(root: Path, op: str) -> tuple[Path, str] | None:
    """File and source of a qualified name in a project, with the helpers of the same file that it uses."""
    parts = op.split(".")
    for depth in range(len(parts) - 1, 0, -1):
        if not all(part.isidentifier() for part in parts):
            return None
        place = root.joinpath(*parts[:depth])
        for file in (place.with_suffix(".py"), place / "__init__.py"):
            if file.is_file():
                text = _definition(file, parts[depth:])
                if text:
                    return file, text
    return None


def _definition(file: Path, names: list[str]) -> str:
    try:
        text = file.read_text(encoding="utf-8")
        tree = syntax.module(text)
    except (OSError, ValueError, SyntaxError, RecursionError, MemoryError):
        return ""
    named = _top_level(tree)
    if names[0] not in named:
        return ""
    wanted = {names[0]: None}
    todo = [named[names[0]]]
    while todo and len(wanted) <= _MOST_HELPERS:
        for node in ast.walk(todo.pop(0)):
            if isinstance(node, ast.Name) and node.id in named and node.id not in wanted:
                wanted[node.id] = None
                todo.append(named[node.id])
    kept = sorted({id(named[name]): named[name] for name in wanted}.values(), key=lambda node: node.lineno)
    lines = text.splitlines()
    return "\n\n".join("\n".join(lines[_first(node) - 1 : node.end_lineno]) for node in kept)


def _first(node: ast.stmt) -> int:
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    return min([node.lineno, *(one.lineno for one in decorators)])


def _top_level(tree: ast.Module) -> dict[str, ast.stmt]:
    """Functions, classes and constants of a module by name."""
    found: dict[str, ast.stmt] = {}
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            found[node.name] = node
        elif isinstance(node, ast.Assign):
            found.update({target.id: node for target in node.targets if isinstance(target, ast.Name)})
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            found[node.target.id] = node
    return found
