"""Record a vision transformer (random weights, one small layer): `python -m record.vit`."""

from pathlib import Path

import torch
from transformers import ViTConfig, ViTModel

import pytest_cgins
from models.weights import randomize
from record.common import DTYPES

ROOT = Path(__file__).resolve().parent.parent
OPS = [
    "torch.nn.functional.scaled_dot_product_attention",
    "torch.nn.functional.layer_norm",
    "torch.nn.functional.gelu",
]
CONFIG = ViTConfig(
    hidden_size=160,
    num_hidden_layers=1,
    num_attention_heads=2,
    intermediate_size=320,
    image_size=80,
    patch_size=16,
)


def main() -> None:
    torch.manual_seed(0)
    model = randomize(ViTModel(CONFIG))
    with torch.inference_mode(), pytest_cgins.record(ROOT / "traces/vit", ops=OPS):
        for dtype in DTYPES:
            model.to(dtype)
            model(torch.randn(3, 3, 80, 80).to(dtype))


if __name__ == "__main__":
    main()
