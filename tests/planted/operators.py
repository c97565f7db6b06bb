"""Operators that are registered wrong, each in one way, and right ones of each kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from pytest_cgins.core.case import OperatorCheck

NAMESPACE = "cgins_planted"
_library = torch.library.Library(NAMESPACE, "FRAGMENT")


@dataclass(frozen=True, slots=True, kw_only=True)
class Planted:
    """An operator of one tensor `x`, before which a tensor `out` may stand."""

    finds: Mapping[OperatorCheck, str]
    """The check that finds it, and the reason; none for a right one."""
    gradients: bool = False
    """Whether the recorded call follows the gradient of `x`."""
    reference: str = ""
    """Function of torch that it is held against."""


OPERATORS: dict[str, Planted] = {}


def _planted(
    name: str,
    finds: Mapping[OperatorCheck, str],
    schema: str,
    kernel: Callable[..., Any],
    fake: Any = None,
    **more: Any,
) -> None:
    """Define an operator in C++'s manner: a schema, an implementation of a backend, a fake one."""
    _library.define(f"{name}{schema}")
    _library.impl(name, kernel, "CPU")
    if fake is not None:
        torch.library.register_fake(f"{NAMESPACE}::{name}", fake, lib=_library)
    OPERATORS[name] = Planted(finds=finds, **more)


def twice(x: Tensor) -> Tensor:
    """The right answer."""
    return x * 2


def _empty(x: Tensor) -> Tensor:
    return torch.empty_like(x)


def _into(out: Tensor, x: Tensor) -> None:
    out.copy_(x * 2)


def _changes_its_input(x: Tensor) -> Tensor:
    return x.mul_(2).clone()


def _data_dependent(x: Tensor) -> Tensor:
    return torch.empty_like(x) if x.sum().item() else x.new_empty(())


def _plain_sizes(x: Tensor) -> Tensor:
    if not all(isinstance(size, int) for size in x.shape):
        raise TypeError("sizes are numbers")
    return torch.empty_like(x)


FUNCTIONAL = "(Tensor x) -> Tensor"
_planted("right", {}, FUNCTIONAL, twice, _empty)
_planted("right_into", {}, "(Tensor(a!) out, Tensor x) -> ()", _into)
_planted("right_copy", {}, FUNCTIONAL, lambda x: x.t().clone(memory_format=torch.contiguous_format),
         lambda x: x.new_empty(x.shape[::-1]))  # fmt: skip
_planted("hidden_mutation", {"schema": "undeclared-mutation"}, FUNCTIONAL, _changes_its_input, _empty)
_planted("hidden_mutation_of_out", {"schema": "undeclared-mutation"}, "(Tensor out, Tensor x) -> Tensor",
         lambda out, x: out.copy_(x * 2).clone(), lambda _, x: torch.empty_like(x))  # fmt: skip
_planted(
    "hidden_alias",
    {"schema": "undeclared-alias"},
    FUNCTIONAL,
    lambda x: x.view(-1),
    lambda x: x.new_empty(x.numel()),
)
_planted("no_fake", {"fake": "no-fake", "compile": "graph-break"}, FUNCTIONAL, twice)
_planted("fake_shape", {"fake": "fake-shape"}, FUNCTIONAL, twice, lambda x: x.new_empty(x.shape[::-1]))
_planted(
    "fake_dtype",
    {"fake": "fake-dtype"},
    FUNCTIONAL,
    twice,
    lambda x: torch.empty_like(x, dtype=torch.float64),
)
_planted("fake_stride", {"fake": "fake-stride", "compile": "compiled-differs"}, FUNCTIONAL, twice,
         lambda x: x.new_empty(x.shape[::-1]).t())  # fmt: skip
_planted(
    "fake_device", {"fake": "fake-device"}, FUNCTIONAL, twice, lambda x: torch.empty_like(x, device="meta")
)
_planted(
    "fake_count",
    {"fake": "wrong-fake"},
    "(Tensor x) -> Tensor[]",
    lambda x: [x * 2],
    lambda x: [_empty(x), _empty(x)],
)
_planted("fake_reads", {"fake": "wrong-fake", "compile": "graph-break"}, FUNCTIONAL, twice, _data_dependent)
_planted("fake_of_numbers", {"aot": "aot-dispatch"}, FUNCTIONAL, twice, _plain_sizes)
_planted("no_autograd", {"autograd": "no-autograd"}, FUNCTIONAL, lambda x: torch.from_numpy(x.detach().numpy() * 2), _empty,
         gradients=True)  # fmt: skip
_planted("autograd_in_backend", {"autograd": "wrong-autograd"}, FUNCTIONAL, twice, _empty, gradients=True)

REFERENCE = f"{__name__}.twice"


def _custom(name: str, finds: Mapping[OperatorCheck, str], factor: float | None) -> None:
    """An operator by `torch.library.custom_op`, with a formula of its gradient unless the factor is None."""

    @torch.library.custom_op(f"{NAMESPACE}::{name}", mutates_args=())
    def operator(x: Tensor) -> Tensor:
        return x * 2

    operator.register_fake(_empty)
    if factor is not None:
        operator.register_autograd(lambda _, gradient: gradient * factor)
    OPERATORS[name] = Planted(finds=finds, gradients=True, reference=REFERENCE)


_custom("right_custom", {}, 2)
_custom("custom_without_autograd", {"autograd": "no-autograd"}, None)
_custom("wrong_gradient", {"autograd": "wrong-gradient"}, 3)


def _on_gpu(name: str, finds: Mapping[OperatorCheck, str], kernel: Callable[..., Any]) -> None:
    _library.define(f"{name}{FUNCTIONAL}")
    _library.impl(name, kernel, "CUDA")
    ON_GPU[name] = Planted(finds=finds)


_staged: dict[tuple[int, ...], Tensor] = {}


def _staged_when_called(x: Tensor) -> Tensor:
    if not torch.cuda.is_current_stream_capturing():
        _staged[tuple(x.shape)] = x.clone()
    return _staged[tuple(x.shape)] * 2


ON_GPU: dict[str, Planted] = {}
_on_gpu("right_on_gpu", {}, twice)
_on_gpu("stages_when_called", {"graph": "stale-replay"}, _staged_when_called)
_on_gpu("reads_on_host", {"graph": "not-capturable"}, lambda x: x * (2 + 0 * int(x.sum().item())))


@torch.library.custom_op(f"{NAMESPACE}::right_custom_into", mutates_args=("out",))
def right_custom_into(out: Tensor, x: Tensor) -> None:
    """The right answer, written."""
    out.copy_(x * 2)


OPERATORS["right_custom_into"] = Planted(finds={})


@torch.library.triton_op(f"{NAMESPACE}::otherwise_compiled", mutates_args=())
def otherwise_compiled(x: Tensor) -> Tensor:
    """Its body is what is compiled."""
    return x * (3 if torch.compiler.is_compiling() else 2)


OPERATORS["otherwise_compiled"] = Planted(finds={"compile": "compiled-differs"})


@torch.library.triton_op(f"{NAMESPACE}::right_triton", mutates_args=())
def right_triton(x: Tensor) -> Tensor:
    """The right answer."""
    return x * 2


OPERATORS["right_triton"] = Planted(finds={})
