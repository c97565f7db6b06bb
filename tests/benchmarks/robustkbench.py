"""The kernels that robust-kbench publishes, gated as they are: `highlighted/TASK/DIRECTION/kernel.cu`.

python tests/benchmarks/robustkbench.py --checkout CHECKOUT --device cuda [--json FILE] [--markdown FILE]
python tests/benchmarks/robustkbench.py --checkout CHECKOUT --build-only --arch sm_90

A checkout of SakanaAI/robust-kbench is read, not fetched: nothing here needs a network. Each kernel is a torch extension
whose own PYBIND11_MODULE exports `forward` or `backward`; the op is the task's `forward_fn` or its backward, recorded in
the task's `single` configurations. With `--names both` each is gated a second time by the C++ function's own name.
`--build-only` needs no GPU: it compiles them.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import kernelbench

ADAPTED = {
    "mnist_pool-backward": (
        '#include "kernel.cu"\n'
        "torch::Tensor adapted(torch::Tensor grad_output, torch::Tensor x) {\n"
        "  return maxpool2d_ks2_backward_fast(x, grad_output);\n}\n"
    )
}
"""Kernels that take their arguments in another order, or packed, and the function that passes them on."""

NO_VERDICT = ("SKIPPED", "INFRASTRUCTURE", "TRACE_DRIFT")
"""What says nothing of the kernel."""


@dataclass(frozen=True)
class Kernel:
    """One published kernel."""

    name: str
    """Task and direction."""
    op: str
    entries: tuple[str, ...]
    """The exported name, and the C++ function's."""


@dataclass(frozen=True)
class Row:
    """The verdict on one kernel in one configuration."""

    kernel: str
    entry: str
    signature: str
    status: str
    reason: str
    share: float | None
    """Greatest error as a share of the tolerance."""
    speedup: float | None
    """Against torch."""
    build_seconds: float
    seconds: float
    message: str


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--checkout", type=Path, required=True)
    parser.add_argument("--device", choices=("cuda",), default="cuda", help="they are for nothing else")
    parser.add_argument("--build-only", action="store_true")
    parser.add_argument("--arch", default="sm_90", help="what --build-only compiles for")
    parser.add_argument("--names", choices=("exported", "both"), default="exported")
    parser.add_argument("--only", default="", help="regular expression on TASK-DIRECTION")
    parser.add_argument("--configs", choices=("single", "multi"), default="single")
    parser.add_argument("--max-mib", type=float, default=4096.0)
    parser.add_argument("--limit", type=float, default=100.0, help="seconds a case")
    parser.add_argument("--deadline", type=float, default=230.0, help="seconds for all of it")
    parser.add_argument("--no-timing", action="store_true")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--work", type=Path, help="folder to work in")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--markdown", type=Path)
    arguments = parser.parse_args()
    run = kernelbench.Run.start(arguments)
    kernels = _project(run)
    if not kernels:
        parser.error(f"{arguments.checkout} has no highlighted/TASK/DIRECTION/kernel.cu")
    if arguments.build_only:
        command = [*kernelbench.CGINS, "build", "--arch", arguments.arch, "--timeout", str(arguments.limit)]
        done = kernelbench.spawn(command, run.work, run, arguments.deadline)
        print(done.output)
        return int(done.code != 0)
    done = _gate(run)
    report = run.work / kernelbench.REPORT
    if not report.is_file():
        print(done.output, file=sys.stderr)
        return 1
    document = _document(run, kernels, json.loads(report.read_text()))
    for path, text in (
        (arguments.json, json.dumps(document, indent=1)),
        (arguments.markdown, _table(document)),
    ):
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text + "\n")
    print(_table(document))
    return 0


def _project(run: kernelbench.Run) -> list[Kernel]:
    """Tasks, kernels and a cgins.yaml in the folder to work in."""
    checkout, work = run.arguments.checkout, run.work
    kernels: list[Kernel] = []
    entries = []
    for path in sorted(checkout.glob("highlighted/*/*/kernel.cu")):
        task, direction = path.parts[-3:-1]
        name = f"{task}-{direction}"
        if not re.search(run.arguments.only, name):
            continue
        for kind in (f"func_{direction}.py", f"config_{direction}.json"):
            (work / "tasks" / task).mkdir(parents=True, exist_ok=True)
            shutil.copy(checkout / "tasks" / task / kind, work / "tasks" / task / kind)
        folder = work / "kernels" / name
        folder.mkdir(parents=True, exist_ok=True)
        text = shutil.copy(path, folder / "kernel.cu").read_text()
        exported = re.search(r'\.def\(\s*"(\w+)",\s*&\s*(\w+)', text)
        assert exported is not None, path
        file, names = "kernel.cu", (exported[1], exported[2])
        if name in ADAPTED:
            file, names = "adapted.cu", ("adapted",)
            (folder / file).write_text(ADAPTED[name])
        op = f"references.rkb_{task}_{direction}.forward_fn"
        kernels.append(Kernel(name, op, tuple(dict.fromkeys(names))))
        entries.append((kernels[-1], f"kernels/{name}/{file}"))
    if run.arguments.build_only:
        _configure(run, entries, {})
    else:
        _configure(run, entries, _recorded(run))
    return kernels


def _recorded(run: kernelbench.Run) -> dict[str, str]:
    """The ops of the traces by the function that they are of: a backward says of what it is one."""
    given = run.arguments
    command = [
        *kernelbench.CGINS, "import", "robustkbench", "tasks", "--allow-code", "--out", "pack", "--configs",
        given.configs, "--max-mib", str(given.max_mib), "--device", given.device,
    ]  # fmt: skip
    done = kernelbench.spawn(command, run.work, run, given.deadline)
    manifest = run.work / "pack" / "manifest.json"
    if done.code != 0 or not manifest.is_file():
        sys.exit(f"the import failed ({done.code}):\n{done.output}")
    ops = [trace["call"]["op"] for trace in json.loads(manifest.read_text())["traces"]]
    return {op.partition("@")[0]: op for op in ops}


def _configure(run: kernelbench.Run, entries: list[tuple[Kernel, str]], ops: dict[str, str]) -> None:
    lines = ["version: 1", f"traces: {'[pack]' if ops else '[]'}", "kernels:"]
    arch = f", archs: [{run.arguments.arch}]" if run.arguments.build_only else ""
    for kernel, source in entries:
        lines += [f"  {kernel.name}:", f"    op: {ops.get(kernel.op, kernel.op)}", "    implementations:"]
        for entry in kernel.entries[: 1 if run.arguments.names == "exported" else 2]:
            lines.append(
                f"      - {{name: {entry}, device: cuda, contract: torch-extension, source: {source}, "
                f"entry: {entry}{arch}}}"
            )
    (run.work / "cgins.yaml").write_text("\n".join(lines) + "\n")


def _gate(run: kernelbench.Run) -> kernelbench.Done:
    given = run.arguments
    return kernelbench.gate(
        run.work,
        run,
        *(["--cgins-no-timing"] if given.no_timing else []),
        limits=round(given.deadline / given.limit),
    )


def _document(run: kernelbench.Run, kernels: list[Kernel], report: dict[str, Any]) -> dict[str, Any]:
    rows = []
    for one in report["evaluations"]:
        verdict, timing = one["verdict"], one["measurement"]
        rows.append(
            Row(
                kernel=one["case"]["kernel"],
                entry=one["case"]["implementation"],
                signature=one["case"]["signature"],
                status=verdict["status"],
                reason=verdict["reason"],
                share=verdict["numbers"].get("error_share_of_tolerance"),
                speedup=timing["speedup_vs_torch"] if timing else None,
                build_seconds=one["build_seconds"],
                seconds=one["seconds"],
                message=" ".join(verdict["message"].split())[:400],
            )
        )
    judged = {row.kernel for row in rows if row.status not in NO_VERDICT}
    return {
        "environment": report["environments"],
        "configs": run.arguments.configs,
        "seconds": run.seconds,
        "kernels": len(kernels),
        "without_a_verdict": [kernel.name for kernel in kernels if kernel.name not in judged],
        "rows": [asdict(row) for row in rows],
    }


def _table(document: dict[str, Any]) -> str:
    lines = [
        "| kernel | entry | case | verdict | error share | speed vs torch | build s | s | message |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in document["rows"]:
        share, speedup = ("-" if row[key] is None else f"{row[key]:.3g}" for key in ("share", "speedup"))
        lines.append(
            f"| {row['kernel']} | {row['entry']} | {row['signature']} | {row['status']} {row['reason']} | {share} | "
            f"{speedup} | {row['build_seconds']:.1f} | {row['seconds']:.1f} | {row['message'].replace('|', '¦')} |"
        )
    missing = document["without_a_verdict"]
    lines.append(
        f"\n{document['kernels']} kernels, {len(missing)} without a verdict"
        f"{': ' + ', '.join(missing) if missing else ''}; {document['seconds']:.0f} s"
    )
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
