"""The services that run and time kernels, on a GPU."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from pytest_cgins.core import documents
from pytest_cgins.core.bitwise import same
from pytest_cgins.core.buffers import Buffer
from pytest_cgins.core.case import CompiledKernel, KernelSource
from pytest_cgins.core.tensors import pack, unpack
from pytest_cgins.core.trace import Argument, Context, OpCall, TensorMeta, Value
from pytest_cgins.run.pool import WorkerPool
from tests.whole_timing import measured, of_worker

pytestmark = pytest.mark.gpu

DEVICE = "cuda:0"
RELU = "torch.nn.functional.relu"
LIMIT_S = 120.0
KERNELS = """
import torch

def relu(input):
    return input.clamp(min=0)

def relu_on_the_host(input):
    return input.cpu().clamp(min=0)

def waiting_relu(input):
    input.sum().item()
    return input.clamp(min=0)

def out_of_bounds(input):
    return input.flatten()[torch.full((1,), 10**9, device=input.device)]
"""


@pytest.fixture
def pool() -> Iterator[WorkerPool]:
    with WorkerPool() as pool:
        yield pool


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "gpu_zoo.py").write_text(KERNELS)
    return tmp_path


def request_for(
    function: str, root: Path, elements: int = 2**16
) -> tuple[dict[str, Any], dict[str, Any], Buffer]:
    """The request without its inputs, one set of inputs of relu, and their buffer."""
    source = KernelSource(
        kernel="relu",
        implementation="zoo",
        op=RELU,
        device="cuda",
        contract="python",
        entry=function,
        schema="",
        files=(str(root / "gpu_zoo.py"),),
        module="gpu_zoo",
        import_root=str(root),
    )
    compiled = CompiledKernel(source=source, library="", key=function, build_seconds=0.0, cached=True)
    argument = Argument(name="input", value=Value(kind="tensor", value=0), passed="positional")
    header, buffer = pack([torch.linspace(-1, 1, elements)])
    output = TensorMeta(dtype="float32", shape=(elements,), stride=(1,), offset=0, storage=0)
    inputs = {
        "call": documents.dump_python(OpCall(op=RELU, arguments=(argument,))),
        "tensors": header,
        "outputs": [documents.dump_python(output)],
        "context": documents.dump_python(Context()),
    }
    request = {"kernel": documents.dump_python(compiled), "device": DEVICE, "import_root": str(root)}
    return request, inputs, buffer


@pytest.mark.parametrize("device", ["cpu", DEVICE])
def test_tensors_travel_to_the_gpu(device: str) -> None:
    """Strides and aliasing survive the way through a buffer onto the device."""
    base = torch.arange(24, dtype=torch.float32, device=device).reshape(4, 6)
    on_gpu, view = unpack(*pack([base, base.t()[1:]]), DEVICE)
    assert on_gpu.device == torch.device(DEVICE)
    assert view.stride() == base.t()[1:].stride()
    assert same(on_gpu, base)
    on_gpu.zero_()
    assert not view.any()


@pytest.mark.parametrize(("function", "device"), [("relu", DEVICE), ("relu_on_the_host", "cpu")])
def test_a_kernel_runs_on_the_gpu(pool: WorkerPool, root: Path, function: str, device: str) -> None:
    """Outputs come back bit by bit, with the device that they were on."""
    request, inputs, buffer = request_for(function, root)
    params = {**request, "sets": [{"name": "recorded", **inputs}]}
    reply = pool.call("verification", "run", params, [buffer], timeout_s=LIMIT_S)
    (answer,) = reply.result["sets"]
    assert answer["error"] is None
    assert answer["devices"] == [device]
    (output,) = unpack(answer["tensors"], reply.buffers[0], "cpu")
    assert same(output, torch.linspace(-1, 1, 2**16).relu())


def test_a_lost_context_costs_one_worker(pool: WorkerPool, root: Path) -> None:
    """A device-side assertion fails its set, the sets after it are not run, and the next call works."""
    request, inputs, buffer = request_for("out_of_bounds", root)
    sets = [{"name": "recorded", **inputs}, {"name": "fresh", **inputs}]
    reply = pool.call("verification", "run", {**request, "sets": sets}, [buffer, buffer], timeout_s=LIMIT_S)
    first, second = (answer["error"] for answer in reply.result["sets"])
    assert "CUDA error" in first["message"]
    assert second["kind"] == "NotRun"
    request, inputs, buffer = request_for("relu", root)
    params = {**request, "sets": [{"name": "recorded", **inputs}]}
    reply = pool.call("verification", "run", params, [buffer], timeout_s=LIMIT_S)
    assert reply.result["sets"][0]["error"] is None


@pytest.mark.parametrize(("elements", "cache"), [(2**10, "warm"), (2**22, "cold")])
def test_a_kernel_that_does_what_torch_does_is_as_fast(
    pool: WorkerPool, root: Path, elements: int, cache: str
) -> None:
    """clamp against relu in graphs: a speed-up near 1, cold where the tensors outrun the cache."""
    request, inputs, buffer = request_for("relu", root, elements)
    params = {**request, "sets": [{"name": "0", **inputs}]}
    measurement = measured(of_worker(pool), params, [buffer]).measurement
    assert measurement.method == "cuda-graph"
    assert measurement.cache == cache
    assert 0.7 < measurement.speedup_vs_torch < 1.4


def test_a_failed_capture_costs_one_worker(pool: WorkerPool, root: Path) -> None:
    """A kernel that waits for the GPU has both arms timed by events; the next one is captured again."""
    found = {}
    for function in ("waiting_relu", "relu"):
        request, inputs, buffer = request_for(function, root)
        params = {**request, "sets": [{"name": "0", **inputs}]}
        found[function] = measured(of_worker(pool), params, [buffer]).measurement
    assert found["waiting_relu"].method == "fenced-loop"
    assert "the kernel arm cannot be captured in a CUDA graph" in found["waiting_relu"].notes[0]
    assert found["waiting_relu"].speedup_high < 1
    assert found["relu"].method == "cuda-graph"
