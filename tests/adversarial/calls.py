"""The recorded calls that the collected kernels are gated on: a pack a situation, a call an op."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor
from torch.nn import functional

OPS = (
    *(f"torch.nn.functional.{name}" for name in ("relu", "relu_", "softmax", "layer_norm", "linear", "gelu")),
    "torch.nn.functional.scaled_dot_product_attention",
    "torch.nn.functional.cross_entropy",
    "torch.nn.functional.max_pool2d",
    "torch.nn.functional.batch_norm",
    "torch.nn.functional.embedding",
    "torch.nn.functional.dropout",
    "torch.add",
    "torch.Tensor.add_",
    "torch.matmul",
    "torch.sum",
    "torch.nn.functional.layer_norm@backward(input,weight,bias)",
    *(
        f"torch.{name}"
        for name in ("topk", "sort", "argsort", "argmax", "max", "kthvalue", "median", "mode", "cummax")
    ),
    "torch.functional.unique",
    "torch.nn.functional.max_pool2d_with_indices",
)


class Calls:
    """Makes the calls, with arguments of one dtype and one seed."""

    def __init__(self, dtype: torch.dtype = torch.float32) -> None:
        self.dtype = dtype
        self._generator = torch.Generator().manual_seed(11)

    def normal(self, *shape: int) -> Tensor:
        """N(0, 1)."""
        return torch.randn(*shape, generator=self._generator).to(self.dtype)

    def odd(self) -> None:
        """Every op, of sizes that no tile divides."""
        normal = self.normal
        functional.relu(normal(5, 77))
        functional.relu_(normal(5, 77))
        functional.softmax(normal(6, 37), dim=-1)
        functional.layer_norm(normal(9, 41), (41,), normal(41), normal(41))
        functional.linear(normal(7, 33), normal(19, 33) / 33**0.5, normal(19))
        functional.gelu(normal(5, 77))
        seen = torch.rand(9, 21, generator=self._generator) < 0.7
        functional.scaled_dot_product_attention(
            normal(1, 2, 9, 8), normal(1, 2, 21, 8), normal(1, 2, 21, 8), seen
        )
        target = torch.randint(37, (13,), generator=self._generator)
        target[4] = -100
        functional.cross_entropy(normal(13, 37), target)
        functional.max_pool2d(normal(2, 3, 7, 9), 2, padding=1)
        self._batch_norm()
        functional.embedding(torch.randint(50, (3, 7), generator=self._generator), normal(50, 19))
        torch.add(normal(5, 77), normal(5, 77), alpha=2)
        normal(5, 77).add_(normal(5, 77))
        torch.matmul(normal(13, 45), normal(45, 29))
        torch.sum(normal(9, 331), dim=-1)
        functional.dropout(normal(32, 64), 0.25)

    def _batch_norm(self) -> None:
        """In training: running statistics are changed."""
        mean, variance = self.normal(5), self.normal(5).abs() + 0.1
        functional.batch_norm(
            self.normal(3, 5, 7, 9), mean, variance, self.normal(5), self.normal(5), training=True
        )

    def even(self) -> None:
        """Sizes that every tile divides: a tail that is wrong does not show."""
        normal = self.normal
        functional.relu(normal(4, 64))
        functional.softmax(normal(8, 64), dim=-1)
        functional.layer_norm(normal(8, 64), (64,), normal(64), normal(64))
        functional.linear(normal(16, 64), normal(32, 64) / 8, normal(32))
        torch.matmul(normal(16, 64), normal(64, 32))
        torch.add(normal(4, 64), normal(4, 64))
        functional.scaled_dot_product_attention(
            normal(1, 2, 16, 16), normal(1, 2, 16, 16), normal(1, 2, 16, 16)
        )

    def plain(self) -> None:
        """A model as it was initialised: biases 0, scales 1, nothing masked, nothing ignored."""
        normal, zeros, ones = self.normal, torch.zeros, torch.ones
        functional.layer_norm(normal(9, 41), (41,), ones(41, dtype=self.dtype), zeros(41, dtype=self.dtype))
        functional.linear(normal(7, 33), normal(19, 33) / 33**0.5, zeros(19, dtype=self.dtype))
        everything = ones(9, 21, dtype=torch.bool)
        functional.scaled_dot_product_attention(
            normal(1, 2, 9, 8), normal(1, 2, 21, 8), normal(1, 2, 21, 8), everything
        )
        functional.cross_entropy(normal(13, 37), torch.randint(37, (13,), generator=self._generator))
        torch.add(normal(5, 77), normal(5, 77))

    def tiny(self) -> None:
        """Answers far below the usual absolute tolerances."""
        functional.linear(self.normal(7, 33) * 1e-6, self.normal(19, 33) * 1e-4, self.normal(19) * 1e-9)
        functional.softmax(self.normal(3, 1500), dim=-1)

    def uniform(self) -> None:
        """Numbers from [0, 1)."""
        functional.relu(torch.rand(5, 77, generator=self._generator).to(self.dtype))

    def strided(self) -> None:
        """Arguments that are not contiguous."""
        functional.relu(self.normal(77, 5).T)
        functional.layer_norm(self.normal(9, 82)[:, ::2], (41,), self.normal(41), self.normal(41))

    def gradients(self) -> None:
        """Backwards that sum over the batch."""
        row, weight, bias = self.normal(2, 19, 41), self.normal(41), self.normal(41)
        for tensor in (row, weight, bias):
            tensor.requires_grad_()
        functional.layer_norm(row, (41,), weight, bias).backward(self.normal(2, 19, 41))

    def ties(self) -> None:
        """Ops that choose among numbers of which many are equal: bf16 has few, and whole numbers here nine."""
        x, whole = self.normal(5, 300), torch.randint(-4, 5, (5, 60), generator=self._generator)
        for numbers in (x, whole):
            torch.topk(numbers, 9)
            torch.topk(numbers, 7, largest=False, sorted=False)
            torch.sort(numbers, descending=True)
            torch.argsort(numbers, dim=0)
            torch.max(numbers, 1)
            torch.kthvalue(numbers, 5)
            torch.median(numbers, -1)
            torch.mode(numbers)
            torch.cummax(numbers, 1)
            torch.unique(numbers)
            torch.unique(numbers, sorted=False, return_inverse=True, return_counts=True)
        torch.argmax(x, 1)
        torch.argmax(x)
        functional.max_pool2d(self.normal(2, 3, 12, 15), 3, 2, 1, return_indices=True)
        self.stable()

    def causal(self) -> None:
        """Attention of a language model: each position sees itself and those before."""
        functional.scaled_dot_product_attention(
            self.normal(2, 2, 16, 8), self.normal(2, 2, 16, 8), self.normal(2, 2, 16, 8), is_causal=True
        )

    def scores(self) -> None:
        """Numbers of which the greatest are chosen."""
        torch.topk(self.normal(5, 300), 9)

    def stable(self) -> None:
        """An order of equal values that is promised."""
        torch.sort(self.normal(5, 300), stable=True)

    def branching(self) -> None:
        """Numbers as few as whose branches a processor learns."""
        torch.sort(self.normal(1, 512))

    def large(self) -> None:
        """More elements than are kept of a gold, and enough that time is not the launch's alone."""
        functional.relu(self.normal(300, 1100))
        functional.softmax(self.normal(256, 1000), dim=-1)


PACKS: Mapping[str, Callable[[], None]] = {
    "f32": Calls().odd,
    "f16": Calls(torch.float16).odd,
    "bf16": Calls(torch.bfloat16).odd,
    "even": Calls().even,
    "plain": Calls().plain,
    "tiny": Calls().tiny,
    "uniform": Calls().uniform,
    "strided": Calls().strided,
    "large": Calls().large,
    "ties": Calls(torch.bfloat16).ties,
    "causal": Calls().causal,
    "scores": Calls().scores,
    "stable": Calls(torch.bfloat16).stable,
    "branching": Calls().branching,
    "gradients": Calls(torch.bfloat16).gradients,
}
"""What is recorded, by the pack's name."""
