"""Calls of the functions in bodies.cpp, and what torch itself gives for them."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch

from pytest_cgins.kernels.extension_function import modules_of
from pytest_cgins.model import CompiledKernel


def _x(*sizes: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    generator = torch.Generator().manual_seed(sum(sizes))
    return torch.randn(*sizes, generator=generator).to(dtype)


def _shapes(x: torch.Tensor) -> torch.Tensor:
    folded = x.reshape(-1)
    return (2 * folded + folded.sum()) + x.mean((0, 1)).sum(0, True)


def _arithmetic(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    c = 1.5 - (2 * a + b / 4.0 - 1)
    c = (c - 0.25 * (1 / (b * b + 1))) * (a > b).to(a.dtype)
    c[0] = 7
    return torch.where(a == b, c, torch.relu(c).clamp_min(0.1)) + torch.sigmoid(a).pow(2)


def _statistics(x: torch.Tensor) -> tuple[Any, ...]:
    values, indices = x.double().flatten().sort(0, descending=True)
    return values.float(), indices.int(), x.double().mean().item()


def _corner(x: torch.Tensor, rows: int) -> torch.Tensor:
    part = x[:rows, ..., 0::2]
    x[0, 0] = 100
    return torch.cat([part, x[-1:, ..., ::2]], 0) + x[0][1][2]


def _fresh(sizes: Any, dtype: torch.dtype) -> torch.Tensor:
    line = torch.arange(0, 6, dtype=dtype).view(*sizes)
    ones, filled = torch.ones(*sizes, dtype=dtype), torch.full(tuple(sizes), 2.5, dtype=dtype)
    return ones + filled * line + torch.eye(sizes[0], dtype=dtype).sum()


def _gated(x: torch.Tensor, weight: torch.Tensor, gate: torch.Tensor) -> torch.Tensor:
    product = x @ weight.t()
    out = product * torch.softmax(torch.nn.functional.linear(x, gate), -1)
    return out / (product.abs().max() + 1e-6)


CALLS: dict[str, tuple[str, Callable[[], tuple[Any, ...]], Callable[..., Any]]] = {
    "scale": ("scale", lambda: (_x(4, 3), 2.5), lambda x, a: x * a),
    "scale of an expanded one": ("scale", lambda: (_x(4, 1).expand(4, 3), 2), lambda x, a: x * a),
    "scale of halves": ("scale", lambda: (_x(4, 3, dtype=torch.float16), 0.3), lambda x, a: x * torch.tensor(a).half()),
    "scale of bfloat16": (
        "scale", lambda: (_x(9, dtype=torch.bfloat16), 0.3), lambda x, a: x * torch.tensor(a).bfloat16()
    ),
    "scale of nothing": ("scale", lambda: (_x(0, 3), 2.5), lambda x, a: x * a),
    "row_sum": ("row_sum", lambda: (_x(5, 8).t(),), lambda x: x.sum(1)),
    "row_sum of halves": ("row_sum", lambda: (_x(5, 8, dtype=torch.float16),), lambda x: x.float().sum(1).half()),
    "split_signs": ("split_signs", lambda: (_x(3, 4).t(),), lambda x: [x.clamp(min=0), x.clamp(max=0)]),
    "affine": ("affine", lambda: (_x(3), _x(3, 3)[0], _x(1), 2, True), lambda x, w, b, n, g: -((x * w + b) * w + b)),
    "affine of less": ("affine", lambda: (_x(3), None), lambda x, w: x),
    "shapes": ("shapes", lambda: (_x(2, 3, 4),), _shapes),
    "arithmetic": ("arithmetic", lambda: (_x(6), _x(3, 2).flatten()), _arithmetic),
    "statistics": ("statistics", lambda: (_x(3, 5),), _statistics),
    "corner": ("corner", lambda: (_x(4, 5, 6), 2), _corner),
    "fresh": ("fresh", lambda: ([2, 3], torch.float64), _fresh),
    "fresh of integers": ("fresh", lambda: ((3, 2), torch.int32), _fresh),
    "facts": ("facts", lambda: (_x(3, 4)[1:].t(),), lambda x: "strided host floating 2 4 32 Float cpu 4 1 1 0"),
    "facts of integers": (
        "facts", lambda: (torch.ones(2, dtype=torch.int64),), lambda x: "contiguous host other 1 8 16 Long cpu 0 1 0 0"
    ),
    "squares": ("squares", lambda: (_x(40, 50),), lambda x: x * x + x.abs().sqrt()),
    "gated": ("gated", lambda: (_x(3, 8), _x(4, 8), _x(4, 8) + 1), _gated),
    "kind of an integer": ("kind", lambda: (3,), lambda n: 3),
    "kind of a number": ("kind", lambda: (3.0,), lambda n: 1.5),
    "undefined": ("undefined", lambda: (), lambda: None),
    "twice": ("twice", lambda: (_x(2),), lambda x: (x, x * 2)),
}  # fmt: skip
"""By the name of the call: function, maker of its arguments, and torch's own answer."""

ERRORS: dict[str, tuple[str, tuple[Any, ...], type[Exception], str]] = {
    "check": ("fails", (torch.ones(2, 3), "check"), RuntimeError, "numel is 6, 0.5 of Float"),
    "plain check": ("fails", (torch.ones(2), "plain"), RuntimeError, "Expected x.numel() == 0 to be true, but got false."),
    "runtime": ("fails", (torch.ones(2), "runtime"), RuntimeError, "a runtime error"),
    "value": ("fails", (torch.ones(2), "value"), ValueError, "an invalid argument"),
    "index": ("fails", (torch.ones(2), "index"), IndexError, "out of range"),
    "element type": ("fails", (torch.ones(2), "type"), RuntimeError, "expected scalar type Double but found Float"),
    "operator": ("fails", (torch.ones(2), "operator"), RuntimeError, "mat"),
    "dimension": ("fails", (torch.ones(2), "dimension"), IndexError, "Dimension out of range (expected to be in range of [-1, 0], but got 5)"),
    "dispatch": ("scale", (torch.ones(2, dtype=torch.int64), 2.0), NotImplementedError, '"scale" not implemented for \'Long\''),
    "sizes": ("scale", (torch.tensor(1.0), 2.0), RuntimeError, "input must have a dimension, not 0 of []"),
    "no tensor": ("scale", ([1.0], 2.0), TypeError, "incompatible function arguments"),
    "None for a tensor": ("scale", (None, 2.0), TypeError, "incompatible function arguments"),
    "a float for an integer": ("affine", (torch.ones(2), None, None, 1.5), TypeError, "incompatible function arguments"),
    "too many": ("scale", (torch.ones(2), 2.0, 3), TypeError, "incompatible function arguments"),
    "accessor": ("split_signs", (torch.ones(2),), RuntimeError, "expected 2 dims but tensor has 1"),
    "threads' check": ("squares", (torch.ones(2, dtype=torch.int32),), RuntimeError, "float32 only"),
}  # fmt: skip
"""By the name of the call: function, arguments, and what it raises."""


def module_of(compiled: CompiledKernel) -> Any:
    """The Python module of a built extension."""
    (module,) = modules_of(compiled)
    return module


def check_call(module: Any, name: str) -> None:
    """A call gives torch's answer, as the same Python type."""
    function, arguments, expected = CALLS[name]
    given = getattr(module, function)(*arguments())
    wanted = expected(*arguments())
    assert type(given) is type(wanted)
    if isinstance(given, torch.Tensor | list | tuple):
        torch.testing.assert_close(given, wanted)
    else:
        assert given == wanted


def check_error(module: Any, name: str) -> None:
    """A call raises the type that torch's own binding raises, with its message."""
    function, arguments, error, message = ERRORS[name]
    with pytest.raises(error, match=re.escape(message)) as caught:
        getattr(module, function)(*arguments)
    assert type(caught.value) is error
