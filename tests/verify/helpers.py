"""Expected outputs made from tensors, for tests of comparison without traces."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from pytest_cgins.config import Tolerance
from pytest_cgins.core.trace import Argument, OpCall
from pytest_cgins.core.verdict import Check
from pytest_cgins.packs.signature import bind
from pytest_cgins.packs.statistics import summarize
from pytest_cgins.packs.values import encode
from pytest_cgins.verify import tolerance as rules
from pytest_cgins.verify.compare import ExpectedSet, compare
from pytest_cgins.verify.expected import ExpectedOutput, GoldElements

DERIVED = Tolerance()


def normal(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def expected_output(
    reference: torch.Tensor,
    dtype: torch.dtype | None = None,
    *,
    gold: torch.Tensor | None = None,
    positions: torch.Tensor | None = None,
    index: int = 0,
) -> ExpectedOutput:
    """One output whose reference is `reference`, torch's answer its rounding to `dtype`, fp32 for floats."""
    dtype = dtype or (torch.float32 if reference.is_floating_point() else reference.dtype)
    answer = reference.to(dtype)
    scale = None
    if dtype.is_floating_point:
        scale = rules.derive(reference.double(), answer, reference.float())
    elements = None
    if gold is not None:
        flat = gold.reshape(-1)
        elements = GoldElements(
            values=flat if positions is None else flat[positions],
            positions=positions,
            statistics=summarize(gold),
            shape=tuple(gold.shape),
        )
    return ExpectedOutput(
        index=index,
        shape=tuple(reference.shape),
        stride=tuple(reference.stride()),
        own_stride=tuple(reference.stride()),
        answer=answer.contiguous(),
        scale=scale,
        gold=elements,
    )


def expected_set(
    *outputs: ExpectedOutput, arguments: Mapping[str, torch.Tensor] | None = None, name: str = "recorded"
) -> ExpectedSet:
    return ExpectedSet(name=name, outputs=outputs, arguments=arguments or {})


def failed(expected: ExpectedSet, *got: torch.Tensor, tolerance: Tolerance = DERIVED) -> Check:
    """The first failed check; there must be one."""
    return next(check for check in compare(expected, got, tolerance) if not check.passed)


def passed(expected: ExpectedSet, *got: torch.Tensor, tolerance: Tolerance = DERIVED) -> bool:
    checks = compare(expected, got, tolerance)
    return bool(checks) and all(check.passed for check in checks)


def call_of(
    op: str, function: Callable[..., Any], *args: Any, **kwargs: Any
) -> tuple[OpCall, list[torch.Tensor]]:
    """The call as the recorder would write it, and its tensors."""
    tensors: list[torch.Tensor] = []
    bound = bind(function, args, kwargs)
    arguments = tuple(
        Argument(name=name, value=encode(value, tensors), passed=passed) for name, value, passed in bound
    )
    return OpCall(op=op, arguments=arguments), tensors
