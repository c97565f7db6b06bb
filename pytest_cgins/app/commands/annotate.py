"""`cgins annotate`: a JSON report as annotations on the lines of kernels' sources."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from pytest_cgins.app.commands.options import Subparsers, command, option


def add_parsers(subparsers: Subparsers) -> None:
    """Add the subcommand to the `cgins` parser."""
    parser = command(
        subparsers,
        "annotate  print a report of --cgins-json as annotations for GitHub's runner",
        run,
        "Print what failed, and what is in doubt, as workflow commands that annotate the sources of kernels: "
        "worst first, and no more than GitHub shows of one step.",
    )
    option(parser, "report REPORT  the JSON file", type=Path)
    option(parser, "--folder DIR  where pytest was started; default: here", type=Path, default=Path())
    option(parser, "--root DIR  top of the checkout; default: here", type=Path, default=Path())


def run(arguments: argparse.Namespace) -> int:
    """Print the commands.

    Raises:
        ConfigError: the file cannot be read or is not a report.
    """
    from pytest_cgins.pull_request import annotations
    from pytest_cgins.report import reading

    report = reading.load(arguments.report)
    found = annotations.annotate(report, folder=arguments.folder, root=arguments.root)
    sys.stdout.flush()
    sys.stdout.buffer.write(annotations.commands(found).encode())
    return 0
