"""The session as one JSON document, `--cgins-json`, and its published schema."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

from pytest_cgins import documents
from pytest_cgins.model import REPORT_VERSION, Compilation, Environment, Evaluation, SessionReport, Shard


def session_report(
    evaluations: Iterable[Evaluation],
    environments: Iterable[Environment],
    *,
    version: str,
    seed: int,
    started_at: datetime,
    seconds: float,
    exit_status: int,
    strict: bool = False,
    compilations: Iterable[Compilation] = (),
    suite_tests: int = 0,
    shard: Shard | None = None,
) -> SessionReport:
    """Put together what a session found; `version` is that of pytest-cgins, `started_at` is in UTC."""
    return SessionReport(
        version=REPORT_VERSION,
        cgins=version,
        seed=seed,
        started_at=started_at.isoformat(timespec="seconds"),
        seconds=seconds,
        exit_status=exit_status,
        environments=tuple(environments),
        evaluations=tuple(sorted(evaluations, key=lambda evaluation: evaluation.label)),
        strict=strict,
        compilations=tuple(sorted(compilations, key=lambda compilation: compilation.name)),
        suite_tests=suite_tests,
        shard=shard,
    )


def write(report: SessionReport, path: Path) -> None:
    """Write the report as JSON; see `write_text`."""
    write_text(text_of(report), path)


def text_of(report: SessionReport) -> str:
    """The JSON document."""
    return documents.dump(report, indent=1) + "\n"


def write_text(text: str, path: Path) -> None:
    """Write a report of any format. A reader sees the old file or the new one, never half of one.

    Raises:
        OSError: the folder or file cannot be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        # mkstemp makes files for their owner only; a report is for the next step of a pipeline.
        Path(name).chmod(0o666 & ~_umask())
        Path(name).replace(path)
    except BaseException:
        with suppress(OSError):
            Path(name).unlink()
        raise


def report_schema() -> dict[str, Any]:
    """JSON Schema of the document, as published in `pytest_cgins/schemas/report-2.json`."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **documents.json_schema(SessionReport),
    }


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
