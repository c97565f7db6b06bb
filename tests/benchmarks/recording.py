"""What recording costs: time over the plain run, pack sizes, replay, for three models with random weights.

Run as `python tests/benchmarks/recording.py [--json FILE] [--rounds N]`. ResNet-50 takes images
(2, 3, 112, 112), DistilBERT (six layers) tokens (2, 128), the decoder tokens (2, 128), all fp32, default
ops, one thread. Per tier, three figures, each the median of `rounds` recordings:

- first: the model's run in which every signature is new, over the plain run;
- again: its next run under the same recording, in which every signature is known, over the plain run;
- total: seconds of the whole recording of these two runs, gold, self-check and writing included.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from pytest_cgins import documents
from pytest_cgins.timing.environment import describe
from pytest_cgins.trace.record import record

PROJECT = Path(__file__).resolve().parents[2] / "example_project"


def models() -> dict[str, Callable[[], object]]:
    """A forward pass of each model, without gradients."""
    from transformers import DistilBertConfig, DistilBertModel

    sys.path.insert(0, str(PROJECT))
    from models.decoder import Decoder
    from models.resnet import ResNet50

    torch.manual_seed(0)
    resnet, images = ResNet50().eval(), torch.randn(2, 3, 112, 112)
    bert = DistilBertModel(DistilBertConfig(attn_implementation="eager")).eval()
    decoder, tokens = Decoder().eval(), torch.randint(1000, (2, 128))
    return {
        "ResNet-50": lambda: resnet(images),
        "DistilBERT": lambda: bert(input_ids=tokens),
        "decoder": lambda: decoder(tokens),
    }


def timed(action: Callable[[], object]) -> float:
    """Seconds of one run."""
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def measure(model: Callable[[], object], tier: Any, rounds: int) -> dict[str, Any]:
    """Figures of one model in one tier; plain runs are interleaved with recordings."""
    plain, first, again, total = [], [], [], []
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        model()
        for _ in range(rounds):
            plain += [timed(model), timed(model)]
            start = time.perf_counter()
            with record(Path(folder) / "pack", tier=tier) as recording:
                first.append(timed(model))
                again.append(timed(model))
            total.append(time.perf_counter() - start)
        files = [file for file in Path(folder).rglob("*") if file.is_file()]
        sizes = sum(file.stat().st_size for file in files)
    assert recording.pack is not None
    base = statistics.median(plain)
    return {
        "calls": sum(trace.count for trace in recording.pack.traces) // 2,
        "signatures": len(recording.pack.traces),
        "plain_s": base,
        "first_over_plain": statistics.median(first) / base,
        "again_over_plain": statistics.median(again) / base,
        "total_s": statistics.median(total),
        "pack_mib": sizes / 2**20,
        "files": len(files),
        "replay": dict(Counter(trace.replay for trace in recording.pack.traces)),
    }


def main() -> None:
    """Print the table, and write the figures with the environment."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, help="write all figures here")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--threads", type=int, default=1, help="torch's threads; 1 is steady on a shared host"
    )
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    results: dict[str, dict[str, Any]] = {}
    print("| model | tier | calls | signatures | plain ms | first | again | total s | MiB | files | replay |")
    print("|---|---|---|---|---|---|---|---|---|---|---|")
    for name, model in models().items():
        results[name] = {}
        for tier in ("shapes", "recipe", "full"):
            row = results[name][tier] = measure(model, tier, args.rounds)
            replay = ", ".join(f"{count} {outcome}" for outcome, count in row["replay"].items())
            print(
                f"| {name} | {tier} | {row['calls']} | {row['signatures']} | {1e3 * row['plain_s']:.0f} "
                f"| {row['first_over_plain']:.2f}× | {row['again_over_plain']:.2f}× | {row['total_s']:.1f} "
                f"| {row['pack_mib']:.2f} | {row['files']} | {replay} |",
                flush=True,
            )
    if args.json:
        environment = documents.dump_python(describe("cpu"))
        args.json.write_text(json.dumps({"environment": environment, "results": results}, indent=2) + "\n")


if __name__ == "__main__":
    main()
