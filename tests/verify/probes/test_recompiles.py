"""What Triton and CuTe compile is counted: by signature, with the time that it took, also where the results are on disk."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_cgins.verify.probes.recompiles import judge

# Compiled for a GPU that is not there: only what launches and loads needs one.
SCRIPT = """\
import json
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.runtime import driver
from pytest_cgins.verify.probes.recompiles import Compilations

class Hopper:
    def get_current_target(self): return GPUTarget("cuda", 90, 32)
    def get_current_device(self): return 0
    def get_current_stream(self, device=None): return 0

driver.set_active(Hopper())

@triton.jit
def scale(x, y, n, BLOCK: tl.constexpr):
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + index, tl.load(x + index, mask=index < n) * 2, mask=index < n)

compilations = Compilations()
compilations.listen()
for n, block in ((16, 64), (32, 64), (17, 64), (19, 64), (16, 128)):
    scale.warmup(triton.runtime.jit.MockTensor(tl.float32), triton.runtime.jit.MockTensor(tl.float32), n, BLOCK=block, grid=(1,))
counted = compilations.counted()
print(json.dumps([counted.count, counted.cached, counted.seconds]))
"""


@pytest.mark.exam
def test_compilations_of_a_sweep_of_sizes(tmp_path: Path) -> None:
    """Five sizes have three signatures; a second process finds them on disk and tells the time of the first."""
    pytest.importorskip("triton")
    (tmp_path / "script.py").write_text(SCRIPT)
    environment = {**os.environ, "TRITON_CACHE_DIR": str(tmp_path / "cache"), "TRITON_INTERPRET": "0"}
    told = []
    for _ in range(2):
        command = [sys.executable, tmp_path / "script.py"]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        told.append(json.loads(done.stdout))
    (count, cached, seconds), (again, found, same) = told
    assert (count, cached) == (3, 0)
    assert (again, found) == (3, 3)
    assert seconds > 0
    assert same == pytest.approx(seconds)


def test_which_compilations_are_a_finding() -> None:
    """Two kinds of a seed are compiled for in calls like the first, and then no more; what goes on is told."""
    assert not judge(["dropout", "dropout"])
    assert judge(["softmax"] * 3).startswith(
        "calls with the same signature compile again: 3 compilations of softmax after the first call"
    )


CUTE = """\
import json
import cutlass
from cutlass import cute
from cutlass.cute.runtime import make_fake_compact_tensor
from pytest_cgins.verify.probes.recompiles import Compilations

@cute.kernel
def copy(x: cute.Tensor, y: cute.Tensor):
    index = cute.arch.block_idx()[0] * 64 + cute.arch.thread_idx()[0]
    if index < cute.size(y):
        y[index] = x[index]

@cute.jit
def launch(x: cute.Tensor, y: cute.Tensor):
    copy(x, y).launch(grid=[cute.ceil_div(cute.size(y), 64), 1, 1], block=[64, 1, 1])

compilations = Compilations()
compilations.listen()
mark = compilations.mark()
for dtype in (cutlass.Float32, cutlass.Float16, cutlass.Float32):
    x = make_fake_compact_tensor(dtype, (cute.sym_int(),))
    cute.compile(launch, x, x)
counted = compilations.counted()
print(json.dumps([compilations.can_hear(), counted.count, counted.seconds, compilations.since(mark)]))
"""


@pytest.mark.exam
def test_what_cute_compiles_is_counted(tmp_path: Path) -> None:
    """`cute.compile` compiles whenever it is called: who does so in each call is found."""
    pytest.importorskip("cutlass.base_dsl")
    (tmp_path / "script.py").write_text(CUTE)
    done = subprocess.run(
        [sys.executable, tmp_path / "script.py"],
        env={**os.environ, "CUTE_DSL_ARCH": "sm_90a"},
        capture_output=True,
        text=True,
        check=True,
    )
    can_hear, count, seconds, names = json.loads(done.stdout)
    assert (can_hear, count, names) == (True, 3, ["launch"] * 3)
    assert seconds > 0
