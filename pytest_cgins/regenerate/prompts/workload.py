"""What makes a kernel of one kind fast, by kind of op and language: short lists, with the numbers of the device at hand."""

from __future__ import annotations

from typing import Literal

from pytest_cgins.core.text import counted
from pytest_cgins.regenerate.prompts import blocks, languages
from pytest_cgins.regenerate.prompts.context import Context
from pytest_cgins.regenerate.prompts.definitions import word
from pytest_cgins.regenerate.prompts.hardware import Hardware
from pytest_cgins.regenerate.prompts.workload_advice import ADVICE, COMMON, SPELLED, Place

Family = Literal[
    "matmul", "convolution", "elementwise", "norm", "reduction", "attention", "embedding", "pooling", "fused"
]

_WORDS: dict[Family, frozenset[str]] = {
    "matmul": frozenset(
        [
            "matmul",
            "mm",
            "bmm",
            "mv",
            "dot",
            "addmm",
            "baddbmm",
            "addbmm",
            "addmv",
            "linear",
            "einsum",
            "inner",
            "bilinear",
        ]
    ),
    "attention": frozenset(["scaled_dot_product_attention", "multi_head_attention_forward"]),
    "norm": frozenset(
        [
            "layer_norm",
            "rms_norm",
            "group_norm",
            "batch_norm",
            "instance_norm",
            "local_response_norm",
            "normalize",
            "native_layer_norm",
            "layernorm",
            "rmsnorm",
            "groupnorm",
            "batchnorm1d",
            "batchnorm2d",
            "batchnorm3d",
        ]
    ),
    "reduction": frozenset(
        [
            "softmax",
            "log_softmax",
            "softmin",
            "sum",
            "mean",
            "prod",
            "amax",
            "amin",
            "max",
            "min",
            "argmax",
            "argmin",
            "var",
            "std",
            "var_mean",
            "std_mean",
            "norm",
            "logsumexp",
            "cumsum",
            "cumprod",
            "cross_entropy",
            "nll_loss",
            "mse_loss",
            "l1_loss",
            "smooth_l1_loss",
            "huber_loss",
            "kl_div",
            "binary_cross_entropy",
            "topk",
            "sort",
            "any",
            "all",
        ]
    ),
    "embedding": frozenset(
        [
            "embedding",
            "embedding_bag",
            "gather",
            "scatter",
            "scatter_add",
            "index_select",
            "index_add",
            "index_put",
            "take",
            "take_along_dim",
            "getitem",
            "one_hot",
        ]
    ),
    "pooling": frozenset(
        [
            "max_pool1d",
            "max_pool2d",
            "max_pool3d",
            "avg_pool1d",
            "avg_pool2d",
            "avg_pool3d",
            "adaptive_avg_pool1d",
            "adaptive_avg_pool2d",
            "adaptive_max_pool2d",
            "interpolate",
            "upsample",
        ]
    ),
}
# Words in the names of functions that are not torch's.
_HINTS: tuple[tuple[Family, tuple[str, ...]], ...] = (
    ("attention", ("attention", "attn")),
    ("convolution", ("conv",)),
    ("matmul", ("matmul", "gemm", "linear", "mlp", "ffw", "proj")),
    ("norm", ("norm",)),
    ("reduction", ("softmax", "loss", "entropy", "reduce", "sum", "mean")),
    ("embedding", ("embed", "gather", "lookup")),
    ("pooling", ("pool",)),
)


def family_of(op: str) -> Family:
    """By the last part of an op's name; that of a backward is its forward's."""
    last = word(op)
    for family, words in _WORDS.items():
        if last in words:
            return family
    if last.startswith(("conv", "convolution")) and op.startswith("torch."):
        return "convolution"
    if op.startswith("torch."):
        return "elementwise"
    return next((family for family, hints in _HINTS if any(hint in last for hint in hints)), "fused")


def families_of(op: str) -> tuple[Family, ...]:
    """With `fused` besides for functions of the user, which are made of several ops."""
    first = family_of(op)
    return (first,) if op.startswith("torch.") or first == "fused" else (first, "fused")


def described(context: Context) -> str:
    """Advice for one kernel on one device."""
    op = context.target.op
    place = place_of(context)
    lines = [*COMMON[place], *SPELLED.get(languages.of(context), ())]
    for family in families_of(op):
        lines += ADVICE[family][place]
    if "@backward" in op:
        lines += ADVICE["backward"][place]
    lines += _numbers(context.hardware)
    return blocks.section(
        f"What makes it fast ({', '.join(families_of(op))}, {place})", [blocks.bullets(lines)]
    )


def place_of(context: Context) -> Place:
    """Which list is read: CPU, CUDA C++, Triton, CuTe."""
    language = languages.of(context)
    if context.target.device == "cpu":
        return "cpu"
    return "triton" if language == "triton" else "cute" if language in ("cute", "cute-dsl") else "cuda"


def _numbers(it: Hardware) -> list[str]:
    """Arithmetic on what is known of the device."""
    said = []
    if it.device == "cuda" and it.sm_count:
        said.append(
            f"The GPU has {it.sm_count} SMs: fewer than {counted(it.sm_count, 'block leaves', 'blocks leave')} some idle; small "
            "grids want smaller tiles, or work split along the "
            "reduction (each part into scratch memory, then a second pass in a fixed order)."
        )
    if it.device == "cpu" and it.cores:
        said.append(
            f"{counted(it.cores, 'core')}: starting threads costs some microseconds, so small calls stay on one."
        )
    rates = [rate for name, rate in it.peak_flops_per_s.items() if name == "float32"]
    if it.peak_bytes_per_s and rates:
        said.append(
            f"Below {rates[0] / it.peak_bytes_per_s:.3g} fp32 operations a byte it is bound by "
            "memory: then only fewer and wider accesses help."
        )
    return said
