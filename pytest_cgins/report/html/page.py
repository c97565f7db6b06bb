"""A session's report as one HTML file that loads nothing: its styles and script are in it.

The page forbids itself all else by a content security policy, with the digests of both. It holds no data for the script:
all that is told is HTML, and the script sorts, filters and unfolds it.
"""

from __future__ import annotations

import base64
import hashlib
import shlex
from collections.abc import Iterable, Sequence
from functools import cache
from itertools import groupby
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from pytest_cgins.core.session_report import SessionReport
from pytest_cgins.core.text import counted
from pytest_cgins.report import compiled, summary, tables
from pytest_cgins.report.html import details, listing
from pytest_cgins.report.html.markup import code, element, escaped, lines
from pytest_cgins.report.html.plots import history, op_times, paired, rooflines
from pytest_cgins.report.notices import Notice
from pytest_cgins.report.presentation import environment, present
from pytest_cgins.report.trend import Trend

FOLDER = Path(__file__).parent


def render(report: SessionReport, *, trends: Iterable[Trend] = ()) -> str:
    """The page of a report, none of whose texts is trusted; trends of its cases are drawn in their details."""
    presented = present(report)
    style, script = _part("style.css"), _part("report.js")
    listings = (
        listing.cases(presented, {(trend.config, trend.case): trend for trend in trends}),
        listing.builds(presented),
    )
    not_run = tables.reasons("Probes not run", "cases", summary.probes_not_run(report.evaluations))
    return _environment().get_template("page.html").render(
        presented=presented,
        ended=_ended(report),
        session=_session(report),
        listings=[one for one in listings if one.rows],
        rooflines=rooflines(report.evaluations, summary.names(report)),
        remarks=[*presented.remarks, *([not_run] if not_run.rows else [])],
        style=Markup(style),  # noqa: S704 (our own file)
        style_digest=_digest(style),
        script=Markup(script),  # noqa: S704
        script_digest=_digest(script),
    )  # fmt: skip


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(FOLDER),
        autoescape=True,
        finalize=escaped,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "code": code, "lines": lines, "history_plot": history, "paired_plot": paired, "op_times_plot": op_times, "choices": listing.choices,
        "sort_key": listing.sort_key, "by_title": _by_title, "by_cause": _by_cause, "counted": _counted, **details.FILTERS,
    }  # fmt: skip
    return environment


def _by_title(notices: Iterable[Notice]) -> list[tuple[str, list[Notice]]]:
    """Those that stand together and have one heading, which many implementations may have."""
    return [(title, list(found)) for title, found in groupby(notices, key=lambda notice: notice.title)]


def _by_cause(table: tables.Table) -> list[tuple[str, list[Sequence[tables.Cell]]]]:
    """Reasons by what stands before their first colon: the probe, or what was not met."""
    groups: dict[str, list[Sequence[tables.Cell]]] = {}
    for row in table.rows:
        groups.setdefault(row[1].text.partition(": ")[0], []).append(row)
    return list(groups.items())


def _counted(number: int, things: str) -> str:
    return counted(number, things.removesuffix("s"), grouped=True)


def _ended(report: SessionReport) -> str:
    ended = f"No case failed, and the run ended with exit code {report.exit_status}."
    return ended if report.exit_status else "Nothing failed."


def _session(report: SessionReport) -> list[tuple[str, str]]:
    """What it was measured on, and how to see it again."""
    told: list[tuple[str, str]] = [("Exit code", str(report.exit_status))]
    told += [("Device", environment(one)) for one in report.environments]
    compared = ", ".join(commit[:10] for commit in compiled.revisions(report.compilations))
    told.append(("Compared with", report.base_revision or compared or _bases(report) or "no base revision"))
    options = ["--cgins-strict"] * report.strict
    commit = report.base_revision.partition(" ")[0]
    options += [f"--cgins-baseline={commit}"] * bool(commit)
    command = shlex.join(["pytest", "--cgins", f"--cgins-seed={report.seed}", *options])
    if not report.compilations and len(summary.seeds(report)) == 1:
        told.append(("All again", element("code", command, class_="command")))
    return [
        *told,
        ("Started", element("time", report.started_at, datetime=report.started_at)),
        ("Took", f"{report.seconds:.1f} s"),
        ("pytest-cgins", report.cgins),
    ]


def _bases(report: SessionReport) -> str:
    """Commits that cases were timed against."""
    measured = (
        evaluation.measurement for evaluation in report.evaluations if evaluation.measurement is not None
    )
    commits = dict.fromkeys(one.base_revision[:10] for one in measured if one.base_revision)
    return ", ".join(commits)


@cache
def _part(name: str) -> str:
    return (FOLDER / name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    """As a content security policy names what may run."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
