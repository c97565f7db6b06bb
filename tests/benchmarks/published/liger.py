# ruff: noqa: N803 - parameters have the names of the published kernels'
"""Liger-Kernel's autograd Functions, and what each computes in torch: `LigerSoftmaxFunction.apply` replaces `softmax`."""

from __future__ import annotations

import torch
from catalogue import integers, normal, replaces, uniform
from torch.nn import functional

OPS = "liger_kernel.ops."


def _rms(x, eps):
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps)


def _log_probabilities(*shape):
    return normal(*shape).log_softmax(-1)


@replaces(
    OPS + "rms_norm:LigerRMSNormFunction.apply",
    lambda: (normal(64, 512), normal(512), 1e-6, 0.0, "llama", False, None),
)
def rms_norm(X, W, eps, offset, casting_mode, in_place, row_mode):
    return _rms(X, eps) * (W + offset)


@replaces(
    OPS + "fused_add_rms_norm:LigerFusedAddRMSNormFunction.apply",
    lambda: (normal(64, 512), normal(64, 512), normal(512), 1e-6, 0.0, "llama", False),
)
def fused_add_rms_norm(X, R, W, eps, offset, casting_mode, in_place):
    total = X + R
    return _rms(total, eps) * (W + offset), total


@replaces(
    OPS + "modulated_rms_norm:LigerModulatedRMSNormFunction.apply",
    lambda: (normal(64, 512), normal(512), normal(64, 512), normal(64, 512), 1e-6, 0.0, "llama", False),
)
def modulated_rms_norm(X, W, scale, shift, eps, offset, casting_mode, in_place):
    return _rms(X, eps) * (W + offset) * (1 + scale) + shift


@replaces(
    OPS + "poly_norm:LigerPolyNormFunction.apply",
    lambda: (normal(64, 512), normal(3), normal(1), 1e-6, False),
)
def poly_norm(X, W, B, eps, in_place):
    return W[0] * _rms(X**3, eps) + W[1] * _rms(X**2, eps) + W[2] * _rms(X, eps) + B


@replaces(
    OPS + "layer_norm:LigerLayerNormFunction.apply",
    lambda: (normal(64, 512), normal(512), normal(512), 1e-6),
)
def layer_norm(X, W, B, eps):
    return functional.layer_norm(X, W.shape, W, B, eps)


@replaces(
    OPS + "group_norm:LigerGroupNormFunction.apply",
    lambda: (normal(4, 32, 64), normal(32), normal(32), 32, 8, 1e-6),
)
def group_norm(X, affine_scaling_weight, affine_shifting_bias, num_channels, num_groups, eps):
    return functional.group_norm(X, num_groups, affine_scaling_weight, affine_shifting_bias, eps)


@replaces(OPS + "dyt:LigerDyTFunction.apply", lambda: (normal(64, 512), normal(1), normal(512), normal(512)))
def dyt(x, alpha, gamma, beta):
    return torch.tanh(alpha * x) * gamma + beta


@replaces(OPS + "swiglu:LigerSiLUMulFunction.apply", lambda: (normal(64, 512), normal(64, 512)))
def silu_mul(a, b):
    return functional.silu(a) * b


@replaces(OPS + "swiglu:LigerFusedGateUpSiLUMulFunction.apply", lambda: (normal(64, 1024),))
def fused_gate_up_silu_mul(y):
    gate, up = y.chunk(2, -1)
    return functional.silu(gate) * up


@replaces(OPS + "geglu:LigerGELUMulFunction.apply", lambda: (normal(64, 512), normal(64, 512)))
def gelu_mul(a, b):
    return functional.gelu(a, approximate="tanh") * b


@replaces(OPS + "softmax:LigerSoftmaxFunction.apply", lambda: (normal(64, 512),))
def softmax(input_):
    return input_.softmax(-1)


@replaces(OPS + "relu_squared:LigerReLUSquaredFunction.apply", lambda: (normal(64, 512),))
def relu_squared(X):
    return X.relu().square()


@replaces(OPS + "sparsemax:LigerSparsemaxFunction.apply", lambda: (normal(64, 256), -1))
def sparsemax(x, dim):
    ordered = x.sort(dim=dim, descending=True).values
    sums = ordered.cumsum(dim)
    ranks = torch.arange(1, x.size(dim) + 1, device=x.device, dtype=x.dtype)
    support = (1 + ranks * ordered > sums).sum(dim, keepdim=True)
    threshold = (sums.gather(dim, support - 1) - 1) / support
    return (x - threshold).clamp_min(0)


@replaces(
    OPS + "cross_entropy:LigerCrossEntropyFunction.apply",
    lambda: (normal(64, 512), integers(512, 64), None, -100),
)
def cross_entropy(_input, target, weight, ignore_index):
    return functional.cross_entropy(_input, target, weight, ignore_index=ignore_index)


@replaces(
    OPS + "fused_linear_cross_entropy:LigerFusedLinearCrossEntropyFunction.apply",
    lambda: (normal(64, 128), normal(512, 128), integers(512, 64)),
)
def fused_linear_cross_entropy(_input, weight, target):
    return functional.cross_entropy(functional.linear(_input, weight), target)


def _divergence(student, teacher, beta):
    mixed = torch.logsumexp(
        torch.stack([teacher + torch.log(torch.tensor(beta)), student + torch.log(torch.tensor(1 - beta))]), 0
    )
    to_teacher = (teacher.exp() * (teacher - mixed)).sum()
    return (beta * to_teacher + (1 - beta) * (student.exp() * (student - mixed)).sum()) / student.shape[0]


@replaces(
    OPS + "jsd:LigerJSDFunction.apply",
    lambda: (_log_probabilities(64, 256), _log_probabilities(64, 256), None, 0.5),
    backward=False,
    semantics={"domain": {"_input": [None, 0], "target": [None, 0]}},
)
def jsd(_input, target, shift_labels, beta):
    return _divergence(_input, target, beta)


@replaces(
    OPS + "fused_linear_jsd:LigerFusedLinearJSDFunction.apply",
    lambda: (normal(64, 128), normal(256, 128), normal(64, 128), normal(256, 128)),
    backward=False,
)
def fused_linear_jsd(student_input, student_weight, teacher_input, teacher_weight):
    student = functional.linear(student_input, student_weight).log_softmax(-1)
    teacher = functional.linear(teacher_input, teacher_weight).log_softmax(-1)
    return _divergence(student, teacher, 0.5)


@replaces(
    OPS + "kl_div:LigerKLDivLossFunction.apply",
    lambda: (_log_probabilities(64, 256), normal(64, 256).softmax(-1)),
    backward=False,
    semantics={"domain": {"y_pred": [None, 0], "y_true": [0, 1]}},
)
def kl_div(y_pred, y_true):
    return functional.kl_div(y_pred, y_true, reduction="batchmean")


@replaces(
    OPS + "tvd:LigerTVDLossFunction.apply",
    lambda: (normal(64, 256).softmax(-1), normal(64, 256).softmax(-1)),
    backward=False,
    semantics={"domain": {"p": [0, 1], "q": [0, 1]}},
)
def tvd(p, q):
    return 0.5 * (p - q).abs().sum() / p.shape[0]


def _angles(*shape):
    half = torch.cat([normal(*shape[:-1], shape[-1] // 2)] * 2, -1)
    return half.cos(), half.sin()


def _rotated(x):
    first, second = x.chunk(2, -1)
    return torch.cat([-second, first], -1)


@replaces(
    OPS + "rope:LigerRopeFunction.apply",
    lambda: (normal(2, 8, 32, 64), normal(2, 4, 32, 64), *_angles(1, 32, 64)),
    backward=False,
)
def rope(q, k, cos, sin):
    cos, sin = cos.unsqueeze(1), sin.unsqueeze(1)
    return q * cos + _rotated(q) * sin, k * cos + _rotated(k) * sin


@replaces(
    OPS + "qwen2vl_mrope:LigerQwen2VLMRopeFunction.apply",
    lambda: (normal(2, 8, 32, 64), normal(2, 4, 32, 64), *_angles(3, 2, 32, 64), [8, 12, 12]),
    backward=False,
)
def multimodal_rope(q, k, cos, sin, mrope_section):
    sections = mrope_section * 2
    cos, sin = (
        torch.cat([part[index % 3] for index, part in enumerate(angle.split(sections, -1))], -1).unsqueeze(1)
        for angle in (cos, sin)
    )
    return q * cos + _rotated(q) * sin, k * cos + _rotated(k) * sin


@replaces(
    OPS + "experimental.embedding:LigerEmbeddingFunction.apply",
    lambda: (normal(512, 128), integers(512, 64)),
)
def embedding(embeddings, indices):
    return functional.embedding(indices, embeddings)


@replaces(
    OPS + "attn_res:LigerAttnResFunction.apply",
    lambda: (normal(4, 2, 16, 256), normal(256), uniform(256), 1e-6),
)
def attention_residual(V_stacked, w_query, w_norm, eps):
    keys = _rms(V_stacked, eps) * w_norm
    weights = (keys * w_query).sum(-1).softmax(0)
    return (weights.unsqueeze(-1) * V_stacked).sum(0)


@replaces(
    OPS + "multi_token_attention:LigerMultiTokenAttentionFunction.apply",
    lambda: (normal(1, 4, 32, 32), normal(4, 4, 3, 3), None, 1, 1),
)
def multi_token_attention(scores, weight, bias, stride, padding):
    rows = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
    probabilities = scores.masked_fill(~rows, -1e9).softmax(-1)
    return functional.conv2d(probabilities, weight, bias, stride, padding).masked_fill(~rows, 0.0)


@replaces(
    OPS + "mlp:LigerMLPFunction.apply",
    lambda: (normal(64, 256), normal(512, 256) / 16, normal(512, 256) / 16, normal(256, 512) / 16),
)
def mlp(input, gate_weight, up_weight, down_weight):  # noqa: A002 - the kernel's own name
    hidden = functional.silu(functional.linear(input, gate_weight)) * functional.linear(input, up_weight)
    return functional.linear(hidden, down_weight)


def _complex_product(x, cos, sin):
    even, odd = x[..., 0::2], x[..., 1::2]
    return torch.stack([even * cos - odd * sin, even * sin + odd * cos], -1).flatten(-2)


@replaces(
    OPS + "llama4_rope:LigerLlama4RopeFunction.apply",
    lambda: (normal(2, 32, 8, 64), normal(2, 32, 4, 64), torch.polar(uniform(32, 32), normal(32, 32))),
    backward=False,
)
def llama4_rope(q, k, freqs_cis):
    cos, sin = (part.unsqueeze(0).unsqueeze(2) for part in (freqs_cis.real, freqs_cis.imag))
    return _complex_product(q, cos, sin), _complex_product(k, cos, sin)
