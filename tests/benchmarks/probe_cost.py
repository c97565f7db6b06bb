"""What probes cost a case: the check of right kernels with probes off, fast and full.

python tests/benchmarks/probe_cost.py [--device cuda] [--only RE] [--every N] [--rounds 5] [--json out.json]

Every case is evaluated without timing by workers that are warm: kernels are built and loaded, and each case has run
once. Each round has a seed of its own, so that inputs, torch's answers and references are made anew, as in a run of
pytest. A case's cost is its median over the rounds; the levels take turns.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import sys
from dataclasses import asdict, replace
from pathlib import Path

from pytest_cgins import config
from pytest_cgins.core.case import Case
from pytest_cgins.core.options import PROBE_LEVELS
from pytest_cgins.gate.evaluate import Evaluator
from pytest_cgins.packs.store import open_pack

PROJECT = Path(__file__).resolve().parents[2] / "example_project"
ITEMSIZES = {"float16": 2, "bfloat16": 2, "float32": 4, "int64": 8, "int32": 4, "bool": 1}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--only", default="", help="regular expression on the cases' names")
    parser.add_argument("--every", type=int, default=1, help="of these, each N-th")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    loaded = config.load(PROJECT / "cgins.yaml")
    evaluators = {
        level: Evaluator(loaded, seed=0, device=arguments.device, timing=False, probes=level)
        for level in PROBE_LEVELS
    }
    try:
        rows = _measure(evaluators, arguments)
    finally:
        environments = {
            one.device: asdict(one) for evaluator in evaluators.values() for one in evaluator.environments()
        }
        for evaluator in evaluators.values():
            evaluator.close()
    _print(rows)
    if arguments.json is not None:
        document = {"environments": list(environments.values()), "rounds": arguments.rounds, "cases": rows}
        arguments.json.write_text(json.dumps(document, indent=1) + "\n")
    return 0


def _measure(evaluators: dict[str, Evaluator], arguments: argparse.Namespace) -> list[dict[str, object]]:
    cases = [case for case in evaluators["off"].cases() if re.search(arguments.only, case.name)]
    cases = cases[:: arguments.every]
    rows = []
    for case in cases:
        seconds: dict[str, list[float]] = {level: [] for level in evaluators}
        statuses = {evaluator.evaluate(case).verdict.status.value for evaluator in evaluators.values()}
        for number in range(arguments.rounds):
            for level, evaluator in evaluators.items():
                evaluator.requests = replace(evaluator.requests, seed=number + 1)
                seconds[level].append(evaluator.evaluate(case).seconds)
        row = {f"{level}_ms": 1e3 * statistics.median(values) for level, values in seconds.items()}
        rows.append({"case": case.name, "mib": _mib(case), "statuses": sorted(statuses), **row})
    return rows


def _mib(case: Case) -> float:
    """What the recorded inputs take."""
    trace = next(one for one in open_pack(Path(case.pack_path)).pack.traces if one.id == case.trace_id)
    return sum(meta.numel * ITEMSIZES.get(meta.dtype, 4) for meta in trace.tensors) / 2**20


def _print(rows: list[dict[str, object]]) -> None:
    print("| inputs | cases | off, ms | fast, ms | full, ms | fast/off | full/off | full − off, ms |")
    print("|---|---|---|---|---|---|---|---|")
    for low, high in ((0.0, 0.25), (0.25, 4.0), (4.0, 64.0), (64.0, float("inf"))):
        found = [row for row in rows if low <= float(str(row["mib"])) < high]
        if not found:
            continue
        times = {level: [float(str(row[f"{level}_ms"])) for row in found] for level in PROBE_LEVELS}
        middle = {level: statistics.median(values) for level, values in times.items()}
        ratios = {
            level: statistics.median(a / b for a, b in zip(times[level], times["off"], strict=True))
            for level in ("fast", "full")
        }
        more = statistics.median(a - b for a, b in zip(times["full"], times["off"], strict=True))
        print(
            f"| {low:g} to {high:g} MiB | {len(found)} | {middle['off']:.1f} | {middle['fast']:.1f} | "
            f"{middle['full']:.1f} | {ratios['fast']:.2f} | {ratios['full']:.2f} | {more:.1f} |"
        )
    bad = [row["case"] for row in rows if row["statuses"] != ["PASSED"]]
    print(f"\nnot PASSED at some level: {', '.join(map(str, bad)) or 'none'}")


if __name__ == "__main__":
    sys.exit(main())
