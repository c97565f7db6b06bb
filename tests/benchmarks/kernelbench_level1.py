"""Every problem of KernelBench's level 1: imported, recorded, and gated with its own reference as the kernel.

python tests/benchmarks/kernelbench_level1.py --kernelbench CHECKOUT [--device cuda] [--max-mib 64] [--json out.json]

A checkout of ScalingIntelligence/KernelBench is read, not fetched: nothing here needs a network. Its newest inputs
have gigabytes. A problem with more than `--max-mib` of inputs, parameters and outputs has its top-level sizes halved
until it fits (`cgins import kernelbench --shrink`; the batch first), and the table says to which sizes;
`--no-shrink` leaves such a problem out instead. Each problem has a folder and processes of its own and a time limit, and a
folder with a result is not run again: an interrupted run is resumed with the same `--work`.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

CGINS = (sys.executable, "-c", "import sys; from pytest_cgins.cli import main; sys.exit(main())")
RESULT = "result.json"
ROOT = Path(__file__).resolve().parents[2]
PLUGIN = (
    [] if any(e.name == "cgins" for e in entry_points(group="pytest11")) else ["-p", "pytest_cgins.plugin"]
)


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
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--kernelbench", type=Path, required=True, help="checkout, or its folder level1")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--max-mib", type=float, default=4.0)
    parser.add_argument("--no-shrink", action="store_true", help="leave bigger problems out")
    parser.add_argument("--jobs", type=int, default=max(1, (os.cpu_count() or 1) // 2))
    parser.add_argument("--limit", type=float, default=180.0, help="seconds for either step of a problem")
    parser.add_argument("--deadline", type=float, help="seconds after which no further problem is begun")
    parser.add_argument("--no-timing", action="store_true", help="check answers only")
    parser.add_argument("--only", default="", help="regular expression on the problem's file name")
    parser.add_argument("--work", type=Path, help="folder to work in; kept, and resumed from")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    chosen = [path for path in problems(arguments.kernelbench) if re.search(arguments.only, path.name)]
    if not chosen:
        parser.error(f"{arguments.kernelbench} has no problem of level 1")
    work = arguments.work or Path(tempfile.mkdtemp(prefix="kernelbench-"))
    begun = time.monotonic()
    with ThreadPoolExecutor(arguments.jobs) as pool:
        results = list(pool.map(lambda path: _run(path, work.absolute(), arguments, begun), chosen))
    seconds = time.monotonic() - begun
    document = _document(arguments, results, work, seconds)
    _print(document, results)
    if arguments.json is not None:
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        arguments.json.write_text(json.dumps(document, indent=1) + "\n")
    return 0


def problems(root: Path) -> list[Path]:
    """The files of level 1, by number."""
    folders = [root, root / "level1", root / "KernelBench" / "level1"]
    found = [path for folder in folders for path in folder.glob("*.py") if path.name[0].isdigit()]
    return sorted(found, key=lambda path: int(path.name.partition("_")[0]))


def _run(path: Path, work: Path, arguments: argparse.Namespace, begun: float) -> Result:
    folder = work / path.stem
    known = folder / RESULT
    if known.is_file():
        return Result(**json.loads(known.read_text()))
    if arguments.deadline is not None and time.monotonic() - begun > arguments.deadline:
        return Result(path.stem, reason="not begun: --deadline had passed")
    folder.mkdir(parents=True, exist_ok=True)
    result = _import(path, folder, arguments)
    if result.recorded != "no":
        result = _gate(result, folder, arguments)
    known.write_text(json.dumps(asdict(result)))
    print(f"{path.stem}: {result.recorded}, {result.status} {result.reason}", file=sys.stderr, flush=True)
    return result


def _import(path: Path, folder: Path, arguments: argparse.Namespace) -> Result:
    (folder / "cgins.yaml").unlink(missing_ok=True)
    command = [
        *CGINS, "import", "kernelbench", str(path.absolute()), "--allow-code", "--out", "pack",
        "--max-mib", str(arguments.max_mib), "--device", arguments.device, "--config", "cgins.yaml",
        *([] if arguments.no_shrink else ["--shrink"]),
    ]  # fmt: skip
    code, output, seconds = _spawn(command, folder, arguments)
    result = Result(path.stem, import_seconds=seconds)
    if reduced := re.search(r"^note .*sizes reduced to fit [^:]*: (.*)$", output, re.MULTILINE):
        result = replace(result, sizes=reduced[1])
    if code == 0:
        (trace,) = json.loads((folder / "pack" / "manifest.json").read_text())["traces"]
        return replace(result, recorded=trace["replay"])
    left_out = re.search(r"^left out  \S+: (.*)$", output, re.MULTILINE)
    return replace(result, reason=left_out[1] if left_out else _last_line(output, code))


def _gate(result: Result, folder: Path, arguments: argparse.Namespace) -> Result:
    command = [
        sys.executable, "-m", "pytest", "--cgins", "--cgins-json", "report.json", "-q", "--rootdir", ".",
        "-p", "no:cacheprovider", f"--cgins-device={arguments.device}", f"--cgins-timeout={arguments.limit}",
        *PLUGIN, *(["--cgins-no-timing"] if arguments.no_timing else []),
    ]  # fmt: skip
    code, output, seconds = _spawn(command, folder, arguments)
    result = replace(result, gate_seconds=seconds)
    report = folder / "report.json"
    if not report.is_file():
        return replace(result, status="none", reason=_last_line(output, code))
    (evaluation,) = json.loads(report.read_text())["evaluations"]
    verdict, timing = evaluation["verdict"], evaluation["measurement"]
    return replace(
        result,
        status=verdict["status"],
        share=verdict["numbers"].get("error_share_of_tolerance"),
        speedup=timing["speedup_vs_torch"] if timing else None,
        reason="" if code == 0 else " ".join(verdict["message"].split())[:300],
    )


def _spawn(command: list[str], folder: Path, arguments: argparse.Namespace) -> tuple[int | str, str, float]:
    threads = str(max(1, (os.cpu_count() or 1) // arguments.jobs))
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": threads,
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONPATH": path,
    }
    begun = time.monotonic()
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=arguments.limit * (1 if "import" in command else 3),
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        return "time limit", (error.stdout or b"").decode(errors="replace"), time.monotonic() - begun
    return done.returncode, done.stdout.decode(errors="replace"), time.monotonic() - begun


def _last_line(output: str, code: int | str) -> str:
    lines = output.strip().splitlines()
    return f"{code}: {lines[-1][:200] if lines else 'no output'}"


def _document(
    arguments: argparse.Namespace, results: list[Result], work: Path, seconds: float
) -> dict[str, Any]:
    environments = (
        json.loads(path.read_text())["environments"] for path in sorted(work.glob("*/report.json"))
    )
    return {
        "environment": next(environments, []),
        "device": arguments.device,
        "max_mib": arguments.max_mib,
        "shrink": not arguments.no_shrink,
        "timing": not arguments.no_timing,
        "jobs": arguments.jobs,
        "seconds": seconds,
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
