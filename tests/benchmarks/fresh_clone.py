"""What a newcomer waits for: `make demo` in a clean clone, then again.

    python tests/benchmarks/fresh_clone.py [--json PATH]

Clones the repository into a temporary folder, with an empty build cache of its own, runs `make demo` twice
and reads the cases from the JSON of each run. pip's cache is left as it is. Exit code 1 if a bar is missed:
90 s for the first run, 60 s for the second, 100 distinct (kernel, signature) cases, no WEAK one.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path

FIRST_RUN_LIMIT_S = 90
SECOND_RUN_LIMIT_S = 60
LEAST_CASES = 100


@dataclass(frozen=True)
class Run:
    """One `make demo`."""

    wall_s: float
    exit_code: int
    distinct_cases: int
    statuses: dict[str, int]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--json", type=Path, help="where to write the figures")
    arguments = parser.parse_args()
    repository = Path(__file__).resolve().parents[2]
    with tempfile.TemporaryDirectory() as name:
        clone = Path(name) / "pytest-cgins"
        subprocess.run(["git", "clone", "--quiet", str(repository), str(clone)], check=True)
        first, second = demo(clone, Path(name)), demo(clone, Path(name))
    document = {
        "first": asdict(first),
        "second": asdict(second),
        "environment": {
            "cores": os.cpu_count(),
            "machine": platform.machine(),
            "python": platform.python_version(),
        },
        "command": " ".join(["python", *sys.argv]),
    }
    print(f"{'run':8}{'seconds':>9}{'exit':>6}{'cases run':>11}  statuses")
    for label, run in (("first", first), ("second", second)):
        print(f"{label:8}{run.wall_s:9.1f}{run.exit_code:6}{run.distinct_cases:11}  {run.statuses}")
    if arguments.json:
        arguments.json.write_text(json.dumps(document, indent=2) + "\n")
    good = (
        first.exit_code == second.exit_code == 0
        and first.wall_s <= FIRST_RUN_LIMIT_S
        and second.wall_s <= SECOND_RUN_LIMIT_S
        and second.distinct_cases >= LEAST_CASES
        and "WEAK" not in second.statuses
    )
    return 0 if good else 1


def demo(clone: Path, scratch: Path) -> Run:
    """Run `make demo` once and count what it gated."""
    report = scratch / "report.json"
    environment = {
        **os.environ,
        "CGINS_CACHE_DIR": str(scratch / "cache"),
        "PYTEST_ADDOPTS": f"-q --cgins-json={report}",
    }
    started = time.monotonic()
    process = subprocess.run(["make", "demo"], cwd=clone, env=environment, check=False)
    wall_s = time.monotonic() - started
    evaluations = json.loads(report.read_text())["evaluations"]
    ran = {
        (e["case"]["kernel"], e["case"]["implementation"], e["case"]["pack"], e["case"]["signature"])
        for e in evaluations
        if e["verdict"]["status"] != "SKIPPED"
    }
    statuses = Counter(e["verdict"]["status"] for e in evaluations)
    return Run(wall_s=wall_s, exit_code=process.returncode, distinct_cases=len(ran), statuses=dict(statuses))


if __name__ == "__main__":
    sys.exit(main())
