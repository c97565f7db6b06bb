"""Profilers in the sandbox, as a search asks them about candidates: they see there what they see outside."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_cgins import config
from pytest_cgins.gate.evaluate import Evaluator
from pytest_cgins.regenerate.profiling import disassembly, ncu
from pytest_cgins.regenerate.profiling.evidence_documents import CaseProfile
from pytest_cgins.regenerate.profiling.profile import Profiler
from pytest_cgins.run.sandbox.sandbox import Sandbox, ways

from .test_sanitize_gpu import HONEST

pytestmark = pytest.mark.gpu

ROOT = Path(__file__).parents[2]
WAYS = [way for way, trouble in ways().items() if not trouble]
SNOOP = '''"""relu; it looks around where the profiler's files lie."""

import os
from pathlib import Path

import torch
import triton
import triton.language as tl


@triton.jit
def _relu(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + at, mask=at < n, other=0.0)
    tl.store(y + at, tl.where(v < 0, 0.0, v), mask=at < n)


def relu(x, inplace=False):
    folder = Path(os.environ["TRITON_CACHE_DIR"]).parent
    if folder.name.startswith("cgins-profile-"):
        try:
            (folder / "profile.ncu-rep").write_bytes(b"forged")
        except OSError:
            pass
        else:
            raise RuntimeError("the profiler's folder can be written")
    y = torch.empty_like(x)
    _relu[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024)
    return y
'''


@pytest.fixture(scope="module", params=WAYS or [None])
def evaluator(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Evaluator, Sandbox]]:
    """relu by NVRTC and in Triton, on the traces of the example."""
    if request.param is None:
        pytest.skip(f"this host gives no sandbox: {ways()}")
    folder = tmp_path_factory.mktemp("project")
    (folder / "relu.cu").write_text(HONEST)
    (folder / "triton_relu.py").write_text(SNOOP)
    file = folder / "cgins.yaml"
    file.write_text(
        f"version: 1\ntraces: [{ROOT / 'example_project/traces/mnist'}]\n"
        "kernels:\n  relu:\n    op: torch.nn.functional.relu\n    implementations:\n"
        "      - {name: nvrtc, contract: device, source: relu.cu}\n"
        "      - {name: triton, device: cuda, target: triton_relu:relu, sources: [triton_relu.py]}\n"
    )
    sandbox = Sandbox(way=request.param)
    made = Evaluator(config.load(file), seed=5, timing=False, probes="off", sandbox=sandbox)
    try:
        yield made, sandbox
    finally:
        made.close()


@pytest.mark.parametrize("implementation", ["nvrtc", "triton"])
def test_counters_and_timeline_are_had_in_the_sandbox(
    evaluator: tuple[Evaluator, Sandbox], implementation: str, tmp_path: Path
) -> None:
    """Nothing degrades, and the kernel's process cannot write what ncu writes."""
    program = ncu.find()
    if program is None:
        pytest.skip("ncu is not installed")
    made, sandbox = evaluator
    case = next(one for one in made.cases() if one.implementation == implementation and "f32" in one.name)
    profile = Profiler(made, tmp_path, program=program, sandbox=sandbox).profile(case)
    assert profile.degraded == ()
    assert _names(profile)
    assert all(one.metrics for one in profile.kernels)
    assert profile.timeline
    assert profile.functions
    assert (tmp_path / profile.report).stat().st_size > 1000


def _names(profile: CaseProfile) -> list[str]:
    return [one.name for one in profile.kernels]


def test_machine_code_is_had_in_the_sandbox(evaluator: tuple[Evaluator, Sandbox]) -> None:
    """Triton compiles when it is called: that call is fenced in, and its cubins come out."""
    made, sandbox = evaluator
    case = next(one for one in made.cases() if one.implementation == "triton")
    row = disassembly.Disassembler(made.config, sandbox=sandbox).compiled_when_called(made, case)
    assert row.degraded == ()
    assert row.functions
    assert {one.state for one in row.signatures} >= {"absent", "unknown"}
