"""Record the network for digits (random weights), evaluated and with dropout: `python -m record.mnist`."""

from pathlib import Path

import torch
from torch.nn.functional import cross_entropy

import pytest_cgins
from models.mnist import Mnist
from models.weights import randomize
from record.common import DTYPES

ROOT = Path(__file__).resolve().parent.parent
OPS = [
    "models.blocks.conv_relu_pool",
    "models.blocks.seeded_dropout",
    "torch.add",
    "torch.nn.functional.cross_entropy",
    "torch.nn.functional.dropout",
    "torch.nn.functional.relu",
]


def main() -> None:
    torch.manual_seed(0)
    model = randomize(Mnist())
    with torch.inference_mode(), pytest_cgins.record(ROOT / "traces/mnist", ops=OPS):
        for dtype in DTYPES:
            model.to(dtype)
            images = torch.rand(11, 1, 31, 27).to(dtype)
            model(images)
            logits = model(images, seed=7)
            digits = torch.randint(10, (11,))
            cross_entropy(logits, digits)
            digits[::3] = -1  # a label for every place of a small image, some unknown
            cross_entropy(logits.view(1, 10, 11), digits.view(1, 11), ignore_index=-1, reduction="sum")


if __name__ == "__main__":
    main()
