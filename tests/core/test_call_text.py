"""A recorded call as one line: what of each argument decides how a kernel takes it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch.nn import functional

from pytest_cgins.core.call_text import call_line, memory_format
from pytest_cgins.core.layout import lay_out
from tests.verify.helpers import call_of

LAYOUTS: dict[str, tuple[Callable[[], torch.Tensor], str]] = {
    "matrix": (lambda: torch.zeros(4, 6), "contiguous"),
    "vector": (lambda: torch.zeros(4), "contiguous"),
    "number": (lambda: torch.zeros(()), "contiguous"),
    "empty": (lambda: torch.zeros(0, 4).T, "contiguous"),
    "one image of one channel": (lambda: torch.zeros(1, 1, 5, 5), "contiguous"),
    "images by channel": (
        lambda: torch.zeros(2, 3, 5, 5).to(memory_format=torch.channels_last), "channels_last",
    ),
    "one image by channel": (
        lambda: torch.zeros(1, 3, 5, 5).to(memory_format=torch.channels_last), "channels_last",
    ),
    "volumes by channel": (
        lambda: torch.zeros(2, 3, 4, 5, 5).to(memory_format=torch.channels_last_3d), "channels_last_3d",
    ),
    "matrix turned": (lambda: torch.zeros(4, 6).T, "transposed"),
    "heads turned": (lambda: torch.zeros(2, 7, 4, 8).transpose(1, 2), "transposed"),
    "broadcast": (lambda: torch.zeros(4, 1).expand(4, 6), "expanded"),
    "every second": (lambda: torch.zeros(4, 12)[:, ::2], "strided"),
    "a part of rows": (lambda: torch.zeros(4, 12)[:, :6], "strided"),
}  # fmt: skip


@pytest.mark.parametrize("name", LAYOUTS)
def test_memory_formats_have_their_names(name: str) -> None:
    """As torch itself calls them, or none of these."""
    make, expected = LAYOUTS[name]
    tensor = make()
    assert memory_format(lay_out([tensor]).metas[0]) == expected
    if expected in ("contiguous", "channels_last"):
        assert tensor.is_contiguous(memory_format=getattr(torch, f"{expected}_format", torch.channels_last))


def line(op: str, function: Callable[..., object], *args: object, **kwargs: object) -> str:
    call, tensors = call_of(op, function, *args, **kwargs)
    return call_line(call, lay_out(tensors).metas)


def test_a_call_is_one_line_with_all_that_decides() -> None:
    """Shapes, dtypes, formats, strides where they are not clear, scalars, None, defaults."""
    x = torch.zeros(16, 4, dtype=torch.float16).T
    assert line("torch.nn.functional.linear", functional.linear, x, torch.zeros(8, 16), None) == (
        "torch.nn.functional.linear(input float16[4, 16] transposed (1, 4), weight float32[8, 16] contiguous, bias None)"
    )
    assert line("torch.nn.functional.layer_norm", functional.layer_norm, torch.zeros(3, 5), (5,)) == (
        "torch.nn.functional.layer_norm(input float32[3, 5] contiguous, normalized_shape (5,), weight None, bias None, "
        "eps 1e-05)"
    )
    assert line("torch.nn.functional.gelu", functional.gelu, torch.zeros(7)[3:], approximate="tanh") == (
        "torch.nn.functional.gelu(input float32[4] at offset 3, approximate 'tanh')"
    )


def test_arguments_in_one_memory_are_told() -> None:
    """A kernel that writes one of them changes the other."""
    x = torch.zeros(4, 6)
    assert "other float32[4, 6] contiguous in the memory of input" in line("torch.add", torch.add, x, x)
    assert "other float32[3, 6] contiguous at offset 6 in the memory of input" in line(
        "torch.add", torch.add, x[:3], x[1:]
    )
