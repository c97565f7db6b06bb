"""One process of verdicts.py: the gate's sequential test on every subject, again and again.

Reads a specification from a file and writes what came out to another; see `verdicts.py`.
"""

from __future__ import annotations

import json
import random
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from subjects import Library, Subject, make_subjects, timer_of

from pytest_cgins.timing.block import LETTER_ARMS, Block
from pytest_cgins.timing.block_sampler import BlockSampler, Prepared
from pytest_cgins.timing.clock_watch import ClockWatch
from pytest_cgins.timing.cuda_timer import GraphTimer
from pytest_cgins.timing.nvml import Gpu
from pytest_cgins.timing.sequential import Rule

MANN_WHITNEY_Z = 1.6449  # one-sided p < .05
MOST_PEEKS = 20


def main() -> None:
    specification = json.loads(Path(sys.argv[1]).read_text())
    libraries = [Library(path) for path in specification["libraries"]]
    if specification["task"] == "subjects":
        result: Any = make_subjects(libraries, tuple(specification["slowdowns"]), specification["only"])
    else:
        result = list(_process(specification, libraries))
    Path(sys.argv[2]).write_text(json.dumps(result))


def _process(specification: dict[str, Any], libraries: list[Library]) -> Iterator[dict[str, Any]]:
    """All runs of one process, in a random order of subjects."""
    number = specification["process"]
    choice = random.Random(number)
    kernel, base = libraries[:: 1 if number % 2 else -1]
    clock = ClockWatch(Gpu.find(0))
    tasks = list(specification["tasks"])
    choice.shuffle(tasks)
    for task in tasks:
        subject = Subject(**task["subject"])
        work = subject.slower[task["slowdown"]] if task["slowdown"] else subject.work
        opened = time.perf_counter()
        timer = timer_of(kernel, base, subject, work)
        opened = time.perf_counter() - opened
        rule = Rule(**task["rule"])
        for again in range(task["runs"]):
            yield {
                "subject": subject.name,
                "slowdown": task["slowdown"],
                "confirms": task["confirms"],
                "profile": task["profile"],
                "process": number,
                "open_s": opened if not again else 0.0,
                **_verdict(timer, rule, clock, choice.getrandbits(60)),
            }
        del timer
        torch.cuda.empty_cache()


def _verdict(timer: GraphTimer, rule: Rule, clock: ClockWatch, seed: int) -> dict[str, Any]:
    blocks: list[Block] = []

    def take(orders: Sequence[str]) -> list[Block]:
        arms = [[LETTER_ARMS[letter] for letter in order] for order in orders]
        made = []
        for order, times in zip(orders, timer.blocks(arms), strict=True):
            reading = clock.read()
            made.append(
                Block(
                    order=order,
                    ns_per_call=tuple(times),
                    sm_mhz=reading.sm_mhz,
                    throttled=reading.throttled,
                )
            )
        blocks.extend(made)
        return made

    prepared = Prepared(
        arms=("kernel", "base"),
        method=timer.method,
        calls=timer.calls,
        batch_seconds=timer.batch_seconds,
        host_ns_per_call={},
        cold=True,
    )
    started = time.perf_counter()
    sampler = BlockSampler(prepared, seed=seed, base=rule)
    sampler.run(take)
    wall = time.perf_counter() - started
    (found,) = sampler.comparisons()
    calls = timer.calls["kernel"]
    return {
        "outcome": found.outcome,
        "blocks": len(found.log_ratios),
        "redone": len(blocks) - len(found.log_ratios),
        "gpu_ms": calls * sum(sum(block.ns_per_call) for block in blocks) / 1e6,
        "wall_ms": wall * 1e3,
        "ratio": found.ratio,
        "sigma": found.power.sigma,
        "median_ns": statistics.median(time for block in blocks for time in block.times("base")),
        "log_ratios": [round(one, 6) for one in found.log_ratios],
        **_rivals(blocks),
    }


def _rivals(blocks: Sequence[Block]) -> dict[str, bool]:
    """What other rules say of the very same batches."""
    kernel = [time for block in blocks for time in block.times("kernel")]
    base = [time for block in blocks for time in block.times("base")]
    ratio = statistics.median(kernel) / statistics.median(base)
    return {
        "median_5_percent": ratio > 1.05,
        "mann_whitney": _mann_whitney(kernel, base),
        "mann_whitney_peeking": any(
            _mann_whitney(kernel[: 2 * n], base[: 2 * n]) for n in range(3, min(len(blocks), MOST_PEEKS) + 1)
        ),
        "mann_whitney_1_1": _mann_whitney(kernel, base) and ratio > 1.1,
    }


def _mann_whitney(kernel: Sequence[float], base: Sequence[float]) -> bool:
    """Whether the kernel is slower at one-sided p < .05, by the normal approximation."""
    n, m = len(kernel), len(base)
    wins = sum((k > b) + 0.5 * (k == b) for k in kernel for b in base)
    return (wins - n * m / 2) / (n * m * (n + m + 1) / 12) ** 0.5 > MANN_WHITNEY_Z


if __name__ == "__main__":
    main()
