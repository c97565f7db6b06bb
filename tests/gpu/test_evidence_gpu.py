"""Evidence on a GPU, from the command line: counters, timeline, machine code, roofline, times, ablation.

Commands run side by side: what times or profiles holds the device meanwhile, so they take turns there.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import pytest

from pytest_cgins.core import documents
from pytest_cgins.regenerate.methods.definition import AXES
from pytest_cgins.regenerate.profiling import evidence_documents

pytestmark = pytest.mark.gpu

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "example_project"
CASE = "distilbert/f32-2x64x3072"
T = TypeVar("T")
Process = subprocess.Popen[str]


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example project, where nothing else is written."""
    folder = tmp_path_factory.mktemp("evidence") / "project"
    shutil.copytree(EXAMPLE, folder, ignore=shutil.ignore_patterns(".cgins", "__pycache__"))
    settings = ["-c", "user.name=T", "-c", "user.email=t@localhost", "-c", "commit.gpgsign=false"]
    for words in (["init", "-q", "-b", "main"], ["add", "-A"], ["commit", "-q", "-m", "base"]):
        subprocess.run(["git", *settings, *words], cwd=folder, check=True)
    return folder


def start(folder: Path, *words: str) -> Process:
    """`cgins evidence …`, not waited for."""
    call = "import sys; from pytest_cgins.app.cli import main; sys.exit(main())"
    return subprocess.Popen(
        [sys.executable, "-c", call, "evidence", *words],
        cwd=folder,
        env={
            **os.environ,
            "COLUMNS": "240",
            "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ended(process: Process, *, status: int = 0) -> None:
    out, err = process.communicate(timeout=240)
    print(out, err)
    assert process.returncode == status, err


@pytest.fixture(scope="module")
def beside(project: Path) -> Iterator[dict[str, Process]]:
    """Commands that need no other's result."""
    text = (project / "kernels/gelu_device.cu").read_text()
    (project / "slow.cu").write_text(_slow(text))
    (project / "broken.cu").write_text(f"#error no\n{text}")
    words = ["--without", "speed=slow.cu", "--without", "build=broken.cu", "--cgins-sandbox", "off"]
    running = {
        "env": start(project, "env", "--probe", "--out", "out"),
        "sass": start(project, "sass", "gelu", "--case", CASE, "--out", "out"),
        "bench": start(project, "bench", "gelu/cuda", "--case", CASE, "--out", "out"),
        "ablate": start(project, "ablate", "gelu/nvrtc", "--case", CASE, "--out", "out", *words),
    }
    yield running
    for process in running.values():
        process.kill()
        process.communicate()


def read(cls: type[T], project: Path, name: str) -> T:
    return documents.load(cls, (project / "out" / name).read_bytes())


@pytest.fixture(scope="module")
def profiled(project: Path, beside: dict[str, Process]) -> dict[str, evidence_documents.CaseProfile]:
    """By implementation: a launcher, a device kernel and Triton."""
    ended(start(project, "profile", "gelu", "--device", "cuda", "--case", CASE, "--out", "out"))
    made = read(evidence_documents.ProfileEvidence, project, "ncu_top.json")
    return {one.case.split("/")[1]: one for one in made.cases}


def counters(project: Path, beside: dict[str, Process]) -> bool:
    if beside["env"].poll() is None or not (project / "out/env.json").exists():
        ended(beside["env"])
    return read(evidence_documents.EnvironmentEvidence, project, "env.json").counters


def test_env_knows_the_device_and_its_tools(project: Path, beside: dict[str, Process]) -> None:
    """GPU, driver, nvcc, cuobjdump are there; ncu was tried."""
    counters(project, beside)
    made = read(evidence_documents.EnvironmentEvidence, project, "env.json")
    found = {one.name: one for one in made.findings}
    for name in ("driver", "GPU 0", "nvcc", "torch"):
        assert found[name].state == "ok", found[name]
    assert made.sass
    assert "counters (probe)" in found
    assert made.counters == (found["counters (probe)"].state == "ok")


@pytest.mark.parametrize("implementation", ["cuda", "cuda-nvrtc", "cuda-triton"])
def test_profile(
    project: Path,
    beside: dict[str, Process],
    profiled: dict[str, evidence_documents.CaseProfile],
    implementation: str,
) -> None:
    """The timeline names the kernel and its launch; counters have all three axes, or it is told why not."""
    one = profiled[implementation]
    assert one.timeline, one.degraded
    longest = one.timeline[0]
    assert "elu" in longest.name or "map_packs" in longest.name
    assert longest.count == 1
    assert 300 < longest.ns_per_call < 1e6
    assert longest.grid.startswith("(")
    assert one.functions, one.degraded
    assert all(each.instructions for each in one.functions)
    assert any(each.registers_per_thread > 8 for each in one.functions)
    if not counters(project, beside):
        assert one.degraded
        return
    (kernel,) = one.kernels
    assert kernel.ns is not None
    assert 300 < kernel.ns < 1e6
    values = {each.name: each.value for each in kernel.metrics}
    print(implementation, values, one.notes)
    assert {"sm_pct", "dram_pct", "occupancy_pct", "registers_per_thread", "waves"} <= set(values)
    assert {"l2_hit_pct", "load_bytes_used_pct", "load_sectors_per_request"} <= set(values)
    assert any(name.startswith("stall_") for name in values)
    assert {"fp32_pct", "issue_active_pct"} <= set(values)
    assert 8 <= values["registers_per_thread"] <= 255
    assert all(0 <= value <= 101 for name, value in values.items() if name.endswith("_pct"))
    for axis in AXES:
        assert sum(each.axis == axis for each in one.top) <= 5
    assert any(each.axis == "memory" for each in one.top) or values["dram_pct"] > 80
    assert (project / "out" / one.report).stat().st_size > 1000
    assert one.degraded == ()


def test_sass(project: Path, beside: dict[str, Process]) -> None:
    """Machine code of all three: counted with modifiers, Triton's from its own cache."""
    ended(beside["sass"])
    rows = {
        row.implementation: row
        for row in read(evidence_documents.SassEvidence, project, "sass_check.json").rows
    }
    assert set(rows) == {"cuda", "cuda-nvrtc", "cuda-triton"}
    for row in rows.values():
        assert row.functions, row.degraded
        opcodes = {name for function in row.functions for name, _ in function.opcodes}
        assert {"LDG", "STG"} <= opcodes
    modified = {name for function in rows["cuda"].functions for name, _ in function.modified}
    assert any(".128" in name for name in modified)


def test_roofline_by_counters(project: Path, profiled: dict[str, evidence_documents.CaseProfile]) -> None:
    """Shares are by work over time; gaps are by the counters of `profile`, where it could read them."""
    ended(start(project, "roofline", "gelu/cuda", "--case", CASE, "--out", "out"))
    (row,) = read(evidence_documents.RooflineEvidence, project, "roofline.json").rows
    assert row.roofline is not None
    assert row.gaps is not None
    assert 0 < row.roofline.share_of_bandwidth < 3
    assert row.gaps.source == ("ncu" if profiled["cuda"].kernels else "roofline")
    assert row.gaps.latency_known == bool(profiled["cuda"].kernels)


def test_bench(project: Path, beside: dict[str, Process]) -> None:
    """torch and torch.compile have intervals; the base revision is the same build, which is told."""
    ended(beside["bench"])
    (row,) = read(evidence_documents.BenchEvidence, project, "bench.json").rows
    assert row.method == "cuda-graph"
    arms = {one.against: one for one in row.ratios}
    assert "torch" in arms
    assert "compile" in arms or any("torch.compile was not timed" in note for note in row.notes)
    assert all(one.low <= one.ratio <= one.high for one in row.ratios)
    assert "not timed against itself" in row.message


def test_ablation(project: Path, beside: dict[str, Process]) -> None:
    """Proven slower without it, and not built without it: both are told, and the project is as it was."""
    ended(beside["ablate"], status=1)
    made = read(evidence_documents.AttributionEvidence, project, "attribution.json")
    assert [one.state for one in made.methods] == ["contributes", "not-ablated"]
    (case,) = made.methods[0].cases
    assert case.low_ms is not None
    assert case.low_ms > 0
    assert (project / "kernels/gelu_device.cu").read_bytes() == (
        EXAMPLE / "kernels/gelu_device.cu"
    ).read_bytes()


def _slow(text: str) -> str:
    """The same with 20 microseconds of waiting at the head of each kernel."""
    wait = "\n  for (const long long end = clock64() + 40000; clock64() < end;) {}\n"
    parts = text.split("__global__")
    slowed = [part.replace("{", "{" + wait, 1) for part in parts[1:]]
    return "__global__".join([parts[0], *slowed])
