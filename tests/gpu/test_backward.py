"""Backwards on a GPU: recorded through autograd's own thread, replayed, and timed in CUDA graphs."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from pytest_cgins.core import documents
from pytest_cgins.core.buffers import Buffer
from pytest_cgins.core.case import CompiledKernel, KernelSource
from pytest_cgins.core.tensors import pack
from pytest_cgins.core.trace import Trace
from pytest_cgins.packs.replay import load_inputs
from pytest_cgins.packs.store import PackReader, open_pack
from pytest_cgins.recording.record import record
from pytest_cgins.run.pool import WorkerPool
from tests.whole_timing import measured, of_worker

pytestmark = pytest.mark.gpu

DEVICE = "cuda:0"
KERNELS = """
import torch

def linear(grad_output, input, weight, bias=None):
    return grad_output @ weight, grad_output.T @ input, grad_output.sum(0)

def layer_norm(grad_output, input, normalized_shape, weight=None, bias=None, eps=1e-5):
    centered = input - input.mean(-1, keepdim=True)
    scale = torch.rsqrt(centered.square().mean(-1, keepdim=True) + eps)
    normal, g = centered * scale, grad_output * weight
    inner = g - g.mean(-1, keepdim=True) - normal * (g * normal).mean(-1, keepdim=True)
    return scale * inner, (grad_output * normal).sum(0), grad_output.sum(0)
"""


def net() -> nn.Module:
    """Layers whose backwards cuBLAS, cuDNN and torch's own kernels run."""
    return nn.Sequential(
        nn.Conv2d(4, 8, 3), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(8 * 49, 256), nn.LayerNorm(256), nn.GELU(), nn.Linear(256, 16),
    ).to(DEVICE)  # fmt: skip


@pytest.mark.parametrize("tier", ["recipe", "full"])
def test_backwards_are_recorded_and_replayed(tmp_path: Path, tier: str) -> None:
    """Each op with a gradient has a backward that gives its gold again, and the parameters' gradients are gold."""
    model, x = net(), torch.randn(8, 4, 16, 16, device=DEVICE)
    with record(tmp_path / "pack", backward=True, tier=tier) as recording:
        model(x).square().mean().backward()
    derived = {
        trace.call.op.partition("@")[0].rpartition(".")[2]
        for trace in recording.pack.traces
        if "@" in trace.call.op
    }
    assert {"conv2d", "batch_norm", "relu", "max_pool2d", "linear", "layer_norm", "gelu"} <= derived
    assert {trace.replay for trace in recording.pack.traces} <= {"bitwise", "derived"}
    if tier == "full":
        from pytest_cgins.packs.gold import load_gold

        reader = open_pack(tmp_path / "pack")
        (trace,) = (t for t in reader.pack.traces if "layer_norm@" in t.call.op)
        assert torch.equal(load_gold(trace, reader)[2].values, model[6].bias.grad.cpu())


def test_time_is_measured_by_events(tmp_path: Path) -> None:
    """A large product outweighs a hundred small additions, in forward and backward."""
    x = torch.randn(4096, 4096, device=DEVICE, requires_grad=True)
    small = torch.randn(16, device=DEVICE)
    with record(tmp_path / "pack", backward=True, top_time=0.7) as recording:
        for _ in range(5):
            torch.matmul(x, x).sum().backward()
            small + 1
    assert recording.pack.traces[0].call.op.startswith("torch.matmul")
    assert not any(trace.call.op == "torch.Tensor.add" for trace in recording.pack.traces)


@pytest.fixture
def recorded(tmp_path: Path) -> PackReader:
    """Backwards of a linear layer and of a layer norm in bf16, recorded under autocast."""
    (tmp_path / "kernels.py").write_text(KERNELS)
    model = nn.Sequential(nn.Linear(512, 512), nn.LayerNorm(512)).to(DEVICE)
    x = torch.randn(2048, 512, device=DEVICE, requires_grad=True)
    with record(
        tmp_path / "pack", ops=["torch.nn.functional.linear", "torch.nn.functional.layer_norm"], backward=True
    ):
        model(x).square().mean().backward()
    return open_pack(tmp_path / "pack")


def request_for(trace: Trace, reader: PackReader, function: str) -> tuple[dict[str, object], Buffer]:
    """A request to time a Python kernel on a trace."""
    root = reader.folder.parent
    source = KernelSource(
        kernel="backward", implementation="python", op=trace.call.op, device="cuda", contract="python",
        entry=function, schema="", files=(str(root / "kernels.py"),), module="kernels", import_root=str(root),
    )  # fmt: skip
    compiled = CompiledKernel(source=source, library="", key=function, build_seconds=0.0, cached=True)
    header, buffer = pack(load_inputs(trace, reader, "cpu"))
    params = {
        "kernel": documents.dump_python(compiled),
        "device": DEVICE,
        "import_root": str(root),
        "sets": [
            {
                "name": "0",
                "call": documents.dump_python(trace.call),
                "tensors": header,
                "outputs": [documents.dump_python(gold.meta) for gold in trace.gold.tensors],
                "context": documents.dump_python(trace.context),
            }
        ],
    }
    return params, buffer


@pytest.mark.parametrize("name", ["linear", "layer_norm"])
def test_the_backward_alone_is_timed_in_a_graph(recorded: PackReader, name: str) -> None:
    """Autograd is captured on the stream of its forward; its time is that of the backward, not of both."""
    (trace,) = (t for t in recorded.pack.traces if f"{name}@backward" in t.call.op)
    (forward,) = (t for t in recorded.pack.traces if t.call.op.endswith(name))
    params, buffer = request_for(trace, recorded, name)
    with WorkerPool() as pool:
        measurement = measured(of_worker(pool), params, [buffer]).measurement
    assert measurement.method == "cuda-graph", measurement.notes
    from pytest_cgins.packs.backward import prepared
    from pytest_cgins.packs.context import restore

    tensors = load_inputs(trace, recorded, DEVICE)
    with restore(trace.context, "cuda"):
        run = prepared(trace.call, tensors)
        own = _device_ns(run)
    print(f"\n{name}: backward in a graph {measurement.torch.median_ns_per_call:.0f} ns, events {own:.0f} ns")
    assert forward.count == 1
    assert measurement.torch.median_ns_per_call < 1.5 * own


def _device_ns(run) -> float:
    """Nanoseconds a call between events around twenty calls."""
    for _ in range(3):
        run()
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(20):
        run()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) * 1e6 / 20
