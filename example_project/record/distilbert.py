"""Record DistilBERT (random weights, two of its six equal layers): `python record/distilbert.py`."""

import sys
from pathlib import Path

import torch
from transformers import DistilBertConfig, DistilBertForSequenceClassification

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import pytest_cgins  # noqa: E402 (the project's folder has to be on the path first)
from record.common import DTYPES, randomize  # noqa: E402

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
