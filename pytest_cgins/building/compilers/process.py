"""Compilers as processes: stages of commands, each in a session of its own, ended at a deadline."""

from __future__ import annotations

import logging
import os
import shlex
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from pytest_cgins.building.compilers.running import current
from pytest_cgins.core.secrets import without_secrets

logger = logging.getLogger(__name__)
LOG_LIMIT_NBYTES = 1 << 20
ASK_LIMIT_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a compilation went."""

    status: int | None
    """Exit status, 0 for success; None if it was ended at its deadline."""
    log: str
    """What the compilers printed, bounded."""
    command: str
    """The commands as a person would type them."""


def run_stages(
    stages: Sequence[Sequence[Sequence[str]]],
    folder: Path,
    name: str,
    deadline: float,
    environment: Mapping[str, str] | None = None,
) -> Outcome:
    """Run stages of commands in `folder`: side by side within a stage, up to the first stage that fails.

    Args:
        stages: commands; those of one stage do not need each other.
        folder: working folder, the one that fenced commands may write to.
        name: what leads log messages.
        deadline: time of `time.monotonic()` at which everything is killed.
        environment: added to this process's environment, of which secrets are left out.
    """
    # A source can include /proc/self/environ.
    variables = {**without_secrets(os.environ), "LC_ALL": "C", **(environment or {})}
    log = b""
    status: int | None = 0
    begun: list[Sequence[str]] = []
    for stage in stages:
        begun += stage
        status, printed = _run_stage(stage, folder, name, deadline, variables)
        log += printed
        if status != 0:
            break
    return Outcome(
        status=status,
        log=log[:LOG_LIMIT_NBYTES].decode(errors="replace"),
        command="\n".join(shlex.join(command) for command in begun),
    )


def write_files(folder: Path, files: Mapping[str, str]) -> None:
    """Write generated files below a folder, by name."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def ask(command: Sequence[str], *, folder: Path | None = None, limit_s: float = ASK_LIMIT_S) -> Outcome:
    """Run a short command of a compiler where its compilations run: in the sandbox, if they do, and within its limits.

    Args:
        command: such as `g++ --version`.
        folder: working folder, by default an empty one.
        limit_s: until it is killed.

    Raises:
        OSError: there is no such command.
        InfrastructureError: the run ended, or there is no sandbox.
    """
    with current().resumed(), tempfile.TemporaryDirectory() as empty:
        deadline = time.monotonic() + limit_s
        return run_stages([[command]], folder or Path(empty), Path(command[0]).name, deadline)


def _run_stage(
    commands: Sequence[Sequence[str]], folder: Path, name: str, deadline: float, variables: dict[str, str]
) -> tuple[int | None, bytes]:
    started = time.monotonic()
    running: list[subprocess.Popen[bytes]] = []
    compilers = current()
    late = False
    with ExitStack() as opened:
        # Without names: a command that writes to the folder could put a link to another file in their place.
        logs = [opened.enter_context(tempfile.TemporaryFile(dir=folder)) for _ in commands]
        try:
            for command, log in zip(commands, logs, strict=True):
                running.append(compilers.start(command, folder=folder, environment=variables, log=log))
            for process, command in zip(running, commands, strict=True):
                late = not compilers.wait(process, deadline)
                if late:
                    break
                compilers.require_open()
                ended = f"exit status {process.returncode}" if process.returncode else "done"
                seconds = time.monotonic() - started
                logger.info("%s: %s in %.2f s: %s", name, ended, seconds, shlex.join(command))
        finally:
            # The deadline, or Ctrl-C: with all that they started, since nvcc and ninja leave compilers behind.
            for process in running:
                compilers.end(process)
        printed = b"".join(os.pread(log.fileno(), LOG_LIMIT_NBYTES, 0) for log in logs)
    if late:
        logger.info("%s: killed in %.2f s: %s", name, time.monotonic() - started, shlex.join(commands[0]))
        return None, printed
    return next((process.returncode for process in running if process.returncode), 0), printed
