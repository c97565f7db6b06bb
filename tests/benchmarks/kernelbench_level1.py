"""Every problem of KernelBench's level 1: imported, recorded, and gated with its own reference as the kernel.

python tests/benchmarks/kernelbench_level1.py --kernelbench CHECKOUT [--device cuda] [--max-mib 64] [--json out.json]

A checkout of ScalingIntelligence/KernelBench is read, not fetched: nothing here needs a network. Its newest inputs
have gigabytes. A problem with more than `--max-mib` of inputs, parameters and outputs has its top-level sizes halved
until it fits (`cgins import kernelbench --shrink`; the batch first), and the table says to which sizes;
`--no-shrink` leaves such a problem out instead. Each problem has a folder and processes of its own and a time limit, and a
folder with a result is not run again: an interrupted run is resumed with the same `--work`.
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import kernelbench

RESULT = "result.json"


@dataclass(frozen=True)
class Result:
    """What became of one problem."""

    problem: str
    sizes: str = "as in the file"
    recorded: str = "no"
    """How the trace replayed, or no."""
    status: str = "-"
    """The verdict on the reference as kernel."""
    share: float | None = None
    """Greatest error as a share of the tolerance."""
    speedup: float | None = None
    """Reference through the kernel's door against torch: near 1."""
    import_seconds: float = 0.0
    gate_seconds: float = 0.0
    reason: str = ""


def main() -> int:
    parser = kernelbench.options(__doc__.partition("\n")[0], max_mib=4.0, limit=180.0)
    parser.add_argument("--no-shrink", action="store_true", help="leave bigger problems out")
    parser.add_argument("--no-timing", action="store_true", help="check answers only")
    arguments = parser.parse_args()
    chosen = kernelbench.problems(arguments.kernelbench, arguments.only)
    if not chosen:
        parser.error(f"{arguments.kernelbench} has no problem of level 1")
    run = kernelbench.Run.start(arguments)
    results = run.over(chosen, lambda path: _run(path, run))
    document = _document(run, results)
    _print(document, results)
    if arguments.json is not None:
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        arguments.json.write_text(json.dumps(document, indent=1) + "\n")
    return 0


def _run(path: Path, run: kernelbench.Run) -> Result:
    folder = run.work / path.stem
    known = folder / RESULT
    if known.is_file():
        return Result(**json.loads(known.read_text()))
    if run.left <= 0:
        return Result(path.stem, reason=kernelbench.TOO_LATE)
    folder.mkdir(parents=True, exist_ok=True)
    result = _import(path, folder, run)
    if result.recorded != "no":
        result = _gate(result, folder, run)
    if run.left > 0:  # what the deadline cut off says nothing
        known.write_text(json.dumps(asdict(result)))
    print(f"{path.stem}: {result.recorded}, {result.status} {result.reason}", file=sys.stderr, flush=True)
    return result


def _import(path: Path, folder: Path, run: kernelbench.Run) -> Result:
    done = kernelbench.record(path, folder, run, shrink=not run.arguments.no_shrink)
    result = Result(path.stem, import_seconds=done.seconds)
    if reduced := re.search(r"^note .*sizes reduced to fit [^:]*: (.*)$", done.output, re.MULTILINE):
        result = replace(result, sizes=reduced[1])
    if done.code == 0:
        return replace(result, recorded=kernelbench.recorded(folder)["replay"])
    return replace(result, reason=done.left_out)


def _gate(result: Result, folder: Path, run: kernelbench.Run) -> Result:
    done = kernelbench.gate(folder, run, *(["--cgins-no-timing"] if run.arguments.no_timing else []))
    result = replace(result, gate_seconds=done.seconds)
    report = folder / kernelbench.REPORT
    if not report.is_file():
        return replace(result, status="none", reason=done.last_line)
    (evaluation,) = json.loads(report.read_text())["evaluations"]
    verdict, timing = evaluation["verdict"], evaluation["measurement"]
    return replace(
        result,
        status=verdict["status"],
        share=verdict["numbers"].get("error_share_of_tolerance"),
        speedup=timing["speedup_vs_torch"] if timing else None,
        reason="" if done.code == 0 else " ".join(verdict["message"].split())[:300],
    )


def _document(run: kernelbench.Run, results: list[Result]) -> dict[str, Any]:
    arguments = run.arguments
    return {
        "environment": run.environments(),
        "device": arguments.device,
        "max_mib": arguments.max_mib,
        "shrink": not arguments.no_shrink,
        "timing": not arguments.no_timing,
        "jobs": arguments.jobs,
        "seconds": run.seconds,
        "problems": len(results),
        "recorded": sum(result.recorded != "no" for result in results),
        "full_size": sum(r.recorded != "no" and r.sizes == "as in the file" for r in results),
        "statuses": dict(Counter(result.status for result in results)),
        "results": [asdict(result) for result in results],
    }


def _print(document: dict[str, Any], results: list[Result]) -> None:
    print("| problem | sizes | recorded | gated | error share | speedup | import s | gate s | reason |")
    print("|---|---|---|---|---|---|---|---|---|")
    for one in results:
        share = "-" if one.share is None else f"{one.share:.3g}"
        speedup = "-" if one.speedup is None else f"{one.speedup:.3g}"
        seconds = f"{one.import_seconds:.1f} | {one.gate_seconds:.1f}"
        print(
            f"| {one.problem} | {one.sizes} | {one.recorded} | {one.status} | {share} | {speedup} "
            f"| {seconds} | {one.reason} |"
        )
    print(
        f"\n{document['recorded']} of {document['problems']} recorded, {document['full_size']} of them in the sizes of "
        f"the file; gated: {document['statuses']}; {document['seconds']:.0f} s with {document['jobs']} jobs"
    )


if __name__ == "__main__":
    sys.exit(main())
