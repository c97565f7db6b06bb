"""The session as one JSON document, `--cgins-json`: its published schema, and reading files that nobody vouches for."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import Any

from pytest_cgins.core import atomic, documents
from pytest_cgins.core.errors import ConfigError
from pytest_cgins.core.session_report import (
    REPORT_VERSION,
    Compilation,
    Environment,
    Evaluation,
    SessionReport,
)
from pytest_cgins.core.text import counted


def session_report(
    evaluations: Iterable[Evaluation],
    environments: Iterable[Environment],
    *,
    version: str,
    seed: int,
    started_at: datetime,
    seconds: float,
    exit_status: int,
    compilations: Iterable[Compilation] = (),
    **others: Any,
) -> SessionReport:
    """Put together what a session found; `version` is that of pytest-cgins, `started_at` is in UTC; `others` as they are."""
    return SessionReport(
        version=REPORT_VERSION,
        cgins=version,
        seed=seed,
        started_at=started_at.isoformat(timespec="seconds"),
        seconds=seconds,
        exit_status=exit_status,
        environments=tuple(environments),
        evaluations=tuple(sorted(evaluations, key=lambda evaluation: evaluation.label)),
        compilations=tuple(sorted(compilations, key=lambda compilation: compilation.name)),
        **others,
    )


def write(report: SessionReport, path: Path) -> None:
    """Write the report as JSON; see `atomic.write_text`."""
    atomic.write_text(path, text_of(report))


def text_of(report: SessionReport) -> str:
    """The JSON document."""
    return documents.dump(report, indent=1) + "\n"


REPORT_LIMIT_NBYTES = 1 << 28
"""A report of ten thousand cases has some 50 MB."""
_REMEDY = "give it the file that --cgins-json wrote, by the same version of pytest-cgins"


def load(path: Path) -> SessionReport:
    """Read and validate.

    Raises:
        ConfigError: the file cannot be read, is not a report, or one of another version.
    """
    try:
        nbytes = path.stat().st_size
        if nbytes > REPORT_LIMIT_NBYTES:
            raise ConfigError(
                f"{path}: {counted(nbytes, 'byte is', 'bytes are')} not a report of pytest-cgins",
                remedy=_REMEDY,
            )
        report = documents.load(SessionReport, path.read_bytes())
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}", remedy=_REMEDY) from None
    except ValueError as error:
        _refuse_other_versions(path)
        raise ConfigError(f"{path} is not a report: {documents.complaint(error)}", remedy=_REMEDY) from None
    _refuse_other_versions(path)
    return report


def _refuse_other_versions(path: Path) -> None:
    """Their fields mean other things, if they can be read at all."""
    try:
        document = json.loads(path.read_bytes())
    except (ValueError, RecursionError):
        return
    version = document.get("version") if isinstance(document, dict) else None
    if isinstance(version, int) and version != REPORT_VERSION:
        raise ConfigError(
            f"{path}: a report of version {version}; this one reads {REPORT_VERSION}", remedy=_REMEDY
        )
