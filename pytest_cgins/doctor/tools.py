"""Running other programs: bounded in time and output, without secrets in their environment."""

from __future__ import annotations

import json
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_cgins.core.secrets import without_secrets
from pytest_cgins.doctor import parse
from pytest_cgins.doctor.findings import Finding

LIMIT_S = 20.0
"""For a tool that prints its version, on a cold network file system."""
OUTPUT_NBYTES = 256 * 1024
PROBES = Path(__file__).parent / "probes"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramResult:
    """How a program went."""

    status: int | None
    """Exit status; None if it could not be started or was killed at its limit."""
    output: str
    """The start of what it printed, stdout and stderr together."""
    trouble: str = ""
    """Why there is no status, one line."""

    @property
    def last_line(self) -> str:
        """The last line that is not empty, cut to a line's length; `trouble` if there is none."""
        lines = [line.strip() for line in self.output.splitlines() if line.strip()]
        return self.trouble or (lines[-1][:200] if lines else f"exit status {self.status}")


def run(
    command: Sequence[str], *, limit_s: float = LIMIT_S, env: dict[str, str] | None = None
) -> ProgramResult:
    """Run a program; whatever it does, this returns, and after about `limit_s` seconds at the latest."""
    try:
        process = subprocess.Popen(
            [*command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**without_secrets(os.environ), "LC_ALL": "C", **(env or {})},
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        return ProgramResult(status=None, output="", trouble=f"{command[0]} cannot be run: {error}")
    assert process.stdout is not None
    try:
        output, trouble = _read(process.stdout.fileno(), time.monotonic() + limit_s)
        if not trouble:
            with suppress(subprocess.TimeoutExpired):
                process.wait(timeout=1.0)
        status = process.poll()
    finally:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout=5.0)
        process.stdout.close()
    if trouble or status is None:
        trouble = f"{Path(command[0]).name} {trouble or 'did not end'} and was killed"
    return ProgramResult(status=None if trouble else status, output=output, trouble=trouble)


def _read(fd: int, deadline: float) -> tuple[str, str]:
    """What comes until the end of the stream, and why it was not waited for."""
    data = bytearray()
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    trouble = ""
    while True:
        remaining_s = deadline - time.monotonic()
        if remaining_s <= 0:
            trouble = "did not end in time"
        elif len(data) >= OUTPUT_NBYTES:
            trouble = f"printed more than {OUTPUT_NBYTES >> 10} KiB"
        elif not poll.poll(1000 * remaining_s):
            continue
        else:
            part = os.read(fd, 65536)
            data += part
            if part:
                continue
        return data.decode(errors="replace"), trouble


def probe(name: str, *, limit_s: float, env: dict[str, str] | None = None) -> tuple[Any, ProgramResult]:
    """Run one of our probe scripts in a process of its own.

    Returns:
        The JSON object of its last line that is one, None if there is none, and how it went.
    """
    ran = run([sys.executable, str(PROBES / f"{name}.py")], limit_s=limit_s, env=env)
    for line in reversed(ran.output.splitlines()):
        with suppress(ValueError, RecursionError):
            answer = json.loads(line)
            if isinstance(answer, dict):
                return answer, ran
    return None, ran


def find(name: str, folders: Iterable[Path] = ()) -> str:
    """Path of a program on PATH, else in the first of the folders that has it; "" if none has."""
    on_path = shutil.which(name)
    if on_path:
        return on_path
    return next((str(folder / name) for folder in folders if os.access(folder / name, os.X_OK)), "")


def program(
    group: str,
    name: str,
    disables: str,
    remedy: str,
    folders: Iterable[Path] = (),
    *,
    read: Callable[[str], parse.Version] = parse.version,
) -> Finding:
    """What there is of a program, which is looked for as by `find`, and the version that `--version` prints.

    `read` finds it in the line that has it, or in all that is printed.
    """
    where = find(name, folders)
    ran = run([where, "--version"]) if where else None
    version = read(_numbered(ran.output)) if ran is not None and ran.status == 0 else ()
    return Finding(
        group=group,
        name=name,
        state="ok" if version else "unknown" if where else "missing",
        version=parse.written(version),
        where=where,
        detail=ran.last_line if ran is not None and not version else "",
        disables=disables,
        remedy=remedy,
    )


def _numbered(output: str) -> str:
    """The line with the version: a banner with years stands before it."""
    return next(
        (line for line in output.splitlines() if re.search(r"^\s*Version\b|\brelease\b", line)), output
    )
