"""Exported kernels and operators on a GPU: streams, graphs, compilation and training."""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from pytest_cgins.building.torch_library import package
from pytest_cgins.config import load

pytestmark = pytest.mark.gpu

EXAMPLE = Path(__file__).parents[2] / "example_project"
TRAIN = """
import demo
from torch import nn
from torch.nn import functional

class Net(nn.Module):
    def __init__(self, linear, layer_norm, gelu):
        super().__init__()
        torch.manual_seed(0)
        self.up, self.down = nn.Linear(64, 128), nn.Linear(128, 1)
        self.weight, self.bias = nn.Parameter(torch.ones(128)), nn.Parameter(torch.zeros(128))
        self.linear, self.layer_norm, self.gelu = linear, layer_norm, gelu

    def forward(self, x):
        x = self.linear(x, self.up.weight, self.up.bias)
        return self.down(self.gelu(self.layer_norm(x, [128], self.weight, self.bias), approximate="tanh"))

def losses(net, compiled):
    net = net.cuda()
    run = torch.compile(net, fullgraph=True) if compiled else net
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    torch.manual_seed(1)
    x = torch.randn(256, 64).cuda()
    y = x.sum(1, keepdim=True).sin()
    found = []
    for _ in range(20):
        optimizer.zero_grad()
        loss = functional.mse_loss(run(x), y)
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    return torch.tensor(found)

want = losses(Net(functional.linear, functional.layer_norm, functional.gelu), False)
assert want[-1] < 0.8 * want[0], want
for compiled in (False, True):
    found = losses(Net(demo.linear, demo.layer_norm, demo.gelu), compiled)
    torch.testing.assert_close(found, want, rtol=1e-3, atol=1e-4)
x, w, b = (torch.randn(*s, device="cuda", requires_grad=True) for s in ((3, 8), (8,), (8,)))
torch.library.opcheck(torch.ops.demo.layer_norm.default, (x, [8], w, b, 1e-5))
torch.library.opcheck(torch.ops.demo.gelu.default, (x, "none"))
torch.testing.assert_close(demo.gelu(x.cpu()), functional.gelu(x.cpu()))
try:
    demo.layer_norm(x, [8], w.cpu(), b)
except RuntimeError as error:
    assert "demo::layer_norm" in str(error), error
else:
    raise AssertionError("a weight on the CPU was taken")
"""


@pytest.fixture(scope="module")
def operators(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """CUDA launchers of the example, exported and built, as `torch.ops.example`."""
    folder = tmp_path_factory.mktemp("example")
    config = load(EXAMPLE / "cgins.yaml", require_traces=False)
    kernels = [entry for entry in config.kernels if entry.name in ("layer_norm", "gelu")]
    package.write(config, kernels, folder=folder, namespace="example", implementations=("cuda",))
    subprocess.run([sys.executable, "build_kernels.py"], cwd=folder, check=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder / "src"))
        importlib.import_module("example")
        yield torch.ops.example


def test_training_with_exported_kernels(tmp_path: Path) -> None:
    """A model trains on the GPU through exported kernels as in eager torch, also compiled as one graph."""
    config = load(EXAMPLE / "cgins.yaml", require_traces=False)
    kernels = [entry for entry in config.kernels if entry.name in ("linear", "layer_norm", "gelu")]
    package.write(config, kernels, folder=tmp_path / "out", namespace="demo", implementations=("cpp", "cuda"))
    subprocess.run([sys.executable, "build_kernels.py"], cwd=tmp_path / "out", check=True)
    alone = (
        f'import sys\nsys.modules["pytest_cgins"] = None\nsys.path.insert(0, {str(tmp_path / "out/src")!r})\n'
    )
    done = subprocess.run(
        [sys.executable, "-c", f"{alone}import torch\n{TRAIN}"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-6000:]


def test_an_operator_runs_on_the_current_stream_and_in_a_graph(operators: Any) -> None:
    """Work goes to torch's current stream: after a long kernel there, and captured in a CUDA graph."""
    gelu = operators.gelu
    x = torch.randn(1 << 20, device="cuda")
    want = torch.nn.functional.gelu(x)
    stream = torch.cuda.Stream()
    late = torch.zeros_like(x)
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        torch.cuda._sleep(50_000_000)
        late.copy_(x)
        made = gelu(late, "none")  # on another stream it would read zeros
    stream.synchronize()
    torch.testing.assert_close(made, want)
    graph = torch.cuda.CUDAGraph()
    static = torch.zeros_like(x)
    with torch.cuda.graph(graph):
        captured = gelu(static, "none")
    static.copy_(x)
    graph.replay()
    torch.testing.assert_close(captured, want)


def test_errors_and_devices(operators: Any) -> None:
    """A launcher's message and a wrong device are RuntimeErrors that name the operator."""
    layer_norm = operators.layer_norm
    x = torch.randn(4, 8, device="cuda")
    with pytest.raises(RuntimeError, match=r"::layer_norm: .*element types differ"):
        layer_norm(x, [8], torch.ones(8, device="cuda", dtype=torch.float64), None, 1e-5)
    with pytest.raises(RuntimeError, match=r"::layer_norm"):
        layer_norm(x, [8], torch.ones(8), None, 1e-5)
    torch.testing.assert_close(
        layer_norm(x, [8], None, None, 1e-5), torch.nn.functional.layer_norm(x, [8]), rtol=1e-5, atol=1e-6
    )
