"""The formats that a report is shown in, each from the same `SessionReport`. Imports none before it is wanted."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_cgins.core.session_report import SessionReport

Render = Callable[["SessionReport"], str]


def _terminal(report: SessionReport) -> str:
    from pytest_cgins.report import terminal

    columns = shutil.get_terminal_size(fallback=(100, 24)).columns
    return terminal.render(report, width=columns, colour=False, verbosity=1)


def _by(module: str, function: str = "render") -> Render:
    """A function of a module that is imported when it is called."""

    def render(report: SessionReport) -> str:
        text: str = getattr(import_module(f"pytest_cgins.report.{module}"), function)(report)
        return text

    return render


FORMATS: Mapping[str, Render] = {
    "terminal": _terminal,
    "markdown": _by("markdown"),
    "comment": _by("pull_request_comment", "comment"),
    "pull-request": _by("pull_request_comment", "pull_request"),
    "html": _by("html.page"),
    "junit": _by("junit"),
    "json": _by("document", "text_of"),
}
"""By the name that `cgins report --format` takes."""
