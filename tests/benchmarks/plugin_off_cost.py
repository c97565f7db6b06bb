"""What it costs to have pytest-cgins installed while `--cgins` is absent.

    python tests/benchmarks/plugin_off_cost.py [--runs N] [--limit-ms MS] [--json PATH]

Runs pytest on one empty test, by turns with the plugin and without any, the order within each pair drawn by
lot, and takes the difference pair by pair: of wall time, which is what a user waits, and of processor time,
which tells more on a busy machine. The intervals of the medians are the sign test's: no assumption on how
times are distributed. The verdict is on wall time: `within` or `over` the limit if the whole interval is,
else `inconclusive`. Exit code 1 for `over`, or if a heavy module was imported.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

HEAVY = (
    "torch",
    "numpy",
    "yaml",
    "pydantic",
    "openai",
    "rich",
    "safetensors",
    "triton",
    "pytest_cgins.app.session",
)

CONFTEST = """
import json, sys

def pytest_unconfigure():
    with open("modules.json", "w") as file:
        json.dump(sorted(sys.modules), file)
"""


@dataclass(frozen=True)
class Run:
    """One run of pytest."""

    wall_ms: float
    cpu_ms: float


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=int, default=40, help="pairs of runs (default: %(default)s)")
    parser.add_argument("--limit-ms", type=float, default=5.0, help="default: %(default)s")
    parser.add_argument("--json", type=Path, help="where to write the figures")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "test_nothing.py").write_text("def test_nothing():\n    pass\n")
        imported = modules_imported(folder)
        pairs = measure(folder, arguments.runs)
    wall = compared([(on.wall_ms, off.wall_ms) for on, off in pairs])
    cpu = compared([(on.cpu_ms, off.cpu_ms) for on, off in pairs])
    low, high = wall["difference_interval_95_ms"]
    limit = arguments.limit_ms
    verdict = "within" if high <= limit else "over" if low > limit else "inconclusive"
    heavy = [module for module in HEAVY if module in imported]
    document = {
        "verdict": verdict,
        "limit_ms": limit,
        "pairs": len(pairs),
        "wall": wall,
        "cpu": cpu,
        "own_modules": sorted(name for name in imported if name.startswith("pytest_cgins")),
        "heavy_modules_absent": [module for module in HEAVY if module not in imported],
        "heavy_modules_imported": heavy,
        "environment": {
            "cores": os.cpu_count(),
            "machine": platform.machine(),
            "python": platform.python_version(),
            "pytest": version("pytest"),
        },
    }
    print(f"{'ms, medians':12}{'with':>8}{'without':>9}{'difference':>12}  95% interval of the difference")
    for clock, figures in (("wall", wall), ("processor", cpu)):
        with_ms, without_ms = figures["median_with_ms"], figures["median_without_ms"]
        least, most = figures["difference_interval_95_ms"]
        difference = figures["median_difference_ms"]
        print(f"{clock:12}{with_ms:8.1f}{without_ms:9.1f}{difference:12.2f}  {least:.2f} to {most:.2f}")
    print(f"{len(pairs)} pairs: {verdict} {limit} ms; heavy modules imported: {', '.join(heavy) or 'none'}")
    if arguments.json:
        arguments.json.write_text(json.dumps(document, indent=2) + "\n")
    return 1 if verdict == "over" or heavy else 0


def compared(pairs: list[tuple[float, float]]) -> dict[str, Any]:
    """Medians with and without the plugin, and of the differences."""
    differences = sorted(on - off for on, off in pairs)
    return {
        "median_with_ms": statistics.median(on for on, _ in pairs),
        "median_without_ms": statistics.median(off for _, off in pairs),
        "median_difference_ms": statistics.median(differences),
        "difference_interval_95_ms": median_interval(differences),
    }


def modules_imported(folder: Path) -> list[str]:
    """`sys.modules` at the end of a run with the plugin, as names."""
    (folder / "conftest.py").write_text(CONFTEST)
    run(folder, with_plugin=True)
    (folder / "conftest.py").unlink()
    names: list[str] = json.loads((folder / "modules.json").read_text())
    return names


def measure(folder: Path, runs: int) -> list[tuple[Run, Run]]:
    """Runs with and without the plugin, pair by pair, after one pair that fills the caches."""
    pairs = []
    for _ in range(runs + 1):
        times = {with_plugin: run(folder, with_plugin) for with_plugin in random.sample((False, True), 2)}
        pairs.append((times[True], times[False]))
    return pairs[1:]


def run(folder: Path, with_plugin: bool) -> Run:
    """One run in a new process; other plugins stay out, since they would only add noise to both sides."""
    plugin = ["-p", "pytest_cgins.plugin"] if with_plugin else []
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *plugin, "test_nothing.py"]
    # Installed packages have their bytecode cached; a checkout may not, so it gets a cache for this script.
    cached = {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(folder / "bytecode")}
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", **cached}
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(command, cwd=folder, check=True, capture_output=True, env=environment)
    wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    return Run(wall * 1e3, cpu * 1e3)


def median_interval(values: list[float]) -> tuple[float, float]:
    """Order statistics that hold the median with at least 95% confidence, from sorted values."""
    n, tail, rank = len(values), 0.0, 0
    while tail + math.comb(n, rank) / 2**n <= 0.025:
        tail += math.comb(n, rank) / 2**n
        rank += 1
    return values[max(rank - 1, 0)], values[n - max(rank, 1)]


if __name__ == "__main__":
    sys.exit(main())
