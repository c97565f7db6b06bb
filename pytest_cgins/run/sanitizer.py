"""NVIDIA's compute-sanitizer around a worker: how it is started, and what its log says.

The format of the log is that of Compute Sanitizer 2022 to 2025: a finding begins with `========= ` and text, and goes
on with lines that are indented further.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

PROGRAM = "compute-sanitizer"
MOST_LOGGED = 100
"""Reports that a process may make; then the tool falls silent, which looks like a kernel without findings."""
_MARK = "========="
_LOCATION = re.compile(
    r"\bat (?P<function>.+?)(?:\+0x[0-9a-f]+)?(?: in (?P<file>[^\s].*?):(?P<line>\d+))?(?: \[|$)"
)
# What is no finding about a kernel: frames of the log, and errors that calls of the CUDA API returned, which torch
# asks for on purpose.
_FRAMES = ("COMPUTE-SANITIZER", "ERROR SUMMARY", "RACECHECK SUMMARY", "LEAK SUMMARY", "Program hit", "Target application",
           "This tool is deprecated", "No CUDA")  # fmt: skip
_BROKEN = (
    "Internal Sanitizer Error",
    "Error: No attachable process",
    "Device not supported",
    "Target application terminated",
)
# Functions of libraries that run beside the kernel under test in the same process.
_FOREIGN = ("at::", "c10::", "cub::", "cudnn", "cublas", "cutlass::Kernel<at", "thrust::")


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One report of compute-sanitizer."""

    what: str
    """The report's first line: `Invalid __global__ write of size 4 bytes`."""
    function: str
    """Device function, demangled; "" if it says none."""
    place: str
    """`gelu.cu:12`; "" without line information."""
    details: tuple[str, ...]
    """The lines below, without those of the host's stack."""

    @property
    def is_foreign(self) -> bool:
        """Whether it is about a function of torch or of a library that torch calls."""
        name = self.function.removeprefix("void ").lstrip()
        return name.startswith(_FOREIGN)

    def text(self) -> str:
        """One line for a person."""
        where = " in ".join(part for part in (self.function, self.place) if part)
        return f"{self.what} at {where}" if where else self.what


def find() -> str:
    """Path of the program, "" if there is none."""
    found = shutil.which(PROGRAM)
    if found:
        return found
    for home in (os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda"):
        for part in ("bin", "compute-sanitizer"):
            candidate = Path(home or "/nonexistent") / part / PROGRAM
            if candidate.is_file() and os.access(candidate, os.X_OK):
                return str(candidate)
    return ""


def around(program: str, tool: str, log: Path) -> Callable[[Sequence[str]], list[str]]:
    """What puts a tool of the sanitizer around a worker's command; `%p` in the name of the log stands for the process's id."""
    options = ["--tool", tool, "--log-file", str(log), "--target-processes", "application-only"]
    options += ["--print-limit", str(MOST_LOGGED), "--launch-timeout", "0"]
    if tool == "memcheck":
        # What torch asks the driver for and is refused is no error of the kernel.
        options += ["--report-api-errors", "no"]
    return lambda command: [program, *options, *command]


def parse(text: str) -> tuple[Finding, ...]:
    """The findings of a log, in its order; those of torch's own kernels are left out."""
    return tuple(finding for finding in map(_finding, _blocks(text)) if not finding.is_foreign)


def logged(text: str) -> int:
    """How many reports a log has, those of torch's own kernels included."""
    return sum(1 for _ in _blocks(text))


def trouble(text: str) -> str:
    """Why the sanitizer could not do its work, as its log says; "" if it could."""
    lines = [line.removeprefix(_MARK).strip() for line in text.splitlines() if line.startswith(_MARK)]
    return next((line for line in lines if line.startswith(_BROKEN)), "")


def _blocks(text: str) -> Iterator[list[str]]:
    """Head and indented lines of each finding."""
    block: list[str] = []
    for line in text.splitlines():
        if not line.startswith(_MARK):
            continue
        rest = line[len(_MARK) :]
        indented = rest.startswith("  ")
        if not indented:
            if block:
                yield block
            head = rest.strip()
            block = [head] if head and not head.startswith((*_FRAMES, *_BROKEN)) else []
        elif block:
            block.append(rest.strip())
    if block:
        yield block


def _finding(block: list[str]) -> Finding:
    head, *rest = block
    details = tuple(line for line in rest if not line.startswith(("Host Frame", "Saved host backtrace")))
    # A race's head has the first of its two places itself.
    found = next((match for line in (head, *details) if (match := _LOCATION.search(line))), None)
    place = f"{found['file']}:{found['line']}" if found and found["file"] else ""
    what = head[: found.start()].rstrip() if found and found.string is head else head
    return Finding(what=what, function=found["function"] if found else "", place=place, details=details)
