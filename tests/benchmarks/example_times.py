"""Kernel and torch times of a `--cgins-json` report, a line a case, as markdown.

python -m pytest --cgins example_project --cgins-json report.json
python tests/benchmarks/example_times.py report.json [--device cuda]
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("report", type=Path)
    parser.add_argument("--device", help="only cases of this device type")
    arguments = parser.parse_args()
    report = json.loads(arguments.report.read_text())
    for environment in report["environments"]:
        versions = ", ".join(
            f"{key} {environment[key]}" for key in ("torch", "cuda", "driver", "triton", "python")
        )
        print(f"{environment['device']}: {environment['device_name']}, {versions}")
    print(f"\n{report['started_at']}, seed {report['seed']}\n")
    print(
        "| case | status | share of tolerance | kernel us | torch us | speedup (quartiles) | clock, cache |"
    )
    print("|---|---|---|---|---|---|---|")
    for one in report["evaluations"]:
        case, timing = one["case"], one["measurement"]
        if arguments.device and not case["device"].startswith(arguments.device):
            continue
        name = f"{case['kernel']}/{case['implementation']}/{case['pack']}/{case['signature']}"
        share = one["verdict"]["numbers"].get("error_share_of_tolerance")
        cells = [name, one["verdict"]["status"], "-" if share is None else f"{share:.3g}"]
        if timing:
            quartiles = f"{timing['speedup_low']:.3g} to {timing['speedup_high']:.3g}"
            cells += [
                f"{timing['kernel']['median_ns_per_call'] / 1e3:.3g}",
                f"{timing['torch']['median_ns_per_call'] / 1e3:.3g}",
                f"{timing['speedup_vs_torch']:.3g} ({quartiles})",
                f"{timing['method']}, {timing['cache']}",
            ]
        else:
            cells += ["-"] * 4
        print(f"| {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
