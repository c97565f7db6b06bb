"""Other ways to gate the same subjects: triton's `do_bench` with fixed 5%, pytest-benchmark against a stored run.

Reads a specification from a file and writes what came out to another; see `verdicts.py`. As a test file it is what
pytest-benchmark runs.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))

from subjects import Library, Subject, tensors_of

SUBJECTS = "VERDICTS_SUBJECTS"
_chosen = json.loads(Path(os.environ[SUBJECTS]).read_text()) if SUBJECTS in os.environ else {"subjects": []}


@pytest.mark.parametrize("subject", _chosen["subjects"], ids=lambda one: one["name"])
def test_time(subject: dict[str, Any], benchmark: Any) -> None:
    """As users write it: the call and the wait for the GPU."""
    arm = _arm(Library(_chosen["libraries"][_chosen["library"]]), Subject(**subject), _chosen["slowdown"])

    def call() -> None:
        arm(0)
        torch.cuda.synchronize()

    call()
    benchmark(call)


def _arm(library: Library, subject: Subject, slowdown: str) -> Any:
    work = subject.slower[slowdown] if slowdown else subject.work
    tensors = tensors_of(subject.groups)[:1]
    arm = library.arm(subject.kind, subject.groups, work, tensors)
    arm.tensors = tensors
    return arm


def main() -> None:
    specification = json.loads(Path(sys.argv[1]).read_text())
    task = {"do_bench": _do_bench, "pytest_benchmark": _pytest_benchmark}[specification["task"]]
    Path(sys.argv[2]).write_text(json.dumps(task(specification)))


def _do_bench(specification: dict[str, Any]) -> list[dict[str, Any]]:
    from triton.testing import do_bench

    kernel, base = (Library(path) for path in specification["libraries"])
    found = []
    for one in specification["subjects"]:
        subject = Subject(**one)
        for slowdown in ("", specification["slowdown"]):
            started = time.perf_counter()
            arms = _arm(kernel, subject, slowdown), _arm(base, subject, "")
            times = [do_bench(lambda arm=arm: arm(0), return_mode="median") for arm in arms]
            found.append(
                {
                    "subject": subject.name,
                    "slowdown": slowdown,
                    "slower": times[0] > 1.05 * times[1],
                    "wall_ms": 1e3 * (time.perf_counter() - started),
                }
            )
    return found


def _pytest_benchmark(specification: dict[str, Any]) -> list[dict[str, Any]]:
    """A stored run of the base, and later runs held against it by `--benchmark-compare-fail=median:5%`'s rule."""
    stored, _ = _run(specification, "", library=1)
    found = []
    for _ in range(specification["rounds"]):
        for slowdown in ("", specification["slowdown"]):
            medians, seconds = _run(specification, slowdown, library=0)
            found += [
                {
                    "subject": name,
                    "slowdown": slowdown,
                    "slower": medians[name] > 1.05 * stored[name],
                    "wall_ms": 1e3 * seconds / len(medians),
                }
                for name in medians
            ]
    return found


def _run(specification: dict[str, Any], slowdown: str, *, library: int) -> tuple[dict[str, float], float]:
    folder = Path(specification["folder"])
    chosen = {**specification, "slowdown": slowdown, "library": library}
    (folder / "chosen.json").write_text(json.dumps(chosen))
    command = [
        sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:cgins", "-o", "addopts=",
        "--benchmark-max-time=0.2", f"--benchmark-json={folder / 'benchmark.json'}", str(Path(__file__)),
        "-o", "python_files=rivals.py",
    ]  # fmt: skip
    started = time.perf_counter()
    subprocess.run(
        command, check=True, stdout=subprocess.DEVNULL,
        env={**os.environ, SUBJECTS: str(folder / "chosen.json")},
    )  # fmt: skip
    seconds = time.perf_counter() - started
    document = json.loads((folder / "benchmark.json").read_text())
    medians = {one["params"]["subject"]["name"]: one["stats"]["median"] for one in document["benchmarks"]}
    return medians, seconds


if __name__ == "__main__":
    main()
