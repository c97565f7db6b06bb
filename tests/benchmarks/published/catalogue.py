"""What a list of published kernels is written with. It is copied into the project that is gated, beside the list."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

import pytest_cgins

DEVICE = os.environ["PUBLISHED_DEVICE"]
_generator = torch.Generator().manual_seed(20)
ENTRIES: list[Entry] = []


@dataclass(frozen=True)
class Entry:
    """A published kernel and a call of the op that it replaces."""

    name: str
    """In cgins.yaml."""
    target: str
    """`module:function`."""
    op: str
    """Qualified name."""
    function: Callable[..., Any]
    """The op in torch, as it is recorded."""
    arguments: Callable[[], tuple[tuple[Any, ...], dict[str, Any]]]
    """Makes those of a call."""
    backward: bool = False
    """Whether it is differentiated, too."""

    def run(self) -> None:
        """Call the op, and differentiate it."""
        values, keywords = self.arguments()
        if self.backward:
            differentiated(self.function, values)
        else:
            with torch.no_grad():
                self.function(*values, **keywords)


def differentiated(
    function: Callable[..., Any], values: tuple[Any, ...]
) -> tuple[list[torch.Tensor], list[torch.Tensor], list[torch.Tensor | None]]:
    """Results of a function, gradients that are put in for them, and those of its arguments that come out."""
    leaves = [
        value.requires_grad_() if isinstance(value, torch.Tensor) and value.is_floating_point() else value
        for value in values
    ]
    results = function(*leaves)
    results = [
        result for result in (results if isinstance(results, tuple) else (results,))
        if isinstance(result, torch.Tensor) and result.requires_grad
    ]  # fmt: skip
    # A gradient that is contiguous and has other numbers in each element, as a model's is.
    weights = [torch.randn(result.shape, generator=_generator).to(DEVICE) for result in results]
    wanted = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor) and leaf.requires_grad]
    return results, weights, list(torch.autograd.grad(results, wanted, weights, allow_unused=True))


def normal(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=_generator).to(DEVICE)


def uniform(*shape: int) -> torch.Tensor:
    """Above 0."""
    return (torch.rand(shape, generator=_generator) + 0.1).to(DEVICE)


def integers(high: int, *shape: int) -> torch.Tensor:
    return torch.randint(0, high, shape, generator=_generator).to(DEVICE)


def booleans(*shape: int) -> torch.Tensor:
    return integers(2, *shape).bool()


def replaces(
    target: str,
    arguments: Callable[[], tuple[Any, ...]],
    *,
    backward: bool = True,
    semantics: dict[str, Any] | None = None,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Enter a kernel: the decorated function is the op in torch, called once with the arguments, and differentiated.

    Args:
        target: the kernel.
        arguments: makes those of a call.
        backward: whether it is differentiated.
        semantics: see `pytest_cgins.mark`: what the published kernel asks of its inputs.
    """

    def enter(function: Callable[..., Any]) -> Callable[..., Any]:
        marked: Any = (
            pytest_cgins.mark(semantics=semantics)(function) if semantics else pytest_cgins.mark(function)
        )

        op = f"{function.__module__}.{function.__name__}"
        made = lambda: (arguments(), {})  # noqa: E731
        ENTRIES.append(Entry(function.__name__, target, op, marked, made, backward))
        return marked

    return enter


def replaces_aten(name: str, target: str, op: str, *arguments: Any, **keywords: Any) -> None:
    """Enter a kernel that has the signature of an operator of ATen."""
    overload: Any = torch.ops.aten
    for part in op.split("."):
        overload = getattr(overload, part)
    ENTRIES.append(Entry(name, target, f"torch.ops.aten.{op}", overload, lambda: (arguments, keywords)))
