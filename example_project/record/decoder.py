"""Record the Llama-style decoder (random weights) reading prompts: `python -m record.decoder`."""

from pathlib import Path

import torch

import pytest_cgins
from models.decoder import Decoder
from models.weights import randomize
from record.common import DTYPES

ROOT = Path(__file__).resolve().parent.parent
OPS = [
    "torch.nn.functional.embedding",
    "torch.nn.functional.linear",
    "torch.nn.functional.scaled_dot_product_attention",
    "models.decoder.rms_norm",
    "models.decoder.apply_rotary",
    "models.decoder.silu_mul",
]


def padding_mask(lengths: list[int]) -> torch.Tensor:
    """Causal, and without the padding behind shorter sequences: (batch, 1, longest, longest), True is seen."""
    key = torch.arange(max(lengths))
    within = key < torch.tensor(lengths)[:, None]
    return (within[:, None, :] & (key <= key[:, None]))[:, None]


def window_mask(length: int, window: int, dtype: torch.dtype) -> torch.Tensor:
    """Causal, and no farther back than `window`: (length, length), added to the scores."""
    distance = torch.arange(length)[:, None] - torch.arange(length)
    hidden = (distance < 0) | (distance >= window)
    return torch.zeros(length, length, dtype=dtype).masked_fill(hidden, float("-inf"))


def main() -> None:
    torch.manual_seed(0)
    model = randomize(Decoder())
    with torch.inference_mode(), pytest_cgins.record(ROOT / "traces/decoder", ops=OPS):
        for dtype in DTYPES:
            model.to(dtype)
            for batch, length in ((2, 48), (1, 7)):
                model(torch.randint(1000, (batch, length)))
            model(torch.randint(1000, (2, 48)), padding_mask([48, 29]))
            model(torch.randint(1000, (2, 48)), window_mask(48, 9, dtype))


if __name__ == "__main__":
    main()
