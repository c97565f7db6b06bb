"""Record ResNet-50 (random weights): `python -m record.resnet50` in this project's folder."""

from pathlib import Path

import torch

import pytest_cgins
from models.resnet import ResNet50
from models.weights import randomize
from record.common import DTYPES

ROOT = Path(__file__).resolve().parent.parent
OPS = ["torch.nn.functional.linear", "torch.nn.functional.softmax"]


def main() -> None:
    torch.manual_seed(0)
    model = randomize(ResNet50())
    with torch.inference_mode(), pytest_cgins.record(ROOT / "traces/resnet50", ops=OPS):
        for dtype in DTYPES:
            model.to(dtype)
            for batch in (1, 8):
                model(torch.randn(batch, 3, 64, 64).to(dtype))


if __name__ == "__main__":
    main()
