"""CUDA in a sandbox: the driver, torch, Triton's compiler, and what stays shut."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from pytest_cgins.run.sandbox.sandbox import Sandbox, Way, ways

pytestmark = pytest.mark.gpu

LIMIT_S = 300
WAYS = ways()


@pytest.fixture(params=[way for way, trouble in WAYS.items() if not trouble] or [None])
def sandbox(request: pytest.FixtureRequest, tmp_path: Path) -> Sandbox:
    """One in each way that this host has."""
    if request.param is None:
        pytest.skip(f"this host gives no sandbox: {WAYS}")
    way: Way = request.param
    return Sandbox(way=way, visible=(tmp_path,), hidden=(tmp_path / "gold",))


def run(sandbox: Sandbox, *argv: str) -> str:
    """What a program in the sandbox prints; fails with its errors if it fails."""
    ran = subprocess.run(
        sandbox.wrap([sys.executable, *argv]),
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LIMIT_S, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, (ran.returncode, ran.stdout, ran.stderr[-4000:])
    return ran.stdout


def test_cuda_computes(sandbox: Sandbox) -> None:
    """Products, a library's handle, pinned memory, a graph: what a worker does with a GPU."""
    code = """
import torch
a = torch.randn(256, 256, device="cuda", dtype=torch.float64)
assert torch.allclose((a @ a).cpu(), a.cpu() @ a.cpu())
pinned = torch.ones(1 << 20, pin_memory=True)
assert pinned.to("cuda", non_blocking=True).sum().item() == 1 << 20
torch.nn.functional.conv2d(torch.randn(1, 3, 8, 8, device="cuda"), torch.randn(4, 3, 3, 3, device="cuda"))
static, graph = torch.zeros(8, device="cuda"), torch.cuda.CUDAGraph()
static.add_(0)
torch.cuda.synchronize()
with torch.cuda.graph(graph):
    static.add_(1)
graph.replay()
assert static.sum().item() == 8
print(torch.cuda.device_count(), torch.cuda.get_device_properties(0).uuid)
"""
    import torch

    uuid = torch.cuda.get_device_properties(0).uuid
    assert run(sandbox, "-c", code).split() == [str(torch.cuda.device_count()), str(uuid)]


def test_large_reservations(sandbox: Sandbox) -> None:
    """Managed memory and expandable segments reserve far more addresses than there is memory."""
    code = """
import ctypes, os
os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"
import torch
assert torch.ones(1 << 26, device="cuda").sum().item() == 1 << 26
cuda, address = ctypes.CDLL("libcuda.so.1"), ctypes.c_uint64()
assert cuda.cuMemAllocManaged(ctypes.byref(address), ctypes.c_size_t(1 << 26), 1) == 0
ctypes.memset(address.value, 1, 1 << 26)
print("done")
"""
    assert run(sandbox, "-c", code) == "done\n"


def test_triton_compiles_into_scratch(sandbox: Sandbox, tmp_path: Path) -> None:
    """Triton finds its compiler and a C compiler, and its cache is in the scratch folder."""
    pytest.importorskip("triton")
    source = tmp_path / "doubling.py"
    source.write_text(
        "import os, torch, triton, triton.language as tl\n"
        "@triton.jit\n"
        "def double(x, y, n, BLOCK: tl.constexpr):\n"
        "    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)\n"
        "    tl.store(y + at, 2 * tl.load(x + at, mask=at < n), mask=at < n)\n"
        "x = torch.arange(1000., device='cuda')\n"
        "y = torch.empty_like(x)\n"
        "double[(8,)](x, y, 1000, BLOCK=128)\n"
        "assert torch.equal(y, 2 * x)\n"
        "print(bool(os.listdir(os.environ['TRITON_CACHE_DIR'])))\n"
    )
    assert run(sandbox, str(source)) == "True\n"


def test_fence_holds_beside_cuda(sandbox: Sandbox, tmp_path: Path) -> None:
    """With the GPU's nodes in it, it hides what it hides, and its mounts stay read-only."""
    (tmp_path / "gold").mkdir()
    (tmp_path / "gold" / "blob").write_text("x")
    code = f"""
import os, torch
torch.ones(8, device="cuda").sum().item()
assert os.listdir({str(tmp_path / "gold")!r}) == []
for call in (lambda: open({str(tmp_path / "x")!r}, "w"), lambda: open("/proc/sys/kernel/core_pattern", "w")):
    try:
        call()
    except OSError as error:
        assert error.errno == 30, error
    else:
        raise AssertionError
nodes = sorted(name for name in os.listdir("/dev") if not name.startswith(("nvidia", "dxg")))
print(*nodes)
"""
    found = set(run(sandbox, "-c", code).split())
    assert {"null", "zero", "urandom", "shm"} <= found
    assert not found & {"mem", "kmsg", "sda", "nvme0n1", "vda"}


def test_device_failure_is_told(sandbox: Sandbox) -> None:
    """An assertion on the device is an error of CUDA inside as it is outside."""
    code = """
import torch
x = torch.ones(4, device="cuda")
try:
    x[torch.tensor([7], device="cuda")]
    torch.cuda.synchronize()
except RuntimeError as error:
    print("device-side assert" in str(error))
"""
    assert run(sandbox, "-c", code) == "True\n"
