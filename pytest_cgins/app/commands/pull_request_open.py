"""`cgins pull-request open`: a proposal as a pull request."""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_cgins.pull_request.open_proposal import OpenResult

EXIT_NOT_OPENED = 1
"""The proposal is stale, was measured on what the base branch no longer is, or a person has committed on its branch."""


def run(arguments: argparse.Namespace) -> int:
    """Open or update the pull request; 1 if it was not done, for a reason that is no error.

    Raises:
        ProposalError: the proposal is damaged or hostile.
        GitHubError: there is no token, or git or GitHub refuses.
    """
    from pytest_cgins.pull_request import open_proposal
    from pytest_cgins.pull_request.clone import Clone
    from pytest_cgins.pull_request.contribution import contribution
    from pytest_cgins.pull_request.server import connected
    from pytest_cgins.regenerate import proposal
    from pytest_cgins.report import escape

    found = proposal.read(arguments.proposal)
    offered = contribution(found, config=Clone(arguments.config.parent).prefix() + arguments.config.name)
    with connected(arguments) as server:
        settings = open_proposal.Settings(
            base=arguments.base or server.default_branch,
            draft=arguments.draft,
            dry_run=arguments.dry_run,
            identity=arguments.author,
            commit_with=arguments.commit_with,
            only_measured=arguments.only_measured,
        )
        opened = open_proposal.open_pull_request(offered, settings, server)
    line = _line(opened, offered.title, settings.base)
    if arguments.json:
        told = {
            "state": opened.state, "line": line, "number": opened.number, "url": opened.url,
            "branch": opened.branch, "tip": opened.tip, "notes": opened.notes,
        }  # fmt: skip
        print(json.dumps(told))
    else:
        print(escape.lines(line))
    for note in opened.notes:
        print(escape.lines(f"note: {note}"), file=sys.stderr)
    return EXIT_NOT_OPENED if opened.state in ("stale", "moved", "mixed", "changed") else 0


def _line(opened: OpenResult, title: str, base: str) -> str:
    number = f"#{opened.number} {opened.url}"
    return {
        "opened": f"opened {number}: {title}",
        "updated": f"updated {number}: {title}",
        "unchanged": f"unchanged: {number} has this proposal already; nothing was done",
        "closed-before": f"{number} with this proposal was closed: nothing was done",
        "merged": f"{number} with this proposal was merged, and is not in {base} any more: nothing was done",
        "merged-before": f"{base} has these files already: nothing was done",
        "closed-moot": f"{base} has these files already: closed {number}",
        "superseded": f"{number} has a later proposal, {opened.why}: nothing was done",
        "mixed": f"{number} has the commit of {opened.why} under the text of another proposal: open {opened.why} again",
        "changed": f"not opened: {opened.why}",
        "moved": f"not opened: {opened.why}",
        "stale": f"{opened.why}\nmarked {number} as stale" if opened.number else opened.why,
        "would-open": f"dry run: would push {opened.branch} and open a pull request into {base}: {title}",
        "would-update": f"dry run: would push {opened.branch} and update {number}: {title}",
        "would-close": f"dry run: would close {number}, for {base} has these files already",
    }[opened.state]
