"""A session's report as one HTML file that loads nothing: its styles and script are in it.

The page forbids itself all else by a content security policy, with the digests of both. It holds no data for the script:
all that is told is HTML, and the script sorts, filters and unfolds it.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from string import Template

from pytest_cgins.core.model import SessionReport
from pytest_cgins.report.counts import counts
from pytest_cgins.report.html import overview
from pytest_cgins.report.html.build_rows import builds
from pytest_cgins.report.html.case_rows import cases
from pytest_cgins.report.html.markup import Markup, escaped, join
from pytest_cgins.report.html.naming import Names
from pytest_cgins.report.html.roofline_plot import rooflines
from pytest_cgins.report.trend import Trend


def render(report: SessionReport, *, trends: Iterable[Trend] = ()) -> str:
    """The page.

    Args:
        report: as `--cgins-json` wrote it; none of its texts is trusted.
        trends: of a history; those of the report's cases are drawn in their details.
    """
    by_case = {(one.config, one.case): one for one in trends}
    style, script = _part("style.css"), _part("report.js")
    listings = [one for one in (cases(report, by_case), builds(report)) if one.rows]
    body = join(
        [
            overview.overview(report),
            *(one.table() for one in listings),
            overview.kernels(report),
            overview.plots(rooflines(report.evaluations, Names(report))),
            overview.remarks(report),
            *(one.details() for one in listings),
        ]
    )
    return Template(_part("page.html")).substitute(
        title=escaped(overview.title(counts(report))),
        target=listings[0].id if listings else "report",
        style=style,
        style_digest=_digest(style),
        script=script,
        script_digest=_digest(script),
        body=Markup(body),
    )


@cache
def _part(name: str) -> str:
    return (Path(__file__).parent / name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    """As a content security policy names what may run."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
