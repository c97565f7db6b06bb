"""`cgins annotate`: a JSON report as annotations on the lines of kernels' sources."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]


def add_parser(subparsers: Subparsers) -> None:
    """Add the subcommand to the `cgins` parser."""
    parser = subparsers.add_parser(
        "annotate",
        help="print a report of --cgins-json as annotations for GitHub's runner",
        description="Print what failed, and what is in doubt, as workflow commands that annotate the sources of kernels: "
        "worst first, and no more than GitHub shows of one step.",
    )
    parser.add_argument("report", type=Path, metavar="REPORT", help="the JSON file")
    parser.add_argument(
        "--folder", type=Path, default=Path(), metavar="DIR", help="where pytest was started; default: here"
    )
    parser.add_argument(
        "--root", type=Path, default=Path(), metavar="DIR", help="top of the checkout; default: here"
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print the commands.

    Raises:
        ConfigError: the file cannot be read or is no report.
    """
    from pytest_cgins.pull_request import annotations
    from pytest_cgins.report import reading

    report = reading.load(arguments.report)
    found = annotations.annotate(report, folder=arguments.folder, root=arguments.root)
    sys.stdout.flush()
    sys.stdout.buffer.write(annotations.commands(found).encode())
    return 0
