"""Torch extensions: a function on `torch::Tensor`, built by torch's own tools in a process of its own."""

from __future__ import annotations

from pytest_cgins.kernels import plan as plans
from pytest_cgins.model import KernelSource


def plan(source: KernelSource) -> plans.Plan:
    raise NotImplementedError(source)
