"""Kernels for `torch.nn.functional.relu`, good and bad, that the services under test are given."""

# ruff: noqa: A002 - the parameter has the op's own name
from __future__ import annotations

import os
import sys

import torch
from torch import Tensor


def relu(input: Tensor) -> Tensor:
    print("in the kernel")
    return input.clamp(min=0)


def changes_its_input(input: Tensor) -> Tensor:
    result = input.clamp(min=0)
    input.mul_(2)
    return result


def writes_between_its_input_s_columns(input: Tensor) -> Tensor:
    result = input.clamp(min=0)
    input.as_strided((1,), (1,), 1).fill_(7.0)
    return result


def in_place(input: Tensor) -> Tensor:
    return input.clamp_(min=0)


def transposed(input: Tensor) -> Tensor:
    return input.t().contiguous().clamp(min=0).t()


def fails_on_two_rows(input: Tensor) -> Tensor:
    if input.shape[0] == 2:
        raise ValueError("two rows are too many")
    return input.clamp(min=0)


def leaves(input: Tensor) -> Tensor:
    sys.exit(0)


def aborts(input: Tensor) -> Tensor:
    os.abort()


def sparse(input: Tensor) -> Tensor:
    return input.to_sparse()


def tells_context(input: Tensor) -> Tensor:
    """Grad mode, autocast and inference mode, as it sees them."""
    flags = [torch.is_grad_enabled(), torch.is_autocast_enabled("cpu"), torch.is_inference_mode_enabled()]
    return torch.tensor(flags)


def slow_relu(input: Tensor) -> Tensor:
    for _ in range(50):
        input.clamp(min=0)
    return input.clamp(min=0)


class Dressed(Tensor):
    """A subclass that would answer questions about itself in its own way."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        raise RuntimeError("nobody looks at me")


def dressed(input: Tensor) -> Tensor:
    return input.clamp(min=0).as_subclass(Dressed)


def quiet_relu(input: Tensor) -> Tensor:
    return input.clamp(min=0)


def tells_cpus(input: Tensor) -> Tensor:
    """On which CPUs it may run, in a list that a test has laid down."""
    torch.cgins_seen.append(os.sched_getaffinity(0))
    return input.clamp(min=0)
