"""The formats that a report is shown in, each from the same `SessionReport`."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping

from pytest_cgins.model import SessionReport

Render = Callable[[SessionReport], str]


def _terminal(report: SessionReport) -> str:
    from pytest_cgins.report import escape, terminal

    columns = shutil.get_terminal_size(fallback=(100, 24)).columns
    text = terminal.render(report, width=columns, colour=False, verbosity=1)
    # The file may come from anybody, and a terminal obeys what it is sent.
    return "\n".join(escape.visible(line) for line in text.split("\n"))


def _markdown(report: SessionReport) -> str:
    from pytest_cgins.report import markdown

    return markdown.render(report)


def _comment(report: SessionReport) -> str:
    from pytest_cgins.report import comment

    return comment.comment(report)


def _pull_request(report: SessionReport) -> str:
    from pytest_cgins.report import comment

    return comment.pull_request(report)


def _html(report: SessionReport) -> str:
    from pytest_cgins.report.html import page

    return page.render(report)


def _junit(report: SessionReport) -> str:
    from pytest_cgins.report import junit

    return junit.render(report)


def _json(report: SessionReport) -> str:
    from pytest_cgins.report import document

    return document.text_of(report)


FORMATS: Mapping[str, Render] = {
    "terminal": _terminal,
    "markdown": _markdown,
    "comment": _comment,
    "pull-request": _pull_request,
    "html": _html,
    "junit": _junit,
    "json": _json,
}
"""By the name that `cgins report --format` takes."""
