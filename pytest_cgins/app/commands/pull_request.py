"""`cgins pull-request`: a proposal as a pull request, and what has become of those that are open."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_cgins.app.commands.schema import add_config_option

if TYPE_CHECKING:
    from pytest_cgins.pull_request.clone import Identity

    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]


def add_parsers(subparsers: Subparsers) -> None:
    """Add the subcommands to the `cgins` parser."""
    group = subparsers.add_parser(
        "pull-request",
        help="open the pull request of a proposal, and look after those that are open",
        description="Pull requests of proposals. Runs no kernel, and touches neither the working tree nor the index. "
        "The token is read from GITHUB_TOKEN or GH_TOKEN.",
    )
    commands = group.add_subparsers(metavar="COMMAND", required=True)
    _add_open(commands)
    _add_status(commands)
    _add_close(commands)


def _add_open(commands: Subparsers) -> None:
    from pytest_cgins.app.commands.pull_request_open import run

    parser = commands.add_parser(
        "open",
        help="open the pull request of a proposal, or bring it up to date",
        description="Check a proposal against the base branch on the server, commit it on a branch of the kernel's own, "
        "and open a pull request or update the one that is open; close it if the base branch has these files already. "
        "Exit status 1 if the base branch has other files than the proposal was made on.",
    )
    parser.add_argument("--proposal", type=Path, required=True, metavar="DIR", help="folder of the proposal")
    _add_server(parser)
    parser.add_argument("--base", metavar="BRANCH", help="branch to go into; default: the repository's own")
    state = parser.add_mutually_exclusive_group()
    state.add_argument(
        "--draft",
        action="store_const",
        const=True,
        help="open it as a draft (default: draft of pull_request in cgins.yaml, else this)",
    )
    state.add_argument(
        "--ready", action="store_const", const=False, dest="draft", help="open it ready for review"
    )
    parser.add_argument(
        "--author",
        type=_author,
        metavar="'NAME <EMAIL>'",
        help="of the commit, which is then pushed by git and not signed; default: whose token it is",
    )
    parser.add_argument(
        "--commit-with",
        choices=("auto", "api", "push"),
        default="auto",
        help="make the commit by GitHub's API, which signs it, or push it with git; auto: git where the API cannot",
    )
    parser.add_argument(
        "--only-measured",
        action="store_true",
        help="do nothing, with exit status 1, if the base branch has changed since the proposal was measured on it",
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="look at everything; push nothing and open nothing"
    )
    parser.add_argument("--json", action="store_true", help="print what came of it as JSON, in one line")
    parser.set_defaults(run=run)


def _add_status(commands: Subparsers) -> None:
    from pytest_cgins.app.commands.pull_request_upkeep import run_status

    parser = commands.add_parser(
        "status",
        help="list the bot's open pull requests, and how each stands",
        description="List the open pull requests of proposals: current, behind its base, stale (its base has changed "
        "the kernel), moot (its base has these files) or changed by a person.",
    )
    _add_server(parser)
    parser.add_argument(
        "--mark", action="store_true", help="label those that are stale, and say why in a comment"
    )
    parser.add_argument("--json", action="store_true", help="print a list as JSON")
    parser.set_defaults(run=run_status)


def _add_close(commands: Subparsers) -> None:
    from pytest_cgins.app.commands.pull_request_upkeep import run_close

    parser = commands.add_parser(
        "close",
        help="close pull requests of the bot's that nobody needs any more",
        description="Close pull requests of proposals with a comment, and delete their branches. A branch with commits "
        "of a person stays. Exit status 1 if a number is no open pull request of the bot's.",
    )
    parser.add_argument("numbers", nargs="*", type=_number, metavar="NUMBER", help="of a pull request")
    parser.add_argument("--moot", action="store_true", help="those whose base branch has their files already")
    parser.add_argument("--stale", action="store_true", help="those whose kernel the base branch has changed")
    parser.add_argument("--reason", default="", metavar="TEXT", help="for the comment")
    _add_server(parser)
    parser.add_argument("--dry-run", action="store_true", help="say what would be closed")
    parser.set_defaults(run=run_close)


def _add_server(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--repository", metavar="OWNER/NAME", help="default: that of the remote")
    parser.add_argument("--remote", default="origin", metavar="NAME", help="default: %(default)s")
    add_config_option(parser, "the project's, in a clone of the repository; ")
    parser.add_argument(
        "--api-url",
        default="",
        metavar="URL",
        help="base of the REST API; default: GITHUB_API_URL, else by the remote's server",
    )
    parser.add_argument(
        "--token-variable", default="", metavar="VARIABLE", help="environment variable that has the token"
    )
    parser.add_argument(
        "--app",
        default="",
        metavar="ID",
        help="of a GitHub App, whose token is taken instead; its private key is in CGINS_APP_PRIVATE_KEY",
    )


def _number(text: str) -> int:
    if not (text.isascii() and text.removeprefix("#").isdecimal()):
        raise argparse.ArgumentTypeError(f"{text!r} is no number of a pull request")
    return int(text.removeprefix("#"))


def _author(text: str) -> Identity:
    from pytest_cgins.pull_request.clone import Identity

    name, found, rest = text.partition(" <")
    email, end, after = rest.partition(">")
    sound = name.strip() and "@" in email and text.isprintable() and not set(name + email) & set("<>")
    if not (found and end and not after and sound):
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME <EMAIL>")
    return Identity(name=name.strip(), email=email)
