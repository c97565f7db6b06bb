"""`cgins history`: what cases took over time."""

from __future__ import annotations

import argparse
import sys
from datetime import datetime, timedelta, timezone
from pathlib import Path

from pytest_cgins.app.commands.options import Subparsers, command, flag, option, say
from pytest_cgins.core import documents
from pytest_cgins.core.options import HISTORY_FILE, whole_number
from pytest_cgins.core.text import counted


def add_parsers(subparsers: Subparsers) -> None:
    """Add the subcommand to the `cgins` parser."""
    history = command(
        subparsers,
        "history  show how times of cases changed over time",
        run_history,
        "Print the trend of each case of a history that `pytest --cgins --cgins-history=PATH` appended to. "
        "Times are compared only within one device, driver and set of libraries; where these changed, a line says "
        "what did. A trend is not a verdict.",
    )
    option(history, "path PATH  the history", nargs="?", default=Path(HISTORY_FILE))
    option(history, "--case GLOB  cases whose name matches (default: %(default)s)", default="*")
    option(
        history, "--since WHEN  only runs since a date (2026-01-31), or of the last days (30d)", type=_since
    )
    option(
        history,
        "--last N  compare the latest time with the median of the N before it (default: %(default)s)",
        type=whole_number(1),
        default=10,
    )
    flag(history, "--json  print one JSON document instead of tables")


def run_history(arguments: argparse.Namespace) -> int:
    """Print the trends; 1 if there is none.

    Raises:
        HistoryError: the file cannot be read, or is damaged.
    """
    from pytest_cgins.report import history_file, trend, trend_table
    from pytest_cgins.report.history import HISTORY_VERSION

    found = history_file.read(arguments.path)
    if found.note:
        say(f"{arguments.path}: {found.note}")
    trends = trend.trends(found.entries, case=arguments.case, since=arguments.since, last=arguments.last)
    if arguments.json:
        document = trend.Trends(version=HISTORY_VERSION, last=arguments.last, trends=trends)
        print(documents.dump(document, indent=1))
    elif trends:
        print(trend_table.render(trends, last=arguments.last, colour=sys.stdout.isatty()), end="")
    else:
        say(f"{arguments.path}: none of {counted(len(found.entries), 'entry', 'entries')} is asked for")
    return 0 if trends else 1


def _since(text: str) -> datetime:
    try:
        if text.endswith("d"):
            return datetime.now(timezone.utc) - timedelta(days=float(text[:-1]))
        when = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except (ValueError, OverflowError):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a date like 2026-01-31, nor days like 30d"
        ) from None
    return when if when.tzinfo else when.replace(tzinfo=timezone.utc)
