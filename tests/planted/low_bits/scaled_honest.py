"""Kernels of `scaled_ops` that are right, however they compute: OP__HOW."""

from __future__ import annotations

import torch

BF16, E4M3 = torch.bfloat16, torch.float8_e4m3fn


def tensor_scaled__after_the_sum(a, b, scale_a, scale_b):
    return ((a.float() @ b.float()) * (scale_a * scale_b)).to(BF16)


def tensor_scaled__before_the_sum(a, b, scale_a, scale_b):
    return ((a.float() * scale_a) @ (b.float() * scale_b)).to(BF16)


def tensor_scaled__in_blocks(a, b, scale_a, scale_b):
    total = torch.zeros(a.shape[0], b.shape[1])
    for start in range(0, a.shape[1], 16):
        total = total + a[:, start : start + 16].float() @ b[start : start + 16].float()
    return (total * scale_a * scale_b).to(BF16)


def tensor_scaled__as_bf16(a, b, scale_a, scale_b):
    """Each number of e4m3 is one of bf16."""
    return ((a.to(BF16).float() @ b.to(BF16).float()) * scale_a * scale_b).to(BF16)


def tensor_scaled__one_by_one(a, b, scale_a, scale_b):
    total = torch.zeros(a.shape[0], b.shape[1])
    for k in range(a.shape[1]):
        total = total + a[:, k, None].float() * b[k].float()
    return (scale_b * (scale_a * total)).to(BF16)


def row_scaled__after_the_sum(a, b, scale_a, scale_b, bias):
    return ((a.float() @ b.float()) * (scale_a * scale_b) + bias.float()).to(BF16)


def row_scaled__before_the_sum(a, b, scale_a, scale_b, bias):
    return ((a.float() * scale_a) @ (b.float() * scale_b) + bias.float()).to(BF16)


def row_scaled__columns_first(a, b, scale_a, scale_b, bias):
    return torch.addcmul(bias.float(), (a.float() @ b.float()) * scale_b, scale_a).to(BF16)


def row_scaled__rows_in_a_loop(a, b, scale_a, scale_b, bias):
    rows = [
        row.float() @ b.float() * scale * scale_b[0] + bias.float()
        for row, scale in zip(a, scale_a, strict=True)
    ]
    return torch.stack(rows).to(BF16)


def scaled_to_e4m3__after_the_sum(a, b, scale_a, scale_b):
    return (a.float() @ b.float() * (scale_a * scale_b)).clamp(-448, 448).to(E4M3)


def scaled_to_e4m3__before_the_sum(a, b, scale_a, scale_b):
    return ((a.float() * scale_a) @ (b.float() * scale_b)).clamp(-448, 448).to(E4M3)


def scaled_to_e4m3__fp64(a, b, scale_a, scale_b):
    return (a.double() @ b.double() * scale_a * scale_b).clamp(-448, 448).float().to(E4M3)


def block_scaled__blocks_in_a_loop(a, b, scale_a, scale_b):
    total = torch.zeros(a.shape[0], b.shape[1])
    for block in range(scale_a.shape[1]):
        part = a[:, 32 * block : 32 * block + 32].float() @ b[32 * block : 32 * block + 32].float()
        total = total + part * scale_a[:, block, None] * scale_b[block].repeat_interleave(32)
    return total.to(BF16)


def block_scaled__fp64(a, b, scale_a, scale_b):
    wide_a = a.double() * scale_a.repeat_interleave(32, 1)
    wide_b = b.double() * scale_b.repeat_interleave(32, 0).repeat_interleave(32, 1)
    return (wide_a @ wide_b).to(BF16)


def int8_weights__after_the_sum(x, w, scale):
    return (x.float() @ w.float().t() * scale).to(x.dtype)


def int8_weights__products_in_bf16(x, w, scale):
    """Each number of eight bits is one of bf16; sums are fp32."""
    return ((x.to(BF16).float() @ w.to(BF16).float().t()) * scale).to(x.dtype)


def int8_weights__in_blocks(x, w, scale):
    total = torch.zeros(x.shape[0], w.shape[0])
    for start in range(0, x.shape[1], 16):
        total = total + x[:, start : start + 16].float() @ w[:, start : start + 16].float().t()
    return (total * scale).to(x.dtype)


def int8_product__double_sums(a, b, scale_a, scale_b):
    return (a.double() @ b.double()).float() * scale_a * scale_b


def int8_product__both_scales_first(a, b, scale_a, scale_b):
    return torch._int_mm(a, b) * (scale_a * scale_b)


def int8_product__floats(a, b, scale_a, scale_b):
    return (a.float() @ b.float()) * scale_b * scale_a


def packed_weights__sums_of_groups(x, packed, scales_and_zeros):
    """Codes first, whose sums in a group are scaled."""
    plain = torch.stack(
        [torch.ones_like(scales_and_zeros[..., 0]), torch.zeros_like(scales_and_zeros[..., 1])], -1
    )
    codes = torch._weight_int4pack_mm_for_cpu(torch.eye(x.shape[1]), packed, 32, plain)
    total = x.new_zeros(len(x), codes.shape[1])
    for group, start in enumerate(range(0, len(codes), 32)):
        part, (scale, zero) = x[:, start : start + 32], scales_and_zeros[group].unbind(-1)
        total += (part @ codes[start : start + 32]) * scale + part.sum(1, keepdim=True) * zero
    return total


def scaled_result__one_factor(a, b, scale, scale_of_result):
    return (
        ((a.float() @ b.float()) * (scale * scale / scale_of_result)).clamp(-448, 448).to(torch.float8_e4m3fn)
    )
