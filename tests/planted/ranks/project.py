"""A folder with a pack, a cgins.yaml and the ranked kernels, and the evaluator that gates them."""

from __future__ import annotations

import importlib
import shutil
import subprocess
import sys
from pathlib import Path

import torch
import yaml
from torch import distributed

import pytest_cgins
from pytest_cgins import config
from pytest_cgins.gate.evaluate import Evaluator
from pytest_cgins.gate.timing_stage import TimingOptions
from pytest_cgins.run.pool import WorkerPool
from tests.planted.ranks.rank_kernels import BUGS, HONEST, OF_GPUS, OTHERS

HERE = Path(__file__).parent
LIMIT_S = 5.0
"""A hang takes all of it."""
MAPPED = {"mapped_sum", "missing_sync", "right_in_step"}
"""Kernels that share the host's memory."""
OPS = {**HONEST, **BUGS, **OTHERS}
"""Kernel → op."""
ON_GPUS = {name: op for name, op in {**OPS, **OF_GPUS}.items() if name not in MAPPED}


def make(folder: Path, kernels: dict[str, str], *, device: str = "cpu", ranks: int = 2) -> config.Config:
    """Record the ops in a group of this process alone, and write kernel → op into a cgins.yaml."""
    for name in ("rank_ops.py", "rank_kernels.py"):
        shutil.copy(HERE / name, folder)
    _record(folder, set(kernels.values()), 4 * ranks)
    document = {
        "version": 1,
        "traces": ["traces"],
        "kernels": {
            name: {
                "op": f"rank_ops.{op}",
                "target": f"rank_kernels:{name}",
                "device": device,
                "ranks": {"count": ranks, "replicated": ["weight"]} if op == "gathered_product" else ranks,
            }
            for name, op in kernels.items()
        },
    }
    (folder / "cgins.yaml").write_text(yaml.safe_dump(document, sort_keys=False))
    return config.load(folder / "cgins.yaml")


def evaluator(
    loaded: config.Config,
    *,
    seed: int = 3,
    timing: bool = False,
    baseline: str = "none",
    limit_s: float = LIMIT_S,
    reference: WorkerPool | None = None,
) -> Evaluator:
    """Gates them."""
    options = TimingOptions(baseline=baseline)
    return Evaluator(
        loaded, seed=seed, timing=timing, timeout_s=limit_s, timing_options=options, reference=reference
    )


def commit(folder: Path) -> None:
    """Make the folder a repository whose only commit has all that is in it."""
    who = ("-c", "user.name=a", "-c", "user.email=a@example.com")
    for words in (("init", "-q"), ("add", "-A"), ("commit", "-q", "-m", "the base")):
        subprocess.run(["git", *who, *words], cwd=folder, check=True)


def _record(folder: Path, ops: set[str], rows: int) -> None:
    generator = torch.Generator().manual_seed(1)
    distributed.init_process_group(
        "gloo", store=distributed.FileStore(str(folder / "store"), 1), rank=0, world_size=1
    )
    sys.path.insert(0, str(folder))
    try:
        module = importlib.import_module("rank_ops")
        with pytest_cgins.record(folder / "traces"), torch.no_grad():
            for op in sorted(ops):
                arguments = [torch.randn(rows, 96, generator=generator)]
                if "product" in op:
                    arguments.append(torch.randn(96, 40, generator=generator) / 96**0.5)
                getattr(module, op)(*arguments)
    finally:
        sys.path.remove(str(folder))
        sys.modules.pop("rank_ops", None)
        distributed.destroy_process_group()
        (folder / "store").unlink(missing_ok=True)
