"""Record a small network of further ops (random weights), one step of training: `python -m record.new_ops`."""

from pathlib import Path

import torch
from models.fused import Fused

import pytest_cgins
from record.common import DTYPES, randomize

ROOT = Path(__file__).resolve().parent.parent
OPS = [
    "torch.nn.functional.avg_pool2d",
    "torch.nn.functional.group_norm",
    "torch.nn.functional.log_softmax",
    "torch.nn.functional.silu",
    "torch.nn.functional.silu@backward(input)",
    "models.fused.SqueezeExcite",
    "models.fused.bias_gelu_residual",
]


def main() -> None:
    torch.manual_seed(0)
    model = randomize(Fused())
    with pytest_cgins.record(ROOT / "traces/new_ops", ops=OPS):
        for dtype in DTYPES:
            model.to(dtype)
            for batch, height, width in ((2, 16, 16), (3, 13, 9)):
                scores = model(torch.randn(batch, 3, height, width).to(dtype))
                scores.backward(torch.randn(scores.shape).to(dtype))


if __name__ == "__main__":
    main()
