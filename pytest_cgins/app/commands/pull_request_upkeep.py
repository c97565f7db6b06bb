"""`cgins pull-request status` and `close`."""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING

from pytest_cgins.core.errors import GitHubError

if TYPE_CHECKING:
    from pytest_cgins.pull_request.upkeep import BotPullRequest

EXIT_UNKNOWN = 1


def run_status(arguments: argparse.Namespace) -> int:
    """List the bot's open pull requests.

    Raises:
        GitHubError: there is no token, or git or GitHub refuses.
    """
    from dataclasses import asdict

    from pytest_cgins.pull_request import upkeep
    from pytest_cgins.pull_request.server import connected
    from pytest_cgins.report import escape

    with connected(arguments) as server:
        pairs = list(upkeep.known(server))
        notes = upkeep.mark(server, pairs) if arguments.mark else []
    found = [one for one, _ in pairs]
    if arguments.json:
        print(json.dumps([asdict(one) for one in found], indent=2))
    elif found:
        print(_table(found), end="")
    else:
        print("no open pull request of a proposal")
    for note in notes:
        print(escape.lines(f"note: {note}"), file=sys.stderr)
    return 0


def run_close(arguments: argparse.Namespace) -> int:
    """Close pull requests; 1 if a number is none of the bot's, or somebody committed to one meanwhile.

    Raises:
        GitHubError: nothing is named, there is no token, or git or GitHub refuses.
    """
    from pytest_cgins.pull_request import upkeep
    from pytest_cgins.pull_request.clone import BranchMovedError
    from pytest_cgins.pull_request.server import connected
    from pytest_cgins.report import escape

    if not (arguments.numbers or arguments.moot or arguments.stale):
        raise GitHubError("no pull request is named", remedy="give a NUMBER, --moot or --stale")
    wanted = {"moot": arguments.moot, "stale": arguments.stale}
    left = 0
    with connected(arguments) as server:
        pairs = list(upkeep.known(server))
        for one, pull in pairs:
            if not (one.number in arguments.numbers or wanted.get(one.stands)):
                continue
            reason = arguments.reason or one.why or "Nobody needs it any more."
            try:
                closed = upkeep.close(server, one, pull, reason, dry_run=arguments.dry_run)
            except BranchMovedError as error:
                print(escape.lines(f"#{one.number} was left: {error.what}"), file=sys.stderr)
                left += 1
                continue
            did = "dry run: would close" if arguments.dry_run else "closed"
            kept = f"; its branch was left: {closed.branch_kept}" if closed.branch_kept else ""
            print(escape.lines(f"{did} #{one.number} {one.url}{kept}"))
    unknown = sorted(set(arguments.numbers) - {one.number for one, _ in pairs})
    for number in unknown:
        print(f"#{number} is not an open pull request of a proposal", file=sys.stderr)
    return EXIT_UNKNOWN if unknown or left else 0


def _table(found: list[BotPullRequest]) -> str:
    from pytest_cgins.report import console
    from pytest_cgins.report.escape import visible

    colour = sys.stdout.isatty()
    table = console.table("number", "kernel", "stands", "proposal", "why", colour=colour)
    for one in found:
        table.add_row(f"#{one.number}", *map(visible, (one.kernel, one.stands, one.proposal, one.why)))
    return console.text(table, colour=colour)
