"""`cgins pull-request open`: a proposal as a pull request."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_cgins.github.git import Identity
    from pytest_cgins.github.pull_request import Opened

    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]

EXIT_STALE = 1


def add_parsers(subparsers: Subparsers) -> None:
    """Add the subcommands to the `cgins` parser."""
    group = subparsers.add_parser("pull-request", help="open the pull request of a proposal")
    commands = group.add_subparsers(metavar="COMMAND", required=True)
    opener = commands.add_parser(
        "open",
        help="open the pull request of a proposal, or bring it up to date",
        description="Check a proposal against the base branch on the server, commit it on a branch of the kernel's own, "
        "push that, and open a pull request or update the one that is open. Runs no kernel, and touches neither the "
        "working tree nor the index. The token is read from GITHUB_TOKEN or GH_TOKEN. Exit status 1 if the base branch "
        "has other files than the proposal was made on.",
    )
    opener.add_argument("--proposal", type=Path, required=True, metavar="DIR", help="folder of the proposal")
    opener.add_argument("--repository", metavar="OWNER/NAME", help="default: that of the remote")
    opener.add_argument("--base", metavar="BRANCH", help="branch to go into; default: the repository's own")
    state = opener.add_mutually_exclusive_group()
    state.add_argument("--draft", action="store_true", help="open it as a draft (default)")
    state.add_argument("--ready", action="store_true", help="open it ready for review")
    opener.add_argument("--remote", default="origin", metavar="NAME", help="default: %(default)s")
    opener.add_argument(
        "--config",
        type=Path,
        default=Path("cgins.yaml"),
        metavar="FILE",
        help="the project's, in a clone of the repository; default: cgins.yaml",
    )
    opener.add_argument(
        "--token-variable", default="", metavar="VARIABLE", help="environment variable that has the token"
    )
    opener.add_argument(
        "--author", type=_author, metavar="'NAME <EMAIL>'", help="of the commit; default: pytest-cgins[bot]"
    )
    opener.add_argument(
        "--dry-run", action="store_true", help="look at everything; push nothing and open nothing"
    )
    opener.set_defaults(run=run_open)


def run_open(arguments: argparse.Namespace) -> int:
    """Open or update the pull request; 1 if the proposal is stale.

    Raises:
        ProposalError: the proposal is damaged or hostile.
        GitHubError: there is no token, or git or GitHub refuses.
    """
    from contextlib import closing

    from pytest_cgins.github import pull_request, remote, rest
    from pytest_cgins.github.contribution import contribution
    from pytest_cgins.github.git import Git
    from pytest_cgins.regenerate import proposal

    found = proposal.read(arguments.proposal)
    token = rest.token(os.environ, arguments.token_variable)
    folder = arguments.config.parent
    here = Git(folder)
    offered = contribution(found, config=here.prefix() + arguments.config.name)
    place = remote.parse(here.remote_url(arguments.remote))
    if arguments.repository:
        place = remote.named(arguments.repository, place)
    git = Git(folder, token=token, remote=place)
    with closing(rest.Rest(place.api(os.environ), token, place.full_name)) as api:
        settings = pull_request.Settings(
            url=place.url,
            owner=place.owner,
            base=arguments.base or str(api.repository()["default_branch"]),
            draft=not arguments.ready,
            dry_run=arguments.dry_run,
            identity=arguments.author or pull_request.IDENTITY,
        )
        try:
            opened = pull_request.open_pull_request(offered, settings, git, api)
        except pull_request.StaleProposal as error:
            print(error)
            return EXIT_STALE
    print(_line(opened, offered.title, settings.base))
    return 0


def _line(opened: Opened, title: str, base: str) -> str:
    number = f"#{opened.number} {opened.url}"
    return {
        "opened": f"opened {number}: {title}",
        "updated": f"updated {number}: {title}",
        "unchanged": f"unchanged: {number} has this proposal already; nothing was done",
        "closed-before": f"{number} with this proposal was closed: nothing was done",
        "merged-before": f"{base} has these files already: nothing was done",
        "would-open": f"dry run: would push {opened.branch} and open a pull request into {base}: {title}",
        "would-update": f"dry run: would push {opened.branch} and update {number}: {title}",
    }[opened.state]


def _author(text: str) -> Identity:
    from pytest_cgins.github.git import Identity

    name, found, rest = text.partition(" <")
    email, end, after = rest.partition(">")
    sound = name.strip() and "@" in email and text.isprintable() and not set(name + email) & set("<>")
    if not (found and end and not after and sound):
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME <EMAIL>")
    return Identity(name=name.strip(), email=email)
