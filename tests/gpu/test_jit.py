"""Triton kernels on a GPU: compilations are counted, a config that is wrong is found, and what recompiles is told."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from pytest_cgins.recording.record import record
from tests.repository import commit

pytest.importorskip("triton")
pytestmark = pytest.mark.gpu

CONFIG = """
version: 1
traces: [traces/net]
gate: {max_blocks: 24}
kernels:
"""
NAMES = ("tuned", "wrong", "seeded", "anew")
KERNELS = """
import itertools
import torch
import triton
import triton.language as tl

def configs():
    return [triton.Config({"BLOCK": block}, num_warps=warps) for block, warps in ((256, 4), (1024, 8))]

@triton.autotune(configs=configs(), key=["n"])
@triton.jit
def negate(x, y, n, BLOCK: tl.constexpr):
    index = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + index, -tl.load(x + index, mask=index < n), mask=index < n)

@triton.autotune(configs=configs(), key=["n"])
@triton.jit
def negate_some(x, y, n, BLOCK: tl.constexpr):
    index = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + index, mask=index < n)
    # The config that is wrong is also the slow one.
    for _ in range(1 if BLOCK == 256 else 200_000):
        value = value * 1.0000001 if BLOCK == 1024 else value
    tl.store(y + index, -value if BLOCK == 256 else 0.5 - value, mask=index < n)

@triton.jit
def negate_seeded(x, y, n, seed, BLOCK: tl.constexpr):
    index = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + index, -tl.load(x + index, mask=index < n) + 0 * seed, mask=index < n)

@triton.jit
def negate_anew(x, y, n, CALL: tl.constexpr, BLOCK: tl.constexpr):
    index = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + index, -tl.load(x + index, mask=index < n) + 0 * CALL, mask=index < n)

calls = itertools.count()

def run(kernel, input, *more, **options):
    x = input.contiguous()
    y = torch.empty_like(x)
    kernel[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, y, x.numel(), *more, **options)
    return y

def tuned(input):
    return run(negate, input)

def wrong(input):
    return run(negate_some, input)

def seeded(input):
    return run(negate_seeded, input, next(calls), BLOCK=256)

def anew(input):
    return run(negate_anew, input, CALL=next(calls), BLOCK=256)
"""


def test_jit_kernels(tmp_path: Path) -> None:
    """Tuned passes and its times are of one choice; a seed of several kinds is no finding; a constant that counts is."""
    with record(tmp_path / "traces" / "net", ops=["torch.neg"]):
        torch.neg(torch.randn(64, 1000, device="cuda"))
    entries = (f'  {name}: {{op: torch.neg, target: "jit_kernels:{name}", device: cuda}}\n' for name in NAMES)
    (tmp_path / "cgins.yaml").write_text(CONFIG + "".join(entries))
    (tmp_path / "jit_kernels.py").write_text(KERNELS)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    commit(tmp_path)
    (tmp_path / "jit_kernels.py").write_text(f"{KERNELS}\n# changed\n")
    command = [
        sys.executable, "-m", "pytest", "-p", "no:cgins", "-p", "pytest_cgins.plugin", "--cgins", "--cgins-device=cuda",
        "--cgins-baseline=HEAD", "--cgins-json=report.json", "-q", "-p", "no:cacheprovider",
    ]  # fmt: skip
    environment = {**os.environ, "CGINS_CACHE_DIR": str(tmp_path / "cache")}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    report = json.loads((tmp_path / "report.json").read_text())
    found = {evaluation["case"]["kernel"]: evaluation for evaluation in report["evaluations"]}
    told = {name: (found[name]["verdict"]["status"], found[name]["verdict"]["reason"]) for name in NAMES}
    assert told["anew"] == ("RESOURCES", "recompiles"), done.stdout
    assert "of negate_anew" in found["anew"]["verdict"]["message"]
    assert told["wrong"] == ("INCORRECT", "wrong-config"), done.stdout
    assert "BLOCK: 1024" in found["wrong"]["verdict"]["message"]
    for name in ("tuned", "seeded"):
        assert told[name][0] in ("SAME", "FASTER", "INCONCLUSIVE"), done.stdout
    tuned = found["tuned"]
    assert tuned["correctness"]["jit"]["count"] >= 2
    assert tuned["correctness"]["jit"]["seconds"] > 0
    measurement = tuned["measurement"]
    (own,) = (choice["config"] for choice in measurement["tuned"])
    assert [choice["config"] for choice in measurement["base_tuned"]] == [own]
    # Compiled by the verification of the kernel and of the base, before the GPU was held.
    for side in ("jit", "base_jit"):
        assert measurement[side]["cached"] == measurement[side]["count"] > 0
    assert any((tmp_path / "cache" / "builds" / "jit").rglob("*.cubin"))
