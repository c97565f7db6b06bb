"""`--cgins-compile-only`: kernels built for architectures that are not there, and held against the base revision."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from pytest_cgins.config import load
from pytest_cgins.core.errors import CginsError
from pytest_cgins.core.verdict import Reason, Status, Verdict
from pytest_cgins.gate.compilation import Compiler
from tests.repository import commit, git

from .conftest import Run

pytestmark = pytest.mark.skipif(not shutil.which("nvcc"), reason="no nvcc")

MIX = """\
// cgins: mix(Tensor x) -> Tensor
#include <cgins.h>
template <typename T>
__global__ void BOUNDS mix_values(const T* x, T* y) {
  T r[40];
#pragma unroll
  for (int i = 0; i < 40; ++i) r[i] = x[i * 64 + threadIdx.x];
#pragma unroll
  for (int k = 0; k < 3; ++k) {
#pragma unroll
    for (int i = 0; i < 40; ++i) r[i] += r[(i * 7 + k) % 40] * r[(i + 13) % 40];
    __syncthreads();
  }
#pragma unroll
  for (int i = 0; i < 40; ++i) y[i * 64 + threadIdx.x] = r[i];
}
extern "C" int mix(const DLTensor* x, DLTensor* out, cgins_stream stream) {
  mix_values<<<1, 64, 0, stream>>>(cgins::data<float>(x), cgins::data<float>(out));
  CGINS_LAUNCH_CHECK();
  return 0;
}
"""
COPY = """\
// cgins: copy(Tensor x) -> Tensor
#include <cgins.h>
__global__ void copy_values(const float* x, float* y) { y[threadIdx.x] = x[threadIdx.x]; }
extern "C" int copy(const DLTensor* x, DLTensor* out, cgins_stream stream) {
  copy_values<<<1, 32, 0, stream>>>(cgins::data<float>(x), cgins::data<float>(out));
  CGINS_LAUNCH_CHECK();
  return 0;
}
"""
CONFIG = """\
version: 1
traces: [traces/never-recorded]
kernels:
  mix:
    op: torch.sigmoid
    implementations:
      - {name: cuda, source: kernels/mix.cu, flags: [-I, include], archs: [sm_80]}
      - {name: triton, device: cuda, target: kernels.mix:mix}
      - {name: cpp, source: kernels/mix.cpp}
  copy: {op: torch.clone, source: kernels/copy.cu, archs: [sm_90a]}
"""
FREE = MIX.replace("BOUNDS ", "")
# At most 32 registers a thread: the 40 values do not fit.
BOUND = MIX.replace("BOUNDS ", "__launch_bounds__(1024, 2) ")
WIDE = FREE.replace("[40]", "[56]").replace("< 40", "< 56").replace("% 40", "% 56")
OPTIONS = ("--cgins", "--cgins-compile-only", "--cgins-arch=sm_80,sm_90", "--cgins-json=report.json")


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A project below the top folder of a repository, committed on main with the frugal kernel."""
    folder = tmp_path / "repository" / "project"
    (folder / "kernels").mkdir(parents=True)
    (folder / "kernels" / "mix.cu").write_text(FREE)
    (folder / "kernels" / "mix.py").write_text("def mix(x): ...\n")
    (folder / "kernels" / "mix.cpp").write_text("not built here\n")
    (folder / "kernels" / "copy.cu").write_text(COPY)
    (folder / "cgins.yaml").write_text(CONFIG)
    (folder / "pytest.ini").write_text("[pytest]\n")
    (folder / "test_user.py").write_text("def test_it(cgins_case): raise AssertionError\n")
    commit(folder.parent)
    return folder


def compilations(found: Run) -> dict[str, Any]:
    """`{"mix/cuda/sm_80": …}` from the JSON document."""
    listed = {}
    for one in found.document()["compilations"]:
        where = one["implementation"]
        where = where if where.startswith("cuda") else f"cuda-{where}"
        listed[f"{one['kernel']}/{where}/{one['arch']}"] = one
    return listed


def statuses(found: Run) -> dict[str, str]:
    return {name: one["verdict"]["status"] for name, one in compilations(found).items()}


def verdict(folder: Path, *, arch: str = "sm_80", baseline: str = "merge-base") -> Verdict:
    """What the gate says of mix/cuda on one architecture, without pytest around it."""
    config = load(folder / "cgins.yaml", require_traces=False)
    with closing(Compiler(config, archs=[arch], baseline=baseline, instructions=False)) as compiler:
        target = next(one for one in compiler.targets() if one.implementation.name == "cuda")
        return compiler.compile(target).verdict


def test_an_edit_that_spills_fails_and_its_reverse_passes(repository: Path, run: Callable[..., Run]) -> None:
    """Spills that came since the base revision fail; taking them away again is a pass."""
    source = repository / "kernels" / "mix.cu"
    source.write_text(BOUND)
    found = run(repository, *OPTIONS, "--junitxml=junit.xml", "-rs")
    assert found.code == 1
    assert found.counts == {"passed": 1, "failed": 1, "skipped": 5}
    assert statuses(found) == {
        "mix/cuda/sm_80": "RESOURCES",
        "mix/cuda/sm_90": "SKIPPED",
        "mix/cuda-triton/sm_80": "SKIPPED",
        "mix/cuda-triton/sm_90": "SKIPPED",
        "copy/cuda/sm_80": "SKIPPED",
        "copy/cuda/sm_90a": "PASSED",
    }
    one = compilations(found)["mix/cuda/sm_80"]
    (now,), (then,) = one["resources"], one["base"]
    assert one["verdict"]["reason"] == "spills-grew"
    assert now["function"] == then["function"] == "void mix_values<float>(float const*, float*)"
    assert now["spill_store_nbytes"] > 0
    assert then["spill_store_nbytes"] == then["spill_load_nbytes"] == 0
    assert now["registers_per_thread"] <= 32 < then["registers_per_thread"]
    assert dict(now["instructions"])["STL"] > 0
    assert "STL" not in dict(then["instructions"])
    assert len(one["base_revision"]) == 40
    spilled = now["spill_store_nbytes"] + now["spill_load_nbytes"]
    assert one["verdict"]["numbers"]["spill_nbytes_per_thread"] == spilled
    assert f"spills {spilled:,} bytes a thread" in found.out
    assert "spill_bytes" not in found.out  # nobody is told to let a growth pass
    assert re.search(r"^opcodes .*STL \+\d+", found.out, re.MULTILINE)
    again = re.search(r"^again +pytest (.*)$", found.out, re.MULTILINE)
    assert again
    assert again[1].endswith("cgins.yaml::mix/cuda/sm_80")
    assert "NaN" not in found.out
    properties = {
        (case.get("name"), one.get("name")): one.get("value")
        for case in ET.parse(repository / "junit.xml").iter("testcase")
        for one in case.iter("property")
    }
    assert properties["mix/cuda/sm_80", "cgins_status"] == "RESOURCES"
    assert float(properties["mix/cuda/sm_80", "cgins_spill_nbytes_per_thread"] or 0) > 0
    assert "runs a kernel; --cgins-compile-only only builds them" in found.out

    git(repository, "commit", "-q", "-a", "-m", "spills")
    source.write_text(FREE)
    back = run(repository, *OPTIONS)
    assert (back.code, back.counts) == (0, {"passed": 2, "skipped": 5})
    assert statuses(back)["mix/cuda/sm_80"] == "PASSED"
    assert "nothing had to be built" in back.out
    head = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=repository, capture_output=True, text=True, check=True
    ).stdout
    assert f"compared with {head[:10]}; " in back.out


@pytest.mark.exam
def test_registers_that_cost_resident_warps_fail_unless_accepted(repository: Path) -> None:
    """More registers with fewer warps fail; `gate` in cgins.yaml accepts as many as it says."""
    (repository / "kernels" / "mix.cu").write_text(WIDE)
    found = verdict(repository)
    assert (found.status, found.reason) == (Status.RESOURCES, Reason.REGISTERS_GREW)
    taken = re.search(r"takes (\d+) registers a thread", found.message)
    assert taken
    file = repository / "cgins.yaml"
    file.write_text(file.read_text().replace("  mix:\n", f"  mix:\n    gate: {{registers: {taken[1]}}}\n"))
    assert verdict(repository).status is Status.PASSED


@pytest.mark.exam
def test_selection_and_workers(repository: Path, run: Callable[..., Run]) -> None:
    """--collect-only lists builds and builds nothing; -n finds what one process finds; -x and --lf are pytest's."""
    listed = run(repository, *OPTIONS, "--collect-only", "-q")
    assert listed.nodes() == [
        "mix/cuda/sm_80", "mix/cuda/sm_90", "mix/cuda-triton/sm_80", "mix/cuda-triton/sm_90", "copy/cuda/sm_80",
        "copy/cuda/sm_90a",
    ]  # fmt: skip
    assert not (repository / "report.json").exists()
    (repository / "kernels" / "mix.cu").write_text(BOUND)
    spread = run(repository, *OPTIONS, "-p", "xdist", "-n", "2")
    assert (spread.code, spread.counts) == (1, {"passed": 1, "failed": 1, "skipped": 5})
    assert statuses(spread)["mix/cuda/sm_80"] == "RESOURCES"
    last = run(repository, *OPTIONS, "--lf", "-x")
    assert (last.code, last.counts["failed"]) == (1, 1)
    assert list(statuses(last)) == ["mix/cuda/sm_80"]


@pytest.mark.exam
def test_what_cannot_be_compared_is_new_and_says_why(
    repository: Path, tmp_path: Path, run: Callable[..., Run]
) -> None:
    """Without a repository, for a new kernel, after a broken commit and for baseline none: NEW, with the reason."""

    def why(folder: Path, baseline: str = "merge-base") -> str:
        found = verdict(folder, baseline=baseline)
        assert found.status is Status.NEW
        return re.sub(r"\b[0-9a-f]{10}\b", "HASH", found.message)

    asked = run(repository, *OPTIONS, "-k", "mix and sm_80 and not triton", "--cgins-baseline=none")
    assert (asked.code, statuses(asked)["mix/cuda/sm_80"]) == (0, "NEW")
    assert "NEW 1 build: compared with nothing, as asked" in asked.out
    file, source = repository / "cgins.yaml", repository / "kernels" / "mix.cu"
    text = file.read_text()
    file.write_text(text.replace("  mix:\n", "  mixed:\n"))
    assert why(repository) == "the kernel is not at HASH (merge-base with main)"
    file.write_text(text)
    file.write_text(text + "more: 1\n")
    git(repository, "commit", "-q", "-a", "-m", "refused")
    file.write_text(text)
    refused = why(repository)
    assert refused == (
        "no base revision: cgins.yaml at HASH (merge-base with main) is refused: "
        f'cgins.yaml:{text.count(chr(10)) + 1}: unknown key "more" in the file'
    )
    source.write_text("// cgins: mix(Tensor x) -> Tensor\nint mix(;\n")
    git(repository, "commit", "-q", "-a", "-m", "broken")
    source.write_text(FREE)
    assert why(repository).startswith("cannot be built at HASH (merge-base with main): mix")
    git(repository, "rm", "-q", "--cached", "cgins.yaml")
    git(repository, "commit", "-q", "-m", "without")
    assert why(repository) == "cgins.yaml is not at HASH (merge-base with main)"
    bare = shutil.copytree(repository, tmp_path / "bare")
    assert re.match("no base revision: .* is in no git repository", why(bare))


@pytest.mark.parametrize(
    ("option", "what"),
    [
        ({"arch": "sm_70"}, "this CUDA compiler does not know sm_70\n→ name some of .*sm_90, sm_90a, "),
        ({"arch": "compute_90"}, "compute_90 is PTX, whose registers are unknown until it is compiled"),
        ({"arch": "90"}, '"90" is not a CUDA architecture\n→ name some of .*sm_90'),
        ({"baseline": "v7"}, 'git knows no commit "v7" in '),
    ],
    ids=["unknown", "PTX", "number", "commit"],
)
def test_wrong_options_are_refused(repository: Path, option: dict[str, str], what: str) -> None:
    """An architecture that the compiler does not know, and a commit that git does not know, are errors."""
    with pytest.raises(CginsError, match=what):
        verdict(repository, **option)


def test_a_refused_option_ends_the_run(repository: Path, run: Callable[..., Run]) -> None:
    """It is a collection error: nothing is built, and the exit status is pytest's for that."""
    found = run(repository, *OPTIONS, "--cgins-arch=sm_70")
    assert found.code == 2
    assert "this CUDA compiler does not know sm_70\n→ name some of " in found.out


@pytest.mark.exam
def test_kernels_that_do_not_build_fail_and_a_broken_toolkit_is_no_kernel_s_fault(
    repository: Path, run: Callable[..., Run], tmp_path: Path
) -> None:
    """A compiler error is BUILD_ERROR, exit 1; a compiler that does not run is INFRASTRUCTURE, exit 6."""
    (repository / "kernels" / "copy.cu").write_text(COPY.replace("{ y[", "{ z["))
    found = run(repository, *OPTIONS, "-k", "copy and sm_90a")
    assert (found.code, statuses(found)) == (1, {"copy/cuda/sm_90a": "BUILD_ERROR"})
    assert "nvcc refused kernels/copy.cu" in found.out
    file = repository / "cgins.yaml"
    file.write_text(file.read_text().replace("[sm_90a]", "[sm_13]"))
    unknown = run(repository, "--cgins", "--cgins-compile-only", "--cgins-json=report.json", "-k", "copy")
    assert (unknown.code, statuses(unknown)) == (1, {"copy/cuda/sm_13": "BUILD_ERROR"})
    assert "BUILD_ERROR (architecture): " in unknown.out
    assert "it knows sm_" in unknown.out
    file.write_text(file.read_text().replace("[sm_13]", "[sm_90a]"))
    broken = tmp_path / "toolkit" / "bin" / "nvcc"
    broken.parent.mkdir(parents=True)
    broken.write_text("#!/bin/sh\nexit 3\n")
    broken.chmod(0o755)
    lost = run(repository, *OPTIONS, "-k", "copy and sm_90a", env={"CUDA_HOME": str(tmp_path / "toolkit")})
    assert (lost.code, statuses(lost)) == (6, {"copy/cuda/sm_90a": "INFRASTRUCTURE"}), lost.out


def test_architectures_go_with_compile_only(repository: Path, run: Callable[..., Run]) -> None:
    """--cgins-arch without --cgins-compile-only would be without effect, and is refused."""
    found = run(repository, "--cgins", "--cgins-arch=sm_80")
    assert found.code == 4
    assert "--cgins-arch goes with --cgins-compile-only" in found.out
