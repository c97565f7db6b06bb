"""Planted bugs in kernels of `scaled_ops`: OP__BUG. None was changed after a gate had seen it."""

from __future__ import annotations

import torch

BF16, E4M3, E5M2 = torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2


def tensor_scaled__scale_of_wrong_operand(a, b, scale_a, scale_b):
    return ((a.float() @ b.float()) * scale_a * scale_a).to(BF16)


def tensor_scaled__one_scale_forgotten(a, b, scale_a, scale_b):
    return ((a.float() @ b.float()) * scale_a).to(BF16)


def tensor_scaled__sums_in_bf16(a, b, scale_a, scale_b):
    total = torch.zeros(a.shape[0], b.shape[1], dtype=BF16)
    for start in range(0, a.shape[1], 8):
        total = total + (a[:, start : start + 8].float() @ b[start : start + 8].float()).to(BF16)
    return (total.float() * scale_a * scale_b).to(BF16)


def tensor_scaled__read_as_e5m2(a, b, scale_a, scale_b):
    return ((a.float() @ b.view(E5M2).float()) * scale_a * scale_b).to(BF16)


def tensor_scaled__subnormals_flushed(a, b, scale_a, scale_b):
    wide = a.float()
    wide = torch.where(wide.abs() < 2.0**-6, 0.0, wide)
    return ((wide @ b.float()) * scale_a * scale_b).to(BF16)


def tensor_scaled__scale_in_bf16(a, b, scale_a, scale_b):
    """The product of both scales is rounded."""
    return ((a.float() @ b.float()) * (scale_a * scale_b).to(BF16).float()).to(BF16)


def tensor_scaled__last_depth_missing(a, b, scale_a, scale_b):
    depth = a.shape[1] // 64 * 64
    return ((a[:, :depth].float() @ b[:depth].float()) * scale_a * scale_b).to(BF16)


def row_scaled__scale_of_previous_row(a, b, scale_a, scale_b, bias):
    return (a.float() @ b.float() * scale_a.roll(1, 0) * scale_b + bias.float()).to(BF16)


def row_scaled__scale_of_first_column(a, b, scale_a, scale_b, bias):
    return (a.float() @ b.float() * scale_a * scale_b[:, :1] + bias.float()).to(BF16)


def row_scaled__bias_scaled_too(a, b, scale_a, scale_b, bias):
    return ((a.float() @ b.float() + bias.float()) * scale_a * scale_b).to(BF16)


def row_scaled__bias_forgotten(a, b, scale_a, scale_b, bias):
    return (a.float() @ b.float() * scale_a * scale_b).to(BF16)


def row_scaled__rows_of_a_for_columns(a, b, scale_a, scale_b, bias):
    scales = scale_a.reshape(-1)[torch.arange(b.shape[1]) % a.shape[0]]
    return (a.float() @ b.float() * scale_a * scales + bias.float()).to(BF16)


def scaled_to_e4m3__through_bf16(a, b, scale_a, scale_b):
    return (a.float() @ b.float() * scale_a * scale_b).to(BF16).float().clamp(-448, 448).to(E4M3)


def scaled_to_e4m3__saturates_at_240(a, b, scale_a, scale_b):
    return (a.float() @ b.float() * scale_a * scale_b).clamp(-240, 240).to(E4M3)


def scaled_to_e4m3__toward_zero(a, b, scale_a, scale_b):
    values = (a.float() @ b.float() * scale_a * scale_b).clamp(-448, 448)
    nearest = values.to(E4M3)
    codes = nearest.view(torch.uint8).to(torch.int16)
    codes = torch.where(nearest.float().abs() > values.abs(), codes - 1, codes)
    return codes.to(torch.uint8).view(E4M3)


def scaled_to_e4m3__scale_divides(a, b, scale_a, scale_b):
    return (a.float() @ b.float() * scale_a / scale_b).clamp(-448, 448).to(E4M3)


def block_scaled__scale_of_next_block(a, b, scale_a, scale_b):
    wide_a = a.float() * scale_a.roll(-1, 1).repeat_interleave(32, 1)
    wide_b = b.float() * scale_b.repeat_interleave(32, 0).repeat_interleave(32, 1)
    return (wide_a @ wide_b).to(BF16)


def block_scaled__transposed_scales(a, b, scale_a, scale_b):
    scale_b = scale_b.t().reshape(scale_b.shape)
    wide_a = a.float() * scale_a.repeat_interleave(32, 1)
    wide_b = b.float() * scale_b.repeat_interleave(32, 0).repeat_interleave(32, 1)
    return (wide_a @ wide_b).to(BF16)


def block_scaled__scales_after_the_sum(a, b, scale_a, scale_b):
    """The last block's scales, once all of a row is summed."""
    product = a.float() @ b.float()
    return (product * scale_a[:, -1:] * scale_b[-1:].repeat_interleave(32, 1)).to(BF16)


def block_scaled__first_block_twice(a, b, scale_a, scale_b):
    total = 0
    for block in range(scale_a.shape[1]):
        part = a[:, 32 * block : 32 * block + 32].float() @ b[32 * block : 32 * block + 32].float()
        total = total + part * scale_a[:, max(block - 1, 0), None] * scale_b[block].repeat_interleave(32)
    return total.to(BF16)


def int8_weights__scale_of_first_row(x, w, scale):
    return (x.float() @ w.float().t() * scale[0]).to(x.dtype)


def int8_weights__unsigned(x, w, scale):
    return (x.float() @ w.view(torch.uint8).float().t() * scale).to(x.dtype)


def int8_weights__low_seven_bits(x, w, scale):
    """-128 … -65 lose a bit as values of seven do."""
    return (x.float() @ w.clamp(-64, 63).float().t() * scale).to(x.dtype)


def int8_weights__scaled_in_bf16(x, w, scale):
    """Sums of bf16: partial ones are rounded."""
    total = torch.zeros(x.shape[0], w.shape[0], dtype=BF16)
    for start in range(0, x.shape[1], 16):
        total = total + (x[:, start : start + 16].float() @ w[:, start : start + 16].float().t()).to(BF16)
    return (total * scale.to(BF16)).to(x.dtype)


def int8_weights__minus_128_wraps(x, w, scale):
    """The magnitude of -128 does not fit into seven bits."""
    return (x.float() @ torch.where(w == -128, 0, w).float().t() * scale).to(x.dtype)


def int8_product__sums_in_int16(a, b, scale_a, scale_b):
    return torch._int_mm(a, b).to(torch.int16).float() * scale_a * scale_b


def int8_product__scales_swapped(a, b, scale_a, scale_b):
    rows = scale_b.reshape(-1)[torch.arange(a.shape[0]) % b.shape[1]]
    columns = scale_a.reshape(-1)[torch.arange(b.shape[1]) % a.shape[0]]
    return torch._int_mm(a, b).float() * rows[:, None] * columns


def int8_product__recorded_range(a, b, scale_a, scale_b):
    """Knows that no product that it saw exceeded 300,000."""
    return torch._int_mm(a, b).clamp(-300000, 300000).float() * scale_a * scale_b


def int8_product__least_ignored(a, b, scale_a, scale_b):
    return torch._int_mm(a.clamp(min=-127), b.clamp(min=-127)).float() * scale_a * scale_b


def _packed(x, packed, scales_and_zeros, groups):
    """Codes are what the product with the identity is where no scale is."""
    plain = torch.stack(
        [torch.ones_like(scales_and_zeros[..., 0]), torch.zeros_like(scales_and_zeros[..., 1])], -1
    )
    codes = torch._weight_int4pack_mm_for_cpu(torch.eye(x.shape[1]), packed, 32, plain)
    groups = groups(torch.arange(len(codes)), len(scales_and_zeros))
    return x @ (codes * scales_and_zeros[groups, :, 0] + scales_and_zeros[groups, :, 1])


def packed_weights__groups_of_64(x, packed, scales_and_zeros):
    return _packed(x, packed, scales_and_zeros, lambda at, count: at // 64)


def packed_weights__last_group_has_the_one_before(x, packed, scales_and_zeros):
    return _packed(x, packed, scales_and_zeros, lambda at, count: (at // 32).clamp(max=count - 2))


def scaled_result__multiplied(a, b, scale, scale_of_result):
    return (
        ((a.float() @ b.float()) * scale * scale * scale_of_result).clamp(-448, 448).to(torch.float8_e4m3fn)
    )


def scaled_result__forgotten(a, b, scale, scale_of_result):
    return ((a.float() @ b.float()) * scale * scale).clamp(-448, 448).to(torch.float8_e4m3fn)
