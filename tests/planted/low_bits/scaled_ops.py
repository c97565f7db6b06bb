"""Products of numbers of eight bits with their scales, as models write them; and the calls that kernels of them are gated on."""

from __future__ import annotations

import torch
from torch import Tensor

import pytest_cgins

E4M3 = torch.float8_e4m3fn
BLOCK = 32


@pytest_cgins.mark
def tensor_scaled(a: Tensor, b: Tensor, scale_a: Tensor, scale_b: Tensor) -> Tensor:
    """One scale each; b is column-major."""
    return torch._scaled_mm(a, b, scale_a, scale_b, out_dtype=torch.bfloat16)


@pytest_cgins.mark
def row_scaled(a: Tensor, b: Tensor, scale_a: Tensor, scale_b: Tensor, bias: Tensor) -> Tensor:
    """A scale for each row of a and each column of b, and a bias that has none."""
    return torch._scaled_mm(a, b, scale_a, scale_b, bias=bias, out_dtype=torch.bfloat16)


@pytest_cgins.mark
def scaled_to_e4m3(a: Tensor, b: Tensor, scale_a: Tensor, scale_b: Tensor) -> Tensor:
    """What the next product takes."""
    return torch._scaled_mm(a, b, scale_a, scale_b, out_dtype=E4M3)


@pytest_cgins.mark
def block_scaled(a: Tensor, b: Tensor, scale_a: Tensor, scale_b: Tensor) -> Tensor:
    """A scale for 32 numbers of a row of a, and one for each square of 32 by 32 of b."""
    wide_a = a.float() * scale_a.repeat_interleave(BLOCK, 1)
    wide_b = b.float() * scale_b.repeat_interleave(BLOCK, 0).repeat_interleave(BLOCK, 1)
    return (wide_a @ wide_b).to(torch.bfloat16)


@pytest_cgins.mark
def int8_weights(x: Tensor, w: Tensor, scale: Tensor) -> Tensor:
    """Activations in bf16, weights of eight bits with a scale a row."""
    return torch.nn.functional.linear(x.float(), w.float() * scale[:, None]).to(x.dtype)


@pytest_cgins.mark
def int8_product(a: Tensor, b: Tensor, scale_a: Tensor, scale_b: Tensor) -> Tensor:
    """Summed exactly, then scaled."""
    return torch._int_mm(a, b).float() * scale_a * scale_b


@pytest_cgins.mark
def packed_weights(x: Tensor, packed: Tensor, scales_and_zeros: Tensor) -> Tensor:
    """Weights of four bits as torch's kernel packs them, with a scale and a zero for 32 of a row."""
    return torch._weight_int4pack_mm_for_cpu(x, packed, BLOCK, scales_and_zeros)


@pytest_cgins.mark
def scaled_result(a: Tensor, b: Tensor, scale: Tensor, scale_of_result: Tensor) -> Tensor:
    """float8, divided by a scale of its own on a CPU."""
    return torch._scaled_mm(a, b, scale, scale, scale_result=scale_of_result, out_dtype=E4M3)


def run_calls(device: str = "cpu") -> None:
    """One call of each op."""
    draw = torch.Generator().manual_seed(12)

    def e4m3(*shape: int) -> Tensor:
        return (60 * torch.randn(*shape, generator=draw)).clamp(-448, 448).to(E4M3).to(device)

    def scale(*shape: int) -> Tensor:
        return (0.002 + 0.01 * torch.rand(*shape, generator=draw)).to(device)

    def int8(*shape: int) -> Tensor:
        return torch.randint(-128, 128, shape, generator=draw, dtype=torch.int8).to(device)

    m, k, n = 24, 96, 32
    tensor_scaled(
        e4m3(m, k), e4m3(n, k).t(), torch.tensor(0.011, device=device), torch.tensor(0.0035, device=device)
    )
    bias = torch.randn(n, generator=draw).to(device, torch.bfloat16)
    row_scaled(e4m3(m, k), e4m3(n, k).t(), scale(m, 1), scale(1, n), bias)
    scaled_to_e4m3(
        e4m3(m, k), e4m3(n, k).t(), torch.tensor(0.011, device=device), torch.tensor(0.035, device=device)
    )
    block_scaled(e4m3(m, k), e4m3(k, n * 2), scale(m, k // BLOCK), scale(k // BLOCK, n * 2 // BLOCK))
    int8_weights(torch.randn(m, k, generator=draw).to(device, torch.bfloat16), int8(n, k), scale(n))
    # cuBLAS multiplies by columns alone.
    right = int8(k, n) if device == "cpu" else int8(n, k).t()
    if device == "cpu":
        codes = torch.randint(0, 16, (64, 128), generator=draw, dtype=torch.int32)
        scales = torch.randn(128 // BLOCK, 64, 2, generator=draw)
        packed_weights(
            torch.randn(m, 128, generator=draw), torch._convert_weight_to_int4pack_for_cpu(codes, 1), scales
        )
        scaled_result(e4m3(m, k), e4m3(n, k).t(), torch.tensor(0.011), torch.tensor(0.7))
    int8_product(int8(m, k), right, scale(m, 1), scale(1, n))
