"""`cgins evidence` from the command line, on a CPU: what there is, and honest words for what there is not."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

import pytest

from pytest_cgins.building import sass
from pytest_cgins.building.compilers.toolchain import nvcc
from pytest_cgins.core import documents
from pytest_cgins.core.errors import InfrastructureError
from pytest_cgins.regenerate.profiling import evidence_documents

T = TypeVar("T")
Command = Callable[..., subprocess.CompletedProcess[str]]
LOOP = "  for (volatile int again = 0; again < 20000; again = again + 1) {}\n"


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory, recorded: Path) -> Path:
    """The tiny project with its pack, in git."""
    folder = tmp_path_factory.mktemp("evidence") / "project"
    shutil.copytree(recorded, folder)
    settings = ["-c", "user.name=T", "-c", "user.email=t@localhost", "-c", "commit.gpgsign=false"]
    for words in (["init", "-q", "-b", "main"], ["add", "-A"], ["commit", "-q", "-m", "base"]):
        subprocess.run(["git", *settings, *words], cwd=folder, check=True)
    return folder


@pytest.fixture
def command(project: Path, cgins: Command) -> Command:
    """`cgins evidence …`."""
    return partial(cgins, project, "evidence")


def read(cls: type[T], folder: Path, name: str, kernel: str = "relu") -> T:
    return documents.load(cls, (folder / ".cgins/evidence" / kernel / name).read_bytes())


def test_env_tells_what_there_is_and_what_that_costs(project: Path, command: Command) -> None:
    """Each tool has a state; what is missing is told with its remedy; cases are checked, and one that is wrong fails."""
    done = command("env", "relu/right", "relu/wrong", "--out", "out")
    assert done.returncode == 1, done.stderr
    made = documents.load(evidence_documents.EnvironmentEvidence, (project / "out/env.json").read_bytes())
    names = {one.name: one for one in made.findings}
    assert {
        "ncu",
        "counters",
        "cuobjdump",
        "nvcc",
        "driver",
        "torch",
        "CUTLASS headers",
        "clang-tidy",
    } <= set(names)
    assert made.sass == (sass.disassembler() is not None)
    for one in made.findings:
        told = [line for line in made.degraded if line.startswith(f"{one.name} ({one.state}")]
        assert bool(told) == (one.state != "ok")
        assert not told or one.remedy in told[0]
    assert [one.status for one in made.preflight] == ["PASSED", "PASSED", "INCORRECT", "INCORRECT"]
    assert "not available: ncu (missing)" in done.stdout or names["ncu"].state == "ok"


def test_roofline_without_counters(project: Path, command: Command) -> None:
    """Shares are by work over time, and latency has no data."""
    done = command("roofline", "relu/right", "--cgins-seed", "1")
    assert done.returncode == 0, done.stderr
    made = read(evidence_documents.RooflineEvidence, project, "roofline.json")
    assert len(made.rows) == 2
    for row in made.rows:
        assert row.roofline is not None
        assert row.gaps is not None
        assert row.roofline.nbytes in (48, 256)
        assert (row.gaps.source, row.gaps.latency, row.gaps.latency_known) == ("roofline", 0.5, False)
        assert row.near_peak is (max(row.roofline.share_of_bandwidth, row.roofline.share_of_compute) >= 0.85)
    assert "no data" in done.stdout
    assert "cgins evidence profile" in done.stdout


def test_profile_of_a_cpu_kernel_says_what_it_lacks(project: Path, command: Command) -> None:
    """The compiler's report is there; counters and a timeline are not, and it says where times are."""
    done = command("profile", "relu/right", "--top", "3")
    assert done.returncode == 0, done.stderr
    made = read(evidence_documents.ProfileEvidence, project, "ncu_top.json")
    (one,) = made.cases
    assert one.case.startswith("relu/cpu-right/tiny/f32-4x8-")
    assert (one.kernels, one.timeline, one.top, made.ncu, made.top) == ((), (), (), "", 3)
    assert one.compiler[0].startswith("built in ")
    assert "cgins evidence bench" in one.degraded[0]
    assert "not available: counters and timeline" in done.stdout


@pytest.mark.skipif(sass.disassembler() is None, reason="no cuobjdump")
def test_sass_of_an_architecture_that_is_not_here(project: Path, command: Command) -> None:
    """Opcodes are counted with and without modifiers."""
    try:
        nvcc()
    except InfrastructureError:
        pytest.skip("no nvcc")
    done = command("sass", "relu/cuda", "--arch", "sm_90a")
    assert done.returncode == 0, done.stderr
    (row,) = read(evidence_documents.SassEvidence, project, "sass_check.json").rows
    (function,) = row.functions
    assert (row.implementation, function.arch, row.degraded) == ("cuda", "sm_90a", ())
    assert function.function.startswith("relu_elements")
    assert dict(function.opcodes)["LDG"] == 1
    assert any(name.startswith("LDG.E") for name, _ in function.modified)
    assert sum(dict(function.modified).values()) == sum(dict(function.opcodes).values())


def test_sass_of_a_kernel_without_machine_code_is_an_error(command: Command) -> None:
    """It says which are meant."""
    done = command("sass", "relu/right")
    assert done.returncode == 2
    assert "only these have SASS" in done.stderr


def test_bench_has_intervals_and_tells_what_is_not_there(project: Path, command: Command) -> None:
    """torch has an interval; the build of the base revision is the same, and is not timed against itself."""
    done = command("bench", "relu/right", "--no-compile", "--case", "2x3", "--cgins-seed", "7")
    assert done.returncode == 0, done.stderr
    made = read(evidence_documents.BenchEvidence, project, "bench.json")
    (row,) = made.rows
    assert made.seed == 7
    assert row.ns_per_call is not None
    (ratio,) = row.ratios
    assert ratio.against == "torch"
    assert ratio.low <= ratio.ratio <= ratio.high
    assert "not timed against itself" in row.message
    assert row.message in done.stdout


@pytest.mark.exam
def test_a_wrong_kernel_is_not_timed(project: Path, command: Command) -> None:
    """Its row says why, and the command fails."""
    done = command("bench", "relu/wrong", "--no-compile", "--case", "2x3", "--out", "wrong")
    assert done.returncode == 1
    made = documents.load(evidence_documents.BenchEvidence, (project / "wrong/bench.json").read_bytes())
    assert all(row.ns_per_call is None and row.status == "INCORRECT" for row in made.rows)


def test_tidy_is_told_when_it_is_not_installed(project: Path, command: Command) -> None:
    """Findings, or that the program is not there: never silence."""
    done = command("tidy", "relu/right")
    assert done.returncode == 0, done.stderr
    made = read(evidence_documents.TidyEvidence, project, "clang_tidy.json")
    assert made.files or "not installed" in made.degraded[0]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["bench", "rleu"], 'did you mean "relu"'),
        (["bench", "relu/rihgt"], 'did you mean "right"'),
        (["bench", "relu/right", "--case", "f64"], 'has "f64" in its name'),
        (["ablate", "relu", "--without", "x=kernels/relu.cpp"], "name one: cgins evidence ablate relu/cpu-right"),
        (["ablate", "relu/right", "--without", "x=nowhere.cpp"], "nowhere.cpp"),
        (["ablate", "relu/right", "--without", "x"], "is not NAME=FILE"),
        (["profile", "relu", "--top", "0"], "not a number from 1 to 50"),
    ],
)  # fmt: skip
def test_wrong_arguments(command: Command, words: list[str], told: str) -> None:
    """Each says what is wrong and what would be right; nothing is run."""
    done = command(*words)
    assert done.returncode == 2
    assert told in done.stderr


def test_ablation_of_three_methods(project: Path, command: Command) -> None:
    """Slower without it: it contributes. Wrong: essential. No build: not ablated."""
    text = (project / "kernels/relu.cpp").read_text()
    line = "  for (int64_t i = 0; i < count; ++i) y[i]"
    variants = {
        "tight": text.replace(line, f"{LOOP}{line}"),
        "clamp": text.replace("x[i] < 0 ? 0 : x[i]", "x[i]"),
        "broken": f"#error no\n{text}",
    }
    words = []
    for name, variant in variants.items():
        (project / f"{name}.cpp").write_text(variant)
        words += ["--without", f"{name}={name}.cpp"]
    before = (project / "kernels/relu.cpp").read_bytes()
    done = command("ablate", "relu/right", "--case", "2x3", "--cgins-sandbox", "off", *words)
    assert done.returncode == 1, done.stderr
    made = read(evidence_documents.AttributionEvidence, project, "attribution.json")
    states = {one.method: one.state for one in made.methods}
    assert states == {"tight": "contributes", "clamp": "essential", "broken": "not-ablated"}
    (tight,) = made.methods[0].cases
    assert tight.attribution_ms is not None
    assert tight.low_ms is not None
    assert tight.high_ms is not None
    assert 0 < tight.low_ms <= tight.attribution_ms <= tight.high_ms
    assert "g++ refused kernels/relu.cpp" in made.methods[2].message
    assert (project / "kernels/relu.cpp").read_bytes() == before
