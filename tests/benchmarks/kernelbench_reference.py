"""Every problem of chosen levels of KernelBench: imported, recorded, and gated with its own reference as the kernel.

python tests/benchmarks/kernelbench_reference.py --kernelbench CHECKOUT --levels 1,2,3 [--device cuda] [--max-mib 64] \\
    [--deadline S] [--resume FILE] [--json FILE] [--markdown FILE]

A checkout of ScalingIntelligence/KernelBench is read, not fetched: nothing here needs a network. Whatever a probe or the
comparison says against a reference is a false alarm. A problem with more than `--max-mib` of inputs, parameters and
outputs has its top-level sizes halved until it fits (`cgins import kernelbench --shrink`; the batch first), and the table
says to which sizes; `--no-shrink` leaves such a problem out instead. Each problem has a folder and processes of its own
and a time limit. A folder with a result is not run again, nor is a problem that has one in the document of `--resume`:
an interrupted run is resumed with the same `--work`, or, on another machine, with what it wrote with `--json`.
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
    """`LEVEL/FILE`."""
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
    parser.add_argument("--levels", default="1", help="such as 1,2,3")
    parser.add_argument(
        "--resume", type=Path, help="document of an earlier run, whose results are taken over"
    )
    parser.add_argument("--markdown", type=Path)
    parser.add_argument("--no-shrink", action="store_true", help="leave bigger problems out")
    parser.add_argument("--no-timing", action="store_true", help="check answers only")
    arguments = parser.parse_args()
    levels = [int(level) for level in arguments.levels.split(",")]
    chosen = kernelbench.problems(arguments.kernelbench, arguments.only, levels)
    if not chosen:
        parser.error(f"{arguments.kernelbench} has no problem of level {arguments.levels}")
    run = kernelbench.Run.start(arguments)
    earlier: list[dict[str, Any]] = (
        json.loads(arguments.resume.read_text())["results"] if arguments.resume else []
    )
    known = {one["problem"]: Result(**one) for one in earlier if one["reason"] != kernelbench.TOO_LATE}
    results = run.over(chosen, lambda path: known.get(_name(path)) or _run(path, run))
    document = _document(run, results)
    for path, text in (
        (arguments.json, json.dumps(document, indent=1)),
        (arguments.markdown, _table(document, results)),
    ):
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text + "\n")
    print(_table(document, results))
    return 0


def _name(path: Path) -> str:
    return f"{path.parent.name}/{path.stem}"


def _run(path: Path, run: kernelbench.Run) -> Result:
    folder = run.work / f"{path.parent.name}-{path.stem}"
    known = folder / RESULT
    if known.is_file():
        return Result(**json.loads(known.read_text()))
    if run.left <= 0:
        return Result(_name(path), reason=kernelbench.TOO_LATE)
    folder.mkdir(parents=True, exist_ok=True)
    result = _import(path, folder, run)
    if result.recorded != "no":
        result = _gate(result, folder, run)
    if run.left <= 0:  # what the deadline cut off says nothing
        return replace(result, reason=kernelbench.TOO_LATE)
    known.write_text(json.dumps(asdict(result)))
    print(f"{_name(path)}: {result.recorded}, {result.status} {result.reason}", file=sys.stderr, flush=True)
    return result


def _import(path: Path, folder: Path, run: kernelbench.Run) -> Result:
    done = kernelbench.record(path, folder, run, shrink=not run.arguments.no_shrink)
    result = Result(_name(path), import_seconds=done.seconds)
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
        "by_level": {
            level: dict(Counter(one.status for one in results if one.problem.startswith(f"{level}/")))
            for level in sorted({one.problem.partition("/")[0] for one in results})
        },
        "results": [asdict(result) for result in results],
    }


def _table(document: dict[str, Any], results: list[Result]) -> str:
    lines = [
        "| problem | sizes | recorded | gated | error share | speedup | import s | gate s | reason |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for one in results:
        share = "-" if one.share is None else f"{one.share:.3g}"
        speedup = "-" if one.speedup is None else f"{one.speedup:.3g}"
        seconds = f"{one.import_seconds:.1f} | {one.gate_seconds:.1f}"
        lines.append(
            f"| {one.problem} | {one.sizes} | {one.recorded} | {one.status} | {share} | {speedup} "
            f"| {seconds} | {one.reason.replace('|', '¦')} |"
        )
    lines.append(
        f"\n{document['recorded']} of {document['problems']} recorded, {document['full_size']} of them in the sizes of "
        f"the file; gated: {document['statuses']}, by level {document['by_level']}; {document['seconds']:.0f} s with "
        f"{document['jobs']} jobs"
    )
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
