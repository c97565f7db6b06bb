"""CUDA builds for some sizes on a GPU: each launches its own machine code, under names that all builds have."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from pytest_cgins.building.build import build
from pytest_cgins.building.contracts.source import find
from pytest_cgins.building.loading.callable import load
from pytest_cgins.config import load as load_config
from pytest_cgins.core.trace import Argument, OpCall, TensorMeta
from pytest_cgins.packs.ops import resolve
from pytest_cgins.packs.signature import bind
from pytest_cgins.packs.values import encode

pytestmark = pytest.mark.gpu

# A template of one name, a constant in device memory and a static in host code: all differ a build.
TELLS = """\
// cgins: mul(Tensor input, float other) -> Tensor
#ifndef COLS
#define COLS 0
#endif
__constant__ float held = COLS;
template <typename T>
__global__ void tell(T* y, int64_t n, float host) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < n) y[i] = T(i == 0 ? COLS : i == 1 ? held : host);
}
inline float host_side() { static float value = COLS; return value; }
extern "C" int mul(const DLTensor* input, double, DLTensor* out, cgins_stream stream) {
  const int64_t n = cgins::numel(out);
  tell<float><<<(n + 255) / 256, 256, 0, stream>>>(cgins::data<float>(out), n, host_side());
  CGINS_LAUNCH_CHECK();
  return 0;
}
"""


def test_each_build_launches_its_own_kernel(tmp_path: Path) -> None:
    """Device code, constants and statics of a call are those of the build that its sizes chose."""
    (tmp_path / "kernel.cu").write_text(TELLS, encoding="utf-8")
    (tmp_path / "cgins.yaml").write_text(
        "version: 1\nkernels:\n  it: {op: torch.mul, source: kernel.cu, "
        "specialize: {macros: {COLS: input.size(-1)}, builds: [{COLS: 7}, {COLS: 15}]}}\n",
        encoding="utf-8",
    )
    config = load_config(tmp_path / "cgins.yaml")
    kernel = config.kernels[0]
    compiled = build(find(config, kernel, kernel.implementations[0]), cache=tmp_path / "cache")
    loaded = load(compiled)
    for width, seen in ((7, 7), (15, 15), (16, 0), (7, 7)):
        x = torch.ones(2, width, device="cuda")
        tensors: list[torch.Tensor] = []
        arguments = tuple(
            Argument(name=name, value=encode(value, tensors), passed=passed)
            for name, value, passed in bind(resolve("torch.mul"), (x, 2.0), {})
        )
        meta = TensorMeta(dtype="float32", shape=(2, width), stride=(width, 1), offset=0, storage=0)
        (out,) = loaded.bind(OpCall(op="torch.mul", arguments=arguments), tensors, [meta], "cuda:0").run()
        torch.cuda.synchronize()
        assert out.flatten().tolist() == [float(seen)] * (2 * width)
