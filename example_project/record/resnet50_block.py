"""Record the stem and one block of ResNet-50 (random weights): `python -m record.resnet50_block`.

The images are smaller than the network's own, and their sizes odd, so that every case is quick. Those in
bfloat16 lie channels-last in memory.
"""

from pathlib import Path

import torch

import pytest_cgins
from models.resnet import ResNet50
from models.weights import randomize
from record.common import DTYPES

ROOT = Path(__file__).resolve().parent.parent
OPS = [
    "torch.nn.functional.conv2d",
    "torch.nn.functional.batch_norm",
    "torch.nn.functional.max_pool2d",
    "torch.relu_",
    "torch.Tensor.add_",
]


def main() -> None:
    torch.manual_seed(0)
    model = randomize(ResNet50())
    block = model.stages[1]
    with torch.inference_mode(), pytest_cgins.record(ROOT / "traces/resnet50_block", ops=OPS):
        for dtype in DTYPES:
            layout = torch.channels_last if dtype == torch.bfloat16 else torch.contiguous_format
            model.to(dtype, memory_format=layout)
            model.stem(torch.randn(1, 3, 90, 77).to(dtype, memory_format=layout))
            block(torch.randn(1, 256, 23, 19).to(dtype, memory_format=layout))


if __name__ == "__main__":
    main()
