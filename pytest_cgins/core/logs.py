"""Diagnostic messages: which of them a level or a number of `-v` lets through, and how they read.

The loggers are `pytest_cgins.<package>.<module>`. Nothing is printed unless one of the doors opens a handler:
`pytest --cgins` (`app.session.livelog`) or `cgins` (`to_stderr`).
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

ROOT = "pytest_cgins"
BUILDS = "pytest_cgins.building"
LEVELS = ("debug", "info", "warning", "error")
DEFAULT = "warning"


def levels(option: str, verbosity: int) -> dict[str, int]:
    """Least level that is let through, by logger.

    Args:
        option: one of `LEVELS`, for all loggers.
        verbosity: pytest's: from 2 on builds are told as well, from 3 on everything is.
    """
    base = getattr(logging, option.upper())
    if verbosity >= 3:
        base = logging.DEBUG
    return {ROOT: base, BUILDS: min(base, logging.INFO) if verbosity >= 2 else base}


_above: list[Callable[[str], object]] = []


@contextmanager
def written_above(write: Callable[[str], object]) -> Iterator[None]:
    """Have all messages written by whoever keeps lines of a terminal up to date meanwhile, above these."""
    _above.append(write)
    try:
        yield
    finally:
        _above.remove(write)


class Lines(logging.Handler):
    """Passes each message that its level lets through to a function, as one string."""

    def __init__(self, write: Callable[[str], object], wanted: Mapping[str, int]) -> None:
        super().__init__()
        self._write = write
        self._wanted = dict(wanted)
        self._before: dict[str, int] = {}

    def open(self) -> None:
        """Hang the handler in, and lower the loggers' levels as far as it needs."""
        for name, level in self._wanted.items():
            logger = logging.getLogger(name)
            self._before[name] = logger.level
            if level < logger.getEffectiveLevel():
                logger.setLevel(level)
        logging.getLogger(ROOT).addHandler(self)

    def close(self) -> None:
        """Take it out, and leave the loggers as they were."""
        logging.getLogger(ROOT).removeHandler(self)
        for name, level in self._before.items():
            logging.getLogger(name).setLevel(level)
        self._before = {}
        super().close()

    def emit(self, record: logging.LogRecord) -> None:
        """Write one message; trouble with that must not end what it tells of."""
        name = max((one for one in self._wanted if f"{record.name}.".startswith(f"{one}.")), key=len)
        if record.levelno < self._wanted[name]:
            return
        try:
            (_above[-1] if _above else self._write)(text(record))
        except Exception:  # noqa: BLE001
            self.handleError(record)


def text(record: logging.LogRecord) -> str:
    """`cgins.building.build: MESSAGE`, with the level from `warning` on; of the package's own logger only `cgins: MESSAGE`."""
    if record.name == ROOT:
        return f"cgins: {record.getMessage()}"
    level = f"{record.levelname.lower()}: " if record.levelno >= logging.WARNING else ""
    return f"{record.name.removeprefix('pytest_')}: {level}{record.getMessage()}"


def add_option(parser: argparse.ArgumentParser) -> None:
    """Add `--log-level` to the `cgins` parser."""
    parser.add_argument(
        "--log-level", choices=LEVELS, default=DEFAULT, help="messages to stderr (default: %(default)s)"
    )


def to_stderr(arguments: argparse.Namespace) -> Lines:
    """Print messages to stderr, as the parsed `--log-level` and a subcommand's `-v` ask; close it at the end."""
    verbosity = getattr(arguments, "verbose", 0)
    # Of the subcommands with -v none has cases, so that one is enough for what builds say.
    handler = Lines(_print, levels(arguments.log_level, verbosity + 1 if verbosity else 0))
    handler.open()
    return handler


def _print(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
