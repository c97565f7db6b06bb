"""`cgins summary`: a JSON report as markdown, or as counts for a script."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_cgins.errors import ConfigError

if TYPE_CHECKING:
    from pytest_cgins.model import SessionReport

    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]

REPORT_LIMIT_NBYTES = 1 << 28
"""A report of ten thousand cases has some 50 MB."""


def add_parsers(subparsers: Subparsers) -> None:
    """Add the subcommand to the `cgins` parser."""
    summary = subparsers.add_parser(
        "summary",
        help="print a report of --cgins-json as markdown",
        description="Print a report that `pytest --cgins --cgins-json=REPORT` wrote, as markdown for a job "
        "summary. Texts from the repository under test are escaped.",
    )
    summary.add_argument("report", type=Path, metavar="REPORT", help="the JSON file")
    summary.add_argument(
        "--format",
        choices=("markdown", "counts"),
        default="markdown",
        help="counts: how many cases ended how, `name=number` a line (default: %(default)s)",
    )
    summary.add_argument(
        "--max-bytes", type=int, metavar="N", help="limit of the markdown (default: GitHub's, 1 MiB a step)"
    )
    summary.set_defaults(run=run_summary)


def run_summary(arguments: argparse.Namespace) -> int:
    """Print the markdown or the counts.

    Raises:
        ConfigError: the file cannot be read or is no report, or the limit is too small.
    """
    from pytest_cgins.report import markdown
    from pytest_cgins.report.counts import counts

    report = _load(arguments.report)
    if arguments.format == "counts":
        sys.stdout.write(counts(report).lines())
        return 0
    limit = markdown.STEP_SUMMARY_LIMIT_NBYTES if arguments.max_bytes is None else arguments.max_bytes
    try:
        text = markdown.render(report, limit_nbytes=limit)
    except ValueError as error:
        raise ConfigError(f"--max-bytes: {error}", remedy="give it a higher limit") from None
    # Escaped text is not ASCII, and a runner's locale may be C.
    sys.stdout.flush()
    sys.stdout.buffer.write(text.encode())
    return 0


def _load(path: Path) -> SessionReport:
    from pytest_cgins import documents
    from pytest_cgins.model import SessionReport

    remedy = "give it the file that --cgins-json wrote, by the same version of pytest-cgins"
    try:
        nbytes = path.stat().st_size
        if nbytes > REPORT_LIMIT_NBYTES:
            raise ConfigError(f"{path}: {nbytes} bytes are no report of ours", remedy=remedy)
        report = documents.load(SessionReport, path.read_bytes())
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}", remedy=remedy) from None
    except ValueError as error:
        _refuse_other_versions(path, remedy)
        lines = str(error).splitlines()
        raise ConfigError(f"{path} is not a report: {' '.join(lines[:3])}", remedy=remedy) from None
    _refuse_other_versions(path, remedy)
    return report


def _refuse_other_versions(path: Path, remedy: str) -> None:
    """Their fields mean other things, if they can be read at all."""
    from pytest_cgins.model import REPORT_VERSION

    try:
        document = json.loads(path.read_bytes())
    except ValueError:
        return
    version = document.get("version") if isinstance(document, dict) else None
    if isinstance(version, int) and version != REPORT_VERSION:
        raise ConfigError(
            f"{path}: a report of version {version}; this one reads {REPORT_VERSION}", remedy=remedy
        )
