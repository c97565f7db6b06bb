"""`cgins annotate` and `cgins comment`: a JSON report on the lines of sources, and as the comment of a pull request."""

from __future__ import annotations

import argparse
import json
import os
from contextlib import closing
from pathlib import Path
from typing import Any

from pytest_cgins.app.commands.options import Subparsers, command, flag, option, write
from pytest_cgins.core.errors import GitHubError


def add_parsers(subparsers: Subparsers) -> None:
    """Add the subcommands to the `cgins` parser."""
    parser = command(
        subparsers,
        "annotate  print a report as annotations for GitHub's runner",
        run_annotate,
        "Print failed and doubtful cases as workflow commands that annotate the sources of kernels: worst first, "
        "and no more than GitHub shows for one step.",
    )
    option(parser, "report REPORT  the JSON file", type=Path)
    option(parser, "--folder DIR  folder in which pytest was started (default: this one)", default=Path())
    option(parser, "--root DIR  top of the checkout (default: this folder)", default=Path())
    _add_comment(subparsers)


def run_annotate(arguments: argparse.Namespace) -> int:
    """Print the commands.

    Raises:
        ConfigError: the file cannot be read or is not a report.
    """
    from pytest_cgins.pull_request import annotations
    from pytest_cgins.report import document

    report = document.load(arguments.report)
    found = annotations.annotate(report, folder=arguments.folder, root=arguments.root)
    write(annotations.commands(found))
    return 0


EVENT_LIMIT_NBYTES = 1 << 25
NO_REPORT = "## cgins: no report\n\nThe run for this commit left no report: its log says why. What was here was about an earlier one."
"""Instead of verdicts that are not of the pull request's head any more."""


def _add_comment(subparsers: Subparsers) -> None:
    parser = command(
        subparsers,
        "comment  write a report as the comment of a pull request",
        run_comment,
        "Write the report as a comment on the pull request of GitHub's event, or update the comment of an earlier "
        "run. The report is not trusted: nothing in it decides where the comment goes. The token is read from "
        "GITHUB_TOKEN or GH_TOKEN and needs pull-requests: write. Runs no kernel.",
    )
    found = parser.add_mutually_exclusive_group(required=True)
    option(found, "report REPORT  the JSON file", type=Path, nargs="?")
    flag(found, "--no-report  there is no report: say so in the comment of an earlier run, if there is one")
    option(parser, "--event FILE  GitHub's event (default: $GITHUB_EVENT_PATH)", type=Path)
    option(parser, "--repository OWNER/NAME  repository of the pull request (default: $GITHUB_REPOSITORY)")
    option(
        parser,
        "--name  name of the gate, which distinguishes the comments of several gates (default: %(default)s)",
        default="gate",
    )
    option(parser, "--author LOGIN  account that comments (default: github-actions[bot])")
    flag(parser, "--dry-run  print the comment and where it would go; write nothing")


def run_comment(arguments: argparse.Namespace) -> int:
    """Write the comment.

    Raises:
        ConfigError: the file cannot be read or is not a report.
        GitHubError: the event names no pull request, there is no token, or GitHub refuses.
    """
    from pytest_cgins.pull_request import bot_commit, credentials, post_comment, remote
    from pytest_cgins.pull_request.rest import Rest
    from pytest_cgins.pull_request.transport import Transport
    from pytest_cgins.report import document, pull_request_comment

    report = None if arguments.no_report else document.load(arguments.report)
    event = _event(arguments.event or Path(os.environ.get("GITHUB_EVENT_PATH", "")))
    server = os.environ.get("GITHUB_SERVER_URL", "https://github.com")
    name = arguments.repository or os.environ.get("GITHUB_REPOSITORY", "")
    where = remote.parse(f"{server}/{name}")
    token = credentials.token(os.environ)
    with closing(Transport(where.api(os.environ), token)) as transport:
        api = Rest(transport, where.full_name)
        target = post_comment.run_target(event, api)
        if not target.number:
            which = "several open pull requests have" if target.several else "no open pull request has"
            print(
                f"{which} {target.commit} as {'their' if target.several else 'its'} head: nothing was written"
            )
            return 0
        about = bot_commit.carried_proposal(api, target)
        room = post_comment.LIMIT_CHARACTERS - len(post_comment.body(arguments.name, target, about))
        said = NO_REPORT if report is None else pull_request_comment.comment(report, limit_nbytes=room)
        text = post_comment.body(arguments.name, target, said + about)
        if arguments.dry_run:
            print(f"dry run: would write this comment to #{target.number}\n{text}")
            return 0
        author = arguments.author or post_comment.AUTHOR
        state, url = post_comment.post(api, target.number, text, author=author, creates=report is not None)
    print(f"{state} {url}".rstrip())
    return 0


def _event(path: Path) -> dict[str, Any]:
    """GitHub's event.

    Raises:
        GitHubError: there is none, or it is not a JSON object.
    """
    remedy = "give it the file that GITHUB_EVENT_PATH names"
    try:
        if path.stat().st_size > EVENT_LIMIT_NBYTES:
            raise GitHubError(f"{path}: too large for an event", remedy=remedy)
        event = json.loads(path.read_bytes())
    except OSError as error:
        raise GitHubError(f"{path}: {error.strerror}", remedy=remedy) from None
    except (ValueError, RecursionError):
        raise GitHubError(f"{path} is not JSON", remedy=remedy) from None
    if not isinstance(event, dict):
        raise GitHubError(f"{path} is not a GitHub event", remedy=remedy)
    return event
