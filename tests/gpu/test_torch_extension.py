"""CUDA extensions built with lean headers and nvcc's phases side by side, on a GPU."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from pytest_cgins.building import build as builds
from pytest_cgins.building.loading.extension_function import modules_of
from pytest_cgins.core.case import KernelSource

pytestmark = pytest.mark.gpu

CORPUS = Path(__file__).parents[1] / "building/extensions"
BINDING = """
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.def("scaled", &scaled);
  m.def("converted", &converted);
}
"""
# Variables in device memory are found by names that both of nvcc's passes must make alike.
VARIABLES = """\
#include <ATen/cuda/CUDAContext.h>
namespace {
__device__ float offset = 1;
__constant__ float factors[2];
}
static __global__ void variables(const float* x, float* y, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i] * factors[1] + offset;
}
torch::Tensor applied(torch::Tensor x, double factor) {
  auto y = torch::empty_like(x);
  const float values[2] = {0, static_cast<float>(factor)};
  const auto stream = at::cuda::getCurrentCUDAStream();
  C10_CUDA_CHECK(cudaMemcpyToSymbolAsync(factors, values, sizeof values, 0, cudaMemcpyHostToDevice, stream));
  variables<<<(x.numel() + 255) / 256, 256, 0, stream>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.numel());
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return y;
}
"""


def _module(file: Path, entry: str) -> Any:
    source = KernelSource(
        kernel="corpus", implementation=file.stem, op="torch.mul", device="cuda", contract="torch-extension",
        entry=entry, schema="", files=(str(file),),
    )  # fmt: skip
    compiled = builds.build(source)
    record = json.loads(Path(compiled.library).with_name("build.json").read_bytes())
    assert "/lean" in record["command"], "the lean headers were not enough"
    (module,) = modules_of(compiled)
    return module


def test_corpus(tmp_path: Path) -> None:
    """What CUDA extensions commonly do gives torch's answers, in every floating-point type."""
    file = tmp_path / "common.cu"
    file.write_text((CORPUS / "common.cu").read_text() + BINDING)
    module = _module(file, "scaled")
    x = torch.randn(32, 7, device="cuda")
    for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16):
        assert torch.equal(module.scaled(x.to(dtype), 2.0), x.to(dtype) * 2)
    assert module.scaled(x[:0].contiguous(), 2.0).shape == (0, 7)
    with pytest.raises(RuntimeError, match="must be a contiguous CUDA tensor"):
        module.scaled(x.cpu(), 2.0)
    half = x[:, 0].half().contiguous()
    converted, total = module.converted(half, x)
    assert torch.equal(converted, half.float().bfloat16())
    torch.testing.assert_close(total, x[:, 0].sum())
    with torch.cuda.stream(torch.cuda.Stream()):
        assert torch.equal(module.scaled(x, 3.0), x * 3)


def test_variables_in_device_memory(tmp_path: Path) -> None:
    """Static variables of two extensions in one process are two, and both passes mean the same one."""
    modules = []
    for start in (1, 5):
        file = tmp_path / f"variables{start}.cu"
        file.write_text(VARIABLES.replace("offset = 1", f"offset = {start}"))
        modules.append((start, _module(file, "applied")))
    x = torch.randn(1000, device="cuda")
    for start, module in modules:
        torch.testing.assert_close(module.applied(x, 2.0), x * 2 + start)
