"""`cgins report` and `cgins summary`: a JSON report in another format, or as counts for a script."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from pytest_cgins.app.commands.options import Subparsers, command, option
from pytest_cgins.core import atomic
from pytest_cgins.core.errors import ConfigError
from pytest_cgins.report.formats import FORMATS


def add_parsers(subparsers: Subparsers) -> None:
    """Add the subcommands to the `cgins` parser."""
    report = command(
        subparsers,
        "report  show a report of --cgins-json in another format",
        run_report,
        "Show a report that `pytest --cgins --cgins-json=FILE` or `cgins merge` wrote. Texts from the "
        "repository under test are escaped.",
    )
    option(report, "file FILE  the JSON file", type=Path)
    option(
        report,
        "--format  markdown: a job summary; comment, pull-request: within GitHub's limit of these; html: one file with "
        "plots; junit: XML for viewers of tests; json: checked and complete (default: %(default)s)",
        choices=tuple(FORMATS),
        default="terminal",
    )
    option(report, "--history HISTORY  with html: draw what --cgins-history wrote of its cases", type=Path)
    option(report, "--out PATH  write it there, not to the standard output", type=Path)
    summary = command(
        subparsers,
        "summary  print a report of --cgins-json as markdown",
        run_summary,
        "Print a report that `pytest --cgins --cgins-json=REPORT` wrote, as markdown for a job "
        "summary, as `cgins report --format=markdown` does. Texts from the repository under test are escaped.",
    )
    option(summary, "report REPORT  the JSON file", type=Path)
    option(
        summary,
        "--format  counts: how many cases ended how, `name=number` a line (default: %(default)s)",
        choices=("markdown", "counts"),
        default="markdown",
    )
    option(summary, "--max-bytes N  limit of the markdown (default: GitHub's, 1 MiB a step)", type=int)


def run_report(arguments: argparse.Namespace) -> int:
    """Print or write the report; a failed gate is no failure of this.

    Raises:
        ConfigError: the file cannot be read or is not a report, or the format draws no history.
        HistoryError: the history cannot be read, or is damaged.
        OSError: the other file cannot be written.
    """
    from pytest_cgins.report import reading

    if arguments.history is None:
        text = FORMATS[arguments.format](reading.load(arguments.file))
    elif arguments.format == "html":
        text = _page_with_history(arguments.file, arguments.history)
    else:
        raise ConfigError(
            f"--history: the format {arguments.format} has no plots", remedy="use --format=html"
        )
    if arguments.out is None:
        _print(text)
    else:
        atomic.write_text(arguments.out, text)
    return 0


def run_summary(arguments: argparse.Namespace) -> int:
    """Print the markdown or the counts.

    Raises:
        ConfigError: the file cannot be read or is not a report, or the limit is too small.
    """
    from pytest_cgins.report import markdown, reading
    from pytest_cgins.report.counts import counts

    report = reading.load(arguments.report)
    if arguments.format == "counts":
        sys.stdout.write(counts(report).lines())
        return 0
    limit = markdown.STEP_SUMMARY_LIMIT_NBYTES if arguments.max_bytes is None else arguments.max_bytes
    try:
        text = markdown.render(report, limit_nbytes=limit)
    except ValueError as error:
        raise ConfigError(f"--max-bytes: {error}", remedy="give it a higher limit") from None
    _print(text)
    return 0


def _page_with_history(file: Path, path: Path) -> str:
    from pytest_cgins.report import history_file, reading, trend
    from pytest_cgins.report.html import page

    history = history_file.read(path)
    if history.note:
        print(f"cgins: {path}: {history.note}", file=sys.stderr)
    return page.render(reading.load(file), trends=trend.trends(history.entries))


def _print(text: str) -> None:
    """Escaped text is not ASCII, and a runner's locale may be C."""
    sys.stdout.flush()
    sys.stdout.buffer.write(text.encode())
