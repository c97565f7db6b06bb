"""What the gate says on a loaded CPU of kernels that did not change: each against a second build of itself.

python tests/benchmarks/cpu_same.py [--repeats 50] [--every N] [--load K] [--seconds LIMIT] [--only RE] [--json F]

The example project is copied into a git repository of its own with one commit, and its CPU cases are timed as
`pytest --cgins --cgins-compare=unchanged` times them. Each case is verified once, and its inputs are kept; a repeat
then times the cases in fresh processes with other orders of blocks, confirmations included. With `--every N` a repeat
takes each N-th signature of every kernel, the next repeat the next ones: the suite-wide α is that of all cases still.

Meanwhile K processes spin and one more works and sleeps by turns, beside whatever else the machine does. At the end
each `--whole-every`-th case is timed once more without the early stop, which shows how blocks are correlated.
"""

from __future__ import annotations

import argparse
import copy
import itertools
import json
import math
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from pytest_cgins import config
from pytest_cgins.core.buffers import Buffer
from pytest_cgins.core.case import Case, CompiledKernel
from pytest_cgins.core.measurement import Measurement
from pytest_cgins.core.session_report import Evaluation
from pytest_cgins.core.verdict import Reason, Status, Verdict
from pytest_cgins.gate.case_timing import Sample
from pytest_cgins.gate.evaluate import Evaluator
from pytest_cgins.gate.timing_stage import ReadyCase, TimingOptions, TimingStage
from pytest_cgins.gate.timing_verdict import confirmation
from pytest_cgins.gate.verification_stage import Prepared, role_of
from pytest_cgins.run.early_verdict import EndedError
from pytest_cgins.timing import lock
from pytest_cgins.timing.sequential import robust_sigma
from pytest_cgins.verify.messages import CaseRequest

PROJECT = Path(__file__).resolve().parents[2] / "example_project"
SPIN = """
import os, sys, time
parent, work_s, sleep_s = os.getppid(), float(sys.argv[1]), float(sys.argv[2])
while os.getppid() == parent:
    until = time.perf_counter() + work_s
    while time.perf_counter() < until:
        sum(range(1000))
    time.sleep(sleep_s)
"""
WHOLE_BLOCKS = 64
PASSED = Verdict(status=Status.PASSED, reason=Reason.OK, message="", numbers={})
OUTCOMES = ("same", "faster", "noise", "not_confirmed", "slower")
"""What a run is counted as: `noise` and `not_confirmed` are the two kinds of undecided."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """A right kernel with what it is timed on."""

    ready: ReadyCase
    case_request: CaseRequest

    @property
    def case(self) -> Case:
        return self.ready.case


class Verifier(Evaluator):
    """Evaluates cases, and keeps what they would be timed on in the place of timing them."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.ready: list[Ready] = []

    def _timed(self, verified: Evaluation, compiled: CompiledKernel, prepared: Prepared) -> Evaluation:
        pairs = [(one, Buffer.adopt(os.dup(buffer.fileno()))) for one, buffer in prepared.timeable]
        ready = ReadyCase(
            case=verified.case, compiled=compiled, role=role_of("timing", compiled), pairs=pairs
        )
        self.ready.append(Ready(ready=ready, case_request=prepared.case_request))
        return verified

    def fresh_stage(self, seed: int) -> TimingStage:
        """The evaluator's own with another seed, its workers ended."""
        for role in {one.ready.role for one in self.ready}:
            self.pool.discard(role)
        stage = copy.copy(self.stage)
        stage._requests = replace(self.requests, seed=seed)
        return stage


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--repeats", type=int, default=50)
    parser.add_argument("--every", type=int, default=1, help="a repeat takes each N-th signature of a kernel")
    parser.add_argument("--whole-every", type=int, default=10, help="0 for none")
    parser.add_argument("--load", type=int, default=2, help="processes that spin")
    parser.add_argument(
        "--seconds", type=float, default=math.inf, help="no repeat begins that would end later"
    )
    parser.add_argument("--only", default="", help="regular expression on the cases' names")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--runs", type=Path, help="each run as a line of JSON, written as it ends")
    arguments = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        # Others that time on this machine are load: they neither wait for this nor are they waited for.
        locks = folder / "locks"
        locks.mkdir(mode=0o700)
        os.environ[lock.FOLDER_VARIABLE] = str(locks)
        document = _measure(_repository(folder / "project"), arguments)
    print(table(document))
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(document, separators=(",", ":")) + "\n")
    return 0 if not document["total"]["slower"] else 1


def _repository(folder: Path) -> Path:
    """A copy of the example project as the one commit of a repository."""
    shutil.copytree(PROJECT, folder, ignore=shutil.ignore_patterns("__pycache__", ".*"))
    who = ("-c", "user.name=benchmark", "-c", "user.email=benchmark@localhost")
    for command in (("init", "-q"), ("add", "-A"), (*who, "commit", "-q", "-m", "all")):
        subprocess.run(["git", *command], cwd=folder, check=True)
    return folder / "cgins.yaml"


def _measure(file: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    begun = time.monotonic()
    loaded = config.load(file)
    verifier = Verifier(
        loaded, seed=0, device="cpu", timing_options=TimingOptions(baseline="HEAD", unchanged=True)
    )
    with ExitStack() as stack:
        stack.callback(verifier.close)
        chosen = [case for case in verifier.cases() if re.search(arguments.only, case.name)]
        verdicts = {case.name: verifier.evaluate(case).verdict for case in chosen}
        # Built now, that no compiler is part of a repeat's time.
        for one in verifier.ready:
            verifier.stage.bases.twin(one.ready.compiled)
        print(
            f"{len(verifier.ready)} of {len(chosen)} cases right after {time.monotonic() - begun:.0f} s",
            flush=True,
        )
        stack.enter_context(_loaded(arguments.load))
        runs, repeats = _repeats(verifier, arguments, begun)
        whole = _whole(verifier, arguments.whole_every)
        environment = [asdict(one) for one in verifier.environments()]
    return {
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "environment": environment,
        "load": arguments.load,
        "every": arguments.every,
        "suite_tests": verifier.tests(),
        "not_timed": {name: one.message for name, one in verdicts.items() if one.status is not Status.PASSED},
        "repeats": repeats,
        "total": _summary(runs),
        "kernels": _grouped(runs, "kernel"),
        "cases": _grouped(runs, "case"),
        "slower_in_first_process": [one["both"] for one in runs if one["both"]],
        "ended": [{"case": one["case"], "message": one["ended"]} for one in runs if one["ended"]],
        "signs": signs([one["log_ratios"] for one in runs]),
        "without_early_stop": whole,
    }


# ---- runs


def _repeats(
    verifier: Verifier, arguments: argparse.Namespace, begun: float
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Runs, and what each repeat took."""
    runs: list[dict[str, Any]] = []
    repeats: list[dict[str, Any]] = []
    for number in range(arguments.repeats):
        longest = max((one["wall_s"] for one in repeats), default=0.0)
        if time.monotonic() - begun + 1.2 * longest > arguments.seconds:
            break
        started = time.monotonic()
        stage = verifier.fresh_stage(number + 1)
        share = _share(verifier.ready, arguments.every, number)
        made = []
        for one in share:
            made.append(_run(stage, one))
            if arguments.runs is not None:
                with arguments.runs.open("a") as file:
                    file.write(json.dumps({"repeat": number, **made[-1]}, separators=(",", ":")) + "\n")
        runs += made
        repeats.append(
            {
                "wall_s": round(time.monotonic() - started, 2),
                "load_average": os.getloadavg()[0],
                "cases": len(made),
                **{outcome: sum(one["outcome"] == outcome for one in made) for outcome in OUTCOMES},
            }
        )
        print(f"repeat {number + 1}: {repeats[-1]}", flush=True)
    return runs, repeats


def _share(ready: Sequence[Ready], every: int, number: int) -> list[Ready]:
    """Of every implementation each N-th signature, beginning with another one each time."""
    groups: dict[tuple[str, str], list[Ready]] = {}
    for one in ready:
        groups.setdefault((one.case.kernel, one.case.implementation), []).append(one)
    chosen = []
    for group in groups.values():
        count = -(-len(group) // every)
        chosen += [group[(number * count + index) % len(group)] for index in range(count)]
    return chosen


def _run(stage: TimingStage, ready: Ready) -> dict[str, Any]:
    """One case timed to its verdict."""
    started = time.monotonic()
    case = ready.case
    run: dict[str, Any] = {
        "case": case.name,
        "kernel": f"{case.kernel}/{case.implementation}",
        "outcome": "ended",
        "ended": "",
        "both": None,
        "log_ratios": (),
    }
    try:
        outcome = stage.run(ready.ready, ready.case_request)
    except EndedError as end:
        return {**run, "ended": end.verdict.message, "wall_ms": 1e3 * (time.monotonic() - started)}
    measurement = outcome.measurement
    comparison = measurement.against("base")
    if comparison is None:
        return {**run, "ended": outcome.base.note, "wall_ms": 1e3 * (time.monotonic() - started)}
    verdict = stage.decide(PASSED, case, outcome)
    names = {
        Status.SAME: "same",
        Status.FASTER: "faster",
        Status.SLOWER: "slower",
        Status.INCONCLUSIVE: "not_confirmed" if verdict.reason is Reason.NOT_CONFIRMED else "noise",
    }
    return {
        **run,
        "outcome": names[verdict.status],
        "wall_ms": 1e3 * (time.monotonic() - started),
        "blocks": len(comparison.log_ratios),
        "sigma": comparison.power.sigma,
        "ratio": comparison.ratio,
        "ns_per_call": measurement.kernel.median_ns_per_call,
        "timed_ms": measurement.timed_ns / 1e6,
        "log_ratios": comparison.log_ratios,
        "both": _both(case, measurement) if comparison.outcome == "slower" else None,
    }


def _both(case: Case, measurement: Measurement) -> dict[str, Any]:
    """All of a run that was slower in its first process."""
    again = confirmation(measurement, "base")
    second = measurement.confirmation
    assert again is not None
    assert second is not None
    return {
        "case": case.name,
        "confirmed": again.outcome == "slower",
        "first": _told(measurement),
        "fresh": _told(second),
    }


def _told(measurement: Measurement) -> dict[str, Any]:
    comparison = measurement.against("base")
    assert comparison is not None
    assert measurement.base is not None
    return {
        "outcome": comparison.outcome,
        "ratio": comparison.ratio,
        "log_e_slower": comparison.log_e_slower,
        "orders": measurement.orders,
        "calls_per_batch": measurement.kernel.calls_per_batch,
        "log_ratios": [round(one, 6) for one in comparison.log_ratios],
        "kernel_ns_per_call": [round(one, 1) for one in measurement.kernel.samples_ns_per_call],
        "base_ns_per_call": [round(one, 1) for one in measurement.base.samples_ns_per_call],
    }


def _whole(verifier: Verifier, every: int) -> dict[str, Any]:
    """As many blocks of each as a test may take: a test that ends at a run of signs would tell another correlation."""
    if not every:
        return {}
    stage = verifier.fresh_stage(0)
    runs: list[tuple[str, Sample]] = []
    for one in verifier.ready[::every]:
        twin = stage.bases.twin(one.ready.compiled)
        sample = stage.sample(one.ready, twin, blocks=WHOLE_BLOCKS, seed=len(runs))
        runs.append((one.case.name, sample))
    return {
        "signs": signs([sample.log_ratios for _, sample in runs]),
        "runs": [
            {
                "case": name,
                "ns_per_call": round(sample.ns_per_call),
                "lag_1": round(_serial([sample.log_ratios], 1), 4),
                "log_ratios": [round(one, 5) for one in sample.log_ratios],
            }
            for name, sample in runs
        ],
    }


# ---- load


@contextmanager
def _loaded(spinning: int) -> Iterator[None]:
    """Processes that keep the machine busy; they end with this one."""
    shares = [("1", "0")] * spinning + ([("0.004", "0.006")] if spinning else [])
    processes = [subprocess.Popen([sys.executable, "-c", SPIN, *share]) for share in shares]
    try:
        yield
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait()


# ---- what came out


def _grouped(runs: Sequence[dict[str, Any]], key: str) -> dict[str, dict[str, Any]]:
    groups: dict[str, list[dict[str, Any]]] = {}
    for run in runs:
        groups.setdefault(run[key], []).append(run)
    return {name: _summary(group) for name, group in groups.items()}


def _summary(runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    counts: dict[str, Any] = {
        "runs": len(runs),
        **{outcome: sum(one["outcome"] == outcome for one in runs) for outcome in (*OUTCOMES, "ended")},
        "slower_first": sum(one["both"] is not None for one in runs),
        "wall_ms": round(statistics.median(one["wall_ms"] for one in runs), 1) if runs else 0.0,
    }
    compared = [one for one in runs if one["log_ratios"]]
    if not compared:
        return counts
    blocks = sorted(one["blocks"] for one in compared)
    return {
        **counts,
        "blocks_median": statistics.median(blocks),
        "blocks_95": blocks[min(len(blocks) - 1, math.ceil(0.95 * len(blocks)) - 1)],
        "sigma_median": round(statistics.median(one["sigma"] for one in compared), 5),
        "log_ratio_spread": round(robust_sigma([math.log(one["ratio"]) for one in compared]), 5),
        "log_ratio_median": round(statistics.median(math.log(one["ratio"]) for one in compared), 5),
        "log_ratio_worst": round(max(math.log(one["ratio"]) for one in compared), 5),
        "ns_per_call": round(statistics.median(one["ns_per_call"] for one in compared)),
        "timed_ms": round(statistics.median(one["timed_ms"] for one in compared), 2),
    }


def signs(rows: Sequence[Sequence[float]]) -> dict[str, Any]:
    """How the signs of blocks are correlated.

    Returns:
        `above`: share of blocks above the bound of 2%; `above_after_above`: the same of those that follow such a
        block, which the test wants to be ½ at most; `lag_1`, `lag_2`: see `_serial`; `between_runs`: mean product of
        two signs of one run whatever their distance, which a bias of single runs gives.
    """
    bound = math.log(1.02)
    rows = [row for row in rows if len(row) > 1]
    if not rows:
        return {}
    every = [one > bound for row in rows for one in row]
    after = [b > bound for row in rows for a, b in itertools.pairwise(row) if a > bound]
    return {
        "blocks": len(every),
        "above": round(statistics.mean(every), 4),
        "above_after_above": round(statistics.mean(after), 4) if after else None,
        "lag_1": round(_serial(rows, 1), 4),
        "lag_2": round(_serial(rows, 2), 4),
        "between_runs": round(_exchangeable(rows), 4),
    }


def _serial(rows: Sequence[Sequence[float]], lag: int) -> float:
    """Mean product of the signs of blocks that are `lag` apart, less what it is in a random order of the same blocks."""
    products, expected = [], []
    for row in rows:
        positive = [math.copysign(1.0, one) for one in row]
        found = [a * b for a, b in zip(positive[:-lag], positive[lag:], strict=True)]
        products += found
        expected += [_pairs(positive)] * len(found)
    return statistics.mean(products) - statistics.mean(expected) if products else 0.0


def _exchangeable(rows: Sequence[Sequence[float]]) -> float:
    weighted = [(_pairs([math.copysign(1.0, one) for one in row]), len(row) - 1) for row in rows]
    return sum(one * count for one, count in weighted) / sum(count for _, count in weighted)


def _pairs(positive: Sequence[float]) -> float:
    """Mean product over all pairs of a row of signs."""
    n = len(positive)
    return (sum(positive) ** 2 - n) / (n * (n - 1)) if n > 1 else 0.0


def table(document: Mapping[str, Any]) -> str:
    """Markdown."""
    total, repeats = document["total"], document["repeats"]
    heads = (
        *("kernel", "runs", "same", "faster", "undecided: noise", "undecided: not confirmed"),
        *("slower, first process", "slower, confirmed", "blocks, median", "95%", "σ of blocks", "τ of runs"),
        "wall, ms a case",
    )
    lines = [f"| {' | '.join(heads)} |", "|" + "---|" * len(heads)]
    for name, row in (*document["kernels"].items(), ("**all**", total)):
        cells = [
            row["runs"],
            *(row[one] for one in ("same", "faster", "noise", "not_confirmed", "slower_first", "slower")),
            f"{row.get('blocks_median', 0):g}",
            row.get("blocks_95", 0),
            f"{100 * row.get('sigma_median', 0):.2f}%",
            f"{100 * row.get('log_ratio_spread', 0):.2f}%",
            f"{row['wall_ms']:.0f}",
        ]
        lines.append(f"| {name} | {' | '.join(map(str, cells))} |")
    wall = sum(one["wall_s"] for one in repeats)
    loads = [one["load_average"] for one in repeats]
    lines += [
        "",
        f"{len(repeats)} repeats, {len(document['cases'])} cases, {wall:.0f} s",
        f"load average {min(loads, default=0):.1f} to {max(loads, default=0):.1f}",
        f"ended otherwise: {total['ended']}; not timed: {len(document['not_timed'])}",
        f"signs: {document['signs']}",
        f"without the early stop: {document['without_early_stop'].get('signs')}",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
