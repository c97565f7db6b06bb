"""What `cgins init` makes of checkouts of other repositories: kernels found, entered, recorded, left out and why.

    python tests/benchmarks/init_repositories.py CHECKOUT [CHECKOUT ...] [--json FILE]

Each is copied to a temporary folder; nothing of it is imported. The recording script runs as written: it calls torch's ops, on
the GPU where there is one.
"""

from __future__ import annotations

import argparse
import json
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import torch

from pytest_cgins.app.cli import main as cgins
from pytest_cgins.app.init import files
from pytest_cgins.app.init.plan import make_plan
from pytest_cgins.app.init.scan import scan

REASONS = {
    "private": "private",
    "no op of torch": "no op of torch is called so",
    "in place": "works in place",
    "returns a tuple": "returns a tuple",
    "belongs to the backward": "belongs to a backward",
    "no function that was read": "no function launches it",
    "takes other numbers": "quantized or sparse",
    "task of robust-kbench": "a task of robust-kbench",
    "exports nothing": "a CUDA source that exports nothing",
    "": "parameters are not the op's",
}
"""What a reason says, and how the table sums it up."""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("checkouts", nargs="+", type=Path)
    parser.add_argument("--json", type=Path, help="write the figures and the environment here")
    options = parser.parse_args()
    rows = [measure(checkout) for checkout in options.checkouts]
    print(table(rows))
    if options.json:
        environment = {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "machine": platform.machine(),
            "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu",
            "command": " ".join(["python", "tests/benchmarks/init_repositories.py", *(checkout.name for checkout in options.checkouts)]),
        }  # fmt: skip
        options.json.write_text(
            json.dumps({"environment": environment, "repositories": rows}, indent=1) + "\n"
        )


def measure(checkout: Path) -> dict[str, Any]:
    """Figures of one repository."""
    commit = subprocess.run(
        ["git", "-C", str(checkout), "rev-parse", "HEAD"], capture_output=True, text=True, check=True
    ).stdout.strip()
    with tempfile.TemporaryDirectory() as temporary:
        copy = Path(temporary) / checkout.name
        shutil.copytree(
            checkout,
            copy,
            ignore=shutil.ignore_patterns(".git", "traces", files.CONFIG, files.SCRIPT, files.ADAPTERS),
        )
        began = time.perf_counter()
        plan = make_plan(scan(copy))
        seconds = time.perf_counter() - began
        ended = cgins(["init", str(copy)])
        recorded = 0
        if ended == 0:
            subprocess.run([sys.executable, files.SCRIPT], cwd=copy, check=True)
            manifest = json.loads((copy / "traces/init/manifest.json").read_text())
            calls = {trace["call"]["op"] for trace in manifest["traces"]}
            recorded = sum(entry.match.op in calls for entry in plan.entries)
    covered = {name for entry in plan.entries for name in entry.covers}
    return {
        "repository": checkout.name,
        "commit": commit,
        "seconds": round(seconds, 1),
        "triton": sum(kernel.language == "triton" for kernel in plan.kernels.values()),
        "cute": sum(kernel.language == "cute" for kernel in plan.kernels.values()),
        "compiled": len(plan.scan.compiled),
        "operators": len(plan.operators),
        "entered": len(plan.entries),
        "kernels_of_entries": len(covered),
        "recorded": recorded,
        "left_out": dict(Counter(summed_up(why) for _, why in plan.left_out).most_common()),
        "entries": [f"{entry.match.op} by {getattr(entry.function, 'qualified', entry.function.name)}" for entry in plan.entries],
    }  # fmt: skip


def summed_up(why: str) -> str:
    return next(summary for part, summary in REASONS.items() if part in re.sub(r"^[\w.]+: ", "", why))


def table(rows: list[dict[str, Any]]) -> str:
    """The figures as Markdown."""
    head = "| repository | Triton | CuTe | C++ | operators | entered | their kernels | recorded | left out |"
    lines = [head, re.sub(r"[^|]+", "---", head)]
    for row in rows:
        left_out = ", ".join(f"{count} {why}" for why, count in row["left_out"].items())
        names = ("triton", "cute", "compiled", "operators", "entered", "kernels_of_entries", "recorded")
        lines.append(f"| {row['repository']} | {' | '.join(str(row[name]) for name in names)} | {left_out} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
