"""`cgins calibrate` from the command line, on a CPU, and what sessions make of it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_cgins.core import documents
from pytest_cgins.core.case import Case
from pytest_cgins.gate.calibrate import _by_kernel, longer_batches
from pytest_cgins.gate.calibration import Calibration, SizeClass
from tests.forked_python import ForkedPython
from tests.repository import commit

Command = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory, recorded: Path) -> Path:
    """The tiny project with its pack, in git, and a change of a kernel that changes nothing."""
    folder = tmp_path_factory.mktemp("calibrate") / "project"
    shutil.copytree(recorded, folder)
    commit(folder)
    (folder / "tiny_ops.py").write_text((folder / "tiny_ops.py").read_text() + "\n\nCHANGED = True\n")
    return folder


@pytest.fixture
def calibrate(cgins: Command, project: Path, monkeypatch: pytest.MonkeyPatch) -> Command:
    """`cgins calibrate …`, with a cache of the project's own."""
    monkeypatch.setenv("CGINS_CACHE_DIR", str(project / "cache"))

    def run(*words: str, folder: Path = project) -> subprocess.CompletedProcess[str]:
        return cgins(folder, "calibrate", *words)

    return run


def stored(folder: Path) -> Calibration:
    (file,) = (folder / "cache" / "calibration").iterdir()
    return documents.load(Calibration, file.read_bytes())


def gate(folder: Path, forked_python: ForkedPython) -> tuple[str, dict[str, float]]:
    """A session's output, and its only test against the base."""
    options = ["-k", "scaled", "--cgins-baseline=HEAD", "--cgins-probes=off", "--cgins-json=r.json"]
    added = {
        "CGINS_CACHE_DIR": str(folder / "cache"),
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "COLUMNS": "240",
    }
    words = ["-m", "pytest", "-p", "pytest_cgins.plugin", "--cgins", *options]
    done = forked_python.run(words, cwd=folder, env=os.environ | added)
    report = json.loads((folder / "r.json").read_text())
    (one,) = report["evaluations"]
    assert one["measurement"] is not None, done.stdout + done.stderr
    return done.stdout, one["measurement"]["comparisons"][0]


def test_from_the_command_line_to_the_verdict(
    project: Path, calibrate: Command, forked_python: ForkedPython
) -> None:
    """A session without a calibration says so; with one, 2.5 times the spread's upper bound is extra tolerance."""
    said, before = gate(project, forked_python)
    (line,) = [line for line in said.splitlines() if "not calibrated" in line]
    assert line.startswith("not calibrated, in 1 case: ")
    assert line.endswith(" was not calibrated; a spread between processes is assumed → cgins calibrate")
    assert before["tolerate"] in (pytest.approx(0.02 + 2.5 * 0.007), pytest.approx(0.02 + 2.5 * 0.003))

    done = calibrate("scaled", "relu", "--processes", "3", "--blocks", "6")
    assert done.returncode == 0, done.stderr
    head, columns, *rows = done.stdout.splitlines()
    (file,) = (project / "cache" / "calibration").iterdir()
    assert head.endswith(f": {file}")
    assert columns.split()[:4] == ["calls", "cases", "processes", "blocks"]
    made = stored(project)
    assert [row.split()[:4] for row in rows] == [
        [one.name, str(len(one.cases)), "3", "6"] for one in made.classes
    ]
    assert {name.partition("/")[0] for one in made.classes for name in one.cases} == {"scaled", "relu"}
    assert "cgins: process 3 of 3: " in done.stderr
    assert "relu/cpu-broken/" in done.stderr, "kernels that cannot be timed are named"
    for name in {"under-3us", "3-to-30us", "30-to-150us", "over-150us"} - {one.name for one in made.classes}:
        assert f"cgins: {name}: no kernel has calls of that length; " in done.stderr

    known = [{**documents.dump_python(one), "spread_upper": 0.04} for one in made.classes]
    file.write_text(json.dumps({**documents.dump_python(made), "classes": known}))
    said, after = gate(project, forked_python)
    assert "not calibrated" not in said
    assert after["tolerate"] == pytest.approx(0.12)
    assert after["catch"] == pytest.approx(0.15)


@pytest.mark.exam
def test_one_document(project: Path, calibrate: Command) -> None:
    """--json prints what is stored, and nothing else on stdout; --peaks measures the roofline's peaks."""
    before_s = time.time()
    done = calibrate("threshold", "--processes", "3", "--blocks", "4", "--json", "--peaks")
    assert done.returncode == 0, done.stderr
    made = documents.load(Calibration, done.stdout)
    assert made == stored(project)
    assert [name.partition("/")[0] for one in made.classes for name in one.cases] == ["threshold"]
    (peaks,) = (project / "cache" / "peaks").iterdir()
    assert json.loads(peaks.read_text())["measured_at_s"] > before_s


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--processes", "2"], "argument --processes: '2' is not a number from 3 to 1000"),
        (["--blocks", "x"], "argument --blocks: 'x' is not a number from 3 to 1000"),
        (["none"], 'no kernel "none"'),
        (["--device", "cuda"], "--device cuda: torch sees no such device here"),
        (["--config", "nowhere.yaml"], "nowhere.yaml"),
    ],
)
def test_what_cannot_be_calibrated(calibrate: Command, words: list[str], said: str) -> None:
    """Exit status 2, and why."""
    import torch

    if "cuda" in words and torch.cuda.is_available():
        pytest.skip("there is a GPU here")
    done = calibrate(*words)
    assert done.returncode == 2
    assert said in done.stderr
    assert done.stdout == ""


@pytest.mark.exam
def test_kernels_that_all_fail(
    project: Path, tmp_path: Path, calibrate: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is named with its reason; nothing is stored."""
    folder = Path(shutil.copytree(project, tmp_path / "project", ignore=shutil.ignore_patterns("cache")))
    (folder / "cgins.yaml").write_text(
        "version: 1\ntraces: [traces/tiny]\nkernels:\n  relu: {op: torch.nn.functional.relu, "
        "implementations: [{name: crash, device: cpu, source: kernels/relu.cpp, defines: {CRASH: 1}}]}\n"
    )
    monkeypatch.setenv("CGINS_CACHE_DIR", str(folder / "cache"))
    done = calibrate("--processes", "3", folder=folder)
    assert done.returncode == 2
    assert "relu/cpu-crash/tiny/" in done.stderr
    assert "is left out: the timing worker was killed by SIGABRT" in done.stderr
    assert "cgins: none of 2 cases could be timed against a second build of its kernel on cpu" in done.stderr
    assert not (folder / "cache" / "calibration").exists()


# ---- which cases, and how long batches become


def case(kernel: str, implementation: str, signature: str) -> Case:
    return Case(
        kernel=kernel, implementation=implementation, device="cpu", op="o", pack="p", pack_path="/p", trace_id="t",
        signature=signature, dtype="float32",
    )  # fmt: skip


def test_kernels_take_turns() -> None:
    """Different kernels first, then different implementations, then both ends of their cases."""
    cases = [case("a", "x", s) for s in "123"] + [case("a", "y", s) for s in "12"] + [case("b", "x", "1")]
    assert [(one.kernel, one.implementation, one.signature) for one in _by_kernel(cases)] == [
        ("a", "x", "1"), ("b", "x", "1"), ("a", "y", "1"), ("a", "x", "3"), ("a", "y", "2"), ("a", "x", "2"),
    ]  # fmt: skip
    assert _by_kernel([]) == []


@pytest.mark.parametrize(
    ("rho", "error", "longer", "wanted"),
    [
        (0.04, 0.01, 1.0, 1.0), (0.06, 0.01, 1.0, 2.0), (0.06, 0.05, 1.0, 1.0), (0.1, 0.01, 1.0, 4.0),
        (0.3, 0.01, 1.0, 8.0), (0.1, 0.01, 2.0, 8.0), (0.06, 0.01, 4.0, 8.0), (0.5, 0.01, 8.0, 8.0), (-0.3, 0.01, 2.0, 2.0),
    ],
)  # fmt: skip
def test_batches_become_longer_where_blocks_hang_on_each_other(
    rho: float, error: float, longer: float, wanted: float
) -> None:
    """By as much as the correlation asks for, up to 8 times; not for what chance explains."""
    found = SizeClass(
        name="under-3us", cases=(), processes=3, blocks=6, longer=longer, spread=0.0, spread_upper=0.0, sigma=0.0,
        rho=rho, rho_error=error, offset=0.0,
    )  # fmt: skip
    assert longer_batches(found) == wanted
