"""Record the models on a GPU, by the ops that take 95% of their time: `python -m production.record [NAME …]`.

Packs are here below `traces/`; what each of their signatures took in one run of the model is in `times/NAME.json`.
"""

import json
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
        with torch.inference_mode(not training):
            model(*arguments)  # What a library does once is no op's time.
            with pytest_cgins.record(
                ROOT / "traces" / name, top_time=0.95, backward=training, progress=True
            ) as recording:
                model(*arguments)
        times = [
            {
                "op": kept.record.call.op,
                "tensors": [f"{meta.dtype} {'x'.join(map(str, meta.shape))}" for meta in kept.record.metas],
                "calls": kept.count,
                "us": round(1e6 * kept.record.time.seconds(kept.count), 1),
            }
            for kept in recording.outcome.kept
        ]
        file = ROOT / "times" / f"{name}.json"
        file.parent.mkdir(exist_ok=True)
        file.write_text(json.dumps(times, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
