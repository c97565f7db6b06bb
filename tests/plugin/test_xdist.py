"""`-n`: devices are shared out among xdist's workers, and no two time on one at once."""

from __future__ import annotations

import os
from collections.abc import Callable
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

pytestmark = pytest.mark.exam

if TYPE_CHECKING:
    from conftest import Run

XDIST = ("--cgins", "-p", "xdist", "--cgins-json=report.json")
FAST = (*XDIST, "--cgins-no-timing", "--cgins-probes=off")
GPUS = [f"GPU-{letter * 8}-0000-0000-0000-000000000000" for letter in "ab"]
# Kernels take long, so that workers would meet if they could, and write down when that was.
KERNELS = """\
import os
import sys
import time
from pathlib import Path

LOG = os.open(Path(__file__).with_name(f"calls-{os.getpid()}.log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
DOING = "timing" if "pytest_cgins.run.timing_service" in sys.modules else "verifying"

def tells_when(name, input):
    begun = time.monotonic_ns()
    time.sleep(0.06)
    case = f"{name}{tuple(input.shape)}".replace(" ", "")
    os.write(LOG, f"{DOING} {case} {begun} {time.monotonic_ns()}\\n".encode())
    return input.clamp_min(0)

def a(input):
    return tells_when("a", input)

def b(input):
    return tells_when("b", input)

def tells_gpus(input):
    raise ValueError(f"sees {os.environ.get('CUDA_VISIBLE_DEVICES')}.")
"""


def configure(project: Path, *functions: str) -> None:
    """Write kernels, and a cgins.yaml that has some of them."""
    (project / "telling.py").write_text(KERNELS)
    implementations = [{"name": name, "device": "cpu", "target": f"telling:{name}"} for name in functions]
    kernels = {"relu": {"op": "torch.nn.functional.relu", "implementations": implementations}}
    document = {"version": 1, "traces": ["traces/tiny"], "kernels": kernels}
    (project / "cgins.yaml").write_text(yaml.safe_dump(document, sort_keys=False))


def spans(project: Path) -> list[tuple[str, str, int, int]]:
    """Process, purpose, begin and end in ns: of each call in a verification, and of each case's whole timing.

    What lies between a kernel's first and last call in a timing is the timing's, too: there torch is timed.
    """
    found: list[tuple[str, str, int, int]] = []
    for log in project.glob("calls-*.log"):
        timings: dict[str, list[int]] = {}
        for line in log.read_text().splitlines():
            doing, case, *times = line.split()
            if doing == "timing":
                timings.setdefault(case, []).extend(map(int, times))
            else:
                found.append((log.name, doing, int(times[0]), int(times[1])))
        found += [(log.name, "timing", min(times), max(times)) for times in timings.values()]
    return found


def test_timings_never_meet(project: Path, run: Callable[..., Run]) -> None:
    """Two workers, all on one CPU: while either times a kernel, the other neither times nor verifies one."""
    configure(project, "a", "b")
    found = run(project, *XDIST, "-n", "2", "--cgins-probes=off")
    assert found.counts["passed"] == 4, found.out
    evaluations = found.evaluations().values()
    assert all(one["measurement"] is not None for one in evaluations)
    told = spans(project)
    assert len({log for log, doing, *_ in told if doing == "timing"}) == 2
    assert len([1 for _, doing, *_ in told if doing == "timing"]) >= 4
    met = [
        (one, other)
        for one, other in combinations(told, 2)
        if one[0] != other[0] and "timing" in (one[1], other[1]) and one[2] < other[3] and other[2] < one[3]
    ]
    assert not met


def nvidia_smi(folder: Path) -> dict[str, str]:
    """Variables with which a machine seems to have two GPUs."""
    folder.mkdir()
    lines = "\n".join(f"GPU {index}: NVIDIA H200 (UUID: {gpu})" for index, gpu in enumerate(GPUS))
    (folder / "nvidia-smi").write_text(f"#!/bin/sh\ncat <<'END'\n{lines}\nEND\n")
    (folder / "nvidia-smi").chmod(0o755)
    return {"PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"}


def messages(found: Run) -> list[Any]:
    return sorted(one["verdict"]["message"] for one in found.evaluations().values())


def test_workers_are_pinned(project: Path, run: Callable[..., Run]) -> None:
    """With two GPUs each of two workers has one; the header says which, and kernels see no other."""
    configure(project, "tells_gpus")
    found = run(project, *FAST, "-n", "2", env=nvidia_smi(project / "bin"))
    for index, gpu in enumerate(GPUS):
        assert f"cgins: gw{index} on {gpu}" in found.lines
    assert found.counts == {"failed": 2}, found.out
    for gpu, message in zip(GPUS, messages(found), strict=True):
        assert f"sees {gpu}." in message


@pytest.mark.parametrize(
    ("options", "visible"),
    [(("-n", "1", "--cgins-isolation=none"), ""), (("-n", "1"), "1")],
)
def test_runs_without_a_choice(
    project: Path, run: Callable[..., Run], options: tuple[str, ...], visible: str
) -> None:
    """Without isolation, or with one GPU that the user has chosen: nothing is changed, and nothing told."""
    configure(project, "tells_gpus")
    env = nvidia_smi(project / "bin") | ({"CUDA_VISIBLE_DEVICES": visible} if visible else {})
    found = run(project, *FAST, *options, "-k", "4x8", env=env)
    assert " on GPU" not in found.out
    assert f"sees {visible or None}." in messages(found)[0], found.out
