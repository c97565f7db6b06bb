# ruff: noqa: N803 - parameters have the names of the published kernels'
"""quack's functions in the CuTe DSL, and what each computes in torch."""

from __future__ import annotations

import torch
from catalogue import integers, normal, replaces
from torch.nn import functional


@replaces("quack.softmax:SoftmaxFunction.apply", lambda: (normal(64, 1024),))
def softmax(x):
    return x.softmax(-1)


@replaces("quack.rmsnorm:rmsnorm", lambda: (normal(64, 1024), normal(1024)), backward=False)
def rms_norm(x, weight, eps=1e-6):
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * weight


@replaces(
    "quack.rmsnorm:layernorm_fwd", lambda: (normal(64, 1024), normal(1024), normal(1024)), backward=False
)
def layer_norm(x, weight, bias=None, eps=1e-6):
    return functional.layer_norm(x, weight.shape, weight, bias, eps)


@replaces("quack.cross_entropy:cross_entropy", lambda: (normal(64, 1024), integers(1024, 64)), backward=False)
def cross_entropy(x, target):
    return functional.cross_entropy(x, target)


@replaces("quack.topk:topk_fwd", lambda: (normal(64, 1024), 16), backward=False)
def topk(x, k):
    return torch.topk(x, k)


@replaces(
    "quack.gemm_interface:gemm",
    lambda: (normal(256, 128).bfloat16(), normal(128, 256).bfloat16()),
    backward=False,
)
def gemm(A, B):
    return A @ B
