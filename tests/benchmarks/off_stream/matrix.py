"""One right softmax on every stream that a kernel may choose, gated beside its honest twin: named, or timed right.

python tests/benchmarks/off_stream/matrix.py --work DIR [--only REGEX] [--json F] [--markdown F]

Needs an NVIDIA GPU and nvcc. The base revision has the twin under each kernel's name; its time is what a variant's is held
against, in the same blocks. A variant passes if its verdict is one that its row asks for, and, where it was timed, its time
is within 5% of the twin's.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import yaml

import pytest_cgins

HERE = Path(__file__).parent
DEVICE_KERNEL = Path(__file__).parents[3] / "example_project/kernels/softmax_device.cu"
SIZES = ((64, 513), (1024, 1024), (8192, 4096))
WITHIN = 0.05
AT_ONCE = 4
"""Kernels in one pytest process, at most."""
NAMED = ("INCORRECT", "not-on-stream")
RIGHT = ("PASSED", "SAME", "INCONCLUSIVE", "FASTER", "SLOWER")
"""Statuses of a right answer; whether the time is right is asked of the ratio."""
LAUNCHERS = (
    "honest", "legacy!", "legacy-by-name!", "per-thread!", "own!", "own-blocking!", "forked-and-joined+",
    "own-synchronized!", "joined-not-forked!", "forked-not-joined!", "thread!", "thread-synchronized!",
    "thread-detached!", "legacy-synchronized!", "half!", "copied!", "scratch?", "graph-elsewhere!", "graph+",
    "cublas-elsewhere!", "cublas+", "callback!", "dependent-launch~", "memset!", "thread-on-stream+",
    "forked-synchronized+", "synchronized+",
)  # fmt: skip
"""By the number of their VARIANT. `!` must be named, `?` may be; others must be timed right. `+` does more than the twin,
and is never faster; `~` may overlap with its successor, and is never slower; all others take as long."""
EXTENSIONS = (
    "honest", "legacy", "per-thread", "pool?", "pool-joined+", "pool-synchronized?", "legacy-synchronized+", "thread+",
    "thread-detached?", "half+", "scratch?", "copied+", "blocking",
)  # fmt: skip
PYTHON = (
    "honest", "own?", "own_synchronized?", "forked_and_joined+", "default", "default_synchronized+", "per_thread", "thread+",
    "half+", "copied+", "scratch?",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Row:
    """One variant in one contract."""

    kernel: str
    """Its name in cgins.yaml."""
    named: str
    """`must`, `may` or `never` be called not-on-stream."""
    least: float
    """The least ratio of its time to its twin's."""
    most: float
    """The greatest."""
    head: dict[str, Any]
    """Its entry."""
    base: dict[str, Any]
    """That of its twin."""


def rows() -> list[Row]:
    """All variants."""
    found = [
        Row(
            "device_honest",
            "never",
            1 - WITHIN,
            1 + WITHIN,
            *2 * ({"contract": "device", "source": "softmax_device.cu"},),
        )
    ]
    for contract, names, extra in (
        ("launcher", LAUNCHERS, {}),
        ("extension", EXTENSIONS, {"contract": "torch-extension", "entry": "softmax"}),
    ):
        for number, name in enumerate(names):
            of: dict[str, Any] = {"source": f"{contract}.cu", "device": "cuda", **extra}
            if name.startswith("cublas"):
                of["flags"] = _cublas()
            entries = [{**of, "defines": {"VARIANT": one}} for one in (number, 0)]
            found.append(Row(_kernel(contract, name), _named(name), *_bounds(name), *entries))
    for name in PYTHON:
        entries = [
            {"target": f"variants:{one.strip('!?+~')}", "sources": ["variants.py"], "device": "cuda"}
            for one in (name, "entered" if name in ("default", "per_thread") else "honest")
        ]
        found.append(Row(_kernel("python", name), _named(name), *_bounds(name), *entries))
    return found


def _bounds(name: str) -> tuple[float, float]:
    """Of the ratio of times."""
    least, most = 1 - WITHIN, 1 + WITHIN
    return {"+": (least, math.inf), "?": (least, math.inf), "~": (0.5, most)}.get(name[-1], (least, most))


def _cublas() -> list[str]:
    """Flags for cuBLAS, of the toolkit or as torch's own packages bring it."""
    for entry in map(Path, sys.path):
        for header in entry.glob("nvidia/*/include/cublas_v2.h"):
            library = next(header.parents[1].glob("lib/libcublas.so*"))
            return [f"-I{header.parent}", f"-L{library.parent}", f"-l:{library.name}"]
    return ["-lcublas"]


def _kernel(contract: str, name: str) -> str:
    return f"{contract}_{name.strip('!?+~').replace('-', '_')}"


def _named(name: str) -> str:
    return {"!": "must", "?": "may"}.get(name[-1], "never")


def make(folder: Path, chosen: list[Row]) -> None:
    """A project whose commit has the twins, and whose files have the variants."""
    folder.mkdir(parents=True)
    for file in (*HERE.glob("*.cu"), *HERE.glob("*.cuh"), HERE / "variants.py", DEVICE_KERNEL):
        shutil.copy(file, folder)
    with pytest_cgins.record(folder / "traces", ops=["torch.nn.functional.softmax"]):
        for size in SIZES:
            torch.nn.functional.softmax(torch.randn(size), dim=-1)
    for side in ("base", "head"):
        kernels = {row.kernel: {"op": "torch.nn.functional.softmax", **getattr(row, side)} for row in chosen}
        document = {"version": 1, "traces": ["traces"], "gate": {"baseline": "HEAD"}, "kernels": kernels}
        (folder / "cgins.yaml").write_text(yaml.safe_dump(document, sort_keys=False))
        if side == "base":
            for words in (
                ["init", "-q"],
                ["add", "-A"],
                ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "twins"],
            ):
                subprocess.run(["git", *words], cwd=folder, check=True)


def main() -> None:
    """Gate all, print the table, exit with 1 if a row is not as it must be."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--work", type=Path, required=True, help="empty or new folder")
    parser.add_argument("--only", default="", help="kernels whose name this expression finds")
    parser.add_argument(
        "--jobs", type=int, default=1, help="pytest processes side by side; one at a time has the GPU to time"
    )
    parser.add_argument(
        "--limit-s", type=float, default=3600.0, help="what has not ended by then is left out, and missed"
    )
    parser.add_argument("--json", type=Path)
    parser.add_argument("--markdown", type=Path)
    arguments = parser.parse_args()
    chosen = [row for row in rows() if re.search(arguments.only, row.kernel)]
    project = (arguments.work / "project").resolve()
    make(project, chosen)
    end = time.monotonic() + arguments.limit_s
    size = min(AT_ONCE, -(-len(chosen) // arguments.jobs))
    groups = [chosen[start : start + size] for start in range(0, len(chosen), size)]
    with ThreadPoolExecutor(arguments.jobs) as pool:
        reports = [one for one in pool.map(lambda group: _gate(project, group, end), groups) if one]
    table = [_line(one, chosen) for report in reports for one in report["evaluations"]]
    text = "\n".join(_markdown(reports[0], table, len(chosen) * len(SIZES)))
    print(text)
    if arguments.markdown:
        arguments.markdown.write_text(text + "\n")
    if arguments.json:
        document = {"environments": reports[0]["environments"], "rows": table}
        arguments.json.write_text(json.dumps(document, indent=1))
    sys.exit(0 if len(table) == len(chosen) * len(SIZES) and all(line["ok"] for line in table) else 1)


def _gate(project: Path, group: list[Row], end: float) -> dict[str, Any] | None:
    """The report of some kernels; None if there was no time for it."""
    report = project.parent / f"{group[0].kernel}.json"
    words = [
        "-m",
        "pytest",
        "-p",
        "no:cgins",
        "-p",
        "pytest_cgins.plugin",
        "-p",
        "no:cacheprovider",
        "-q",
        "--cgins",
    ]
    options = [
        "--cgins-device=cuda",
        "--cgins-compare=unchanged",
        "--cgins-probes=fast",
        f"--cgins-json={report}",
    ]
    names = " or ".join(f"{row.kernel}/" for row in group)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE.parents[2]), *sys.path])}
    with suppress(subprocess.TimeoutExpired), report.with_suffix(".log").open("w") as log:
        command = [sys.executable, *words, *options, "-k", names, "cgins.yaml"]
        left = max(0.1, end - time.monotonic())
        subprocess.run(
            command, cwd=project, env=environment, check=False, timeout=left, stdout=log, stderr=log
        )
    return json.loads(report.read_text()) if report.exists() else None


def _line(one: dict[str, Any], chosen: list[Row]) -> dict[str, Any]:
    row = next(row for row in chosen if row.kernel == one["case"]["kernel"])
    verdict, timing = one["verdict"], one["measurement"]
    named = (verdict["status"], verdict["reason"]) == NAMED
    ratio = verdict["numbers"].get("ratio_to_base")
    right = verdict["status"] in RIGHT and ratio is not None and row.least <= ratio <= row.most
    late = verdict["status"] in ("INCORRECT", "SUSPECT") and row.named == "may"  # by whatever reason
    return {
        "kernel": row.kernel,
        "signature": one["case"]["signature"],
        "asked": row.named,
        "status": verdict["status"],
        "reason": verdict["reason"],
        "method": timing["method"] if timing else "",
        "kernel_us": timing["kernel"]["median_ns_per_call"] / 1e3 if timing else None,
        "ratio_to_twin": ratio,
        "noted": any("default stream" in note for note in (one["correctness"] or {}).get("notes", ())),
        "message": verdict["message"].partition("\n")[0],
        "ok": {"must": named, "may": named or right or late, "never": right}[row.named],
    }


def _markdown(report: dict[str, Any], table: list[dict[str, Any]], asked: int) -> list[str]:
    devices = {one["device_name"] for one in report["environments"] if one["device"] != "cpu"}
    lines = [
        f"{', '.join(sorted(devices))}, {report['started_at'][:10]}: {sum(line['ok'] for line in table)} of {asked} as asked",
        "",
        "| kernel | call | must it be named? | verdict | method | µs | time/twin | warned | ok |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for line in table:
        time = "" if line["kernel_us"] is None else f"{line['kernel_us']:.2f}"
        ratio = "" if line["ratio_to_twin"] is None else f"{line['ratio_to_twin']:.3f}"
        cells = [
            line["kernel"],
            line["signature"],
            line["asked"],
            f"{line['status']} {line['reason']}",
            line["method"],
            time,
        ]
        lines.append(
            "| "
            + " | ".join([*cells, ratio, "yes" if line["noted"] else "", "yes" if line["ok"] else "**no**"])
            + " |"
        )
    return lines


if __name__ == "__main__":
    main()
