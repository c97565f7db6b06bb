"""Record GPT-2 (random weights, one small layer): `python -m record.gpt2`."""

from pathlib import Path

import torch
from transformers import GPT2Config, GPT2Model

import pytest_cgins
from models.weights import randomize
from record.common import DTYPES

ROOT = Path(__file__).resolve().parent.parent
OPS = [
    "torch.nn.functional.scaled_dot_product_attention",
    "torch.nn.functional.layer_norm",
    "torch.nn.functional.gelu",
]
CONFIG = GPT2Config(
    vocab_size=500,
    n_positions=64,
    n_embd=96,
    n_head=4,
    n_layer=1,
    activation_function="gelu_pytorch_tanh",
    bos_token_id=0,
    eos_token_id=0,
)


def main() -> None:
    torch.manual_seed(0)
    model = randomize(GPT2Model(CONFIG))
    with torch.inference_mode(), pytest_cgins.record(ROOT / "traces/gpt2", ops=OPS):
        for dtype in DTYPES:
            model.to(dtype)
            model(input_ids=torch.randint(500, (2, 19)))


if __name__ == "__main__":
    main()
