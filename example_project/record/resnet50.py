"""Record ResNet-50 (random weights): `python record/resnet50.py` in this project's folder."""

import sys
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import pytest_cgins  # noqa: E402 (the project's folder has to be on the path first)
from models.resnet import ResNet50  # noqa: E402
from record.common import DTYPES, randomize  # noqa: E402

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
