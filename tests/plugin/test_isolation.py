"""Faults of kernels in a whole run, and `--cgins-isolation=none`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

if TYPE_CHECKING:
    from conftest import Run

FAST = ("--cgins", "--cgins-no-timing", "--cgins-probes=off", "--cgins-json=report.json", "-k", "4x8")
KERNELS = """\
import os
import sys

import torch

def right(input):
    return input.clamp_min(0)

def where(input):
    print("running in", os.getpid())
    print("aside", file=sys.stderr)
    return input.clamp_min(0) + 1

def reads_secrets(input):
    raise ValueError(os.environ.get("DEPLOY_TOKEN", "not there"))
"""
TELLS_DUMPABLE = """\
import ctypes, os
from pathlib import Path
PR_GET_DUMPABLE = 3

def pytest_sessionstart(session):
    name = os.environ.get("PYTEST_XDIST_WORKER", "main")
    Path(__file__).with_name(f"dumpable-{name}").write_text(str(ctypes.CDLL(None).prctl(PR_GET_DUMPABLE)))
"""
EXITS_AT_IMPORT = "import os\nprint('last words')\nos._exit(0)\ndef relu(input): ...\n"


def configure(project: Path, targets: list[str]) -> None:
    """Write kernels, and a cgins.yaml that has these."""
    (project / "faulty.py").write_text(KERNELS)
    (project / "leaves.py").write_text(EXITS_AT_IMPORT)
    implementations = [
        {"name": target.replace(":", "-"), "device": "cpu", "target": target} for target in targets
    ]
    kernels = {"relu": {"op": "torch.nn.functional.relu", "implementations": implementations}}
    document = {"version": 1, "traces": ["traces/tiny"], "kernels": kernels}
    (project / "cgins.yaml").write_text(yaml.safe_dump(document, sort_keys=False))


@pytest.mark.exam
def test_an_exit_at_import_costs_its_own_cases(project: Path, run: Callable[..., Run]) -> None:
    """os._exit(0) ends no run: the kernel's case fails by that name, and the next one passes."""
    configure(project, ["leaves:relu", "faulty:right"])
    found = run(project, *FAST)
    assert (found.code, found.counts) == (1, {"failed": 1, "passed": 1}), found.out
    assert "RUNTIME_ERROR (exited)" in found.out, found.out
    assert "last words" in found.out
    assert "no isolation" not in found.out


@pytest.mark.exam
def test_secrets_stay_in_pytest(project: Path, run: Callable[..., Run]) -> None:
    """A token of the run is not in a kernel's environment, nor are stdout and stderr mixed up in the report."""
    configure(project, ["faulty:reads_secrets", "faulty:where"])
    found = run(project, *FAST, env={"DEPLOY_TOKEN": "hush"})
    assert found.counts == {"failed": 2}, found.out
    assert "ValueError: not there" in found.out
    assert "hush" not in found.out
    outputs = [one["output"] for one in found.evaluations().values()]
    assert any(
        "aside" in output.partition("stderr:\n")[2] and "running in" in output for output in outputs
    ), outputs


@pytest.mark.exam
@pytest.mark.skipif(sys.platform != "linux", reason="the switch is Linux's")
def test_pytest_is_shielded_from_the_start(tmp_path: Path, run: Callable[..., Run]) -> None:
    """Where there is a secret, xdist's controller and workers are, before a kernel could be built."""
    (tmp_path / "conftest.py").write_text(TELLS_DUMPABLE)
    (tmp_path / "test_empty.py").write_text("def test_empty(): ...\n")
    found = run(tmp_path, "--cgins", "-p", "xdist.plugin", "-n1", env={"DEPLOY_TOKEN": "hush"})
    told = {path.name: path.read_text() for path in tmp_path.glob("dumpable-*")}
    assert told == {"dumpable-main": "0", "dumpable-gw0": "0"}, found.out
    run(tmp_path, "--cgins", "--cgins-isolation=none", env={"DEPLOY_TOKEN": "hush"})
    assert (tmp_path / "dumpable-main").read_text() == "1"


def test_without_isolation_kernels_run_in_pytest_s_process(project: Path, run: Callable[..., Run]) -> None:
    """The header says what does not hold; prints and breakpoints are pytest's own; the failure is reproducible."""
    configure(project, ["faulty:where", "faulty:right"])
    (project / "conftest.py").write_text("import os\nprint('pytest is', os.getpid())\n")
    found = run(project, *FAST, "--cgins-isolation=none", "-s")
    assert found.code == 1, found.out
    assert sorted(found.statuses().values()) == ["INCORRECT", "PASSED"], found.out
    assert found.out.count("cgins: no isolation: kernels run in pytest's own process.") == 1
    process = found.out.partition("pytest is ")[2].split()[0]
    assert f"running in {process}" in found.out
    assert "--cgins-isolation=none" in found.out.partition("again")[2]
