"""CUDA launchers: built here, run where there is a GPU."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from pytest_cgins.building.builders import cuda
from pytest_cgins.building.compilers import architectures
from pytest_cgins.core.errors import BuildError, SourceError

needs_nvcc = pytest.mark.skipif(not shutil.which("nvcc"), reason="no nvcc")

SCALE = """\
// cgins: scale(Tensor input, float other) -> Tensor
template <typename T>
__global__ void scale_each(const T* x, T* y, int64_t n, float factor) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < n) y[i] = T(float(x[i]) * factor);
}
extern "C" int scale(const DLTensor* input, double other, DLTensor* out, cgins_stream stream) {
  CGINS_CHECK(cgins::is_contiguous(input), "input must be contiguous");
  return cgins::dispatch_floating(input, [&](auto zero) {
    using T = decltype(zero);
    const int64_t n = cgins::numel(input);
    scale_each<<<(n + 255) / 256, 256, 0, stream>>>(cgins::data<T>(input), cgins::data<T>(out), n,
                                                     float(other));
    CGINS_LAUNCH_CHECK();
    return 0;
  });
}
"""


@pytest.mark.parametrize(
    ("archs", "flags"),
    [
        (("sm_90a",), ["-gencode=arch=compute_90a,code=sm_90a"]),
        (("sm_80", "compute_80"), ["-gencode=arch=compute_80,code=sm_80", "-gencode=arch=compute_80,code=compute_80"]),
        (("sm_100f",), ["-gencode=arch=compute_100f,code=sm_100f"]),
    ],
)  # fmt: skip
def test_code_generation(archs: tuple[str, ...], flags: list[str]) -> None:
    """Architectures are named one by one, machine code or PTX."""
    assert cuda.code_generation(archs) == flags


@pytest.mark.parametrize("arch", ["native", "90a", "sm_9", "all"])
def test_other_architectures_are_refused(arch: str) -> None:
    """Names that mean something else on another host are not accepted."""
    with pytest.raises(SourceError, match=f'"{arch}" is not a CUDA architecture'):
        cuda.code_generation((arch,))


@pytest.fixture
def fresh_archs() -> Any:
    architectures.present_archs.cache_clear()
    yield architectures.present_archs
    architectures.present_archs.cache_clear()


def test_archs_of_the_environment(fresh_archs: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """$CGINS_CUDA_ARCHS names the architectures of kernels that name none."""
    monkeypatch.setenv("CGINS_CUDA_ARCHS", "sm_80, sm_90a")
    assert fresh_archs() == ("sm_80", "sm_90a")


def test_archs_without_a_gpu(fresh_archs: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a GPU the build is one that every later device can run."""
    monkeypatch.delenv("CGINS_CUDA_ARCHS", raising=False)
    monkeypatch.setenv("PATH", "/nonexistent")
    assert fresh_archs() == ("sm_80", "compute_80")


@pytest.mark.exam
@needs_nvcc
def test_prototype_mismatch(project: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """nvcc refuses a definition that differs from the schema line, with the user's file and line."""
    monkeypatch.chdir(project.root)
    project.write("kernel.cu", SCALE.replace("double other", "float other"))
    with pytest.raises(BuildError) as caught:
        project.build("{op: torch.mul, source: kernel.cu, archs: [sm_90]}")
    assert "nvcc refused kernel.cu: 1 error\nkernel.cu:7: error: " in caught.value.what


@pytest.mark.exam
@needs_nvcc
def test_hidden_symbols(project: Any) -> None:
    """nvcc, too, takes the declaration that keeps the launcher visible."""
    project.write("kernel.cu", SCALE)
    hidden = "[-Xcompiler=-fvisibility=hidden]"
    compiled = project.build(f"{{op: torch.mul, source: kernel.cu, archs: [sm_90], flags: {hidden}}}")
    listed = subprocess.run(["nm", "-D", compiled.library], capture_output=True, text=True, check=True).stdout
    assert " T scale\n" in listed


@needs_nvcc
@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_runs_on_the_gpu(project: Any, op_call: Any, metas_of: Any, dtype: str) -> None:
    """A CUDA launcher runs on the current stream, and inside a CUDA graph."""
    import torch

    from pytest_cgins.building.loading.callable import load

    project.write("kernel.cu", SCALE)
    compiled = project.build("{op: torch.mul, source: kernel.cu}")
    x = torch.randn(1000, device="cuda").to(getattr(torch, dtype))
    want = x * 0.5
    call, tensors = op_call("torch.mul", x, 0.5)
    bound = load(compiled).bind(call, tensors, metas_of([want]), "cuda:0")
    (out,) = bound.run()
    assert torch.equal(out, want)
    bound.poison()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        bound.run()
    assert out.isnan().all()
    graph.replay()
    assert torch.equal(out, want)


@pytest.mark.exam
@needs_nvcc
def test_device_code_of_several_files(project: Any) -> None:
    """Device code is linked where a flag lets files call each other's, and only there."""
    project.write(
        "kernel.cu", "__device__ float half_of(float x);\n" + SCALE.replace("float(x[i])", "half_of(x[i])")
    )
    project.write("half.cu", "__device__ float half_of(float x) { return x / 2; }\n")
    both = project.build("{op: torch.mul, sources: [kernel.cu, half.cu], archs: [sm_90], flags: [-rdc=true]}")
    ctypes.CDLL(both.library)
    assert "-nodlink" not in Path(both.library).with_name("build.json").read_text()
    project.write("kernel.cu", SCALE)
    single = project.build("{op: torch.mul, source: kernel.cu, archs: [sm_90]}")
    ctypes.CDLL(single.library)
    assert "-nodlink" in Path(single.library).with_name("build.json").read_text()
