"""What becomes of a kernel whose builder is killed: hangs, corrupt loads, builds.

    python tests/benchmarks/build_killed.py [--moments N] [--only cpp|cuda] [--seed S] [--json PATH]

For each launcher, C++ and CUDA, N times: a process begins to build it and is killed (SIGKILL) at a moment drawn
by lot over the length of a build; by turns the process alone and the process with all its offspring. At once four
others build the same kernel together, in one cache for all moments. Counted are processes that do not come back
(hangs), libraries that cannot be loaded or answer wrongly (corrupt loads), builds a kernel, the killed builder's own
included, compilers that outlive their builder by more than a second, and what is left in the folder of work after one
more build, which clears it. Exit code 1 unless all hangs, corrupt loads, survivors and leftovers are 0 and each kernel was built exactly once.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import platform
import random
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any

BUILDERS = 4
HANG_S = 120.0
MARK = "CGINS_BUILD_KILLED"
SOURCE = """// cgins: answer(Tensor input) -> Tensor
#include <cgins.h>
extern "C" int answer(const DLTensor* input, DLTensor*, cgins_stream) { return %d; }
"""
KERNEL = "__global__ void fill(float* out, int n) { if (threadIdx.x < n) out[threadIdx.x] = 1.0f; }\n"
SUFFIX = {"cpp": "cpp", "cuda": "cu"}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--moments", type=int, default=50, help="for each launcher (default: %(default)s)")
    parser.add_argument("--only", choices=tuple(SUFFIX))
    parser.add_argument("--seed", type=int, default=20)
    parser.add_argument("--json", type=Path, help="where to write the figures")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        return serve(Path(arguments.serve))
    kinds = [arguments.only] if arguments.only else [kind for kind in SUFFIX if kind == "cpp" or has_nvcc()]
    lot = random.Random(arguments.seed)
    with tempfile.TemporaryDirectory() as folder:
        rows = {kind: torture(Path(folder) / kind, kind, arguments.moments, lot) for kind in kinds}
    environment = {
        "cores": os.cpu_count(),
        "machine": platform.machine(),
        "python": platform.python_version(),
        "filelock": version("filelock"),
        "kernel": platform.release(),
        "nvcc": has_nvcc(),
    }
    columns = ("moments", "hangs", "corrupt_loads", "built_once", "survivors", "leftovers", "finished_before")
    print(f"{'launcher':10}" + "".join(f"{column:>17}" for column in columns))
    for kind, row in rows.items():
        print(f"{kind:10}" + "".join(f"{row[column]:>17}" for column in columns))
    if arguments.json:
        document = {"seed": arguments.seed, "launchers": rows, "environment": environment}
        arguments.json.write_text(json.dumps(document, indent=2) + "\n")
    good = all(
        row["built_once"] == row["moments"]
        and not any(row[name] for name in ("hangs", "corrupt_loads", "survivors", "leftovers"))
        for row in rows.values()
    )
    return 0 if good else 1


def has_nvcc() -> bool:
    return shutil.which("nvcc") is not None


def torture(folder: Path, kind: str, moments: int, lot: random.Random) -> dict[str, Any]:
    """Kill a builder at so many moments, and count what follows."""
    folder.mkdir()
    length_s = length_of_a_build(folder, kind)
    others = [start(folder) for _ in range(BUILDERS)]
    row: dict[str, Any] = dict.fromkeys(
        ("hangs", "corrupt_loads", "built_once", "survivors", "finished_before"), 0
    )
    details = []
    for moment in range(1, moments + 1):
        after_s = lot.uniform(0.0, length_s)
        whole = moment % 2 == 0
        write(folder, kind, moment)
        survivors = kill_a_builder(folder, kind, moment, after_s, whole=whole)
        for other in others:
            send(other, f"{kind} {moment}")
        answers = [receive(other) for other in others]
        others = [
            start(folder) if answer is None else other for other, answer in zip(others, answers, strict=True)
        ]
        given = [answer for answer in answers if answer is not None]
        finished = all(answer["cached"] for answer in given)
        builds = sum(not answer["cached"] for answer in given)
        row["hangs"] += len(answers) - len(given)
        row["corrupt_loads"] += sum(answer["answer"] != moment for answer in given)
        row["built_once"] += builds == 1 or (finished and builds == 0)
        row["finished_before"] += finished
        row["survivors"] += survivors
        details.append({
            "killed_after_s": after_s, "offspring_killed": whole, "builds_of_the_four": builds,
            "survivors": survivors, "errors": [answer["error"] for answer in given if answer["error"]],
        })  # fmt: skip
    write(folder, kind, moments + 1)
    send(others[0], f"{kind} {moments + 1}")
    receive(others[0])
    for other in others:
        other.communicate()
    left = sorted(path.name for path in (folder / "cache" / "work").iterdir())
    return {
        **row, "moments": moments, "leftovers": len(left), "left": left, "build_s": length_s, "details": details,
    }  # fmt: skip


def length_of_a_build(folder: Path, kind: str) -> float:
    """Wall time from a builder's order to its answer, the second of two, as the moments are drawn over it."""
    length_s = 0.0
    for moment in (10**6, 10**6 + 1):
        write(folder, kind, moment)
        builder = start(folder)
        began = time.perf_counter()
        send(builder, f"{kind} {moment}")
        answer = receive(builder)
        length_s = time.perf_counter() - began
        builder.communicate()
        if answer is None or answer["answer"] != moment:
            raise SystemExit(f"{kind}: cannot be built at all: {answer}")
    return length_s


def kill_a_builder(folder: Path, kind: str, moment: int, after_s: float, *, whole: bool) -> int:
    """Begin a build and kill it.

    Returns:
        How many of its compilers live a second later.
    """
    mark = f"{os.getpid()}-{kind}-{moment}"
    builder = start(folder, mark)
    send(builder, f"{kind} {moment}")
    time.sleep(after_s)
    for pid in [builder.pid, *(marked(mark) if whole else [])]:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    builder.wait()
    deadline = time.monotonic() + 1.0
    while (left := marked(mark)) and time.monotonic() < deadline:
        time.sleep(0.005)
    return len(left)


def marked(mark: str) -> list[int]:
    """Living processes that have the mark in their environment."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if f"{MARK}={mark}\0".encode() in (place / "environ").read_bytes():
                found.append(int(place.name))
    return found


def write(folder: Path, kind: str, moment: int) -> None:
    text = SOURCE % moment + (KERNEL if kind == "cuda" else "")
    (folder / f"answer{moment}.{SUFFIX[kind]}").write_text(text)


def start(folder: Path, mark: str = "") -> subprocess.Popen[str]:
    """A process that builds what it is told to, ready to begin."""
    process = subprocess.Popen(
        [sys.executable, __file__, "--serve", str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env={**os.environ, MARK: mark},
    )  # fmt: skip
    assert receive(process) is not None
    return process


def send(process: subprocess.Popen[str], line: str) -> None:
    assert process.stdin is not None
    process.stdin.write(f"{line}\n")
    process.stdin.flush()


def receive(process: subprocess.Popen[str]) -> dict[str, Any] | None:
    """The next answer of a process; None if it hangs, which ends it."""
    assert process.stdout is not None
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        if not selector.select(HANG_S):
            process.kill()
            process.wait()
            return None
    answer: dict[str, Any] = json.loads(process.stdout.readline() or "null") or {
        "cached": False, "answer": None, "error": "died",
    }  # fmt: skip
    return answer


def serve(folder: Path) -> int:
    """Build, load and call what standard input names, line by line."""
    from pytest_cgins.building.build import build
    from pytest_cgins.core.case import KernelSource
    from pytest_cgins.core.errors import CginsError

    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        kind, moment = line.split()
        source = KernelSource(
            kernel="answer", implementation=kind, op="torch.neg", device="cpu" if kind == "cpp" else "cuda",
            contract="launcher", entry="answer", schema="answer(Tensor input) -> Tensor",
            files=(str(folder / f"answer{moment}.{SUFFIX[kind]}"),), archs=() if kind == "cpp" else ("sm_80",),
        )  # fmt: skip
        cached, answer, error = False, None, ""
        try:
            compiled = build(source, cache=folder / "cache", timeout_s=HANG_S / 2)
            cached = compiled.cached
            answer = ctypes.CDLL(compiled.library).answer(None, None, None)
        except (CginsError, OSError, AttributeError) as caught:
            error = str(caught)
        print(json.dumps({"cached": cached, "answer": answer, "error": error}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
