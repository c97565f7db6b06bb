"""`cgins pull-request`: a proposal as a pull request, and what has become of those that are open."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_cgins.app.commands.options import Subparsers, command, flag, group, option
from pytest_cgins.app.commands.schema import add_config_option

if TYPE_CHECKING:
    from pytest_cgins.pull_request.clone import Identity


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
    from pytest_cgins.app.commands.pull_request_open import run

    parser = command(
        commands,
        "open  open the pull request of a proposal, or bring it up to date",
        run,
        "Check a proposal against the base branch on the server, commit it on a branch of the kernel's own, "
        "and open a pull request or update the one that is open; close it if the base branch has these files already. "
        "Exit status 1 if the base branch has other files than the proposal was made on.",
    )
    option(parser, "--proposal DIR  folder of the proposal", type=Path, required=True)
    _add_server(parser)
    option(parser, "--base BRANCH  branch to go into; default: the repository's own")
    state = parser.add_mutually_exclusive_group()
    option(
        state,
        "--draft  open it as a draft (default: draft of pull_request in cgins.yaml, else this)",
        action="store_const",
        const=True,
    )
    option(state, "--ready  open it ready for review", action="store_const", const=False, dest="draft")
    option(
        parser,
        "--author 'NAME <EMAIL>'  of the commit, which is then pushed by git and not signed; default: whose token it is",
        type=_author,
    )
    option(
        parser,
        "--commit-with  make the commit by GitHub's API, which signs it, or push it with git; auto: git where the API cannot",
        choices=("auto", "api", "push"),
        default="auto",
    )
    flag(
        parser,
        "--only-measured  do nothing, with exit status 1, if the base branch has changed since the proposal was measured on it",
    )
    flag(parser, "--dry-run  look at everything; push nothing and open nothing")
    flag(parser, "--json  print what came of it as JSON, in one line")


def _add_status(commands: Subparsers) -> None:
    from pytest_cgins.app.commands.pull_request_upkeep import run_status

    parser = command(
        commands,
        "status  list the bot's open pull requests, and how each stands",
        run_status,
        "List the open pull requests of proposals: current, behind its base, stale (its base has changed "
        "the kernel), moot (its base has these files) or changed by a person.",
    )
    _add_server(parser)
    flag(parser, "--mark  label those that are stale, and say why in a comment")
    flag(parser, "--json  print a list as JSON")


def _add_close(commands: Subparsers) -> None:
    from pytest_cgins.app.commands.pull_request_upkeep import run_close

    parser = command(
        commands,
        "close  close pull requests of the bot's that nobody needs any more",
        run_close,
        "Close pull requests of proposals with a comment, and delete their branches. A branch with commits "
        "of a person stays. Exit status 1 if a number is not an open pull request of the bot's.",
    )
    option(parser, "numbers NUMBER  of a pull request", nargs="*", type=_number)
    flag(parser, "--moot  those whose base branch has their files already")
    flag(parser, "--stale  those whose kernel the base branch has changed")
    option(parser, "--reason TEXT  for the comment", default="")
    _add_server(parser)
    flag(parser, "--dry-run  say what would be closed")


def _add_server(parser: argparse.ArgumentParser) -> None:
    option(parser, "--repository OWNER/NAME  default: that of the remote")
    option(parser, "--remote NAME  default: %(default)s", default="origin")
    add_config_option(parser, "the project's, in a clone of the repository; ")
    option(
        parser,
        "--api-url URL  base of the REST API; default: GITHUB_API_URL, else by the remote's server",
        default="",
    )
    option(parser, "--token-variable VARIABLE  environment variable that has the token", default="")
    option(
        parser,
        "--app ID  of a GitHub App, whose token is taken instead; its private key is in CGINS_APP_PRIVATE_KEY",
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
