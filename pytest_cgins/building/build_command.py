"""A project's own command that builds what its kernels load: `build: python setup.py build_ext --inplace`.

It runs once a run, before the digest of what it makes is taken; it decides itself what is up to date. The workers of
pytest-xdist are one run: the first has it run while the others wait, for they may have loaded what it would write anew.
"""

from __future__ import annotations

import hashlib
import logging
import os
import sys
import time
from pathlib import Path

from pytest_cgins.building.compilers.process import Outcome, run_stages
from pytest_cgins.core import locks
from pytest_cgins.core.errors import BuildError, CginsError, InfrastructureError
from pytest_cgins.core.text import counted

logger = logging.getLogger(__name__)
RUN = "PYTEST_XDIST_TESTRUNUID"
"""Variable by which the processes of one run of pytest-xdist know each other."""
SHOWN_LINES = 12
TIMEOUT_S = 600.0


class Commands:
    """The commands of one project: each runs once, whichever of its kernels name it, and what it raises is raised again.

    Args:
        root: folder of its cgins.yaml.
        cache: folder of built kernels, beside which the runs of commands are locked.
        fenced: whether what builds kernels is in the sandbox.
        timeout_s: limit of a command, and of waiting for another process that runs it.
    """

    def __init__(
        self, root: Path, cache: Path, *, fenced: bool = False, timeout_s: float = TIMEOUT_S
    ) -> None:
        self._root = root
        self._folder = cache.parent / "commands"
        self._fenced = fenced
        self._timeout_s = timeout_s
        self._ended: dict[str, CginsError | None] = {}

    def run(self, command: str, name: str) -> None:
        """Have a kernel's command run in the folder of cgins.yaml, if it has one and this run has not.

        Args:
            command: for the shell. The Python that runs this is the first in its `PATH`.
            name: of the kernel, for messages.

        Raises:
            BuildError: it failed, or did not end in time.
            InfrastructureError: another process runs it all the while, or kernels are to be built in the sandbox.
        """
        if command and command not in self._ended:
            self._ended[command] = None
            try:
                self._run(command, name)
            except CginsError as error:
                self._ended[command] = error
        if failed := self._ended.get(command):
            raise failed

    def _run(self, command: str, name: str) -> None:
        if self._fenced:
            raise InfrastructureError(
                f"{name}: its build `{command}` writes to the project, which nothing in the sandbox may",
                remedy="run the command before, and leave build out of cgins.yaml",
            )
        key = hashlib.sha256(f"{self._root}\0{command}".encode(errors="surrogateescape")).hexdigest()[:32]
        ran = self._folder / f"{key}.ran"
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            lock = locks.acquire(self._folder / f"{key}.lock", self._timeout_s, f"the build of {name}")
        except OSError as error:
            raise InfrastructureError(
                f"{self._folder} cannot be used: {error}",
                remedy="set CGINS_CACHE_DIR to a folder that is writable",
            ) from error
        if lock is None:
            raise InfrastructureError(
                f"{name}: another process has run `{command}` for {self._timeout_s:g} s",
                remedy="wait for it, and run again",
            )
        try:
            this_run = os.environ.get(RUN, "")
            if this_run and ran.is_file() and ran.read_text(encoding="utf-8") == this_run:
                return
            started = time.monotonic()
            path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
            outcome = run_stages(
                [[["/bin/sh", "-c", command]]], self._root, name, started + self._timeout_s, {"PATH": path}
            )
            logger.info("%s: `%s` took %.1f s", name, command, time.monotonic() - started)
            if outcome.status != 0:
                raise self._failed(command, name, outcome)
            ran.write_text(this_run, encoding="utf-8")
        finally:
            locks.release(lock)

    def _failed(self, command: str, name: str, outcome: Outcome) -> BuildError:
        ended = f"ended with status {outcome.status}"
        how = f"was not done after {self._timeout_s:g} s" if outcome.status is None else ended
        lines = outcome.log.rstrip().splitlines()
        if (left_out := len(lines) - SHOWN_LINES) > 0:
            lines[:left_out] = [f"… {counted(left_out, 'line')} before"]
        return BuildError(
            "\n  ".join([f"{name}: its build `{command}` {how}", *lines]),
            remedy="run the command in the folder of cgins.yaml, and correct what it tells",
            log=outcome.log,
        )
