"""Times against the base revision: `--cgins-baseline`, `--cgins-compare`, `--cgins-suite-tests` and `gate` in a repository."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from pytest_cgins.core.number_text import slowdown
from tests.repository import commit

if TYPE_CHECKING:
    from conftest import Run

OPTIONS = ("--cgins", "--cgins-json=report.json", "--cgins-probes=off", "-rfEw")
BASE = """\
import os

def kept(input):
    return input.clamp_min(0)

def slowed(input):
    return input.clamp_min(0)

def tolerated(input):
    return input.clamp_min(0)

def mended(input):
    return input.clamp_min(-1)

def deadly(input):
    if "timing" in os.environ.get("WORKER_IS", ""):
        os._exit(3)
    return input.clamp_min(0)
"""
SLOW = """
def many_times(input):
    for _ in range(4):
        answer = input.clamp_min(0)
    return answer

slowed = tolerated = mended = many_times

def kept(input):
    return input.clamp_min(0)

def deadly(input):
    return input.clamp_min(0)

def new(input):
    return input.clamp_min(0)
"""

RELU = """\
// cgins: relu(Tensor input, bool inplace) -> Tensor
#include <cgins.h>
extern "C" int relu(const DLTensor* input, bool, DLTensor* out, cgins_stream) {
  CGINS_CHECK(cgins::is_contiguous(input), "contiguous tensors only");
  for (int64_t i = 0; i < cgins::numel(input); ++i) {
    const float one = cgins::data<const float>(input)[i];
    cgins::data<float>(out)[i] = one > 0 ? one : 0;
  }
  return 0;
}
"""


def write(
    project: Path,
    text: str,
    *names: str,
    gate: dict[str, Any] | None = None,
    floors: dict[str, float] | None = None,
) -> None:
    """Kernels, and a cgins.yaml that has these of them."""
    gates: dict[str, dict[str, Any]] = {"tolerated": {"fail_on": "never"}}
    gates |= {name: {"floor_vs_torch": floor} for name, floor in (floors or {}).items()}
    (project / "timed.py").write_text(text)
    kernels = {
        name: {
            "op": "torch.nn.functional.relu",
            "implementations": [{"name": "cpu", "device": "cpu", "target": f"timed:{name}"}],
            **({"gate": gates[name]} if name in gates else {}),
        }
        for name in names
    }
    document = {
        "version": 1,
        "traces": ["traces/tiny"],
        "kernels": kernels,
        **({"gate": gate} if gate else {}),
    }
    (project / "cgins.yaml").write_text(yaml.safe_dump(document, sort_keys=False))


def by_kernel(found: Run) -> dict[str, Any]:
    """The evaluation of each kernel's first case."""
    return {name.partition("/")[0]: one for name, one in reversed(found.evaluations().items())}


@pytest.mark.exam
def test_what_changed_is_timed_against_the_base(project: Path, run: Callable[..., Run]) -> None:
    """A kernel that became slower fails with both processes' numbers; one whose base was wrong does not; new ones are NEW."""
    base_names = ("kept", "slowed", "tolerated", "mended")
    write(project, BASE, *base_names)
    revision = commit(project)
    write(project, SLOW, *base_names, "new")
    found = run(project, *OPTIONS, "-k", "4x8")
    cases = by_kernel(found)
    assert found.code == 1, found.out
    slowed = cases["slowed"]
    assert (slowed["verdict"]["status"], slowed["verdict"]["reason"]) == ("SLOWER", "slower-than-base")
    assert slowed["measurement"]["base_revision"] == revision
    first = slowed["measurement"]["comparisons"][0]
    again = slowed["measurement"]["confirmation"]["comparisons"][0]
    assert first["outcome"] == again["outcome"] == "slower"
    # Medians and sums are tests, and so are the cases that -k leaves out.
    assert (first["tests"], again["tests"]) == (4 * len(found.evaluations()), 1)
    assert first["sums"]["calls"] >= 32
    assert slowdown(first["ratio"]) in slowed["verdict"]["message"]
    assert "fresh process" in slowed["verdict"]["message"]
    assert cases["tolerated"]["verdict"]["status"] == "SLOWER"
    assert cases["tolerated"]["fail_on"] == "never"
    assert (cases["mended"]["verdict"]["status"], cases["mended"]["verdict"]["reason"]) == (
        "PASSED",
        "not-comparable",
    )
    assert cases["new"]["verdict"]["status"] == "NEW"
    assert cases["kept"]["verdict"]["status"] in ("SAME", "FASTER", "INCONCLUSIVE")
    assert {"kernel slowed", "kernel tolerated"} & set(_failed(found)) == {"kernel slowed"}


def _failed(found: Run) -> list[str]:
    """Kernels of the failures' headlines."""
    return [line.strip("_ ").partition("/")[0] for line in found.lines if line.startswith("___")]


def test_an_unchanged_kernel_is_not_timed_against_itself(project: Path, run: Callable[..., Run]) -> None:
    """It passes as unchanged; `--cgins-compare=unchanged` times it against a second build, and the suite's size is given."""
    write(project, BASE, "kept")
    commit(project)
    (one,) = {one["verdict"]["reason"]: one for one in run(project, *OPTIONS).evaluations().values()}.values()
    assert (one["verdict"]["status"], one["verdict"]["reason"]) == ("PASSED", "unchanged")
    assert one["measurement"]["base"] is None
    found = run(project, *OPTIONS, "--cgins-compare=unchanged", "--cgins-suite-tests=5000")
    compared = [one["measurement"]["comparisons"][0] for one in found.evaluations().values()]
    assert {one["tests"] for one in compared} == {5000}
    assert not {one["verdict"]["status"] for one in found.evaluations().values()} & {"SLOWER", "PASSED"}


@pytest.mark.exam
def test_without_a_base_revision_the_summary_says_that_times_gate_nothing(
    project: Path, run: Callable[..., Run]
) -> None:
    """Outside of a repository, and with `gate.baseline: none`, kernels pass, and nobody thinks that they were gated."""
    write(project, BASE, "kept")
    found = run(project, *OPTIONS)
    assert found.code == 0
    assert "TIMES GATE NOTHING" in found.out
    commit(project)
    write(project, BASE, "kept", gate={"baseline": "none"})
    found = run(project, *OPTIONS)
    assert found.code == 0
    assert "TIMES GATE NOTHING" in found.out


def test_an_unknown_revision_is_refused_before_anything_runs(project: Path, run: Callable[..., Run]) -> None:
    """A misspelt `--cgins-baseline` must not become a run that gates nothing."""
    write(project, BASE, "kept")
    commit(project)
    found = run(project, *OPTIONS, "--cgins-baseline=nowhere")
    assert found.code not in (0, 1)
    assert 'git knows no commit "nowhere"' in found.out


@pytest.mark.exam
def test_a_worker_that_dies_beside_the_base_leaves_the_case_undecided(
    project: Path, run: Callable[..., Run]
) -> None:
    """Nobody knows which of both did it: a kernel that kills its base must not pass by that."""
    killing = BASE.replace('if "timing" in os.environ.get("WORKER_IS", ""):', "if timed():") + (
        '\ndef timed():\n    import sys\n    return "pytest_cgins.run.timing_service" in sys.modules\n'
    )
    write(project, killing, "deadly")
    commit(project)
    write(project, SLOW, "deadly")
    found = run(project, *OPTIONS)
    one = by_kernel(found)["deadly"]
    assert (one["verdict"]["status"], one["verdict"]["reason"]) == ("INCONCLUSIVE", "not-comparable"), (
        found.out
    )
    assert "with the base loaded the worker ended" in one["verdict"]["message"]


@pytest.mark.exam
def test_a_floor_is_held_against_torch(project: Path, run: Callable[..., Run]) -> None:
    """A kernel that must be so many times as fast as torch, and is not, fails without any base revision."""
    write(project, BASE, "kept", "slowed", floors={"kept": 0.000001, "slowed": 50.0})
    found = run(project, *OPTIONS)
    statuses = {(name.partition("/")[0], status) for name, status in found.statuses().items()}
    told = {one for one in statuses if one[1] != "WEAK"}
    assert told == {("kept", "PASSED"), ("slowed", "BELOW_FLOOR")}, found.out
    assert found.code == 1


@pytest.mark.exam
def test_a_base_that_a_tool_failed_to_build_is_no_verdict(
    project: Path, tmp_path: Path, run: Callable[..., Run]
) -> None:
    """The kernel may be slower than a base that was not built because its compiler was killed: it does not pass."""
    compiler = tmp_path / "cxx"
    compiler.write_text('#!/bin/sh\ncase "$*" in */revisions/*) kill -9 $$;; esac\nexec c++ "$@"\n')
    compiler.chmod(0o755)
    write(project, "")
    document = yaml.safe_load((project / "cgins.yaml").read_text())
    document["kernels"] = {"relu": {"op": "torch.nn.functional.relu", "device": "cpu", "source": "relu.cpp"}}
    (project / "cgins.yaml").write_text(yaml.safe_dump(document, sort_keys=False))
    (project / "relu.cpp").write_text(RELU)
    commit(project)
    (project / "relu.cpp").write_text(RELU + "// again\nextern const int more = 1;\n")
    found = run(project, *OPTIONS, "-k", "4x8", env={"CXX": str(compiler)})
    (verdict,) = {
        (one["verdict"]["status"], one["verdict"]["reason"]) for one in found.evaluations().values()
    }
    assert verdict == ("INFRASTRUCTURE", "tool-missing")
    (message,) = {one["verdict"]["message"].partition(":")[0] for one in found.evaluations().values()}
    assert message == "right, but while it was timed"
    assert "its base revision could not be built" in found.out
    assert "it was killed by SIGKILL" in found.out
    assert found.code != 0
