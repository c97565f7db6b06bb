"""Record backward ops from a step of training the network for digits: `python -m record.mnist_training`."""

from pathlib import Path

import torch
from torch.nn.functional import cross_entropy

import pytest_cgins
from models.mnist import Mnist
from models.weights import randomize
from record.common import DTYPES

ROOT = Path(__file__).resolve().parent.parent
OPS = ["torch.nn.functional.relu@backward(input)"]


def main() -> None:
    torch.manual_seed(0)
    model = randomize(Mnist())
    with pytest_cgins.record(ROOT / "traces/mnist_training", ops=OPS):
        for dtype in DTYPES:
            model.to(dtype)
            logits = model(torch.rand(3, 1, 31, 27).to(dtype), seed=7)
            cross_entropy(logits, torch.randint(10, (3,))).backward()


if __name__ == "__main__":
    main()
