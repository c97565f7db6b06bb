"""Record the models on a GPU, by the ops that take 95% of their time: `python record.py [NAME …]`.

Packs are here below `traces/`; `cgins profile traces/*` then measures what each of their ops takes.
"""

import sys
from pathlib import Path

import torch
import workloads

import pytest_cgins

TRACES = Path(__file__).resolve().parent / "traces"


def main(names: list[str]) -> None:
    for name in names or workloads.ALL:
        made = getattr(workloads, name)("cuda")
        model, inputs = made if isinstance(made, tuple) else (made, ())
        arguments = inputs if isinstance(inputs, tuple) else (inputs,)
        training = not isinstance(model, torch.nn.Module)
        with torch.inference_mode(not training):
            model(*arguments)  # What a library does once is no op's time.
            with pytest_cgins.record(TRACES / name, top_time=0.95, backward=training, progress=True):
                model(*arguments)


if __name__ == "__main__":
    main(sys.argv[1:])
