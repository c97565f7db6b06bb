"""`cgins report`, `summary` and `merge`: JSON reports in another format, as counts for a script, or joined."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from pytest_cgins.app.commands.options import Subparsers, command, option, say, write
from pytest_cgins.core import atomic
from pytest_cgins.core.errors import ConfigError
from pytest_cgins.core.text import counted
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
        "--format  markdown: a job summary; comment, pull-request: text within GitHub's limits; html: one file with "
        "plots; junit: XML for test viewers; json: the whole report, validated (default: %(default)s)",
        choices=tuple(FORMATS),
        default="terminal",
    )
    option(
        report,
        "--history HISTORY  with html: plot the times of its cases in this file of --cgins-history",
        type=Path,
    )
    option(report, "--out PATH  write to this file instead of standard output", type=Path)
    summary = command(
        subparsers,
        "summary  print a report as markdown",
        run_summary,
        "Print a report that `pytest --cgins --cgins-json=REPORT` wrote, for a job summary, like "
        "`cgins report --format=markdown`. Texts from the repository under test are escaped.",
    )
    option(summary, "report REPORT  the JSON file", type=Path)
    option(
        summary,
        "--format markdown|counts  counts: the number of cases per outcome, as lines of name=number (default: %(default)s)",
    )
    option(summary, "--max-bytes N  limit of the markdown (default: GitHub's, 1 MiB a step)", type=int)
    _add_merge(subparsers)


def run_report(arguments: argparse.Namespace) -> int:
    """Print or write the report; a failed gate is no failure of this.

    Raises:
        ConfigError: the file cannot be read or is not a report, or the format draws no history.
        HistoryError: the history cannot be read, or is damaged.
        OSError: the other file cannot be written.
    """
    from pytest_cgins.report import document

    if arguments.history is None:
        text = FORMATS[arguments.format](document.load(arguments.file))
    elif arguments.format == "html":
        text = _page_with_history(arguments.file, arguments.history)
    else:
        raise ConfigError(
            f"--history: the format {arguments.format} has no plots", remedy="use --format=html"
        )
    if arguments.out is None:
        write(text)
    else:
        atomic.write_text(arguments.out, text)
    return 0


def run_summary(arguments: argparse.Namespace) -> int:
    """Print the markdown or the counts.

    Raises:
        ConfigError: the file cannot be read or is not a report, or the limit is too small.
    """
    from pytest_cgins.report import document, markdown
    from pytest_cgins.report.summary import counts

    report = document.load(arguments.report)
    if arguments.format == "counts":
        sys.stdout.write(counts(report).lines())
        return 0
    limit = markdown.STEP_SUMMARY_LIMIT_NBYTES if arguments.max_bytes is None else arguments.max_bytes
    try:
        text = markdown.render(report, limit_nbytes=limit)
    except ValueError as error:
        raise ConfigError(f"--max-bytes: {error}", remedy="give it a higher limit") from None
    write(text)
    return 0


def _page_with_history(file: Path, path: Path) -> str:
    from pytest_cgins.report import document, history_file, trend
    from pytest_cgins.report.html import page

    history = history_file.read(path)
    if history.note:
        say(f"{path}: {history.note}")
    return page.render(document.load(file), trends=trend.trends(history.entries))


def _add_merge(subparsers: Subparsers) -> None:
    merge = command(
        subparsers,
        "merge  join the reports of several runs",
        run_merge,
        "Join the reports of several machines' runs with --cgins-json, e.g. shards of a suite, or types of GPUs. "
        "The exit code is that of a gate over all cases; 2 if the reports do not fit together.",
    )
    option(merge, "files FILE  JSON reports", type=Path, nargs="+")
    option(merge, "--out PATH  file of the merged report", type=Path, required=True)
    option(
        merge,
        "--expect N  required number of runs; needed to notice a missing report if runs have no --cgins-shard",
        default=0,
    )
    option(merge, "--durations PATH  write how long cases took, for --cgins-durations", type=Path)


def run_merge(arguments: argparse.Namespace) -> int:
    """Write the merged report.

    Returns:
        Its exit code.

    Raises:
        ConfigError: a file cannot be read or is not a report.
        MergeError: they do not add up to one.
        OSError: the merged report cannot be written.
    """
    from pytest_cgins.report import document, durations, merge
    from pytest_cgins.report.summary import counts

    parts = [merge.Part(name=str(path), report=document.load(path)) for path in arguments.files]
    whole = merge.merged(parts, expected=arguments.expect)
    document.write(whole, arguments.out)
    if arguments.durations:
        durations.write(arguments.durations, whole.evaluations)
    for part in parts:
        if merge.lost_device(part.report):
            print(f"{part.name}: exit code 5: it gated nothing, because no device of its cases was present")
        if failures := part.report.other_failures:
            print(f"{part.name}: {counted(failures, 'failure')} outside of cases")
    found, runs = counts(whole), len(whole.merged)
    tests = f", {counted(tests, 'test')} of times" if (tests := merge.own_tests(whole)) else ""
    print(
        f"{counted(runs, 'run')}: {found.passed} passed, {found.failed} failed, {counted(found.errors, 'error')}, "
        f"{found.skipped} skipped{tests}; exit code {whole.exit_status}"
    )
    return whole.exit_status
