"""Record the decoder while it generates, one token a step: `python -m record.generation`."""

from pathlib import Path

import torch

import pytest_cgins
from models.decoder import Decoder
from models.weights import randomize
from record.common import DTYPES

ROOT = Path(__file__).resolve().parent.parent
OPS = [
    "torch.nn.functional.embedding",
    "torch.nn.functional.scaled_dot_product_attention",
    "models.decoder.apply_rotary",
    "models.decoder.silu_mul",
]


def main() -> None:
    torch.manual_seed(0)
    model = randomize(Decoder())
    with torch.inference_mode():
        prompts = {dtype: prompt(model.to(dtype)) for dtype in DTYPES}
        with pytest_cgins.record(ROOT / "traces/generation", ops=OPS):
            for dtype, (batch, single) in prompts.items():
                model.to(dtype)
                # Of the batch's prompts two are padded, and no query may see the padding.
                seen = torch.arange(12) < torch.tensor([11, 5, 8])[:, None]
                seen[:, 11] = True
                model(torch.randint(1000, (3, 1)), seen[:, None, None], batch)
                model(torch.randint(1000, (1, 1)), None, single)


def prompt(model: Decoder) -> tuple[list, list]:
    """Caches that hold three short prompts, and one of 100 tokens."""
    batch, single = model.caches(3, 16), model.caches(1, 128)
    model(torch.randint(1000, (3, 11)), None, batch)
    model(torch.randint(1000, (1, 100)), None, single)
    return batch, single


if __name__ == "__main__":
    main()
