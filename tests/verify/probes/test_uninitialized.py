"""Memory that kernels allocate through torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from pytest_cgins.verify.probes import uninitialized

Watched = Callable[..., dict[str, Any]]


@pytest.mark.parametrize(
    "make",
    [
        "torch.empty(2, 2)",
        "torch.empty_like(input)",
        "input.new_empty((2, 2))",
        "torch.empty_strided((2, 2), (1, 2))",
        "torch.empty_permuted((2, 2), (1, 0))",
        "torch.nn.Linear(2, 2).weight.detach().new_empty(2, 2)",
    ],
)
def test_what_is_never_written_is_poison(watched: Watched, make: str) -> None:
    """A row that a kernel leaves out is NaN, whatever lay in its memory before."""
    text = f"import torch\ndef relu(input):\n    out = {make}\n    out[0] = input[0].clamp(min=0)\n    return out\n"
    (answer,) = watched(text, "poison")["answer"]
    assert answer[0].tolist() == [0.0, 2.0]
    assert answer[1].isnan().all()


def test_poison_reaches_the_answer() -> None:
    """Each type is filled with what answers rarely have."""
    for dtype in (torch.float32, torch.bfloat16, torch.complex64):
        memory = torch.zeros(3, dtype=dtype)
        uninitialized.fill(torch.ops.aten.empty.memory_format, memory)
        assert memory.isnan().all()
    memory = torch.zeros(3, dtype=torch.int32)
    uninitialized.fill(torch.ops.aten.new_empty.default, memory)
    assert memory.tolist() == [torch.iinfo(torch.int32).min] * 3


@pytest.mark.parametrize(
    "op", [torch.ops.aten.zeros.default, torch.ops.aten.relu.default, torch.ops.aten.resize_.default]
)
def test_what_other_operators_return_is_left_alone(op: object) -> None:
    """Only allocations are filled."""
    memory = torch.ones(3)
    uninitialized.fill(op, memory)
    assert memory.tolist() == [1.0, 1.0, 1.0]


def test_nothing_is_filled_while_the_probe_is_off(watched: Watched) -> None:
    """A kernel that asks for memory gets what torch gives."""
    text = (
        "import torch\n"
        "def relu(input):\n    out = torch.empty(2, 2)\n    out.fill_(1.0)\n"
        "    return out if torch._C._len_torch_dispatch_stack() == 0 else out.zero_()\n"
    )
    result = watched(text, "plain_outputs")
    assert result["sets"][0]["error"] is None
    assert result["observed"] == {}


def test_the_answer_is_what_it_would_be(watched: Watched) -> None:
    """A kernel that writes all it allocates gives the same answer, watched by all probes."""
    text = (
        "import torch\ndef relu(input):\n    scratch = torch.empty(100)\n    out = torch.empty_like(input)\n"
        "    torch.where(input > 0, input, torch.zeros(()), out=out)\n    return out\n"
    )
    (answer,) = watched(text, "poison", "op_callback", "integrity", "snooping")["answer"]
    assert answer.tolist() == [[0.0, 2.0], [3.0, 0.0]]
