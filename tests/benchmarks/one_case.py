"""From the command to the verdict on one case of the example, built before: what a person waits for after an edit.

python tests/benchmarks/one_case.py [--device cpu|cuda] [--runs 10] [--json FILE]

Prints the wall time of whole commands, and their CPU time with all processes that they have ended.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from pytest_cgins.core import documents  # noqa: E402
from pytest_cgins.timing.environment import describe  # noqa: E402

CASES = {"cpu": "softmax/cpu-cpp/resnet50/f32-1x1000-f58e", "cuda": "softmax/cuda/resnet50/f32-1x1000-f58e"}
PLUGINS = ("-p", "no:cgins", "-p", "pytest_cgins.plugin", "-p", "no:cacheprovider")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    runs = [run(CASES[arguments.device]) for _ in range(arguments.runs + 1)][1:]  # the first one builds
    walls, cpus = ([one[index] for one in runs] for index in (0, 1))
    for name, values in (("wall", walls), ("CPU", cpus)):
        print(f"{name}: median {statistics.median(values):.2f} s, {min(values):.2f} to {max(values):.2f} s")
    if arguments.json:
        environment = documents.dump_python(describe("cpu" if arguments.device == "cpu" else "cuda:0"))
        document = {
            "environment": environment,
            "case": CASES[arguments.device],
            "wall_s": walls,
            "cpu_s": cpus,
        }
        arguments.json.write_text(json.dumps(document, indent=1) + "\n")
    return 0


def run(case: str) -> tuple[float, float]:
    """Wall and CPU seconds of one command, which must pass."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *PLUGINS, "--cgins", "-q", f"cgins.yaml::{case}"],
        cwd=ROOT / "example_project",
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])},
        capture_output=True,
        text=True,
        check=False,
    )
    wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode or not re.search(r"1 passed", done.stdout):
        raise SystemExit(done.stdout + done.stderr)
    return wall, after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


if __name__ == "__main__":
    sys.exit(main())
