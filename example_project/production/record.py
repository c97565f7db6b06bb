"""Record the models on a GPU, by the ops that take 95% of their time: `python -m production.record [NAME …]`, here below `traces/`."""

import sys
from pathlib import Path

import torch

import pytest_cgins
from production import workloads

ROOT = Path(__file__).resolve().parent


def main(names: list[str]) -> None:
    for name in names or workloads.ALL:
        made = getattr(workloads, name)("cuda")
        model, inputs = made if isinstance(made, tuple) else (made, ())
        arguments = inputs if isinstance(inputs, tuple) else (inputs,)
        training = not isinstance(model, torch.nn.Module)
        with (
            torch.inference_mode(not training),
            pytest_cgins.record(ROOT / "traces" / name, top_time=0.95, backward=training, progress=True),
        ):
            model(*arguments)


if __name__ == "__main__":
    main(sys.argv[1:])
