"""`cgins history`: what cases took over time."""

from __future__ import annotations

import argparse
import sys
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_cgins.core.options import HISTORY_FILE
from pytest_cgins.core.text import counted

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]


def add_parsers(subparsers: Subparsers) -> None:
    """Add the subcommand to the `cgins` parser."""
    history = subparsers.add_parser(
        "history",
        help="show what cases took over time",
        description="Print the trend of each case of a history that `pytest --cgins --cgins-history=PATH` appended to. "
        "Times are held against each other only within one device, driver and set of libraries; where these changed "
        "stands a line that says what. A trend is no verdict.",
    )
    history.add_argument(
        "path", nargs="?", type=Path, default=Path(HISTORY_FILE), metavar="PATH", help="the history"
    )
    history.add_argument(
        "--case", default="*", metavar="GLOB", help="cases whose name matches (default: %(default)s)"
    )
    history.add_argument(
        "--since", type=_since, metavar="WHEN", help="runs since a date, 2026-01-31, or of the last days, 30d"
    )
    history.add_argument(
        "--last",
        type=_count,
        default=10,
        metavar="N",
        help="hold the latest time against the median of the N before it (default: %(default)s)",
    )
    history.add_argument("--json", action="store_true", help="print one JSON document instead of tables")
    history.set_defaults(run=run_history)


def run_history(arguments: argparse.Namespace) -> int:
    """Print the trends; 1 if there is none.

    Raises:
        HistoryError: the file cannot be read, or is damaged.
    """
    from pytest_cgins.core import documents
    from pytest_cgins.report import history_file, trend, trend_table
    from pytest_cgins.report.history import HISTORY_VERSION

    found = history_file.read(arguments.path)
    if found.note:
        print(f"cgins: {arguments.path}: {found.note}", file=sys.stderr)
    trends = trend.trends(found.entries, case=arguments.case, since=arguments.since, last=arguments.last)
    if arguments.json:
        document = trend.Trends(version=HISTORY_VERSION, last=arguments.last, trends=trends)
        print(documents.dump(document, indent=1))
    elif trends:
        print(trend_table.render(trends, last=arguments.last, colour=sys.stdout.isatty()), end="")
    else:
        print(
            f"cgins: {arguments.path}: none of {counted(len(found.entries), 'entry', 'entries')} is asked for",
            file=sys.stderr,
        )
    return 0 if trends else 1


def _since(text: str) -> datetime:
    try:
        if text.endswith("d"):
            return datetime.now(timezone.utc) - timedelta(days=float(text[:-1]))
        when = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except (ValueError, OverflowError):
        raise argparse.ArgumentTypeError(f"{text!r} is no date like 2026-01-31, nor days like 30d") from None
    return when if when.tzinfo else when.replace(tzinfo=timezone.utc)


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise argparse.ArgumentTypeError(f"{text!r} is no number from 1 on")
    return int(text)
