"""`cgins pull-request`: a proposal as a pull request, and what has become of those that are open."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_cgins.app.commands.options import Subparsers, command, flag, group, option
from pytest_cgins.app.commands.schema import add_config_option
from pytest_cgins.core.errors import GitHubError

if TYPE_CHECKING:
    from pytest_cgins.pull_request.clone import Identity
    from pytest_cgins.pull_request.open_proposal import OpenResult


def add_parsers(subparsers: Subparsers) -> None:
    """Add the subcommands to the `cgins` parser."""
    commands = group(
        subparsers,
        "pull-request  open the pull request of a proposal, and update open ones",
        "Pull requests of proposals. Runs no kernel, and touches neither the working tree nor the index. "
        "The token is read from GITHUB_TOKEN or GH_TOKEN.",
    )
    _add_open(commands)
    _add_status(commands)
    _add_close(commands)


def _add_open(commands: Subparsers) -> None:
    parser = command(
        commands,
        "open  open or update the pull request of a proposal",
        run_open,
        "Check a proposal against the base branch on the server, commit it on the kernel's branch, and open or "
        "update its pull request; close it if the base branch already has these files. "
        "Exit status 1 if the kernel's files have changed on the base branch since the proposal was made.",
    )
    option(parser, "--proposal DIR  folder of the proposal", type=Path, required=True)
    _add_server(parser)
    option(parser, "--base BRANCH  target branch (default: that of the repository)")
    state = parser.add_mutually_exclusive_group()
    option(
        state,
        "--draft  open it as a draft (default: pull_request.draft of cgins.yaml, else a draft)",
        action="store_const",
        const=True,
    )
    option(state, "--ready  open it ready for review", action="store_const", const=False, dest="draft")
    option(
        parser,
        "--author 'NAME <EMAIL>'  author of the commit, which git then pushes unsigned (default: the token's owner)",
        type=_author,
    )
    option(
        parser,
        "--commit-with auto|api|push  api: GitHub's API makes the commit and signs it; push: git pushes it; auto: git if the API cannot "
        "(default: %(default)s)",
    )
    flag(
        parser,
        "--only-measured  do nothing, with exit status 1, if the base branch has changed what the gate reads "
        "since the proposal was measured",
    )
    flag(parser, "--dry-run  check everything; push and open nothing")
    flag(parser, "--json  print the result as one line of JSON")


def _add_status(commands: Subparsers) -> None:
    parser = command(
        commands,
        "status  list the bot's open pull requests with their states",
        run_status,
        "List the open pull requests of proposals: current, behind its base, stale (its base has changed "
        "the kernel), moot (its base has these files) or changed by a person.",
    )
    _add_server(parser)
    flag(parser, "--mark  label stale ones, and say why in a comment")
    flag(parser, "--json  print a list as JSON")


def _add_close(commands: Subparsers) -> None:
    parser = command(
        commands,
        "close  close pull requests of the bot that are no longer needed",
        run_close,
        "Close pull requests of proposals with a comment, and delete their branches, except those with a person's "
        "commits. Exit status 1 if a number is not an open pull request of the bot.",
    )
    option(parser, "numbers NUMBER  number of a pull request", nargs="*", type=_number)
    flag(parser, "--moot  close those whose base branch already has their files")
    flag(parser, "--stale  close those whose kernel the base branch has changed")
    option(parser, "--reason TEXT  reason that the comment gives", default="")
    _add_server(parser)
    flag(parser, "--dry-run  list what would be closed, and close nothing")


def _add_server(parser: argparse.ArgumentParser) -> None:
    option(parser, "--repository OWNER/NAME  repository on the remote's server (default: that of the remote)")
    option(parser, "--remote NAME  git remote of the repository (default: %(default)s)", default="origin")
    add_config_option(parser, "the project's, in a clone of the repository; ")
    option(
        parser,
        "--api-url URL  base of the REST API (default: $GITHUB_API_URL, else by the remote's server)",
        default="",
    )
    option(parser, "--token-variable VARIABLE  environment variable that has the token", default="")
    option(
        parser,
        "--app ID  take the token of this GitHub App, whose private key is in CGINS_APP_PRIVATE_KEY",
        default="",
    )


def _number(text: str) -> int:
    if not (text.isascii() and text.removeprefix("#").isdecimal()):
        raise argparse.ArgumentTypeError(f"{text!r} is not a pull request number")
    return int(text.removeprefix("#"))


def _author(text: str) -> Identity:
    from pytest_cgins.pull_request.clone import Identity

    name, found, rest = text.partition(" <")
    email, end, after = rest.partition(">")
    sound = name.strip() and "@" in email and text.isprintable() and not set(name + email) & set("<>")
    if not (found and end and not after and sound):
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME <EMAIL>")
    return Identity(name=name.strip(), email=email)


def run_open(arguments: argparse.Namespace) -> int:
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
    return 1 if opened.state in ("stale", "moved", "mixed", "changed") else 0


def _line(opened: OpenResult, title: str, base: str) -> str:
    number = f"#{opened.number} {opened.url}"
    return {
        "opened": f"opened {number}: {title}",
        "updated": f"updated {number}: {title}",
        "unchanged": f"unchanged: {number} already has this proposal; nothing was done",
        "closed-before": f"{number} with this proposal was closed: nothing was done",
        "merged": f"{number} with this proposal was merged, but {base} no longer has its files: nothing was done",
        "merged-before": f"{base} already has these files: nothing was done",
        "closed-moot": f"{base} already has these files: closed {number}",
        "superseded": f"{number} has a later proposal, {opened.why}: nothing was done",
        "mixed": f"{number} has the commit of {opened.why}, but the description of another proposal: open {opened.why} again",
        "changed": f"not opened: {opened.why}",
        "moved": f"not opened: {opened.why}",
        "stale": f"{opened.why}\nmarked {number} as stale" if opened.number else opened.why,
        "would-open": f"dry run: would push {opened.branch} and open a pull request into {base}: {title}",
        "would-update": f"dry run: would push {opened.branch} and update {number}: {title}",
        "would-close": f"dry run: would close {number}, because {base} already has these files",
    }[opened.state]


def run_status(arguments: argparse.Namespace) -> int:
    """List the bot's open pull requests.

    Raises:
        GitHubError: there is no token, or git or GitHub refuses.
    """
    from pytest_cgins.pull_request import upkeep
    from pytest_cgins.pull_request.server import connected
    from pytest_cgins.report import console, escape

    with connected(arguments) as server:
        pairs = list(upkeep.known(server))
        notes = upkeep.mark(server, pairs) if arguments.mark else []
    found = [one for one, _ in pairs]
    if arguments.json:
        print(json.dumps([asdict(one) for one in found], indent=2))
    elif found:
        colour = sys.stdout.isatty()
        table = console.table("number", "kernel", "stands", "proposal", "why", colour=colour)
        for one in found:
            table.add_row(
                f"#{one.number}", *map(escape.visible, (one.kernel, one.stands, one.proposal, one.why))
            )
        print(console.text(table, colour=colour), end="")
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
    return 1 if unknown or left else 0
