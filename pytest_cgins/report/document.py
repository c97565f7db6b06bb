"""The session as one JSON document, `--cgins-json`, and its published schema."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import Any

from pytest_cgins.core import atomic, documents
from pytest_cgins.core.model import REPORT_VERSION, Compilation, Environment, Evaluation, SessionReport


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


def report_schema() -> dict[str, Any]:
    """JSON Schema of the document, as published in `pytest_cgins/schemas/report-2.json`."""
    return documents.published_schema(SessionReport)
