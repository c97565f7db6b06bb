"""The environment of workers: that of pytest without what looks like a secret, and who may look at a process.

Code under test never gets a variable that `secrets.is_secret` knows. Names decide, so a secret with a harmless name
gets through: start pytest without it.
"""

from __future__ import annotations

import ctypes
import logging
import os
from collections.abc import Mapping
from fnmatch import fnmatchcase
from functools import cache

from pytest_cgins.core.secrets import is_secret, without_secrets

logger = logging.getLogger(__name__)

TELLING_NAMES = ("CGINS_*", "CI", "CONTINUOUS_INTEGRATION", "GITHUB_*", "GITLAB_*", "PYTEST_*", "RUNNER_*")
"""Names of variables by which a kernel could tell that it is being tested; no worker gets them either."""

WORKER_MARK = "INVOCATION_ID"
"""Variable by which the processes of one worker are found again; its value is random, and no secret. It is the one that
systemd gives each service, so that a kernel learns nothing from it."""

PASSIVE = {"OMP_WAIT_POLICY": "passive"}
"""A kernel's OpenMP and torch's are two thread pools in one process: while one works, the other must sleep. With the usual busy
waiting, calls of microseconds took milliseconds on two cores."""
_UNLESS_SET = {**PASSIVE, "TORCHINDUCTOR_COMPILE_THREADS": "1"}
"""torch.compile would start a process for each core, which imports torch, for the one or two kernels of an op."""
_PR_SET_DUMPABLE = 4


def worker_environment(mark: str, extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """The variables of a new worker: this process's without secrets and what tells of a test, `extra`, and a mark."""
    inherited = {
        name: value
        for name, value in without_secrets(os.environ).items()
        if not any(fnmatchcase(name, pattern) for pattern in TELLING_NAMES)
    }
    _tell(tuple(sorted(os.environ.keys() - inherited.keys())))
    return {**_UNLESS_SET, **inherited, **(extra or {}), WORKER_MARK: mark}


@cache
def _tell(names: tuple[str, ...]) -> None:
    """Log the names once, for those who look for a variable of theirs."""
    logger.debug("variables that no worker gets: %s", ", ".join(names) or "none")


def has_secrets() -> bool:
    """Whether this process's environment has something to hide."""
    return any(is_secret(name, value) for name, value in os.environ.items())


def shield() -> None:
    """Keep other processes of the same user from reading this one's memory, descriptors and environment.

    It ends core dumps of this process, and debuggers of the same user cannot attach; root still can.
    """
    _set_dumpable(0)


def unshield() -> None:
    """Take back what a fork has inherited of its parent's shield."""
    _set_dumpable(1)


def _set_dumpable(value: int) -> None:
    ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, value, 0, 0, 0)
