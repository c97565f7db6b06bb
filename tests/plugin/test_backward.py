"""Kernels that replace the backward of an op go through the gate as any other."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch
import torch.nn.functional as F  # noqa: N812

from pytest_cgins.recording.record import record

if TYPE_CHECKING:
    from conftest import Run

CONFIG = """
version: 1
traces: [traces/net]
kernels:
  relu_backward:
    op: torch.nn.functional.relu@backward(input)
    implementations:
      - {name: right, device: cpu, source: relu_backward.cpp}
      - {name: wrong, device: cpu, source: relu_backward.cpp, defines: {WRONG: 1}}
  linear_backward:
    op: torch.nn.functional.linear@backward(input,weight)
    probes: {op_callback: {off: "what is gated here is the answer, whoever gives it"}}
    implementations:
      - {name: right, device: cpu, target: "linear_kernels:backward", sources: [linear_kernels.py]}
      - {name: transposed, device: cpu, target: "linear_kernels:transposed", sources: [linear_kernels.py]}
  layer_norm_backward:
    op: torch.nn.functional.layer_norm@backward(input,weight,bias)
    implementations:
      - {name: right, device: cpu, target: "norm_kernels:backward", sources: [norm_kernels.py]}
      - {name: no_eps, device: cpu, target: "norm_kernels:no_eps", sources: [norm_kernels.py]}
  relu_function:
    op: torch.nn.functional.relu
    implementations: [{name: right, device: cpu, target: "functions:Relu.apply"}]
  relu_function_backward:
    op: torch.nn.functional.relu@backward(input)
    implementations:
      - {name: right, device: cpu, target: "functions:Relu.apply"}
      - {name: leaky, device: cpu, target: "functions:Leaky.apply"}
"""
FUNCTIONS = """
import torch

class Relu(torch.autograd.Function):
    slope = 0.0

    @staticmethod
    def forward(ctx, input, inplace=False):
        ctx.save_for_backward(torch.where(input <= 0, 0.0, 1.0))
        return torch.where(input <= 0, 0.0, input)

    @classmethod
    def backward(cls, ctx, grad):
        (mask,) = ctx.saved_tensors
        kept = mask.clone()
        mask.mul_(7)  # what it kept is of no use any more
        return torch.where(kept > 0, grad, cls.slope * grad), None

class Leaky(Relu):
    slope = 0.125
"""
RELU = """
// cgins: relu_backward(Tensor grad_output, Tensor input, bool inplace=False) -> Tensor
#include <cgins.h>

extern "C" int relu_backward(const DLTensor* grad_output, const DLTensor* input, bool, DLTensor* out, cgins_stream) {
  CGINS_CHECK(cgins::is_contiguous(grad_output) && cgins::is_contiguous(input), "contiguous tensors only");
  const float* g = cgins::data<float>(grad_output);
  const float* x = cgins::data<float>(input);
  float* y = cgins::data<float>(out);
#ifdef WRONG
  const bool at_zero = true;
#else
  const bool at_zero = false;
#endif
  for (int64_t i = 0; i < cgins::numel(input); ++i) y[i] = x[i] > 0 || (at_zero && x[i] == 0) ? g[i] : 0;
  return 0;
}
"""
LINEAR = """
def backward(grad_output, input, weight, bias=None):
    return grad_output @ weight, grad_output.T @ input

def transposed(grad_output, input, weight, bias=None):
    return grad_output @ weight.T, grad_output.T @ input
"""
NORM = """
import torch

def backward(grad_output, input, normalized_shape, weight=None, bias=None, eps=1e-5):
    centered = input - input.mean(-1, keepdim=True)
    scale = torch.rsqrt(centered.square().mean(-1, keepdim=True) + eps)
    normal, g = centered * scale, grad_output * weight
    inner = g - g.mean(-1, keepdim=True) - normal * (g * normal).mean(-1, keepdim=True)
    return scale * inner, (grad_output * normal).sum(0), grad_output.sum(0)

def no_eps(grad_output, input, normalized_shape, weight=None, bias=None, eps=1e-5):
    return backward(grad_output, input, normalized_shape, weight, bias, 1e-7)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A project with kernels for three backwards, right ones and wrong ones."""
    for name, text in [
        ("cgins.yaml", CONFIG),
        ("relu_backward.cpp", RELU),
        ("linear_kernels.py", LINEAR),
        ("norm_kernels.py", NORM),
        ("functions.py", FUNCTIONS),
        ("pytest.ini", "[pytest]\n"),
    ]:
        (tmp_path / name).write_text(text)
    torch.manual_seed(0)
    x, w = torch.randn(6, 12, requires_grad=True), torch.randn(12, 12, requires_grad=True)
    gamma, beta = torch.ones(12, requires_grad=True), torch.zeros(12, requires_grad=True)
    ops = [f"torch.nn.functional.{name}" for name in ("relu", "linear", "layer_norm")]
    with record(tmp_path / "traces" / "net", ops=ops, backward=True):
        F.relu(F.linear(F.layer_norm(x, (12,), gamma, beta), w)).square().mean().backward()
    return tmp_path


def test_backwards_are_verified_and_timed(folder: Path, run: Callable[..., Run]) -> None:
    """Right kernels pass and are timed; a gradient at zero, a transposed weight and a lost eps are found."""
    done = run(folder, "--cgins", "--cgins-json=report.json", "-q")
    assert {name.split(" ")[0]: status for name, status in done.statuses().items()} == {
        "relu_backward/right": "PASSED",
        "relu_backward/wrong": "INCORRECT",
        "linear_backward/right": "PASSED",
        "linear_backward/transposed": "INCORRECT",
        "layer_norm_backward/right": "PASSED",
        "layer_norm_backward/no_eps": "INCORRECT",
        # An autograd Function is run whole: its backward may spend what its forward kept.
        "relu_function/right": "PASSED",
        "relu_function_backward/right": "PASSED",
        "relu_function_backward/leaky": "INCORRECT",
    }, done.out
    for name, evaluation in done.evaluations().items():
        if "/right" in name:
            assert evaluation["measurement"]["torch"]["median_ns_per_call"] > 0
            assert not any(
                "no fresh" in note or "no edge" in note for note in evaluation["correctness"]["notes"]
            )
