"""Record the backward of layer norm and GELU in GPT-2 and a vision transformer: `python -m record.training`."""

from pathlib import Path

import torch
from transformers import GPT2Model, ViTModel

import pytest_cgins
from models.weights import randomize
from record import gpt2, vit
from record.common import DTYPES

ROOT = Path(__file__).resolve().parent.parent
OPS = [
    "torch.nn.functional.layer_norm@backward(input,weight,bias)",
    "torch.nn.functional.gelu@backward(input)",
]


def main() -> None:
    torch.manual_seed(0)
    language, vision = randomize(GPT2Model(gpt2.CONFIG)), randomize(ViTModel(vit.CONFIG))
    with pytest_cgins.record(ROOT / "traces/training", ops=OPS):
        for dtype in DTYPES:
            tokens, images = torch.randint(500, (2, 19)), torch.randn(3, 3, 80, 80)
            for model, batch in ((language, tokens), (vision, images.to(dtype))):
                hidden = model.to(dtype)(batch).last_hidden_state
                hidden.backward(torch.randn(hidden.shape).to(dtype))


if __name__ == "__main__":
    main()
