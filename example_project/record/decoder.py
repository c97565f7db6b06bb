"""Record the Llama-style decoder (random weights), a batch and a short prompt: `python -m record.decoder`."""

from pathlib import Path

import torch

import pytest_cgins
from models.decoder import Decoder
from record.common import DTYPES, randomize

ROOT = Path(__file__).resolve().parent.parent
OPS = ["torch.nn.functional.linear", "torch.nn.functional.softmax", "models.decoder.rms_norm"]


def main() -> None:
    torch.manual_seed(0)
    model = randomize(Decoder())
    with torch.inference_mode(), pytest_cgins.record(ROOT / "traces/decoder", ops=OPS):
        for dtype in DTYPES:
            model.to(dtype)
            for batch, length in ((2, 48), (1, 7)):
                model(torch.randint(1000, (batch, length)))


if __name__ == "__main__":
    main()
