"""Record the Llama-style decoder (random weights), prefill and one token: `python record/decoder.py`."""

import sys
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import pytest_cgins  # noqa: E402 (the project's folder has to be on the path first)
from models.decoder import Decoder  # noqa: E402
from record.common import DTYPES, randomize  # noqa: E402

OPS = ["torch.nn.functional.linear", "torch.nn.functional.softmax", "models.decoder.rms_norm"]


def main() -> None:
    torch.manual_seed(0)
    model = randomize(Decoder())
    with torch.inference_mode(), pytest_cgins.record(ROOT / "traces/decoder", ops=OPS):
        for dtype in DTYPES:
            model.to(dtype)
            for batch, length in ((2, 48), (1, 1)):
                model(torch.randint(1000, (batch, length)))


if __name__ == "__main__":
    main()
