"""Reports of sessions."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timezone
from typing import Any

from pytest_cgins.core.session_report import Environment, Evaluation, SessionReport
from pytest_cgins.report import document

CPU = Environment(device="cpu", device_name="a CPU", python="3.11", torch="2.13")
STARTED = datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone.utc)


def report_of(
    *evaluations: Evaluation, environments: Iterable[Environment] = (CPU,), **settings: Any
) -> SessionReport:
    """Of a failed session with these; `settings` are those of `document.session_report`."""
    session = {"version": "1", "seed": 7, "started_at": STARTED, "seconds": 1.5, "exit_status": 1}
    return document.session_report(evaluations, environments, **(session | settings))
