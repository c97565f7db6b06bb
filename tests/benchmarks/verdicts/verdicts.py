"""Verdicts on time, right and wrong: kernels against copies of themselves, and against planted slowdowns.

python tests/benchmarks/verdicts/verdicts.py [--processes 8] [--json F] [--markdown F] [--no-rivals] [--limit S] [--neighbours]

Kernels of 1 to 500 µs are compiled twice, so that kernel and base differ in layout and digest. Each process makes
fresh allocations and graphs of every kernel, and comes to a verdict again and again, by the gate's own timer, course
and rule, as one test of a suite of 200. What comes out slower is confirmed by the next process. Kernels without a change are 2%
from the bound, and their runs in one process share its level: so kernels a little below the bound are timed too. Planted: more work, as
much as trials say makes the kernel 5% (3%) slower; what it was in truth is the median of all its blocks.

The rivals judge the same batches (medians, Mann–Whitney), or the same kernels in the same session (`do_bench`,
pytest-benchmark). Needs an NVIDIA GPU, nvcc, triton and pytest-benchmark. With --neighbours all cores and all other
GPUs are busy meanwhile, the GPUs with products and copies, and the first GPU's kernels are judged as otherwise.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from subjects import compile_twice

from pytest_cgins.config import PROFILES
from pytest_cgins.timing.environment import describe
from pytest_cgins.timing.sequential import Rule

HERE = Path(__file__).parent
SUITE = 200
PLANTED = {"default": "0.05", "strict": "0.03", "bound": "0.0185"}
"""That of `bound` comes out as 1.87% to 1.96%: just what is let pass, and no more."""
STRICT_FROM_US = 50
RUNS = {"default": 63, "planted": 10, "strict": 10, "bound": 20}
BUSY_GPU = """
import sys, torch
a = torch.randn(8192, 8192, device=f"cuda:{sys.argv[1]}", dtype=torch.bfloat16)
while True:
    for _ in range(20):
        a @ a
        a.clone()
    torch.cuda.synchronize(a.device)
"""
RIVALS = {
    "median_5_percent": "medians of the same batches, fixed 5%",
    "mann_whitney": "Mann–Whitney p < .05, same batches",
    "mann_whitney_peeking": "the same, looked at after each block",
    "mann_whitney_1_1": "Mann–Whitney p < .05 and 1.1×, same batches",
    "do_bench": "triton `do_bench`, fixed 5%",
    "pytest_benchmark": "pytest-benchmark `median:5%` against a stored run",
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--processes", type=int, default=8)
    parser.add_argument(
        "--runs", type=float, default=1.0, help="factor for the runs of a kernel in a process"
    )
    parser.add_argument(
        "--limit", type=float, default=420.0, help="seconds after which no process is started"
    )
    parser.add_argument("--only", default="", help="regular expression on the kernels' names")
    parser.add_argument("--no-rivals", action="store_true")
    parser.add_argument("--neighbours", action="store_true", help="keep all cores and other GPUs busy")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--markdown", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, _neighbours() if arguments.neighbours else nullcontext():
        document = _measure(Path(folder), arguments)
    text = markdown(document)
    print(text)
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(document, separators=(",", ":")) + "\n")
    if arguments.markdown is not None:
        arguments.markdown.write_text(text)
    return 0


@contextmanager
def _neighbours() -> Iterator[None]:
    """Processes that keep each core busy, and each GPU but the first."""
    gpus = range(1, torch.cuda.device_count())
    cores = len(os.sched_getaffinity(0))
    commands = [[sys.executable, "-c", BUSY_GPU, str(gpu)] for gpu in gpus]
    commands += [[sys.executable, "-c", "while True: pass"]] * cores
    print(f"busy meanwhile: {len(gpus)} GPUs and {cores} cores", flush=True)
    with ExitStack() as stack:
        for command in commands:
            stack.callback(subprocess.Popen(command).kill)
        yield


def _measure(folder: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    started = time.monotonic()
    libraries = compile_twice(folder)
    subjects = _ask(
        folder,
        {
            "task": "subjects",
            "libraries": libraries,
            "slowdowns": [*map(float, PLANTED.values())],
            "only": arguments.only,
        },
    )
    print(f"{len(subjects)} subjects after {time.monotonic() - started:.0f} s", flush=True)
    runs: list[dict[str, Any]] = []
    process, pending = 0, []
    while pending or process < arguments.processes:
        fresh = process < arguments.processes and time.monotonic() - started < arguments.limit
        if not (fresh or pending):
            break
        tasks = [*(_tasks(subjects, arguments.runs) if fresh else ()), *_confirmations(subjects, pending)]
        made = _ask(folder, {"task": "runs", "libraries": libraries, "process": process, "tasks": tasks})
        pending = [one for one in made if one["outcome"] == "slower" and not one["confirms"]]
        runs += made
        process += 1
        print(f"process {process}, {len(runs)} runs after {time.monotonic() - started:.0f} s", flush=True)
    rivals = {} if arguments.no_rivals else _rivals(folder, libraries, subjects)
    print(f"rivals after {time.monotonic() - started:.0f} s", flush=True)
    return summary(subjects, runs, rivals)


def _tasks(subjects: list[dict[str, Any]], factor: float) -> list[dict[str, Any]]:
    tasks = []
    for one in subjects:
        profiles = [
            ("", "default", "default"),
            (PLANTED["default"], "default", "planted"),
            (PLANTED["bound"], "default", "bound"),
        ]
        if _target_us(one["name"]) >= STRICT_FROM_US:
            profiles += [("", "strict", "strict"), (PLANTED["strict"], "strict", "strict")]
        tasks += [
            {
                "subject": one,
                "slowdown": slowdown,
                "confirms": "",
                "profile": profile,
                "runs": max(1, round(RUNS[count] * factor)),
                "rule": asdict(_rule(profile)),
            }
            for slowdown, profile, count in profiles
        ]
    return tasks


def _confirmations(subjects: list[dict[str, Any]], pending: list[dict[str, Any]]) -> list[dict[str, Any]]:
    by_name = {one["name"]: one for one in subjects}
    counts: dict[tuple[str, str, str], int] = {}
    for one in pending:
        key = (one["subject"], one["slowdown"], one["profile"])
        counts[key] = counts.get(key, 0) + 1
    return [
        {
            "subject": by_name[name],
            "slowdown": slowdown,
            "confirms": profile,
            "profile": profile,
            "runs": count,
            "rule": asdict(replace(_rule(profile), tests=1)),
        }
        for (name, slowdown, profile), count in counts.items()
    ]


def _rule(profile: str) -> Rule:
    gate = PROFILES[profile]
    return Rule(
        tolerate=gate.tolerate,
        catch=gate.catch,
        alpha=gate.alpha,
        beta=gate.beta,
        tests=SUITE,
        most_blocks=gate.max_blocks,
    )


def _rivals(folder: Path, libraries: list[str], subjects: list[dict[str, Any]]) -> dict[str, Any]:
    common = {"libraries": libraries, "subjects": subjects, "slowdown": PLANTED["default"]}
    return {
        "do_bench": [
            one for _ in range(2) for one in _ask(folder, {"task": "do_bench", **common}, script="rivals.py")
        ],
        "pytest_benchmark": _ask(
            folder,
            {"task": "pytest_benchmark", "rounds": 2, "folder": str(folder), **common},
            script="rivals.py",
        ),
    }


def _ask(folder: Path, specification: dict[str, Any], script: str = "runs.py") -> Any:
    """A fresh process."""
    asked, answer = folder / "asked.json", folder / "answer.json"
    asked.write_text(json.dumps(specification))
    subprocess.run([sys.executable, str(HERE / script), str(asked), str(answer)], check=True)
    return json.loads(answer.read_text())


# ---- what came out


def summary(
    subjects: list[dict[str, Any]], runs: list[dict[str, Any]], rivals: dict[str, Any]
) -> dict[str, Any]:
    """The document: figures over all runs, a row a kernel, and every run that was not as it should be."""
    first = [one for one in runs if not one["confirms"]]
    again = [one for one in runs if one["confirms"]]
    groups = {
        "same": [one for one in first if not one["slowdown"] and one["profile"] == "default"],
        "same_strict": [one for one in first if not one["slowdown"] and one["profile"] == "strict"],
        "planted_5": [one for one in first if one["slowdown"] == PLANTED["default"]],
        "planted_3_strict": [one for one in first if one["slowdown"] == PLANTED["strict"]],
        "on_the_bound": [one for one in first if one["slowdown"] == PLANTED["bound"]],
    }
    confirmed = _confirmed(again)
    return {
        "environment": asdict(describe("cuda:0")),
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "suite": SUITE,
        "processes": len({one["process"] for one in first}),
        "groups": {name: _figures(members, confirmed) for name, members in groups.items()},
        "kernels": [_row(one, groups, confirmed) for one in subjects],
        "rivals": _rival_rows(groups, rivals),
        "exceptions": [
            {key: one[key] for key in one if key != "log_ratios"}
            for name, members in groups.items()
            for one in members
            if name != "on_the_bound" or one["outcome"] == "slower"
            if one["outcome"] != ("slower" if name.startswith("planted") else "clean")
        ][:400],
        "unconfirmed": [
            {key: one[key] for key in one if key != "log_ratios"}
            for one in again
            if one["outcome"] != "slower"
        ][:400],
    }


def _confirmed(again: list[dict[str, Any]]) -> dict[tuple[str, str, str, int], float]:
    """Share of confirmations that came out slower, by subject, slowdown, profile and process before."""
    found: dict[tuple[str, str, str, int], list[bool]] = {}
    for one in again:
        key = (one["subject"], one["slowdown"], one["confirms"], one["process"] - 1)
        found.setdefault(key, []).append(one["outcome"] == "slower")
    return {key: statistics.fmean(members) for key, members in found.items()}


def _figures(
    members: list[dict[str, Any]], confirmed: dict[tuple[str, str, str, int], float]
) -> dict[str, Any]:
    if not members:
        return {}
    slower = [one for one in members if one["outcome"] == "slower"]
    proven = sum(
        confirmed.get((one["subject"], one["slowdown"], one["profile"], one["process"]), 0.0)
        for one in slower
    )
    by_outcome = {
        outcome: sum(one["outcome"] == outcome for one in members)
        for outcome in ("clean", "faster", "slower", "inconclusive")
    }
    return {
        "runs": len(members),
        **by_outcome,
        "slower_and_confirmed": round(proven, 3),
        "undecided": by_outcome["inconclusive"] + round(len(slower) - proven, 3),
        "redone_blocks": sum(one["redone"] for one in members),
        "blocks_median": statistics.median(one["blocks"] for one in members),
        "gpu_ms_median": statistics.median(one["gpu_ms"] for one in members),
        "gpu_ms_p95": _quantile([one["gpu_ms"] for one in members], 0.95),
        "wall_ms_median": statistics.median(one["wall_ms"] for one in members),
    }


def _row(
    subject: dict[str, Any],
    groups: dict[str, list[dict[str, Any]]],
    confirmed: dict[tuple[str, str, str, int], float],
) -> dict[str, Any]:
    own = {
        name: [one for one in members if one["subject"] == subject["name"]]
        for name, members in groups.items()
    }
    same = own["same"]
    processes = sorted({one["process"] for one in same})
    means = [
        statistics.median(ratio for one in same if one["process"] == number for ratio in one["log_ratios"])
        for number in processes
    ]
    return {
        "kernel": subject["name"],
        "median_us": statistics.median(one["median_ns"] for one in same) / 1e3,
        "tau": statistics.pstdev(means) if len(means) > 1 else 0.0,
        "bias_max": max(map(abs, means)),
        "sigma": statistics.median(one["sigma"] for one in same),
        "rho": statistics.fmean(filter(math.isfinite, map(_lag_one, same))),
        "planted": {
            name: math.expm1(statistics.median(ratio for one in own[name] for ratio in one["log_ratios"]))
            for name in ("planted_5", "planted_3_strict", "on_the_bound")
            if own[name]
        },
        **{name: _figures(members, confirmed) for name, members in own.items() if members},
    }


def _lag_one(run: dict[str, Any]) -> float:
    """Correlation of neighbouring blocks' signs about the run's median."""
    middle = statistics.median(run["log_ratios"])
    signs = [1.0 if one > middle else -1.0 for one in run["log_ratios"] if one != middle]
    pairs = list(itertools.pairwise(signs))
    return statistics.fmean(a * b for a, b in pairs) if pairs else math.nan


def _rival_rows(groups: dict[str, list[dict[str, Any]]], rivals: dict[str, Any]) -> list[dict[str, Any]]:
    rows = [
        {
            "rule": rule,
            "false_alarms": _share(one[rule] for one in groups["same"]),
            "missed": _share(not one[rule] for one in groups["planted_5"]),
            "wall_ms": statistics.median(one["wall_ms"] for one in groups["same"]),
        }
        for rule in ("median_5_percent", "mann_whitney", "mann_whitney_peeking", "mann_whitney_1_1")
    ]
    return rows + [
        {
            "rule": rule,
            "false_alarms": _share(one["slower"] for one in members if not one["slowdown"]),
            "missed": _share(not one["slower"] for one in members if one["slowdown"]),
            "wall_ms": statistics.median(one["wall_ms"] for one in members),
        }
        for rule, members in rivals.items()
    ]


def _share(hits: Iterable[bool]) -> list[int]:
    """How many of how many."""
    found = list(hits)
    return [sum(found), len(found)]


def _quantile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def markdown(document: dict[str, Any]) -> str:
    """Every figure from the document."""
    environment, groups = document["environment"], document["groups"]
    lines = [
        (
            f"{environment['device_name']}, driver {environment['driver']}, torch {environment['torch']}, "
            f"{document['date']}; {document['processes']} processes; each run is one test of a suite of "
            f"{document['suite']}."
        ),
        "",
        "| runs | of | clean | faster | slower | slower, confirmed | undecided | blocks | GPU ms, median (95%) | wall ms |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    names = {
        "same": "the same kernel, default",
        "same_strict": "the same kernel, strict",
        "planted_5": "5% slower, default",
        "planted_3_strict": "3% slower, strict, from 50 µs",
        "on_the_bound": "just under 2% slower, default: not slower than is let pass",
    }
    for name, title in names.items():
        one = groups.get(name)
        if one:
            lines.append(
                f"| {title} | {one['runs']} | {one['clean']} | {one['faster']} | {one['slower']} | "
                f"{one['slower_and_confirmed']:g} | {one['undecided']:g} | {one['blocks_median']:g} | "
                f"{one['gpu_ms_median']:.1f} ({one['gpu_ms_p95']:.1f}) | {one['wall_ms_median']:.1f} |"
            )
    lines += [
        "",
        "| kernel | µs | between processes | block σ | ρ | planted 5%: in truth | found | planted 3%: in truth | found |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    lines += [_kernel_line(one) for one in document["kernels"]]
    lines += ["", "| rule | false alarms | 5% missed | ms a verdict |", "|---|---|---|---|"]
    same, planted = groups["same"], groups["planted_5"]
    lines.append(
        f"| ours | {same['slower_and_confirmed']:g} of {same['runs']} | "
        f"{planted['runs'] - planted['slower_and_confirmed']:g} of {planted['runs']} | "
        f"{same['wall_ms_median']:.0f} |"
    )
    lines += [
        f"| {RIVALS[one['rule']]} | {_of(one['false_alarms'])} | {_of(one['missed'])} | {one['wall_ms']:.0f} |"
        for one in document["rivals"]
    ]
    return "\n".join(lines) + "\n"


def _of(share: list[int]) -> str:
    hits, whole = share
    return f"{hits} of {whole} ({hits / whole:.1%})" if whole else "–"


def _kernel_line(one: dict[str, Any]) -> str:
    cells = [
        one["kernel"],
        f"{one['median_us']:.2f}",
        f"{one['tau']:.2%}",
        f"{one['sigma']:.2%}",
        f"{one['rho']:.2f}",
    ]
    for name in ("planted_5", "planted_3_strict"):
        if name in one:
            found = one[name]
            cells += [
                f"{one['planted'][name]:.2%}",
                f"{found['slower_and_confirmed']:g} of {found['runs']}",
            ]
        else:
            cells += ["–", "–"]
    return f"| {' | '.join(cells)} |"


def _target_us(name: str) -> float:
    return float(name.partition("-")[2].removesuffix("us"))


if __name__ == "__main__":
    sys.exit(main())
