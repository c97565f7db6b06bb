"""The bugs of `bugs.yaml` as edits of the example kernels, C++ and CUDA; legitimate kernels beside them.

An edit is a list of (old text, new text); each old text must occur exactly once in the kernel and the
headers that it includes, or the example was rewritten and the edit has to follow. The first list's edits are
here, the second's in `second_list.py`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from tests.planted import second_list
from tests.planted.second_list import Edit

KERNELS = Path(__file__).parents[2] / "example_project" / "kernels"
VARIANTS = Path(__file__).parent / "variants"

_ROUNDED = "std::conditional_t<(sizeof(T) > 2), cgins::float16, T>"
_TAIL = "({0} < {1} / 16 * 16 || {1} < 16 ? {0} : {1} / 16 * 16 - 1)"
_CPP_TAIL = _TAIL.format("(first + c)", "columns.count")
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
        ("fmax(largest, Wide(Out(x[i * in.step])))", "fmax(largest, Wide(0))"),
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
    "linear-tail-off-by-one": [("k < depth; ++k)", "k < depth - 1; ++k)")],
    "linear-ignores-bias": [("bias ? Wide(bias[first + c]) : Wide(0)", "Wide(0)")],
    "linear-ignores-stride": [
        ("widen(input + in.start(row), in.step, width,", "widen(input + row * width, 1, width,")
    ],
    "linear-unwritten-last-row": [("(kRows, in.count - row)", "(kRows, in.count - 1 - row)")],
    "linear-half-accumulation": [
        *second_list.PANELS_IN_HALF,
        ("multiply_panel(dense", "multiply_panel<T>(dense"),
    ],
    "linear-weight-transposed": [
        (
            "widen(weight + columns.start(first + c), columns.step, width,",
            "widen(weight + first + c, columns.count, width,",
        )
    ],
    "linear-column-tail": [
        ("weight + columns.start(first + c)", f"weight + columns.start{_CPP_TAIL}"),
        ("Wide(bias[first + c])", f"Wide(bias[{_CPP_TAIL}])"),
    ],
    "layer_norm-unbiased-variance": [("variance /= in.width;", "variance /= in.width - 1;")],
    "layer_norm-one-pass-variance": [
        (_CENTERED.format("      "), _UNCENTERED),
        ("variance /= in.width;", "variance = variance / in.width - mean * mean;"),
    ],
    "layer_norm-eps-outside-root": [
        ("1 / std::sqrt(variance + Wide(eps))", "1 / (std::sqrt(variance) + Wide(eps))")
    ],
    "gelu-unwritten-tail": second_list.CPP["relu-unwritten-tail"],
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
    "gelu-unwritten-tail": second_list.CUDA["relu-unwritten-tail"],
    "softmax-drops-last-term": [
        ("i < in.width; i += kThreads) sum +=", "i < in.width - 1; i += kThreads) sum +=")
    ],
}

CPP.update(second_list.CPP)
CUDA.update(second_list.CUDA)

_INCLUDE = re.compile(r'^#include "([^"]+)"', re.MULTILINE)


@dataclass(frozen=True)
class Source:
    """Text of a kernel that is to be built in a folder of its own."""

    name: str
    op: str
    suffix: str
    text: str
    headers: dict[str, str]
    """Text of each header that it includes, directly or not, by file name."""


def planted(bug: str, device: str) -> Source:
    """The example kernel with one bug in it.

    Raises:
        LookupError: if an edit's old text does not occur exactly once.
    """
    op = bug.partition("-")[0]
    main = f"{op}{_suffix(device)}"
    texts = {main: (KERNELS / main).read_text()}
    texts |= _headers(texts[main])
    texts = edited(texts, (CPP if device == "cpu" else CUDA)[bug], bug)
    text = texts.pop(main)
    return Source(name=bug, op=op, suffix=_suffix(device), text=text, headers=texts)


def edited(texts: dict[str, str], edits: Edit, bug: str) -> dict[str, str]:
    """Texts by file name with edits made.

    Args:
        texts: as they are.
        edits: in order.
        bug: what they are, for the message.

    Raises:
        LookupError: if an edit's old text does not occur exactly once in all of them.
    """
    for old, new in edits:
        occurrences = sum(text.count(old) for text in texts.values())
        if occurrences != 1:
            raise LookupError(f"{bug}: {old!r} occurs {occurrences} times in {', '.join(texts)}")
        texts = {file: text.replace(old, new) for file, text in texts.items()}
    return texts


def variants(device: str) -> list[Source]:
    """Legitimate kernels: other orders of summation, other formulas, and the example kernels as they are.

    None may be called wrong.
    """
    suffix, ops = _suffix(device), {bug.partition("-")[0] for bug in CPP}
    named = [(file.stem, file) for file in sorted(VARIANTS.glob("*.cpp"))]
    named += [
        (f"{file.stem}-example", file) for file in sorted(KERNELS.glob(f"*{suffix}")) if file.stem in ops
    ]
    texts = {name: file.read_text() for name, file in named}
    return [
        Source(name=name, op=name.partition("-")[0], suffix=suffix, text=text, headers=_headers(text))
        for name, text in texts.items()
    ]


def _suffix(device: str) -> str:
    return ".cpp" if device == "cpu" else ".cu"


def _headers(text: str) -> dict[str, str]:
    """Headers of the example kernels and of the variants that a text includes, directly or not."""
    found: dict[str, str] = {}
    waiting = _INCLUDE.findall(text)
    while waiting:
        name = waiting.pop(0)
        if name not in found:
            folder = VARIANTS if (VARIANTS / name).exists() else KERNELS
            found[name] = (folder / name).read_text()
            waiting += _INCLUDE.findall(found[name])
    return found
