"""What NVRTC knows of a source before nvcc does: sure where it refuses, and silent everywhere else."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_cgins import config as configuration
from pytest_cgins.building.build_queue import BuildQueue
from pytest_cgins.building.builders.doomed import is_doomed
from pytest_cgins.building.compilers import running
from pytest_cgins.building.contracts.source import find
from pytest_cgins.building.nvrtc import library
from pytest_cgins.core.errors import InfrastructureError
from pytest_cgins.core.model import KernelSource
from pytest_cgins.run.sandbox.builds import BuildFence
from pytest_cgins.run.sandbox.fence import Sandbox

YAML = """\
version: 1
kernels:
  scale: {op: torch.relu, implementations: [{name: cuda, source: scale.cu, archs: [sm_80]}]}
"""
SOURCE = """\
// cgins: scale(Tensor input) -> Tensor
#include <cgins.h>
__global__ void twice(const float* x, float* y) { y[threadIdx.x] = 2 * x[threadIdx.x]; }
extern "C" int scale(const DLTensor* input, DLTensor* out, cgins_stream stream) {
  twice<<<1, 32, 0, stream>>>(cgins::data<float>(input), cgins::data<float>(out));
  CGINS_LAUNCH_CHECK();
  return 0;
}
"""


@pytest.fixture
def source(tmp_path: Path) -> KernelSource:
    """A launcher that is right."""
    try:
        library.version()
    except InfrastructureError as error:
        pytest.skip(f"no NVRTC: {error.what}")
    (tmp_path / "cgins.yaml").write_text(YAML)
    (tmp_path / "scale.cu").write_text(SOURCE)
    loaded = configuration.load(tmp_path / "cgins.yaml", require_traces=False)
    (entry,) = loaded.kernels
    return find(loaded, entry, entry.implementations[0])


@pytest.mark.parametrize("fenced", [False, True])
@pytest.mark.parametrize(
    ("right", "wrong", "doomed"),
    [
        ("", "", False),
        ("2 * x", "2 * z", True),
        ("threadIdx.x];", "threadIdx.x]", True),
        ("twice<<<", "thrice<<<", False),  # host code, which NVRTC does not get
    ],
)
def test_device_code_alone_is_judged(
    right: str, wrong: str, doomed: bool, *, fenced: bool, source: KernelSource, tmp_path: Path
) -> None:
    """In a sandbox and without: an error in a kernel is known, one of the host is not."""
    (tmp_path / "scale.cu").write_text(SOURCE.replace(right, wrong))
    sandbox = Sandbox(devices=False)
    if fenced and sandbox.available():
        pytest.skip(sandbox.available())
    fence = BuildFence(sandbox) if fenced else None
    if fence is not None:
        fence.show(visible=[tmp_path])
    builds = BuildQueue(cache=tmp_path / "cache", fence=fence)
    try:
        assert is_doomed(source, builds) is doomed
    finally:
        builds.close()


def test_what_it_cannot_judge_is_not_doomed(source: KernelSource, tmp_path: Path) -> None:
    """Other contracts and languages, and files that are gone."""
    builds = BuildQueue(cache=tmp_path / "cache")
    (tmp_path / "scale.cu").write_text(SOURCE.replace("2 * x", "2 * z"))
    assert not is_doomed(replace(source, contract="device"), builds)
    assert not is_doomed(replace(source, files=("kernels/scale.py",)), builds)
    assert not is_doomed(replace(source, archs=("sm_none",)), builds)
    (tmp_path / "scale.cu").unlink()
    assert not is_doomed(source, builds)
    builds.close()


def test_who_asks_compiles_as_before_afterwards(source: KernelSource) -> None:
    """The compilers are lent: once these builds are closed, others of the same thread still run theirs."""
    before = running.current()
    with closing(BuildQueue()) as builds:
        assert not is_doomed(source, builds)
    assert running.current() is before
