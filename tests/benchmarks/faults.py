"""What each fault of a kernel costs: reason given, cases lost, seconds to recover, others' results.

    python tests/benchmarks/faults.py [--device cpu|cuda] [--probes full|fast|off] [--timeout S] [--only NAME …] [--json PATH]

Each fault stands between right cases of one session. Exit code 1 if one is called by another name, costs more than
its own case, or changes another case's result. The memory limit of workers is set to 2 GiB (8 GiB with CUDA) unless
CGINS_WORKER_MEMORY says otherwise.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from pytest_cgins.core import documents  # noqa: E402
from pytest_cgins.run.limits import MEMORY_VARIABLE  # noqa: E402
from pytest_cgins.timing.environment import describe  # noqa: E402
from tests.faults import project  # noqa: E402
from tests.faults.project import Outcome  # noqa: E402


def main() -> int:
    options = _options()
    os.environ.setdefault(MEMORY_VARIABLE, "2GiB" if options.device == "cpu" else "8GiB")
    faults = [
        fault for fault in project.faults_of(options.device) if not options.only or fault.name in options.only
    ]
    with tempfile.TemporaryDirectory() as name:
        outcomes = project.run(
            Path(name) / "project",
            options.device,
            faults,
            timeout_s=options.timeout,
            probes=options.probes,
        )
    print(_table(outcomes, options.device))
    if options.json:
        report = {
            "environment": documents.dump_python(describe("cpu" if options.device == "cpu" else "cuda:0")),
            "timeout_s": options.timeout,
            "probes": options.probes,
            "memory_limit": os.environ[MEMORY_VARIABLE],
            "faults": [
                {
                    "fault": outcome.fault.name,
                    "expected_reason": outcome.fault.reason.value,
                    "status": outcome.status.value,
                    "reason": outcome.reason.value,
                    "cases_lost": outcome.cases_lost,
                    "seconds": outcome.seconds,
                    "recovery_seconds": outcome.recovery_seconds,
                    "others_equal": outcome.others_equal,
                }
                for outcome in outcomes
            ],
        }
        options.json.write_text(json.dumps(report, indent=1) + "\n")
    return 0 if all(map(_is_good, outcomes)) else 1


def _is_good(outcome: Outcome) -> bool:
    named = outcome.reason is outcome.fault.reason
    return named and outcome.cases_lost == 1 and outcome.others_equal


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--probes", choices=["full", "fast", "off"], default="full")
    parser.add_argument("--timeout", type=float, default=5.0, help="limit of one request, in seconds")
    parser.add_argument("--only", nargs="*", default=[], metavar="NAME", help="these faults only")
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


def _table(outcomes: list[Outcome], device: str) -> str:
    lines = [
        f"| fault on {device} | status | reason | cases lost | s to its verdict | s to the next verdict | others equal |",
        "|---|---|---|---|---|---|---|",
    ]
    for one in outcomes:
        expected = "" if one.reason is one.fault.reason else f" (not {one.fault.reason.value})"
        lines.append(
            f"| {one.fault.name} | {one.status.value} | {one.reason.value}{expected} | {one.cases_lost} | "
            f"{one.seconds:.1f} | {one.recovery_seconds:.1f} | {'yes' if one.others_equal else 'NO'} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    raise SystemExit(main())
