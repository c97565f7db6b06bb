"""What a worker costs: its start, an empty request, and tensors there and back.

Run as `python tests/benchmarks/worker_overhead.py [--json FILE] [--rounds N]`. Prints a table, and writes
the samples with the environment that they were taken in.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from pytest_cgins.core import documents
from pytest_cgins.core.buffers import Buffer
from pytest_cgins.core.tensors import pack, unpack
from pytest_cgins.run import forking
from pytest_cgins.run.pool import WorkerPool
from pytest_cgins.timing.environment import describe
from pytest_cgins.timing.stats import quartiles

LIMIT_S = 300.0
MEBIBYTE = 2**20


class EchoService:
    """Unpacks the tensors that it gets and packs them again, as a verification worker does."""

    def cpu(self, params: Any, buffers: list[Buffer]) -> tuple[Any, list[Buffer]]:
        """CPU seconds of this process since it was started, or forked."""
        return time.process_time(), []

    def empty(self, params: Any, buffers: list[Buffer]) -> tuple[Any, list[Buffer]]:
        """Answer at once."""
        return None, []

    def tensors(self, params: Any, buffers: list[Buffer]) -> tuple[Any, list[Buffer]]:
        """Answer with the tensors of the request."""
        header, buffer = pack(unpack(params, buffers[0], "cpu"))
        return header, [buffer]


def sample(action: Callable[[], object], rounds: int) -> list[float]:
    """Seconds of each of `rounds` runs, after one that is not counted."""
    action()
    samples = []
    for _ in range(rounds):
        start = time.perf_counter()
        action()
        samples.append(time.perf_counter() - start)
    return samples


def run(rounds: int) -> dict[str, list[float]]:
    """Samples in seconds, by what was done."""
    # What measures is started as a program, everything else is forked.
    services = dict.fromkeys(("echo", "timing"), "worker_overhead:EchoService")
    path = os.pathsep.join((str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")))
    cpu: dict[str, list[float]] = {"echo": [], "timing": []}
    with WorkerPool(services=services, env={"PYTHONPATH": path.rstrip(os.pathsep)}) as pool:

        def start(role: str) -> None:
            pool.discard(role)
            before = cpu_of_servers()
            used = pool.call(role, "cpu", {}, timeout_s=LIMIT_S).result
            cpu[role].append(used + cpu_of_servers() - before)

        def travel(tensor: torch.Tensor) -> None:
            header, buffer = pack([tensor])
            reply = pool.call("echo", "tensors", header, [buffer], timeout_s=LIMIT_S)
            unpack(reply.result, reply.buffers[0], "cpu")

        small, large = (torch.ones(size * MEBIBYTE, dtype=torch.uint8) for size in (1, 64))
        started = max(3, rounds // 10)
        return {
            "program that imports torch": sample(lambda: start("timing"), started),
            "  its CPU seconds": cpu["timing"],
            "fork that has torch imported": sample(lambda: start("echo"), rounds),
            "  its CPU seconds, first with imports": cpu["echo"],
            "empty request": sample(lambda: pool.call("echo", "empty", {}, timeout_s=LIMIT_S), 10 * rounds),
            "tensor of 1 MiB there and back": sample(lambda: travel(small), rounds),
            "tensor of 64 MiB there and back": sample(lambda: travel(large), max(3, rounds // 3)),
        }


def cpu_of_servers() -> float:
    """CPU seconds of the processes that fork workers."""
    ticks = 0
    for server in forking._servers._current.values():
        fields = Path(f"/proc/{server.pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, help="file for samples and environment")
    parser.add_argument("--rounds", type=int, default=30)
    options = parser.parse_args()
    samples = run(options.rounds)
    print(f"{'what':40} {'median ms':>10} {'IQR ms':>8} {'n':>4}")
    for what, seconds in samples.items():
        spread = quartiles(seconds)
        print(
            f"{what:40} {1e3 * statistics.median(seconds):10.3f} {1e3 * spread.range:8.3f} {len(seconds):4}"
        )
    if options.json:
        report = {"environment": documents.dump_python(describe("cpu")), "seconds": samples}
        options.json.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
