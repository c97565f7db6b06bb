"""The bugs of `bugs.yaml` as edits of the example kernels, C++ and CUDA.

An edit is a list of (old text, new text); each old text must occur exactly once in the kernel, or the
example was rewritten and the edit has to follow.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

KERNELS = Path(__file__).parents[2] / "example_project" / "kernels"
HEADERS = ("rows.h", "reduce.cuh")

Edit = list[tuple[str, str]]

_ROUNDED = "std::conditional_t<(sizeof(T) > 2), cgins::float16, T>"
_TAIL = "({0} < {1} / 16 * 16 || {1} < 16 ? {0} : {1} / 16 * 16 - 1)"
_CPP_TAIL = _TAIL.format("n", "columns.count")
_SQUARE = "sum += Wide(x[i * in.step]) * Wide(x[i * in.step]);"
_CENTERED = """const Wide centered = Wide(x[i * in.step]) - mean;
{0}variance += centered * centered;"""
_UNCENTERED = "variance += Wide(x[i * in.step]) * Wide(x[i * in.step]);"

# Where the C++ and the CUDA kernel share the text, they share the edit.
BOTH: dict[str, Edit] = {
    "layer_norm-missing-eps": [("sqrt(variance + Wide(eps))", "sqrt(variance)")],
    "layer_norm-ignores-bias": [("if (bias) value += Wide(bias[i]);", "")],
    "layer_norm-ignores-weight": [("if (weight) value *= Wide(weight[i]);", "")],
    "gelu-tanh-for-erf": [("const Wide inner = tanh_form ?", "const Wide inner = true ?")],
    "softmax-no-max-subtraction": [
        ("fmax(largest, Wide(x[i * in.step]))", "fmax(largest, Wide(0))"),
    ],
    "softmax-wrong-axis": [
        ("rows_along(input, dim)", "rows_along(input, -1)"),
        ("rows_along(out, dim)", "rows_along(out, -1)"),
    ],
    "rms_norm-missing-eps": [("/ in.width + Wide(eps)", "/ in.width")],
    "rms_norm-first-row-statistic": [(_SQUARE, _SQUARE.replace("x[", "input[in.start(0) + "))],
}

CPP: dict[str, Edit] = {
    **BOTH,
    "linear-tail-off-by-one": [("k < width; ++k) sum +=", "k < width - 1; ++k) sum +=")],
    "linear-ignores-bias": [("if (bias) sum += Wide(bias[n]);", "")],
    "linear-ignores-stride": [
        ("widen(input + in.start(row), in.step, width,", "widen(input + row * width, 1, width,")
    ],
    "linear-unwritten-last-row": [
        (
            "row < in.count; ++row) {\n        const Wide* x",
            "row < in.count - 1; ++row) {\n        const Wide* x",
        )
    ],
    "linear-half-accumulation": [
        ("#pragma omp simd reduction(+ : sum)\n", ""),
        ("sum += x[k] * w[k];", f"sum = Wide({_ROUNDED}(float(sum + x[k] * w[k])));"),
    ],
    "linear-weight-transposed": [
        ("widen(weight + columns.start(n), columns.step, width,", "widen(weight + n, columns.count, width,")
    ],
    "linear-column-tail": [
        ("weight + columns.start(n)", f"weight + columns.start{_CPP_TAIL}"),
        ("Wide(bias[n])", f"Wide(bias[{_CPP_TAIL}])"),
    ],
    "layer_norm-unbiased-variance": [("variance /= in.width;", "variance /= in.width - 1;")],
    "layer_norm-one-pass-variance": [
        (_CENTERED.format("      "), _UNCENTERED),
        ("variance /= in.width;", "variance = variance / in.width - mean * mean;"),
    ],
    "layer_norm-eps-outside-root": [
        ("1 / std::sqrt(variance + Wide(eps))", "1 / (std::sqrt(variance) + Wide(eps))")
    ],
    "gelu-unwritten-tail": [("i < count; ++i", "i < count - 1; ++i")],
    "softmax-drops-last-term": [("i < in.width; ++i) sum +=", "i < in.width - 1; ++i) sum +=")],
}

CUDA: dict[str, Edit] = {
    **BOTH,
    "linear-tail-off-by-one": [
        ("row_inside && k < in.width ? Wide(x_row", "row_inside && k < in.width - 1 ? Wide(x_row")
    ],
    "linear-ignores-bias": [("if (bias) sum += Wide(bias[column]);", "")],
    "linear-ignores-stride": [
        ("input + in.start(row) : nullptr", "input + row * in.width : nullptr"),
        ("x_row[k * in.step]", "x_row[k]"),
    ],
    "linear-unwritten-last-row": [
        ("if (!row_inside || column >= columns.count)", "if (row >= in.count - 1 || column >= columns.count)")
    ],
    "linear-half-accumulation": [
        (
            "sum += x[threadIdx.y][i] * w[threadIdx.x][i];",
            f"sum = Wide({_ROUNDED}(float(sum + x[threadIdx.y][i] * w[threadIdx.x][i])));",
        )
    ],
    "linear-weight-transposed": [
        ("weight + columns.start(loaded)", "weight + loaded"),
        ("w_row[k * columns.step]", "w_row[k * columns.count]"),
    ],
    "linear-column-tail": [
        (
            "weight + columns.start(loaded)",
            f"weight + columns.start{_TAIL.format('loaded', 'columns.count')}",
        ),
        ("Wide(bias[column])", f"Wide(bias[{_TAIL.format('column', 'columns.count')}])"),
    ],
    "layer_norm-unbiased-variance": [
        ("variance = block_sum(variance) / in.width;", "variance = block_sum(variance) / (in.width - 1);")
    ],
    "layer_norm-one-pass-variance": [
        (_CENTERED.format("    "), _UNCENTERED),
        ("block_sum(variance) / in.width;", "block_sum(variance) / in.width - mean * mean;"),
    ],
    "layer_norm-eps-outside-root": [("1 / sqrt(variance + Wide(eps))", "1 / (sqrt(variance) + Wide(eps))")],
    "gelu-unwritten-tail": [
        ("if (i >= in.count * in.width) return;", "if (i >= in.count * in.width - 1) return;")
    ],
    "softmax-drops-last-term": [
        ("i < in.width; i += kThreads) sum +=", "i < in.width - 1; i += kThreads) sum +=")
    ],
}


@dataclass(frozen=True)
class Source:
    """Text of a kernel that is to be built."""

    name: str
    op: str
    text: str
    suffix: str


def planted(bug: str, device: str) -> Source:
    """The example kernel with one bug in it.

    Raises:
        LookupError: if an edit's old text does not occur exactly once.
    """
    op = bug.partition("-")[0]
    suffix = ".cpp" if device == "cpu" else ".cu"
    text = (KERNELS / f"{op}{suffix}").read_text()
    for old, new in (CPP if device == "cpu" else CUDA)[bug]:
        if text.count(old) != 1:
            raise LookupError(f"{bug}: {old!r} occurs {text.count(old)} times in {op}{suffix}")
        text = text.replace(old, new)
    return Source(name=bug, op=op, text=text, suffix=suffix)


def variants(device: str) -> list[Source]:
    """Legitimate kernels: other orders of summation, other formulas, and the example kernels as they are.

    None may be called wrong.
    """
    folder = Path(__file__).parent / "variants"
    suffix = ".cpp" if device == "cpu" else ".cu"
    ops = {bug.partition("-")[0] for bug in CPP}
    others = [
        Source(name=file.stem, op=file.stem.partition("-")[0], text=file.read_text(), suffix=suffix)
        for file in sorted(folder.glob("*.cpp"))
    ]
    examples = [
        Source(name=f"{file.stem}-example", op=file.stem, text=file.read_text(), suffix=suffix)
        for file in sorted(KERNELS.glob(f"*{suffix}"))
        if file.stem in ops
    ]
    return [*others, *examples]
