"""Two environments: `--cgins-base-env`, `--cgins-env`, and `cgins compare-env`."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

from tests.forked_python import CGINS, ForkedPython
from tests.repository import commit

if TYPE_CHECKING:
    from conftest import Run

KERNELS = """\
import os
import time

THERE = os.environ.get("KERNELS") == "old"

def kept(input):
    time.sleep(0.002)
    return input.clamp_min(0)

def slowed(input):
    time.sleep(0.002 if THERE else 0.01)
    return input.clamp_min(0)

def moved(input):
    return input.clamp_min(0) * (1 if THERE else 1 + 1.2e-7)

def mended(input):
    return input if THERE else input.clamp_min(0)
"""
GATE = {"alpha": 0.45, "beta": 0.45, "tolerate": 0.5, "catch": 1.0}
"""Proven by two pairs, each of which starts two processes, and by no noise of a busy machine: kernels sleep."""
OPTIONS = ("--cgins", "--cgins-probes=off", "--cgins-json=report.json", "--cgins-suite-tests=1", "-k", "4x8")


def write(project: Path, *names: str) -> None:
    """Kernels for relu, each a function of one module."""
    (project / "kernels.py").write_text(KERNELS)
    kernels = {
        name: {
            "op": "torch.nn.functional.relu",
            "implementations": [{"name": "cpu", "device": "cpu", "target": f"kernels:{name}"}],
        }
        for name in names
    }
    document = {"version": 1, "traces": ["traces/tiny"], "gate": GATE, "kernels": kernels}
    (project / "cgins.yaml").write_text(yaml.safe_dump(document, sort_keys=False))


def test_what_another_environment_changes_is_told_of_each_kernel(
    project: Path, run: Callable[..., Run]
) -> None:
    """Unchanged sources are timed in pairs of processes; slower ones fail, other bits are told, wrong ones gate nothing."""
    write(project, "kept", "slowed", "moved", "mended")
    done = run(project, *OPTIONS, "--cgins-base-env=KERNELS=old")
    found = {name.partition("/")[0]: one for name, one in done.evaluations().items()}
    verdicts = {name: (one["verdict"]["status"], one["verdict"]["reason"]) for name, one in found.items()}
    assert verdicts["kept"] == ("SAME", "not-slower"), done.out
    assert verdicts["slowed"] == ("SLOWER", "slower-than-base")
    assert verdicts["mended"] == ("PASSED", "not-comparable")
    assert done.code == 1
    slowed = found["slowed"]["measurement"]
    test = slowed["comparisons"][0]
    assert test["unit"] == "pair"
    assert slowed["confirmation"] is None
    assert (
        len(slowed["orders"].split()) == len(test["log_ratios"]) == len(slowed["base"]["samples_ns_per_call"])
    )
    assert set(slowed["orders"].split()) <= {"KB", "BK"}
    assert "the time of KERNELS=old in" in found["slowed"]["verdict"]["message"]
    assert "pairs of processes" in found["slowed"]["verdict"]["message"]
    environments = {name: one["environments"] for name, one in found.items()}
    assert environments["kept"]["drift"] == "the same bits"
    assert re.match(
        r"\d.*% of elements differ, up to 1\..e-07 of the greatest$", environments["moved"]["drift"]
    )
    assert environments["mended"]["base_status"] == "INCORRECT"
    assert environments["kept"]["same_sources"]
    assert "timed against KERNELS=old: 2 same" in done.out


@pytest.mark.exam
def test_modules_of_a_folder_come_before_the_projects(project: Path, run: Callable[..., Run]) -> None:
    """The same name is in both: a wheel's or folder's is what the environment runs."""
    write(project, "kept")
    other = project.parent / "other"
    other.mkdir()
    (other / "kernels.py").write_text(
        KERNELS.replace("def kept(input):", "def kept(input):\n    return input * 3\n")
    )
    done = run(project, *OPTIONS, f"--cgins-base-env={other}")
    (kept,) = done.evaluations().values()
    assert kept["environments"]["base_status"] == "INCORRECT", done.out
    assert not kept["environments"]["same_sources"]


@pytest.mark.exam
def test_sources_of_the_base_revision_run_in_its_environment(project: Path, run: Callable[..., Run]) -> None:
    """A change of the source and one of the environment are compared together, where a revision is asked for."""
    write(project, "kept")
    commit(project)
    module = project / "kernels.py"
    module.write_text(
        module.read_text().replace("def kept(input):", "def kept(input):\n    time.sleep(0.008)")
    )
    done = run(project, *OPTIONS, "--cgins-base-env=KERNELS=old", "--cgins-baseline=HEAD")
    (kept,) = done.evaluations().values()
    assert kept["verdict"]["status"] == "SLOWER", done.out
    assert not kept["environments"]["same_sources"]


REGISTERED = """\
import time
import torch

@torch.library.custom_op("mine::relu", mutates_args=())
def registered(x: torch.Tensor) -> torch.Tensor:
    time.sleep(0.002)
    return x.clamp_min(0)

def slowed(input):
    return registered(input)

def kept(input):
    return registered(input)
"""


@pytest.mark.exam
def test_an_operator_is_timed_against_its_base_in_processes_of_their_own(
    project: Path, run: Callable[..., Run]
) -> None:
    """torch has one operator of a name in a process, so both revisions cannot share one; other kernels still do."""
    write(project, "kept", "slowed")
    (project / "kernels.py").write_text(REGISTERED)
    revision = commit(project)
    slower = REGISTERED.replace("def slowed(input):", "def slowed(input):\n    time.sleep(0.008)")
    (project / "kernels.py").write_text(slower)
    done = run(project, *OPTIONS)
    found = {name.partition("/")[0]: one for name, one in done.evaluations().items()}
    assert (found["slowed"]["verdict"]["status"], found["kept"]["verdict"]["status"]) == ("SLOWER", "SAME"), (
        done.out
    )
    for one in found.values():
        assert one["measurement"]["base_revision"] == revision
        assert one["measurement"]["comparisons"][0]["unit"] == "pair"
        assert one["environments"] is None


def test_the_command_compares_with_the_same_sources(project: Path, forked_python: ForkedPython) -> None:
    """`cgins compare-env BASE ENV` hands on folders and options, and pytest's exit code."""
    write(project, "slowed")
    words = ("compare-env", "KERNELS=old", ".", "--", *OPTIONS[1:], "-q")
    forked = f"import sys; sys.executable = {str(forked_python.executable())!r}; "
    done = forked_python.run(["-c", forked + CGINS[1], *words], cwd=project)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "SLOWER (slower-than-base)" in done.stdout
    assert "--cgins-base-env=KERNELS=old" in done.stdout  # of the command that repeats it


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--cgins-env=A=1"], "--cgins-env goes with --cgins-base-env ENV"),
        (["--cgins-base-env=nowhere"], "'nowhere' is no folder, Python, wheel, library or NAME=VALUE"),
        (["--cgins-base-env=A=1", "--cgins-sandbox=on"], "--cgins-sandbox=on does not go with --cgins-base-env"),
        (["--cgins-base-env=A=1", "--cgins-isolation=none"], "needs processes of its own"),
        (["--cgins-base-env=A=1", "-p", "xdist", "-n1"], "leave out -n"),
    ],
)  # fmt: skip
def test_what_does_not_go_together_is_refused(
    project: Path, run: Callable[..., Run], options: list[str], told: str
) -> None:
    """With the option that is to go."""
    write(project, "kept")
    done = run(project, "--cgins", *options)
    assert done.code == 4, done.out
    assert told in done.out
