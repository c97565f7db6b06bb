"""Record one call a case, of sizes that fill a GPU or of small ones: `python -m record.optimise large|small`."""

import sys
from pathlib import Path

import torch
from torch.nn import functional

import pytest_cgins
from models.blocks import conv_relu_pool

ROOT = Path(__file__).resolve().parent.parent
OPS = [
    "models.blocks.conv_relu_pool",
    "torch.nn.functional.cross_entropy",
    "torch.nn.functional.layer_norm",
    "torch.nn.functional.linear",
    "torch.nn.functional.scaled_dot_product_attention",
    "torch.nn.functional.softmax",
]
F16, F32, BF16 = torch.float16, torch.float32, torch.bfloat16
SIZES = {
    "large": {
        "softmax": (((4096, 4096), F32), ((8192, 2048), BF16)),
        "layer_norm": (((131072, 128), F16), ((2048, 16384), BF16)),
        "linear": (((2048, 2048, 2048), F32), ((2048, 2048, 2048), F16)),
        "conv_relu_pool": (((32, 64, 56, 56, 64), F32), ((32, 64, 56, 56, 64), F16)),
        "cross_entropy": (((1024, 32000), F32), ((1024, 50257), BF16)),
        "attention": (((8, 16, 1024, 64, False), F16), ((2, 16, 2048, 64, True), BF16)),
    },
    "small": {
        "softmax": (((64, 256), F32),),
        "layer_norm": (((128, 128), F32),),
        "linear": (((64, 96, 64), F32),),
        "conv_relu_pool": (((2, 4, 14, 14, 8), F32),),
        "cross_entropy": (((32, 1000), F32),),
        "attention": (((2, 2, 64, 32, False), F32),),
    },
}
"""By kernel: a shape and an element type a case."""


def main(sizes: str) -> None:
    torch.manual_seed(0)
    wanted = SIZES[sizes]
    with torch.inference_mode(), pytest_cgins.record(ROOT / "traces/optimise", ops=OPS):
        for shape, dtype in wanted["softmax"]:
            functional.softmax(2 * torch.randn(shape).to(dtype), dim=-1)
        for (rows, width), dtype in wanted["layer_norm"]:
            weight, bias = 1 + 0.2 * torch.randn(width), 0.1 * torch.randn(width)
            functional.layer_norm(
                torch.randn(rows, width).to(dtype), (width,), weight.to(dtype), bias.to(dtype)
            )
        for (rows, inner, columns), dtype in wanted["linear"]:
            weight = torch.randn(columns, inner) / inner**0.5
            functional.linear(
                torch.randn(rows, inner).to(dtype), weight.to(dtype), torch.randn(columns).to(dtype)
            )
        for (images, channels, height, width, filters), dtype in wanted["conv_relu_pool"]:
            weight = torch.randn(filters, channels, 3, 3) / (9 * channels) ** 0.5
            image = torch.randn(images, channels, height, width)
            conv_relu_pool(image.to(dtype), weight.to(dtype), torch.randn(filters).to(dtype), padding=1)
        for (rows, classes), dtype in wanted["cross_entropy"]:
            functional.cross_entropy(
                2 * torch.randn(rows, classes).to(dtype), torch.randint(classes, (rows,))
            )
        for (batch, heads, length, width, causal), dtype in wanted["attention"]:
            query, key, value = (torch.randn(batch, heads, length, width).to(dtype) for _ in range(3))
            functional.scaled_dot_product_attention(query, key, value, is_causal=causal)


if __name__ == "__main__":
    main(sys.argv[1])
