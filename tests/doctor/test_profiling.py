"""ncu, its permission to read counters, and its companions."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pytest_cgins.doctor import compilers, profiling, tools

if TYPE_CHECKING:
    from conftest import FakeTool

NCU = "NVIDIA (R) Nsight Compute Command Line Profiler\nCopyright (c) 2018-2025 NVIDIA Corporation\nVersion 2025.3.1.0 (build 36398880) (public-release)\n"
SANITIZER = "NVIDIA (R) Compute Sanitizer\nCopyright (c) 2020-2024 NVIDIA Corporation\nVersion 2024.3.1\n"
CUOBJDUMP = "cuobjdump: NVIDIA (R) Cuda object\nCuda compilation tools, release 12.6, V12.6.77\n"
NONE, SYS_ADMIN, PERFMON = "0000000000000000", "0000000000200000", "0000004000000000"


def test_programs(tool: FakeTool) -> None:
    """Each is found with its own version, not with the years of its banner."""
    tool("ncu", NCU)
    tool("compute-sanitizer", SANITIZER)
    tool("cuobjdump", CUOBJDUMP)
    found = profiling.programs(None)
    assert [(one.name, one.state, one.version) for one in found] == [
        ("ncu", "ok", "2025.3.1.0"),
        ("compute-sanitizer", "ok", "2024.3.1"),
        ("cuobjdump", "ok", "12.6.77"),
    ]


def test_programs_in_the_toolkit(tool: FakeTool, tmp_path: Path) -> None:
    """What is not on PATH is looked for in the toolkit's folder; what is nowhere is missing."""
    folder = tmp_path / "cuda"
    (folder / "bin").mkdir(parents=True)
    Path(tool("ncu", NCU)).rename(folder / "bin" / "ncu")
    toolkit = compilers.Toolkit(nvcc="nvcc", version=(13, 0), folder=folder, trouble="")
    ncu, sanitizer, _ = profiling.programs(toolkit)
    assert (ncu.state, ncu.where) == ("ok", str(folder / "bin" / "ncu"))
    assert (sanitizer.state, sanitizer.where) == ("missing", "")


def test_program_that_cannot_run(tool: FakeTool) -> None:
    """A tool that fails at --version is there; which one it is is unknown."""
    tool("ncu", "error while loading shared libraries: libnvperf.so", status=127)
    assert profiling.programs(None)[0].state == "unknown"


@pytest.mark.parametrize(
    ("restricted", "capabilities", "release", "state"),
    [
        ("0", NONE, "550.1", "ok"),
        ("1", SYS_ADMIN, "550.1", "ok"),
        ("1", NONE, "570.1", "unusable"),
        ("1", PERFMON, "570.1", "ok"),
        ("1", PERFMON, "550.1", "unknown"),
        ("1", "", "570.1", "unknown"),
        ("", NONE, "570.1", "unknown"),
    ],
)
def test_counters(
    proc: Callable[..., Path], restricted: str, capabilities: str, release: str, state: str
) -> None:
    """The driver's setting and our capabilities decide; what they leave open is unknown."""
    folder = proc(
        driver__nvidia__params=f"RmProfilingAdminOnly: {restricted}\n",
        self__status=f"CapEff:\t{capabilities}\n",
    )
    found = profiling.counters("/usr/bin/ncu", driver_release=release, proc=folder)
    assert found.state == state, found.detail


def test_remedies_of_counters(proc: Callable[..., Path]) -> None:
    """All three ways to the permission are told."""
    folder = proc(driver__nvidia__params="RmProfilingAdminOnly: 1\n", self__status=f"CapEff:\t{NONE}\n")
    remedy = profiling.counters("", driver_release="570.1", proc=folder).remedy
    for words in ("administrator", "NVreg_RestrictProfilingToAdminUsers=0", "--cap-add=SYS_ADMIN"):
        assert words in remedy


def test_counters_without_a_driver(proc: Callable[..., Path]) -> None:
    """No file and no driver: missing; a driver whose file cannot be read: unknown."""
    assert profiling.counters("", driver_release="", proc=proc()).state == "missing"
    assert profiling.counters("", driver_release="570.1", proc=proc()).state == "unknown"


@pytest.mark.parametrize(
    ("output", "status", "state", "words"),
    [
        (f"    {profiling.METRIC}   cycle   1,234.50\n", 0, "ok", "measured"),
        (
            "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission\n",
            1,
            "unusable",
            "ERR_NVGPUCTRPERM",
        ),
        ("==ERROR== Failed to connect\n", 1, "unknown", "Failed to connect"),
        ("==WARNING== No kernels were profiled.\n", 0, "unknown", "No kernels"),
        (f"    {profiling.METRIC}   cycle   n/a\n", 0, "unknown", "measured nothing"),
        ("", 0, "unknown", "measured nothing"),
    ],
)
def test_probe_of_counters(tool: FakeTool, output: str, status: int, state: str, words: str) -> None:
    """ncu on a tiny kernel: only a number is a success, only its own code is a refusal."""
    ncu = tool("ncu", output, status=status)
    nvcc = tool("nvcc", script="open(sys.argv[sys.argv.index('-o') + 1], 'w')")
    toolkit = compilers.Toolkit(nvcc=nvcc, version=(13, 0), folder=None, trouble="")
    found = profiling.probe_counters(ncu, toolkit)
    assert (found.state, words in found.detail) == (state, True), found.detail


def test_probe_without_tools(tool: FakeTool) -> None:
    """Without ncu, without nvcc, or with an nvcc that cannot build, nothing is known."""
    assert profiling.probe_counters("", None).state == "unknown"
    assert "no nvcc" in profiling.probe_counters(tool("ncu", NCU), None).detail
    broken = compilers.Toolkit(nvcc=tool("nvcc", "no", status=2), version=(), folder=None, trouble="")
    assert "cannot build" in profiling.probe_counters(tool("ncu", NCU), broken).detail


def test_probe_that_hangs() -> None:
    """A profiler that was killed at its limit says nothing about permissions."""
    ran = tools.ProgramResult(status=None, output="", trouble="ncu did not end in time and was killed")
    state, detail, _ = profiling.judge_probe(ran)
    assert state == "unknown"
    assert "did not end in time" in detail
