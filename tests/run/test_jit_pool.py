"""Triton kernels are compiled by processes of their own, without being launched, before anybody needs them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

import pytest_cgins
from pytest_cgins import config
from pytest_cgins.building.build import jit_environment
from pytest_cgins.building.kernel_builds import KernelBuilds
from pytest_cgins.gate.cases import cases_of
from pytest_cgins.run import jit_pool
from pytest_cgins.timing import lock

pytestmark = pytest.mark.exam

# Compiled for a GPU that is not there: only what launches and loads needs one.
KERNELS = """
import mmap
import torch
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.runtime import driver

class Hopper:
    def get_current_target(self): return GPUTarget("cuda", 90, 32)
    def get_current_device(self): return 0
    def get_current_stream(self, device=None): return 0

driver.set_active(Hopper())
addresses = mmap.mmap(-1, 1 << 38, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, prot=0)  # as a context of CUDA reserves them

@triton.jit
def scale(x, y, n, factor, BLOCK: tl.constexpr):
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + index, tl.load(x + index, mask=index < n) * factor, mask=index < n)

tuned = triton.autotune([triton.Config({"BLOCK": size}) for size in (64, 128)], key=["n"], cache_results=True)(scale)

def run(x, function, **options):
    y = torch.empty_like(x)
    function[(1,)](x, y, x.numel(), 2.0, **options)
    return y

def relu(x): return run(x, scale, BLOCK=32)
def sigmoid(x): return run(x, tuned)
def tanh(x): return run(x, scale, BLOCK=256)
def exp(x): raise RuntimeError("no call of mine is right")
"""
CONFIG = """
version: 1
traces: [traces/net]
kernels:
"""
OPS = ("relu", "exp", "sigmoid", "tanh")
COUNT = """
import json, sys
import torch
import kernels
from pytest_cgins.run.jit_compile import nothing_launched
from pytest_cgins.verify.probes.recompiles import Compilations

compilations = Compilations()
compilations.listen()
told = {}
for name in ("relu", "sigmoid", "tanh"):
    mark = len(compilations._heard)
    with nothing_launched():
        getattr(kernels, name)(torch.zeros(96))
    told[name] = [compilation.cached for compilation in compilations._heard[mark:]]
print(json.dumps(told))
"""


@pytest.fixture
def project(tmp_path: Path) -> config.Config:
    (tmp_path / "kernels.py").write_text(KERNELS)
    with pytest_cgins.record(tmp_path / "traces" / "net", ops=[f"torch.{name}" for name in OPS]):
        for name in OPS:
            getattr(torch, name)(torch.ones(96))
    entries = [
        f"  {name}: {{op: torch.{name}, implementations: [{{name: cpu, device: cpu, target: 'kernels:{name}', sources: [kernels.py]}}]}}\n"
        for name in OPS
    ]
    (tmp_path / "cgins.yaml").write_text(CONFIG + "".join(entries))
    return config.load(tmp_path / "cgins.yaml")


def test_all_but_the_first_are_compiled_with_each_config(project: config.Config, tmp_path: Path) -> None:
    """Who calls them later finds on disk what the compiler made, and no choice of an autotuner that measured nothing."""
    pytest.importorskip("triton")
    cache = tmp_path / "cache"
    environment = jit_environment(cache)
    kernels = KernelBuilds(project, cache=cache)
    folder = cache / "jit" / "ahead"
    try:
        jit_pool.compile_ahead(
            cases_of(project, device="cpu"),
            kernels,
            import_root=str(tmp_path),
            environment=environment,
            folder=folder,
        )
        end = time.monotonic() + 100
        while not folder.is_dir() or len([path for path in folder.iterdir() if not path.suffix]) < 2:
            assert time.monotonic() < end, "nobody compiled them"
            time.sleep(0.1)
    finally:
        kernels.close()
    assert not [*Path(environment["TRITON_CACHE_DIR"]).rglob("*.autotune.json")]
    (tmp_path / "count.py").write_text(COUNT)
    done = subprocess.run(
        [sys.executable, tmp_path / "count.py"],
        env={**os.environ, **environment, "TRITON_INTERPRET": "0"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout) == {"relu": [False], "sigmoid": [True, True], "tanh": [True]}


def test_a_call_that_hangs_gives_the_device_back() -> None:
    """A kernel may wait for what is never launched there; whoever times waits for nobody who hangs."""
    code = (
        "import time; from pytest_cgins.run import jit_compile; jit_compile.MOST_HELD_S = 0.1\n"
        "with jit_compile._verifying('cpu'): time.sleep(60)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "Timeout" in done.stderr
    with lock.timing("cpu", wait_s=10):
        pass
