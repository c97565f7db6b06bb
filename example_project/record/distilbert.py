"""Record DistilBERT (random weights, two of its six equal layers): `python -m record.distilbert`."""

from pathlib import Path

import torch
from transformers import DistilBertConfig, DistilBertForSequenceClassification

import pytest_cgins
from models.weights import randomize
from record.common import DTYPES

ROOT = Path(__file__).resolve().parent.parent
OPS = [
    "torch.nn.functional.linear",
    "torch.nn.functional.layer_norm",
    "torch.nn.functional.gelu",
    "torch.nn.functional.softmax",
]


def main() -> None:
    torch.manual_seed(0)
    config = DistilBertConfig(n_layers=2, attn_implementation="eager")
    model = randomize(DistilBertForSequenceClassification(config))
    with torch.inference_mode(), pytest_cgins.record(ROOT / "traces/distilbert", ops=OPS):
        for dtype in DTYPES:
            model.to(dtype)
            for batch, length in ((2, 64), (1, 37)):
                model(input_ids=torch.randint(config.vocab_size, (batch, length)))


if __name__ == "__main__":
    main()
