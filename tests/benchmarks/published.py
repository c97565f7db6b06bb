"""Kernels as others publish them, gated without a change to their sources.

python tests/benchmarks/published.py --device cpu --liger CHECKOUT
python tests/benchmarks/published.py --device cuda --liger CHECKOUT --flaggems CHECKOUT --quack CHECKOUT --robustkbench CHECKOUT
python tests/benchmarks/published.py --device cuda --liger CHECKOUT --flaggems CHECKOUT --quack CHECKOUT --by-hand

Of each checkout a project is made: a copy of its package, the list in `published/` that says what each kernel replaces,
a recording of these ops, and a cgins.yaml. Nothing here needs a network. On a CPU, Triton kernels run in Triton's
interpreter, and CUDA sources are compiled for `--arch`, not run. With --by-hand, kernels are called without pytest-cgins,
and what is seen then is told.
"""

from __future__ import annotations

import argparse
import ast
import importlib.util
import json
import os
import re
import shutil
import sys
from collections import Counter
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import kernelbench
import robustkbench

LISTS = Path(__file__).parent / "published"
OF_THE_MACHINE = re.compile(
    r"importing \S+ raised RuntimeError: No device|Triton's interpreter lacks|0 active drivers|is not installed"
)
"""Messages of verdicts that speak of what this machine lacks, not of the kernel."""
AT_ONCE = 24
"""Kernels in a run of pytest."""
PASSING = ("PASSED", "SAME", "NEW", "FASTER")


@dataclass(frozen=True)
class Repository:
    """A checkout that can be gated."""

    name: str
    folder: str
    """The package in the checkout; it is copied as it is."""
    module: str
    """The list of its kernels."""
    level: str = "function"
    """What its ops are recorded at."""
    files: str = ""
    """The sources of kernels in the folder, as a glob."""
    pattern: str = ""
    """What a kernel's definition looks like in them; its name is the group."""


@dataclass
class Row:
    """What became of a repository's kernels."""

    repository: str
    found: int
    """Kernels in its sources."""
    entered: int
    """Kernels in the list."""
    recorded: int = 0
    """Kernels whose op was recorded, backwards apart."""
    gated: int = 0
    """Kernels with a verdict about themselves in at least one case."""
    passed: int = 0
    """Kernels all of whose cases pass."""
    findings: dict[str, list[str]] = field(default_factory=dict)
    """Kernels by status and reason."""
    left_out: dict[str, str] = field(default_factory=dict)
    """Kernels that were entered and have no verdict about themselves, and why."""
    not_entered: list[str] = field(default_factory=list)
    """Kernels whose op and inputs nobody has written down in the list."""
    cases: list[dict[str, Any]] = field(default_factory=list)
    by_hand: dict[str, list[str]] = field(default_factory=dict)
    """Kernels by what is seen of them without pytest-cgins."""
    environments: list[Any] = field(default_factory=list)
    seconds: float = 0.0


REPOSITORIES = (
    Repository(
        "Liger-Kernel", "src/liger_kernel", "liger",
        files="ops/**/*.py", pattern=r"^class (\w+)\(torch\.autograd\.Function\)",
    ),
    Repository("FlagGems", "src/flag_gems", "flaggems", level="dispatch"),
    Repository("quack", "quack", "quack_kernels", files="**/*.py", pattern=r'^@cute_op\(\s*"quack::(\w+)"'),
)  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    for repository in REPOSITORIES:
        parser.add_argument(f"--{repository.name.partition('-')[0].lower()}", type=Path, metavar="CHECKOUT")
    parser.add_argument("--robustkbench", type=Path, metavar="CHECKOUT")
    parser.add_argument("--device", choices=("cpu", "cuda"), required=True)
    parser.add_argument("--arch", default="sm_90", help="what CUDA sources are compiled for on a CPU")
    parser.add_argument("--only", default="", help="regular expression on a kernel's name")
    parser.add_argument("--limit", type=float, default=150.0, help="seconds for one request to a worker")
    parser.add_argument("--deadline", type=float, default=460.0, help="seconds for all of it")
    parser.add_argument("--timing", action="store_true", help="time what is right")
    parser.add_argument("--by-hand", action="store_true", help="do not gate: call kernels as a user would")
    parser.add_argument(
        "--jobs", type=int, default=max(1, (os.cpu_count() or 1) // 4), help="processes that gate"
    )
    parser.add_argument("--work", type=Path, help="folder to work in")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--markdown", type=Path)
    run = kernelbench.Run.start(parser.parse_args())
    given = vars(run.arguments)
    rows = []
    if run.arguments.robustkbench:
        rows.append(robust_kbench(run))
        _write(rows, run)
    for repository in REPOSITORIES:
        checkout = given[repository.name.partition("-")[0].lower()]
        if checkout is not None:
            rows.append(gated(repository, checkout.absolute(), run))
            _write(rows, run)
    print(table(rows))
    return 0


def _write(rows: list[Row], run: kernelbench.Run) -> None:
    """Write what there is by now: who is killed keeps it."""
    document = {
        "device": run.arguments.device,
        "seconds": run.seconds,
        "repositories": [asdict(row) for row in rows],
    }
    for path, text in (
        (run.arguments.json, json.dumps(document, indent=1)),
        (run.arguments.markdown, table(rows)),
    ):
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text + "\n")


def gated(repository: Repository, checkout: Path, run: kernelbench.Run) -> Row:
    """Make a project of a checkout, and gate it."""
    begun = run.seconds
    project = run.work / repository.module
    shutil.copytree(checkout / repository.folder, project / Path(repository.folder).name, dirs_exist_ok=True)
    for name in ("catalogue.py", f"{repository.module}.py", "record_list.py", "by_hand.py"):
        shutil.copy(LISTS / name, project / name)
    found = _found(repository, project)
    row = Row(repository.name, found=len(found), entered=0)
    os.environ["PUBLISHED_DEVICE"] = run.arguments.device
    os.environ.setdefault("GEMS_VENDOR", "nvidia")  # else FlagGems starts nvidia-smi as it is imported
    if run.arguments.device == "cpu":
        os.environ["TRITON_INTERPRET"] = "1"
    if run.arguments.by_hand:
        command = [sys.executable, "by_hand.py", repository.module, run.arguments.only]
        seen = project / "by-hand.json"
        for _ in range(AT_ONCE):
            done = kernelbench.spawn(command, project, run, run.left)
            if done.code == 0 or run.left <= 0:
                break
        row.by_hand = json.loads(seen.read_text()) if seen.is_file() else {"all": [done.last_line]}
        return replace(row, entered=len(row.by_hand), seconds=run.seconds - begun)
    done = kernelbench.spawn(
        [sys.executable, "record_list.py", repository.module, repository.level, run.arguments.only],
        project, run, run.left,
    )  # fmt: skip
    os.environ.pop("TRITON_INTERPRET", None)
    told = project / "recorded.json"
    if not told.is_file():
        return replace(row, left_out={"all": done.last_line})
    recorded = json.loads(told.read_text())
    row.entered, row.left_out = recorded["entered"], recorded["left_out"]
    entered = {part for target, _ in recorded["targets"].values() for part in re.split(r"[:.]", target)}
    row.not_entered = sorted(found - entered)
    kernels = _kernels(project, recorded["targets"], run.arguments.device)
    row.recorded = len(kernels)
    for name in sorted(set(recorded["targets"]) - set(kernels) - set(row.left_out)):
        row.left_out[name] = "its op calls other ops, and was not recorded"
    names = list(kernels)
    for first in range(0, len(names), AT_ONCE):
        chosen = names[first : first + AT_ONCE]
        lines = ["version: 1", "traces: [pack]", "kernels:", *(kernels[name] for name in chosen)]
        (project / "cgins.yaml").write_text("\n".join(lines) + "\n")
        _judge(row, project, run, chosen)
    _count(row)
    row.seconds = run.seconds - begun
    return row


def _found(repository: Repository, project: Path) -> set[str]:
    """Kernels in the sources: by their pattern, or as the package registers them for ATen."""
    package = project / Path(repository.folder).name
    if repository.pattern:
        texts = [path.read_text(errors="replace") for path in package.glob(repository.files)]
        return {name for text in texts for name in re.findall(repository.pattern, text, re.MULTILINE)}
    tuples = [
        node
        for node in ast.walk(ast.parse((package / "__init__.py").read_text()))
        if isinstance(node, ast.Tuple)
    ]
    listed = max(tuples, key=lambda node: len(node.elts))
    return {ast.unparse(pair.elts[1]) for pair in listed.elts if isinstance(pair, ast.Tuple)}


def _kernels(project: Path, targets: dict[str, str], device: str) -> dict[str, str]:
    """Lines of cgins.yaml by name: a kernel for each recorded op of the list, backwards too."""
    traces = json.loads((project / "pack" / "manifest.json").read_text())["traces"]
    ops = sorted({trace["call"]["op"] for trace in traces})
    how = "interpret: true, device: cpu" if device == "cpu" else "device: cuda"
    kernels = {}
    for op in ops:
        forward, _, backward = op.partition("@")
        for name, (target, of) in targets.items():
            if of != forward or (backward and not target.endswith(".apply")):
                continue
            own = f"{name}-backward" if backward else name
            kernels[own] = f'  {own}: {{op: "{op}", target: "{target}", {how}}}'
    return kernels


def _judge(row: Row, project: Path, run: kernelbench.Run, kernels: list[str]) -> None:
    """Gate these kernels of a project: a run that is killed loses no others."""
    more = [] if run.arguments.timing else ["--cgins-no-timing"]
    many = run.arguments.jobs > 1 and importlib.util.find_spec("xdist") is not None
    jobs = ["-n", str(run.arguments.jobs)] if many else []
    done = kernelbench.gate(project, run, *more, *jobs, limits=1 + int(run.left / run.arguments.limit))
    report = project / kernelbench.REPORT
    if not report.is_file():
        row.left_out |= dict.fromkeys(kernels, done.last_line)
        return
    document = json.loads(report.read_text())
    row.environments = document["environments"]
    for evaluation in document["evaluations"]:
        verdict = evaluation["verdict"]
        row.cases.append(
            {
                "kernel": evaluation["case"]["kernel"],
                "signature": evaluation["case"]["signature"],
                "status": verdict["status"],
                "reason": verdict["reason"],
                "message": " ".join(verdict["message"].split())[:500],
                "seconds": evaluation["seconds"],
                "speedup_vs_torch": (evaluation["measurement"] or {}).get("speedup_vs_torch"),
            }
        )


def _count(row: Row) -> None:
    """Kernels by what became of all their cases."""
    by_kernel: dict[str, list[dict[str, Any]]] = {}
    for case in row.cases:
        by_kernel.setdefault(case["kernel"], []).append(case)
    for kernel, cases in by_kernel.items():
        about = [
            case
            for case in cases
            if case["status"] not in robustkbench.NO_VERDICT and not OF_THE_MACHINE.search(case["message"])
        ]
        failed = [case for case in about if case["status"] not in PASSING]
        if not about:
            row.left_out[kernel] = f"{cases[0]['status']} {cases[0]['reason']}: {cases[0]['message'][:160]}"
        row.gated += bool(about)
        row.passed += bool(about) and not failed
        for label in sorted({f"{case['status']} {case['reason']}" for case in failed}):
            row.findings.setdefault(label, []).append(kernel)


def robust_kbench(run: kernelbench.Run) -> Row:
    """The torch extensions that robust-kbench publishes: gated on a GPU, compiled without one."""
    begun = run.seconds
    given = argparse.Namespace(
        **{
            **vars(run.arguments), "checkout": run.arguments.robustkbench, "names": "exported", "configs": "single",
            "max_mib": 4096.0, "build_only": run.arguments.device == "cpu",
        }
    )  # fmt: skip
    own = replace(run, arguments=given, work=run.work / "robustkbench")
    own.work.mkdir(parents=True, exist_ok=True)
    kernels = robustkbench._project(own)
    row = Row(
        "robust-kbench",
        found=len(list(given.checkout.glob("highlighted/*/*/kernel.cu"))),
        entered=len(kernels),
    )
    if given.build_only:
        command = [*kernelbench.CGINS, "build", "--arch", given.arch, "--timeout", str(given.limit * 10)]
        done = kernelbench.spawn(command, own.work, own, own.left)
        for kernel in kernels:
            built = re.search(rf"^{re.escape(kernel.name)} .* NEW ", done.output, re.MULTILINE)
            label = "compiled" if built else "not compiled"
            row.left_out[kernel.name] = f"{label} for {given.arch}, not run: no GPU"
    else:
        row.recorded = len(kernels)
        _judge(row, own.work, own, [kernel.name for kernel in kernels])
        _count(row)
    row.seconds = run.seconds - begun
    return row


def table(rows: list[Row]) -> str:
    """The table, and below it what was left out."""
    lines = [
        "| repository | found | entered | recorded | gated | passed | findings | left out | s |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        findings = "; ".join(f"{label}: {', '.join(names)}" for label, names in sorted(row.findings.items()))
        lines.append(
            f"| {row.repository} | {row.found} | {row.entered} | {row.recorded} | {row.gated} | {row.passed} | "
            f"{findings or '-'} | {len(row.left_out)} | {row.seconds:.0f} |"
        )
    for row in rows:
        if row.by_hand:
            seen = [f"{name}: {'; '.join(found) or 'nothing'}" for name, found in row.by_hand.items()]
            lines += [f"\n{row.repository}, by hand:\n", "```text", *seen, "```"]
        if row.not_entered:
            lines.append(f"\n{row.repository}, not in the list: {', '.join(row.not_entered)}")
        for reason in Counter(row.left_out.values()):
            names = [name for name, why in row.left_out.items() if why == reason]
            lines.append(f"\n{row.repository}, left out: {', '.join(names)}: {reason}")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
