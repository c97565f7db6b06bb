"""10,000 traces and 1,000 kernels: seconds and memory of their collection, and of a run in which nothing changed.

python tests/benchmarks/ten_thousand.py [--kernels N] [--unchanged] [--json FILE]

Each kernel replaces a marked function that was called with ten signatures. CPU seconds are of the process and its children;
wall seconds depend on what else the machine does. With --unchanged, a run that verifies one case writes what it found to a store
under the keys of all cases; then an ordinary run takes them from it.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import yaml

PACKS = 10
RECORD = """
import sys
import torch
import pytest_cgins
sys.path.insert(0, ".")
import ops
names = [name for name in vars(ops) if name.startswith("op")]
for pack in range({packs}):
    with pytest_cgins.record(f"traces/p{{pack}}", ops=[f"ops.{{name}}" for name in names[pack::{packs}]]):
        for name in names[pack::{packs}]:
            for rank in range(1, 6):
                for dtype in (torch.float32, torch.float64):
                    getattr(ops, name)(torch.ones((2,) * rank, dtype=dtype))
"""

FILL = """
import sys
import pytest
from dataclasses import replace
from pytest_cgins.gate.evaluate import Evaluator
verify, found = Evaluator._verified_and_timed, []
def once(self, result, compiled, upcoming):
    if not found:
        found.append(verify(self, result, compiled, upcoming))
    return replace(found[0], case=result.case, tested=result.tested)
Evaluator._verified_and_timed = once
sys.exit(pytest.main())
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--kernels", type=int, default=1000)
    parser.add_argument(
        "--unchanged", action="store_true", help="also a run that takes all verdicts from a store"
    )
    parser.add_argument("--json", type=Path, help="write the figures and the environment here")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name, "project")
        folder.mkdir()
        _make(folder, arguments.kernels)
        figures = _collected(folder)
        if arguments.unchanged:
            figures |= _unchanged(folder)
    document = {
        "machine": platform.processor() or platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "python": platform.python_version(),
        "kernels": arguments.kernels,
        **figures,
    }
    for name, value in document.items():
        print(f"{name:20} {value}")
    if arguments.json:
        arguments.json.write_text(json.dumps(document, indent=1) + "\n")


def _make(folder: Path, kernels: int) -> None:
    functions = "".join(
        f"@pytest_cgins.mark\ndef op{number}(x):\n    return x + {number}\n" for number in range(kernels)
    )
    (folder / "ops.py").write_text(f"import pytest_cgins\n{functions}")
    (folder / "kernels.py").write_text(
        "".join(f"def op{number}(x):\n    return x - -{number}\n" for number in range(kernels))
    )
    document = {
        "version": 1,
        "traces": [f"traces/p{pack}" for pack in range(PACKS)],
        "kernels": {
            f"k{number}": {
                "op": f"ops.op{number}",
                "implementations": [
                    {
                        "name": "py",
                        "device": "cpu",
                        "target": f"kernels:op{number}",
                        "sources": ["kernels.py"],
                    }
                ],
            }
            for number in range(kernels)
        },
    }
    (folder / "cgins.yaml").write_text(yaml.safe_dump(document, sort_keys=False))
    subprocess.run([sys.executable, "-c", RECORD.format(packs=PACKS)], cwd=folder, check=True)


def _collected(folder: Path) -> dict[str, object]:
    command = [sys.executable, "-m", "pytest", "--cgins", "--collect-only", "-q", "-p", "no:cacheprovider"]
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    wall, after = time.monotonic() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
    return {
        "cases": sum("::" in line for line in done.stdout.splitlines()),
        "wall_seconds": round(wall, 2),
        "cpu_seconds": round(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, 2),
        "peak_mbytes": _peak_mbytes(folder),
    }


def _unchanged(folder: Path) -> dict[str, object]:
    """A whole run, timing on, whose verdicts are all in a store, in a repository of which nothing was edited."""
    for words in ("init -q -b main", "add -A", "-c user.name=T -c user.email=t@localhost commit -q -m all"):
        subprocess.run(["git", *words.split()], cwd=folder, check=True)
    options = ["--cgins", "-q", "-p", "no:cacheprovider"]
    filling = [sys.executable, "-c", FILL, *options, "--cgins-store-write=../store"]
    subprocess.run(filling, cwd=folder, stdout=subprocess.DEVNULL, check=True)
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    command = [sys.executable, "-m", "pytest", *options, "--cgins-store=../store"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    wall, after = time.monotonic() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
    taken = re.search(r"NOT RUN AGAIN (\d+) cases", done.stdout)
    return {
        "unchanged_cases": int(taken[1]) if taken else 0,
        "unchanged_wall_seconds": round(wall, 2),
        "unchanged_cpu_seconds": round(
            after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, 2
        ),
        "store_mbytes": round(sum(file.stat().st_size for file in (folder / "../store").iterdir()) / 1e6),
    }


def _peak_mbytes(folder: Path) -> int:
    """Of a collection in a process of its own."""
    code = (
        "import resource, subprocess, sys; "
        "subprocess.run([sys.executable, '-m', 'pytest', '--cgins', '--collect-only', '-q', '-p', 'no:cacheprovider'], "
        "stdout=subprocess.DEVNULL, check=True); print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=True
    )
    return round(int(done.stdout) * 1024 / 1e6)


if __name__ == "__main__":
    main()
