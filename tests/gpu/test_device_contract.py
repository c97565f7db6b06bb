"""Device kernels on a GPU: built by NVRTC, loaded, launched, captured and refused."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from pytest_cgins.building.build import build
from pytest_cgins.building.contracts.source import find
from pytest_cgins.building.loading.callable import BoundCall, load
from pytest_cgins.config import load as load_config
from pytest_cgins.core.case import CompiledKernel
from pytest_cgins.core.errors import ContractError, LaunchError
from pytest_cgins.core.trace import Argument, OpCall, TensorMeta
from pytest_cgins.packs.ops import resolve
from pytest_cgins.packs.signature import bind
from pytest_cgins.packs.values import encode

pytestmark = pytest.mark.gpu

DEVICE = "cuda:0"
FLOATING = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
EXAMPLES = Path(__file__).parents[2] / "example_project/kernels"
MUL = """\
// cgins: mul(Tensor input, float other) -> Tensor
// cgins-launch: kernel=mul<dtype(input)> grid=(ceil_div(numel(input), 256)) block=(256) args=(input, out, numel(input), other)
template <typename T>
__global__ void mul(const T* x, T* y, int64_t n, double a) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < n) y[i] = T(cgins::accumulator<T>(x[i]) * cgins::accumulator<T>(a));
}
"""
# Two passes through scratch memory, more shared memory than the default, and a template chosen by size.
SUM = """\
// cgins: sum_all(Tensor input) -> Tensor
// cgins-launch: kernel=partial_sums<choose(min(1024, max(256, next_power_of_2(numel(input)))), 256, 512, 1024)>
//               workspace=sm_count * sizeof(float) grid=(sm_count) smem=64 * 1024
//               block=(min(1024, max(256, next_power_of_2(numel(input))))) args=(input, numel(input), workspace)
// cgins-launch: kernel=add_up grid=1 block=1 args=(workspace, sm_count, out)
template <int kThreads>
__global__ void partial_sums(const float* x, int64_t n, float* partial) {
  extern __shared__ float shared[];
  float sum = 0;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < n; i += int64_t{gridDim.x} * kThreads) sum += x[i];
  shared[threadIdx.x * 16] = sum;
  __syncthreads();
  if (threadIdx.x == 0) {
    float total = 0;
    for (int t = 0; t < kThreads; ++t) total += shared[t * 16];
    partial[blockIdx.x] = total;
  }
}

__global__ void add_up(const float* partial, int count, float* out) {
  float total = 0;
  for (int i = 0; i < count; ++i) total += partial[i];
  *out = total;
}
"""
ATOMIC = """\
// cgins: sum_all(Tensor input) -> Tensor
// cgins-launch: kernel=add_each zero=(out) grid=(ceil_div(numel(input), 128)) block=128 args=(input, numel(input), out)
__global__ void add_each(const float* x, int n, float* out) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) atomicAdd(out, x[i]);
}
"""
# Blocks of a cluster read each other's shared memory; a grid waits for itself.
CLUSTER = """\
// cgins: neg(Tensor input) -> Tensor
// cgins-launch: kernel=neighbours grid=(4) block=(32) cluster=(2) args=(input, out)
#include <cooperative_groups.h>
namespace cg = cooperative_groups;
__global__ void neighbours(const float* x, float* y) {
  __shared__ float mine[32];
  auto cluster = cg::this_cluster();
  mine[threadIdx.x] = x[blockIdx.x * 32 + threadIdx.x];
  cluster.sync();
  const float* theirs = cluster.map_shared_rank(mine, cluster.block_rank() ^ 1);
  y[(blockIdx.x ^ 1) * 32 + threadIdx.x] = -theirs[threadIdx.x];
  cluster.sync();
}
"""
COOPERATIVE = """\
// cgins: neg(Tensor input) -> Tensor
// cgins-launch: kernel=turned grid=(4) block=(32) cooperative=true workspace=numel(input) * 4 args=(input, workspace, out)
#include <cooperative_groups.h>
__global__ void turned(const float* x, float* between, float* y) {
  const int i = blockIdx.x * 32 + threadIdx.x;
  between[127 - i] = -x[127 - i];
  cooperative_groups::this_grid().sync();
  y[i] = between[i];
}
"""
INPLACE = """\
// cgins: relu_(Tensor(a!) input) -> Tensor(a!)
// cgins-launch: kernel=relu<dtype(input, float32)> grid=(ceil_div(numel(input), 64)) block=64 args=(view(input), numel(input))
template <typename T>
__global__ void relu(cgins::tensor<T> x, long n) {
  const long i = blockIdx.x * 64 + threadIdx.x;
  if (i < n && x[i] < T(0)) x[i] = T(0);
}
"""
BF16 = """\
// cgins: mul(Tensor input, Tensor other) -> Tensor
// cgins-launch: kernel=product<cuda_type(input, float16, bfloat16)> grid=(ceil_div(numel(input), 64)) block=64
//               args=(input, other, out, numel(input))
#include <cuda_bf16.h>
#include <cuda_fp16.h>
template <typename T>
__global__ void product(const T* a, const T* b, T* y, int n) {
  const int i = blockIdx.x * 64 + threadIdx.x;
  if (i < n) y[i] = a[i] * b[i];
}
"""


def built(folder: Path, text: str, op: str = "torch.mul") -> CompiledKernel:
    """A device kernel with this source, built for the GPU that is here."""
    (folder / "kernel.cu").write_text(text)
    kernel = f"{{op: {op}, contract: device, source: kernel.cu}}"
    (folder / "cgins.yaml").write_text(f"version: 1\nkernels:\n  it: {kernel}\n")
    config = load_config(folder / "cgins.yaml")
    entry = config.kernels[0]
    return build(find(config, entry, entry.implementations[0]))


def bound(compiled: CompiledKernel, op: str, want: Sequence[torch.Tensor], *args: Any) -> BoundCall:
    """A call of an op, bound."""
    tensors: list[Any] = []
    arguments = tuple(
        Argument(name=name, value=encode(value, tensors), passed=passed)
        for name, value, passed in bind(resolve(op), args, {})
    )
    outputs = [
        TensorMeta(
            dtype=str(one.dtype).removeprefix("torch."), shape=tuple(one.shape), stride=tuple(one.stride()),
            offset=0, storage=index,
        )
        for index, one in enumerate(want)
    ]  # fmt: skip
    return load(compiled).bind(OpCall(op=op, arguments=arguments), tensors, outputs, DEVICE)


@pytest.mark.parametrize("dtype", FLOATING)
@pytest.mark.parametrize("shape", [(1000,), (3, 5, 7), (), (0, 4)])
def test_elementwise(tmp_path: Path, dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    """Each element type has its own instantiation; nothing is launched for an empty output."""
    x = torch.randn(shape, device=DEVICE).to(dtype)
    want = x * 2.5
    call = bound(built(tmp_path, MUL), "torch.mul", [want], x, 2.5)
    (out,) = call.run()
    torch.testing.assert_close(out, want, rtol=0, atol=0)
    call.poison()
    assert not x.numel() or out.isnan().all()
    torch.testing.assert_close(call.run()[0], want, rtol=0, atol=0)
    assert call.overrun() == ""


def test_other_element_types_are_refused(tmp_path: Path) -> None:
    """An element type that no instantiation has is an error that says which there are."""
    x = torch.ones(4, dtype=torch.int32, device=DEVICE)
    with pytest.raises(
        LaunchError, match="int32; the kernel was built for float32, float64, float16, bfloat16"
    ):
        bound(built(tmp_path, MUL), "torch.mul", [x], x, 2.0)


def test_strided_tensors_are_refused_or_viewed(tmp_path: Path) -> None:
    """A plain pointer wants contiguous memory; a view takes any strides, also to write to."""
    x = torch.randn(6, 4, device=DEVICE).t()
    with pytest.raises(LaunchError, match="is not contiguous: shape"):
        bound(built(tmp_path, MUL), "torch.mul", [x], x, 2.0)
    want = x.clamp(min=0)
    bound(built(tmp_path, INPLACE, "torch.relu_"), "torch.relu_", [x], x).run()
    assert torch.equal(x, want)


@pytest.mark.parametrize("text", [SUM, ATOMIC], ids=["two passes", "atomics"])
@pytest.mark.parametrize("elements", [1, 300, 100_000])
def test_reductions(tmp_path: Path, text: str, elements: int) -> None:
    """Launches run in order, share scratch memory, and outputs can be set to 0 before."""
    x = torch.randint(-8, 8, (elements,), device=DEVICE).float()
    call = bound(built(tmp_path, text, "torch.sum"), "torch.sum", [x.sum()], x)
    for _ in range(2):
        call.poison()
        assert torch.equal(call.run()[0], x.sum())
    assert call.overrun() == ""


@pytest.mark.parametrize("text", [CLUSTER, COOPERATIVE], ids=["cluster", "cooperative"])
def test_blocks_that_talk(tmp_path: Path, text: str) -> None:
    """Clusters and cooperative grids are launched as such."""
    x = torch.randn(128, device=DEVICE)
    if text is CLUSTER and torch.cuda.get_device_capability() < (9, 0):
        pytest.skip("clusters need compute capability 9.0")
    (out,) = bound(built(tmp_path, text, "torch.neg"), "torch.neg", [x], x).run()
    assert torch.equal(out, -x)


def test_cuda_types(tmp_path: Path) -> None:
    """`cuda_type` gives CUDA's own 16-bit types, with their arithmetic."""
    for dtype in (torch.float16, torch.bfloat16):
        a, b = (torch.randn(200, device=DEVICE).to(dtype) for _ in range(2))
        (out,) = bound(built(tmp_path, BF16), "torch.mul", [a], a, b).run()
        assert torch.equal(out, a * b)


def test_captured_in_a_graph(tmp_path: Path) -> None:
    """A bound call goes to the stream that is current when it runs, so a graph can capture it."""
    x = torch.randn(1000, device=DEVICE)
    call = bound(built(tmp_path, SUM, "torch.sum"), "torch.sum", [x.sum()], x)
    call.run()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        (out,) = call.run()
    x.copy_(torch.arange(1000.0, device=DEVICE))
    graph.replay()
    assert out.item() == 499_500


def test_cuda_says_what_it_refuses(tmp_path: Path) -> None:
    """More shared memory than the device has, and a grid that cannot wait for itself, name the line and value."""
    x = torch.ones(1000, device=DEVICE)
    huge = SUM.replace("smem=64 * 1024", "smem=1024 * 1024")
    with pytest.raises(LaunchError, match=r"kernel.cu:2: smem is 1048576 bytes a block, the device has \d+"):
        bound(built(tmp_path, huge, "torch.sum"), "torch.sum", [x.sum()], x)
    waiting = COOPERATIVE.replace("grid=(4)", "grid=(1000000)")
    x = torch.ones(128, device=DEVICE)
    call = bound(built(tmp_path, waiting, "torch.neg"), "torch.neg", [x], x)
    with pytest.raises(LaunchError, match="CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE"):
        call.run()


def test_ptx_is_compiled_by_the_driver(tmp_path: Path) -> None:
    """PTX of an older architecture runs, compiled by the driver; foreign machine code is refused by name."""
    x = torch.randn(10, device=DEVICE)
    (tmp_path / "kernel.cu").write_text(MUL)
    for archs, runs in (("[compute_80]", True), ("[sm_75]", False)):
        (tmp_path / "cgins.yaml").write_text(
            f"version: 1\nkernels:\n  it: {{op: torch.mul, contract: device, source: kernel.cu, archs: {archs}}}\n"
        )
        config = load_config(tmp_path / "cgins.yaml")
        compiled = build(find(config, config.kernels[0], config.kernels[0].implementations[0]))
        if runs:
            assert torch.equal(bound(compiled, "torch.mul", [x], x, 2.0).run()[0], x * 2)
        else:
            with pytest.raises(ContractError, match=r"is for sm_75; .* is sm_"):
                bound(compiled, "torch.mul", [x], x, 2.0)


@pytest.mark.parametrize("dtype", FLOATING)
def test_example_kernels(tmp_path: Path, dtype: torch.dtype) -> None:
    """The example project's device kernels agree with torch, on rows, columns and strided tensors."""
    tolerance = {"rtol": 2e-2, "atol": 2e-2} if dtype.itemsize == 2 else {"rtol": 1e-5, "atol": 1e-5}
    x = torch.randn(6, 50, 33, device=DEVICE).to(dtype)
    for dim in (0, 1, -1):
        want = torch.softmax(x, dim)
        softmax = built(tmp_path, (EXAMPLES / "softmax_device.cu").read_text(), "torch.nn.functional.softmax")
        (out,) = bound(softmax, "torch.nn.functional.softmax", [want], x, dim).run()
        torch.testing.assert_close(out, want, **tolerance)
    gelu = built(tmp_path, (EXAMPLES / "gelu_device.cu").read_text(), "torch.nn.functional.gelu")
    for one in (x, x.transpose(0, 2), x[:, ::2]):
        want = torch.nn.functional.gelu(one)
        (out,) = bound(gelu, "torch.nn.functional.gelu", [want], one).run()
        torch.testing.assert_close(out, want, **tolerance)


def test_latency(tmp_path: Path) -> None:
    """From a new source to its first result in a process with torch takes a small part of a second."""
    x = torch.randn(1000, device=DEVICE)
    torch.cuda.synchronize()
    seconds = []
    for attempt in range(5):
        started = time.perf_counter()
        plain = (
            MUL.replace("dtype(input)", "float").replace("2.5", f"{attempt}") + f"// {attempt} {started}\n"
        )
        (out,) = bound(built(tmp_path, plain), "torch.mul", [x], x, 2.0).run()
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - started)
        assert torch.equal(out, x * 2)
    print(f"seconds to the first result: {', '.join(f'{one:.3f}' for one in seconds)}")
    assert sorted(seconds)[2] < 1.0
