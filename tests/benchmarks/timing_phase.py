"""How long the timing of cases takes, from a report of pytest.

git init a copy of example_project, commit, and there, on a GPU:
python -m pytest --cgins --cgins-device=cuda --cgins-compare=unchanged --cgins-json=R.json .
python tests/benchmarks/timing_phase.py R.json [--suite 200] [--json out.json]

The wall time of a case's timing: making arms ready, blocks, and the probes that look meanwhile; with the confirmation,
if there was one. A suite's is that of its cases, one after the other; all runs of so many neighbours are taken.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections import Counter
from pathlib import Path
from typing import Any


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("report", type=Path)
    parser.add_argument("--suite", type=int, default=200)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    found = summary(json.loads(arguments.report.read_text()), arguments.suite)
    for name, value in found.items():
        print(f"{name:28} {value}")
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(found, indent=1) + "\n")
    return 0


def summary(report: dict[str, Any], suite: int) -> dict[str, Any]:
    measured = [
        one for one in report["evaluations"] if one["measurement"] and one["measurement"]["comparisons"]
    ]
    seconds = [
        one["measurement"]["seconds"] + (one["measurement"]["confirmation"] or {"seconds": 0.0})["seconds"]
        for one in measured
    ]
    comparisons = [one["measurement"]["comparisons"][0] for one in measured]
    suites = [sum(seconds[start : start + suite]) for start in range(len(seconds) - suite + 1)]
    return {
        "started_at": report["started_at"],
        "environments": report["environments"],
        "cases": len(measured),
        "statuses": dict(Counter(one["verdict"]["status"] for one in measured)),
        "blocks_median": statistics.median(len(one["log_ratios"]) for one in comparisons),
        "timed_ms_median": statistics.median(one["measurement"]["timed_ns"] / 1e6 for one in measured),
        "seconds_median": statistics.median(seconds),
        "seconds_mean": statistics.fmean(seconds),
        "suite": suite,
        "suite_seconds_median": statistics.median(suites) if suites else None,
        "suite_seconds_min": min(suites, default=None),
        "suite_seconds_max": max(suites, default=None),
        "ratio_worst": max(abs(one["ratio"] - 1) for one in comparisons),
    }


if __name__ == "__main__":
    sys.exit(main())
