"""Which default an op has for a parameter that a kernel leaves out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from pytest_cgins.errors import ContractError
from pytest_cgins.kernels.arguments import default_of, require_defaults

RELU = "torch.nn.functional.relu"
GELU = "torch.nn.functional.gelu"
POOL = "torch.nn.functional.max_pool2d"
OpCall = Callable[..., tuple[Any, list[torch.Tensor]]]
x = torch.ones(1, 1, 4, 4)


@pytest.mark.parametrize(
    ("op", "arguments", "options", "name", "default"),
    [
        (f"{RELU}@backward(input)", (x, x, False), {}, "inplace", False),
        (f"{RELU}@backward(input)", (x,), {"grad_output": x, "inplace": False}, "inplace", False),
        (f"{GELU}@backward(input)", (x, x), {"approximate": "none"}, "approximate", "none"),
        (POOL, (x, 2, 2, 0, 1), {"ceil_mode": False, "return_indices": False}, "ceil_mode", False),
        (POOL, (x, 2, 2, 0, 1), {"ceil_mode": False, "return_indices": False}, "return_indices", False),
        (POOL, (x, 2, 2, 0, 1), {}, "dilation", 1),
    ],
)
def test_default_of_a_backward_is_its_ops(
    op_call: OpCall, op: str, arguments: tuple[Any, ...], options: dict[str, Any], name: str, default: object
) -> None:
    """A backward has the defaults of its op, and a dispatched function those of what it chooses between."""
    call, tensors = op_call(op, *arguments, **options)
    assert default_of(call, name, tensors) == (True, default)
    require_defaults(call, [name], "a kernel", tensors)


@pytest.mark.parametrize("name", ["grad_output", "input"])
def test_what_a_backward_needs_has_no_default(op_call: OpCall, name: str) -> None:
    """Neither the gradient nor a required argument of the op can be left out."""
    call, tensors = op_call(f"{RELU}@backward(input)", x, x)
    assert default_of(call, name, tensors) == (False, None)


def test_other_value_in_a_backward_is_refused(op_call: OpCall) -> None:
    """A backward of gelu's tanh is no case for a kernel that leaves `approximate` out."""
    call, tensors = op_call(f"{GELU}@backward(input)", x, x, approximate="tanh")
    with pytest.raises(ContractError, match="passes 'tanh', not its default 'none'"):
        require_defaults(call, ["approximate"], "a kernel", tensors)
