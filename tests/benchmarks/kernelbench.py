"""KernelBench's problems in folders and processes of their own: what benchmarks over all of them share."""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, TypeVar

ROOT = Path(__file__).resolve().parents[2]
CGINS = (sys.executable, "-c", "import sys; from pytest_cgins.app.cli import main; sys.exit(main())")
PLUGIN = (
    [] if any(e.name == "cgins" for e in entry_points(group="pytest11")) else ["-p", "pytest_cgins.plugin"]
)
TOO_LATE = "not begun: --deadline had passed"
REPORT = "report.json"
OUTPUT = "output.txt"
INTERRUPT_S = 15.0
"""For a command that is interrupted at its limit to report what it has, and to end."""

Result = TypeVar("Result")


@dataclass(frozen=True)
class Run:
    """One run of a benchmark over the problems."""

    arguments: argparse.Namespace
    """Those of `options`, and the benchmark's own."""
    work: Path
    """A folder, with one in it for each problem."""
    begun: float
    """When, by `time.monotonic`."""

    @classmethod
    def start(cls, arguments: argparse.Namespace) -> Run:
        """A run that begins now, in `--work` or in a new folder."""
        work = arguments.work or Path(tempfile.mkdtemp(prefix="kernelbench-"))
        return cls(arguments, work.absolute(), time.monotonic())

    @property
    def seconds(self) -> float:
        """Since it began."""
        return time.monotonic() - self.begun

    @property
    def left(self) -> float:
        """Seconds until `--deadline`."""
        deadline = self.arguments.deadline
        return float("inf") if deadline is None else float(deadline) - self.seconds

    def over(self, chosen: Sequence[Path], one: Callable[[Path], Result]) -> list[Result]:
        """Results of all problems, `--jobs` at a time, in the order of the problems."""
        with ThreadPoolExecutor(self.arguments.jobs) as pool:
            return list(pool.map(one, chosen))

    def environments(self) -> list[Any]:
        """Devices and versions, as the first report has them."""
        reports = sorted(self.work.glob(f"*/{REPORT}"))
        return list(json.loads(reports[0].read_text())["environments"]) if reports else []


@dataclass(frozen=True)
class Done:
    """One process that has ended."""

    code: int | str
    """Its exit code, or `time limit`."""
    output: str
    """What it printed."""
    seconds: float
    """How long it took."""

    @property
    def left_out(self) -> str:
        """Why an import left its problem out, or what it said last."""
        told = re.search(r"^left out  \S+: (.*)$", self.output, re.MULTILINE)
        return told[1] if told else self.last_line

    @property
    def last_line(self) -> str:
        """The code and the last line, which mostly says what was wrong."""
        lines = self.output.strip().splitlines()
        return f"{self.code}: {lines[-1][:200] if lines else 'no output'}"


def options(summary: str, *, max_mib: float, limit: float) -> argparse.ArgumentParser:
    """What all of these benchmarks can be told."""
    parser = argparse.ArgumentParser(description=summary)
    parser.add_argument("--kernelbench", type=Path, required=True, help="checkout, or a folder of a level")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--max-mib", type=float, default=max_mib)
    parser.add_argument("--jobs", type=int, default=max(1, (os.cpu_count() or 1) // 2))
    parser.add_argument("--limit", type=float, default=limit, help="seconds for either step of a problem")
    parser.add_argument(
        "--deadline", type=float, help="seconds after which no problem is begun and none is waited for"
    )
    parser.add_argument("--only", default="", help="regular expression on the problem's file name")
    parser.add_argument("--work", type=Path, help="folder to work in; kept, and resumed from")
    parser.add_argument("--json", type=Path)
    return parser


def problems(root: Path, only: str = "", levels: Sequence[int] = (1,)) -> list[Path]:
    """The files of levels whose names match, by level and number."""
    found: list[Path] = []
    folders_by_level = [[root / f"level{level}", root / "KernelBench" / f"level{level}"] for level in levels]
    for folders in [[root], *folders_by_level]:
        files = [path for folder in folders for path in folder.glob("*.py") if path.name[0].isdigit()]
        found += sorted(files, key=lambda path: int(path.name.partition("_")[0]))
    return [path for path in found if re.search(only, path.name)]


def record(path: Path, folder: Path, run: Run, *, shrink: bool = True) -> Done:
    """Import a problem into `folder`: a pack, the reference, and a `cgins.yaml`."""
    (folder / "cgins.yaml").unlink(missing_ok=True)
    given = run.arguments
    command = [
        *CGINS, "import", "kernelbench", str(path.absolute()), "--allow-code", "--out", "pack",
        "--max-mib", str(given.max_mib), "--device", given.device, "--config", "cgins.yaml",
        *(["--shrink"] if shrink else []),
    ]  # fmt: skip
    return spawn(command, folder, run, given.limit)


def recorded(folder: Path) -> Any:
    """The trace of a problem, as its manifest has it."""
    (trace,) = json.loads((folder / "pack" / "manifest.json").read_text())["traces"]
    return trace


def gate(folder: Path, run: Run, *more: str, limits: int = 3) -> Done:
    """Gate all kernels of `folder/cgins.yaml`, `limits` times the limit long at most; they are told in its report."""
    given = run.arguments
    command = [
        sys.executable, "-m", "pytest", "--cgins", "--cgins-json", REPORT, "-q", "--rootdir", ".",
        "-p", "no:cacheprovider", f"--cgins-device={given.device}", f"--cgins-timeout={given.limit}", *PLUGIN, *more,
    ]  # fmt: skip
    (folder / REPORT).unlink(missing_ok=True)
    return spawn(command, folder, run, limits * given.limit)


def spawn(command: Sequence[str], folder: Path, run: Run, limit: float) -> Done:
    """Run a command in a folder, until its limit or the run's deadline."""
    threads = str(max(1, (os.cpu_count() or 1) // run.arguments.jobs))
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": threads,
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONPATH": path,
    }
    begun, printed = time.monotonic(), folder / OUTPUT
    code: int | str
    # A file, not a pipe: what a killed command started may hold a pipe open.
    with (
        printed.open("wb") as output,
        subprocess.Popen(command, cwd=folder, env=environment, stdout=output, stderr=output) as running,
    ):
        try:
            code = running.wait(max(1.0, min(limit, run.left)))
        except subprocess.TimeoutExpired:
            code = "time limit"
            running.send_signal(signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                running.wait(INTERRUPT_S)
            running.kill()
    return Done(code, printed.read_text(errors="replace"), time.monotonic() - begun)
