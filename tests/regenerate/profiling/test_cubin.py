"""Machine code that a kernel has compiled by itself: a cubin says what it is for, once."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_cgins.building import sass
from pytest_cgins.building.build import build
from pytest_cgins.building.builders import device_image
from pytest_cgins.building.contracts.source import find
from pytest_cgins.building.nvrtc import library
from pytest_cgins.config import load
from pytest_cgins.core.errors import InfrastructureError
from pytest_cgins.regenerate.profiling import disassembly
from pytest_cgins.regenerate.profiling.disassembly import of_library

SOURCE = """\
// cgins: neg(Tensor input) -> Tensor
// cgins-launch: kernel=neg grid=(ceil_div(numel(input), 64)) block=64 args=(input, out, numel(input))
__global__ void neg(const float* x, float* y, int n) {
  const int i = blockIdx.x * 64 + threadIdx.x;
  if (i < n) y[i] = -x[i];
}
"""


@pytest.mark.exam
@pytest.mark.skipif(sass.disassembler() is None, reason="no cuobjdump")
def test_each_function_is_counted_once(tmp_path: Path) -> None:
    """Whatever the architecture is called; nobody has to know it."""
    (tmp_path / "k.cu").write_text(SOURCE)
    (tmp_path / "cgins.yaml").write_text(
        "version: 1\nkernels:\n  neg: {op: torch.neg, contract: device, source: k.cu, archs: [sm_90a]}\n"
    )
    config = load(tmp_path / "cgins.yaml")
    entry = config.kernels[0]
    try:
        library.identity()
        compiled = build(find(config, entry, entry.implementations[0]))
    except InfrastructureError as error:
        pytest.skip(f"no NVRTC: {error.what}")
    (image,) = device_image.unpack(Path(compiled.library))
    cubin = tmp_path / "neg.cubin"
    cubin.write_bytes(image.code)
    (function,), text = of_library(cubin)
    assert (function.arch, function.function.partition("(")[0]) == ("sm_90a", "neg")
    (found,) = sass.instructions(text, "sm_90a").values()
    (lines,) = found
    assert len(lines) == sum(count for _, count in function.opcodes)
    (counted,), missing = disassembly.of_cubins([cubin])
    assert missing == ()
    assert counted.instructions == function.opcodes
    assert 4 <= counted.registers_per_thread <= 32
    assert (counted.spill_nbytes_per_thread, counted.stack_nbytes_per_thread) == (None, 0)


def test_usage_is_read_by_function() -> None:
    """A kernel and a function that has a stack; what all share is of no function."""
    text = """
Resource usage:
 Common:
  GLOBAL:0 CONSTANT[3]:24
 Function neg:
  REG:8 STACK:0 SHARED:1024 LOCAL:0 CONSTANT[0]:548 TEXTURE:0 SURFACE:0 SAMPLER:0
 Function _Z3addv:
  REG:255 STACK:96 UR:0 SHARED:0 LOCAL:0
"""
    found = disassembly.usages(text)
    assert set(found) == {"neg", "_Z3addv"}
    assert (found["neg"]["REG"], found["neg"]["SHARED"], found["_Z3addv"]["STACK"]) == (8, 1024, 96)
    assert disassembly.usages("REG:3\nFunction x:\n") == {}
