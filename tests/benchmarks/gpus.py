"""Suites on one GPU of this machine and on two: wall time, how long a GPU was held for timing, and whether verdicts differ.

    python tests/benchmarks/gpus.py [SUITE[=WORDS]…] [--workers N] [--json FILE] [-- OPTION…]

SUITE is `example` or `production`, and WORDS select of its cases as pytest's `-k` does. First each has one GPU to
itself, all side by side, then both GPUs, one after the other: so the host is as busy both times. There are N processes
of xdist a GPU, and each kernel is compared with a second build of itself (`--cgins-compare=unchanged`), so no case may
come out slower. The timed phase is how long the GPU was held alone, that of the busier one where there are two. Kernels
are built before the clock runs, their second builds are not. What follows `--` goes to `pytest --cgins`. Needs two
NVIDIA GPUs.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
SUITES = {"example": ("", "production"), "production": ("production", "")}
"""Folder below example_project, and what is not of the suite."""
HELD = "GPUS_HELD"


def pytest_configure() -> None:
    """As a plugin of pytest: note when this process holds which device alone."""
    from pytest_cgins.timing import lock

    alone = lock.timing

    @contextmanager
    def noted(key: str, **named: Any) -> Iterator[None]:
        with alone(key, **named):
            began = time.monotonic()
            try:
                yield
            finally:
                with Path(os.environ[HELD]).open("a") as file:
                    file.write(json.dumps([key, began, time.monotonic()]) + "\n")

    lock.timing = noted


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("suites", nargs="*", default=["example"], metavar="SUITE", help="example, production")
    parser.add_argument("--workers", type=int, default=8, help="processes a GPU")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--limit", type=float, default=500, help="seconds after which a run is ended")
    parser.add_argument("--json", type=Path)
    given = sys.argv[1:]
    end = given.index("--") if "--" in given else len(given)
    options = parser.parse_args(given[:end])
    command = [
        word for word in given if word != str(options.json)
    ]  # where the results lie is the machine's own
    rows = []
    with tempfile.TemporaryDirectory() as name:
        runs = [Run(Path(name), suite, options, given[end + 1 :]) for suite in options.suites]
        for run in runs:
            run.build()
        with ThreadPoolExecutor() as pool:
            ones = list(pool.map(lambda run, gpu: run.on(str(gpu)), runs, range(len(runs))))
        for run, one in zip(runs, ones, strict=True):
            rows.append(_row(run.suite, one, run.on("0,1")))
            print(json.dumps(rows[-1]), flush=True)
            if options.json:
                options.json.write_text(json.dumps({"command": command, "suites": rows}, indent=1) + "\n")
    return int(any(row["differ"] for row in rows))


class Run:
    """A suite in a repository of its own."""

    def __init__(self, folder: Path, suite: str, options: argparse.Namespace, passed: list[str]) -> None:
        self.suite, _, self._words = suite.partition("=")
        self._options, self._passed, self._folder = options, passed, folder
        self._project, (place, self._ignored) = folder / f"{self.suite}-project", SUITES[self.suite]
        shutil.copytree(
            ROOT / "example_project", self._project, ignore=shutil.ignore_patterns(".cgins", "__pycache__")
        )
        path = os.pathsep.join([str(Path(__file__).parent), str(ROOT), os.environ.get("PYTHONPATH", "")])
        cache = os.environ.get("CGINS_CACHE_DIR", str(folder / "cache"))
        self._environment = {**os.environ, "PYTHONPATH": path, "CGINS_CACHE_DIR": cache}
        self._place = self._project / place
        for words in (("init", "-q"), ("add", "-A"), ("commit", "-qm", "all")):
            identity = ("-c", "user.name=benchmark", "-c", "user.email=benchmark@localhost")
            subprocess.run(["git", *identity, *words], cwd=self._project, check=True)

    def build(self) -> None:
        """All kernels into the cache."""
        words = ["build", "--device", self._options.device]
        code = f"import sys; from pytest_cgins.app.cli import main; sys.exit(main({words}))"
        subprocess.run([sys.executable, "-c", code], cwd=self._place, env=self._environment, check=False)

    def on(self, gpus: str) -> dict[str, Any]:
        """Its report, with the time that GPUs were held."""
        count = len(gpus.split(","))
        stem = self._folder / f"{self.suite}-{count}"
        words = [
            *(
                "-p",
                "no:cgins",
                "-p",
                "pytest_cgins.plugin",
                "-p",
                "gpus",
                "-p",
                "no:cacheprovider",
                "-q",
                "-n",
                str(count * self._options.workers),
            ),
            *(
                "--cgins",
                f"--cgins-device={self._options.device}",
                "--cgins-seed=1",
                "--cgins-compare=unchanged",
                f"--cgins-json={stem}.json",
            ),
            *(("-k", self._words) if self._words else ()),
            *(("--ignore", self._ignored) if self._ignored else ()),
            *self._passed,
        ]
        environment = {**self._environment, "CUDA_VISIBLE_DEVICES": gpus, HELD: f"{stem}.held"}
        began = time.monotonic()
        command = ["timeout", "-s", "INT", str(self._options.limit), sys.executable, "-m", "pytest", *words]
        done = subprocess.run(
            command, cwd=self._place, env=environment, capture_output=True, text=True, check=False
        )
        wall_s = time.monotonic() - began
        print(
            f"== {self.suite} on {count}: {wall_s:.0f} s, exit {done.returncode}\n{done.stdout[-1500:]}{done.stderr[-500:]}",
            flush=True,
        )
        held = [json.loads(line) for line in Path(f"{stem}.held").read_text().splitlines()]
        return {"wall_s": wall_s, "held": held, "report": json.loads(Path(f"{stem}.json").read_text())}


def _row(suite: str, one: dict[str, Any], two: dict[str, Any]) -> dict[str, Any]:
    verdicts = [
        {_name(found["case"]): found["verdict"]["status"] for found in run["report"]["evaluations"]}
        for run in (one, two)
    ]
    held = [_held_s(run["held"]) for run in (one, two)]
    names = sorted({*verdicts[0], *verdicts[1]})
    return {
        "suite": suite,
        "environments": two["report"]["environments"],
        "cases": [len(found) for found in verdicts],
        "statuses": [Counter(found.values()) for found in verdicts],
        "differ": {name: [found.get(name) for found in verdicts] for name in names if verdicts[0].get(name) != verdicts[1].get(name)},
        "wall_s": [round(run["wall_s"], 1) for run in (one, two)],
        "held_alone_s": held,
        "wall_speedup": one["wall_s"] / two["wall_s"],
        "timed_phase_speedup": max(held[0].values()) / max(held[1].values()),
    }  # fmt: skip


def _name(case: dict[str, Any]) -> str:
    parts = ("kernel", "implementation", "pack", "trace_id", "signature", "check")
    return "/".join(case[part] for part in parts)


def _held_s(held: list[tuple[str, float, float]]) -> dict[str, float]:
    """Seconds a device, those that overlap counted once."""
    found: dict[str, float] = {}
    ends: dict[str, float] = {}
    for key, began, ended in sorted(held, key=lambda one: one[1]):
        found[key] = found.get(key, 0.0) + max(0.0, ended - max(began, ends.get(key, began)))
        ends[key] = max(ended, ends.get(key, ended))
    return {key: round(seconds, 2) for key, seconds in found.items()}


if __name__ == "__main__":
    sys.exit(main())
