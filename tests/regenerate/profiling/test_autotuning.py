"""A kernel of Triton that tunes itself has done so before it is profiled: one configuration is what is looked at."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

KERNEL = """
import json
import torch
import triton
import triton.language as tl
from pytest_cgins.regenerate.profiling.runner import _autotuned

tried = []


def bench(call, quantiles=None):
    tried.append(1)
    call()
    return [float(len(tried))] * 3


@triton.autotune([triton.Config({"BLOCK": 16}), triton.Config({"BLOCK": 64})], key=["n"], do_bench=bench)
@triton.jit
def double(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, 2 * tl.load(x + at, mask=at < n), mask=at < n)


def call():
    x, y = torch.randn(100), torch.empty(100)
    double[lambda meta: (triton.cdiv(100, meta["BLOCK"]),)](x, y, 100)
    assert torch.equal(y, 2 * x)


before = _autotuned()
call()
warm = len(tried)
call()
print(json.dumps([before, warm, len(tried), _autotuned()]))
"""


@pytest.mark.exam
def test_the_chosen_configuration_is_told_and_stays(tmp_path: Path) -> None:
    """The warm call tries all, the next one none; the note has how many were tried, and which one is profiled."""
    pytest.importorskip("triton")
    (tmp_path / "kernel.py").write_text(KERNEL)  # Triton reads the source of what it compiles
    done = subprocess.run(
        [sys.executable, "kernel.py"],
        cwd=tmp_path, env={**os.environ, "TRITON_INTERPRET": "1"}, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    before, warm, after, notes = json.loads(done.stdout)
    assert (before, warm, after) == ([], 2, 2)
    (note,) = notes
    assert note.startswith("autotuning of double chose of 2 before the profiled call: BLOCK: 16")
