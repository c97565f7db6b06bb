"""The calls that the planted kernels are gated on: shapes small and odd enough that each bug shows."""

from __future__ import annotations

import importlib
import math

import torch
from torch import Tensor
from torch.nn import functional

OPS = {
    "linear": "torch.nn.functional.linear",
    "layer_norm": "torch.nn.functional.layer_norm",
    "gelu": "torch.nn.functional.gelu",
    "softmax": "torch.nn.functional.softmax",
    "rms_norm": "models.decoder.rms_norm",
    "conv2d": "torch.nn.functional.conv2d",
    "batch_norm": "torch.nn.functional.batch_norm",
    "relu": "torch.nn.functional.relu",
    "add": "torch.add",
    "dropout": "torch.nn.functional.dropout",
    "seeded_dropout": "models.blocks.seeded_dropout",
    "max_pool2d": "torch.nn.functional.max_pool2d",
    "conv_relu_pool": "models.blocks.conv_relu_pool",
    "scaled_dot_product_attention": "torch.nn.functional.scaled_dot_product_attention",
    "embedding": "torch.nn.functional.embedding",
    "apply_rotary": "models.decoder.apply_rotary",
    "silu_mul": "models.decoder.silu_mul",
    "cross_entropy": "torch.nn.functional.cross_entropy",
    "matmul": "torch.matmul",
    "sin": "torch.sin",
    "layer_norm_backward": "torch.nn.functional.layer_norm@backward(input,weight,bias)",
    "gelu_backward": "torch.nn.functional.gelu@backward(input)",
    "relu_backward": "torch.nn.functional.relu@backward(input)",
}
"""Op by the name that its kernels begin with."""


class Calls:
    """Calls of all ops with N(0, 1) arguments of one dtype; to be recorded while they run.

    The folder `models` must be importable.
    """

    def __init__(self, dtype: torch.dtype) -> None:
        self._dtype = dtype
        self._generator = torch.Generator().manual_seed(7)

    def run(self) -> None:
        """Make every call."""
        self._rows()
        self._images()
        self._elements()
        self._attention()
        self._losses_and_products()
        self._backwards()

    def _normal(self, *shape: int) -> Tensor:
        return torch.randn(*shape, generator=self._generator).to(self._dtype)

    def _rows(self) -> None:
        """Contiguous and transposed linear, softmax over two axes, both norms, gelu."""
        normal, rms_norm = self._normal, importlib.import_module("models.decoder").rms_norm
        weight, bias = normal(90, 96) / 96**0.5, normal(90)
        functional.linear(normal(37, 96), weight, bias)
        functional.linear(normal(96, 37).T, weight, bias)
        functional.layer_norm(normal(24, 192), (192,), normal(192), normal(192))
        functional.gelu(normal(5, 77))
        functional.softmax(normal(6, 40, 24), dim=1)
        functional.softmax(normal(6, 40, 24), dim=-1)
        rms_norm(normal(24, 192), normal(192))
        # Few and long rows: an error that a whole row shares is not averaged away.
        functional.linear(normal(3, 2048), normal(70, 2048) / 2048**0.5, normal(70))
        functional.layer_norm(normal(3, 1024), (1024,), normal(1024), normal(1024))
        functional.softmax(normal(1, 1000), dim=-1)
        rms_norm(normal(3, 1024), normal(1024))

    def _images(self) -> None:
        """Padded, grouped, dilated, strided and channels-last convolutions; batch norms and pools."""
        normal, fused = self._normal, importlib.import_module("models.blocks").conv_relu_pool
        functional.conv2d(normal(2, 5, 9, 11), normal(7, 5, 3, 3) / 45**0.5, normal(7), padding=1)
        grouped = normal(1, 6, 8, 7).to(memory_format=torch.channels_last)
        functional.conv2d(
            grouped, normal(4, 3, 3, 3) / 27**0.5, normal(4), (1, 2), (0, 1), dilation=2, groups=2
        )
        functional.conv2d(normal(1, 64, 6, 5), normal(3, 64, 3, 3) / 24)
        for shape in ((3, 5, 7, 9), (11, 6)):
            mean, variance = normal(shape[1]), normal(shape[1]).abs() + 0.1
            functional.batch_norm(normal(*shape), mean, variance, normal(shape[1]), normal(shape[1]))
        functional.max_pool2d(normal(2, 3, 7, 9), 2, padding=1)
        functional.max_pool2d(normal(2, 3, 8, 9) - 2, 3, stride=2, padding=1, ceil_mode=True)
        functional.max_pool2d(normal(1, 3, 8, 5), (3, 1), stride=2)
        fused(normal(2, 3, 11, 9), normal(5, 3, 3, 3) / 27**0.5, normal(5), 1)
        fused(normal(1, 40, 6, 7), normal(3, 40, 3, 3) / 19, normal(3))

    def _elements(self) -> None:
        """An odd number of elements; broadcasting; sines far from 0."""
        blocks, decoder = (importlib.import_module(f"models.{name}") for name in ("blocks", "decoder"))
        normal = self._normal
        functional.relu(normal(5, 77))
        torch.add(normal(5, 77), normal(5, 1), alpha=2)
        torch.add(normal(3, 5, 7), normal(3, 5, 7))
        functional.dropout(normal(5, 77), 0.3, training=False)
        blocks.seeded_dropout(normal(5, 77), 0.3, 12345)
        blocks.seeded_dropout(normal(5, 77), 0.5, 2**31 + 9)
        torch.sin(normal(5, 77))
        torch.sin(50 * normal(7, 33))
        decoder.silu_mul(normal(5, 77), normal(5, 77))
        angle = torch.arange(9)[:, None] * 0.3 ** torch.arange(8)
        tables = angle.cos().to(self._dtype), angle.sin().to(self._dtype)
        decoder.apply_rotary(normal(2, 4, 9, 16), normal(2, 2, 9, 16), *tables)
        index = torch.randint(50, (3, 7), generator=self._generator)
        index[0, 0] = 49
        functional.embedding(index, normal(50, 19))

    def _attention(self) -> None:
        """Additive and boolean masks, causal with groups of heads, a scale; more keys than a tile holds."""
        normal, attend = self._normal, functional.scaled_dot_product_attention
        distance = (torch.arange(17)[:, None] - torch.arange(67)).abs()
        attend(
            normal(2, 3, 17, 16), normal(2, 3, 67, 16), normal(2, 3, 67, 16), (-distance / 8).to(self._dtype)
        )
        attend(
            normal(1, 4, 37, 16), normal(1, 2, 37, 16), normal(1, 2, 37, 16), is_causal=True, enable_gqa=True
        )
        seen = torch.rand(5, 131, generator=self._generator) < 0.7
        attend(normal(1, 2, 5, 8), normal(1, 2, 131, 8), normal(1, 2, 131, 8), seen)
        attend(normal(1, 2, 9, 24), normal(1, 2, 33, 24), normal(1, 2, 33, 10), scale=1 / math.sqrt(10))

    def _losses_and_products(self) -> None:
        """Cross entropies with ignored targets and classes along an inner axis; products of every layout."""
        normal, loss = self._normal, functional.cross_entropy
        target = torch.randint(37, (13,), generator=self._generator)
        target[4] = -100
        loss(normal(13, 37), target)
        loss(normal(67, 11), torch.randint(11, (67,), generator=self._generator), reduction="none")
        loss(normal(4, 11, 5), torch.randint(11, (4, 5), generator=self._generator), ignore_index=3)
        torch.matmul(normal(13, 70), normal(70, 29))
        torch.matmul(normal(11, 40), normal(23, 40).T)
        torch.matmul(normal(3, 7, 33), normal(3, 33, 9))
        torch.matmul(normal(2, 3, 5, 300), normal(3, 300, 4))

    def _backwards(self) -> None:
        normal = self._normal
        for shape in ((13, 96), (3, 512)):
            leaves = [normal(*shape), normal(shape[-1]), normal(shape[-1])]
            for leaf in leaves:
                leaf.requires_grad_()
            functional.layer_norm(leaves[0], shape[-1:], *leaves[1:]).backward(normal(*shape))
        for op in (functional.gelu, functional.relu):
            op(normal(5, 77).requires_grad_()).backward(normal(5, 77))
