"""CUDA extensions built on the shadow headers, on a GPU: torch's answers, streams, errors, graphs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from pytest_cgins.kernels import build as builds
from pytest_cgins.model import KernelSource
from tests.kernels.shadow_corpus import calls

pytestmark = pytest.mark.gpu

CORPUS = Path(__file__).parents[1] / "kernels/shadow_corpus"
UNBOUND = """\
#include <torch/extension.h>
#include <cuda_runtime.h>

__global__ void scale_kernel(const float* __restrict__ x, float* __restrict__ y, float a, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = a * x[i];
}

torch::Tensor scale(torch::Tensor x, double a) {
    TORCH_CHECK(x.is_cuda(), "x must be a CUDA tensor");
    auto y = torch::empty_like(x);
    int n = x.numel();
    scale_kernel<<<(n + 255) / 256, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), a, n);
    return y;
}
"""


def _built(file: Path, entry: str) -> Any:
    source = KernelSource(
        kernel="corpus", implementation=file.stem, op="torch.mul", device="cuda", contract="torch-extension",
        entry=entry, schema="", files=(str(file),), headers="shadow",
    )  # fmt: skip
    return calls.module_of(builds.build(source))


@pytest.fixture(scope="module")
def kernels() -> Any:
    """The module of kernels.cu."""
    return _built(CORPUS / "kernels.cu", "gelu")


def _x(*sizes: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(*sizes, generator=torch.Generator().manual_seed(1)).to("cuda", dtype)


def test_a_source_without_a_binding(tmp_path: Path) -> None:
    """A plain function is bound by its name; its checks reach Python."""
    file = tmp_path / "scale.cu"
    file.write_text(UNBOUND)
    module = _built(file, "scale")
    x = _x(1000)
    assert torch.equal(module.scale(x, 2.5), x * 2.5)
    with pytest.raises(RuntimeError, match="x must be a CUDA tensor"):
        module.scale(x.cpu(), 2.5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
def test_every_floating_type(kernels: Any, dtype: torch.dtype) -> None:
    """Dispatch gives each element type its kernel, and conversions round as torch's do."""
    x = _x(33, 65, dtype=dtype)
    # The kernel computes in fp32, whatever its elements are.
    want = torch.nn.functional.gelu(x.float())
    torch.testing.assert_close(kernels.gelu(x), want.to(dtype), rtol=1e-2, atol=1e-6)
    assert kernels.gelu(x[:0]).shape == (0, 65)
    with pytest.raises(NotImplementedError, match="\"gelu\" not implemented for 'Int'"):
        kernels.gelu(x.int())


def test_bodies(kernels: Any) -> None:
    """Accessors, shared memory, halves, atomics, optional arguments and several results give torch's answers."""
    a, b = _x(70, 130), _x(70, 130) + 1
    torch.testing.assert_close(kernels.elementwise_add(a, b), a + b)
    torch.testing.assert_close(kernels.transposed(a), a.t().contiguous())
    for dtype in (torch.float32, torch.float16):
        torch.testing.assert_close(kernels.softmax_rows(a.to(dtype).t()), a.to(dtype).t().softmax(1))
    halves = a.half()
    torch.testing.assert_close(kernels.half_fma(halves, halves), (halves.double() ** 2 + 1).half())
    wide = a.bfloat16()
    torch.testing.assert_close(kernels.column_sum(wide), wide.float().sum(0).bfloat16())
    scale = (a.pow(2).mean(-1, keepdim=True) + 1e-6).rsqrt()
    for weight in (None, b[0]):
        out, factors = kernels.normalized(a, weight)
        torch.testing.assert_close(out, a * scale * (1 if weight is None else weight))
        torch.testing.assert_close(factors, scale.squeeze(-1))


def test_errors_and_places(kernels: Any) -> None:
    """An error of CUDA is raised with its text and does not stick; streams and devices are torch's current ones."""
    with pytest.raises(RuntimeError, match="CUDA error: invalid"):
        kernels.too_many_threads(_x(8))
    with pytest.raises(RuntimeError, match="a must be float16, not float"):
        kernels.half_fma(_x(8), _x(8))
    made, device, stream = kernels.places(0)
    assert made.device == torch.device("cuda:0")
    assert (device, stream) == (0, torch.cuda.current_stream().cuda_stream)
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        assert kernels.places(0)[2] == side.cuda_stream
        result = kernels.gelu(_x(1 << 20))
    side.synchronize()
    torch.testing.assert_close(result, torch.nn.functional.gelu(_x(1 << 20)))


def test_captured(kernels: Any) -> None:
    """A kernel on torch's stream, with its allocations, is captured in a CUDA graph."""
    x = _x(1 << 16)
    kernels.gelu(x)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = kernels.gelu(x)
    x.copy_(_x(1 << 16) + 1)
    graph.replay()
    torch.testing.assert_close(result, torch.nn.functional.gelu(x))


def test_memory_is_given_back(kernels: Any) -> None:
    """Results are freed when Python lets go of them."""
    x = _x(1 << 20)
    kernels.normalized(x.view(1024, 1024))
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    for _ in range(50):
        kernels.normalized(x.view(1024, 1024))
        kernels.gelu(x)
    assert torch.cuda.memory_allocated() == before
