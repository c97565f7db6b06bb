"""The formats that a report is shown in, each from the same `SessionReport`."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace

from pytest_cgins.core.model import Compilation, Evaluation, SessionReport

Render = Callable[[SessionReport], str]


def _terminal(report: SessionReport) -> str:
    from pytest_cgins.report import terminal

    columns = shutil.get_terminal_size(fallback=(100, 24)).columns
    return terminal.render(_named_on_one_line(report), width=columns, colour=False, verbosity=1)


def _named_on_one_line(report: SessionReport) -> SessionReport:
    """The report with names that have no lines: in a table these would look like lines of ours.

    A session's own names have been checked; a file may come from anybody.
    """
    from pytest_cgins.report.escape import visible

    def evaluation(one: Evaluation) -> Evaluation:
        case = replace(
            one.case,
            kernel=visible(one.case.kernel),
            implementation=visible(one.case.implementation),
            device=visible(one.case.device),
            pack=visible(one.case.pack),
            signature=visible(one.case.signature),
        )
        return replace(one, case=case, config=visible(one.config), device_name=visible(one.device_name))

    def compilation(one: Compilation) -> Compilation:
        functions = tuple(replace(found, function=visible(found.function)) for found in one.resources)
        kernel, implementation, arch = map(visible, (one.kernel, one.implementation, one.arch))
        return replace(one, kernel=kernel, implementation=implementation, arch=arch, resources=functions)

    return replace(
        report,
        evaluations=tuple(map(evaluation, report.evaluations)),
        compilations=tuple(map(compilation, report.compilations)),
        missing=tuple(map(visible, report.missing)),
        stale=tuple(map(visible, report.stale)),
    )


def _markdown(report: SessionReport) -> str:
    from pytest_cgins.report import markdown

    return markdown.render(report)


def _comment(report: SessionReport) -> str:
    from pytest_cgins.report import markdown

    return markdown.comment(report)


def _pull_request(report: SessionReport) -> str:
    from pytest_cgins.report import markdown

    return markdown.pull_request(report)


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
