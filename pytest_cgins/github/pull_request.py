"""Opens a proposal as a pull request, or brings the one that is open up to date.

Everything is decided by what is on the server: the tip of the base branch, the kernel's own branch, and its pull
request. The branch has one commit, on the tip of the base; its trailers say that a program made it, from which
proposal, on what and with which files, so that a person's work on the branch is known and left alone.
"""

from __future__ import annotations

import hashlib
import time
from dataclasses import dataclass
from typing import Any, Literal

from pytest_cgins.errors import GitHubError, ProposalError
from pytest_cgins.github import allowed
from pytest_cgins.github.contribution import Contribution
from pytest_cgins.github.git import Commit, Git, Identity
from pytest_cgins.github.rest import Rest

IDENTITY = Identity(name="pytest-cgins[bot]", email="pytest-cgins[bot]@users.noreply.github.com")
"""Author and committer, unless others are named."""
PROPOSAL, BASE, TREE = "Cgins-Proposal", "Cgins-Base", "Cgins-Tree"
"""Trailers of a commit: ID of the proposal, the commit it stands on, and its files."""
UNSEEN_TRIES = 4
"""Times that a new branch may be unknown to the REST API, which learns of a push later."""

State = Literal[
    "opened", "updated", "unchanged", "closed-before", "merged-before", "would-open", "would-update"
]


class StaleProposal(ProposalError):
    """The base branch has other files than the proposal was made on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How a pull request is to be opened."""

    url: str
    """Of the repository, for git."""
    owner: str
    """Of the repository."""
    base: str
    """Branch that it goes into."""
    draft: bool = True
    """Whether a new one is a draft."""
    dry_run: bool = False
    """Whether everything is looked at, and nothing is pushed or opened."""
    identity: Identity = IDENTITY
    """Author and committer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """What became of a proposal."""

    state: State
    """`closed-before`: a person closed it; `merged-before`: the base branch has these files."""
    branch: str
    """The kernel's own."""
    number: int = 0
    """Of the pull request; 0 where there is none."""
    url: str = ""
    """For a browser."""


def open_pull_request(
    contribution: Contribution,
    settings: Settings,
    git: Git,
    rest: Rest,
) -> Opened:
    """Check a contribution against the base branch, push it, and open or update its pull request.

    Args:
        contribution: a checked proposal.
        settings: where to and how.
        git: of a clone; its working tree, index and refs stay as they are.
        rest: of the same repository.

    Raises:
        StaleProposal: the base branch has other files than the proposal was made on.
        ProposalError: it changes more than its kernel.
        GitHubError: there is other people's work in the way, or GitHub refuses.
    """
    tip = git.fetch(settings.url, settings.base)
    if tip is None:
        raise GitHubError(
            f'there is no branch "{settings.base}" on the server', remedy="name another with --base"
        )
    if not _fits(contribution, settings, git, tip):
        return Opened(state="merged-before", branch=contribution.branch)
    tree = git.tree(tip, contribution.files)
    before = git.fetch(settings.url, contribution.branch)
    newest = _own_commit(git, before, tip, contribution.branch) if before else None
    same = newest is not None and _trailers(contribution, tip, tree).items() <= newest.trailers.items()
    if same or settings.dry_run:
        known = rest.pulls(head=f"{settings.owner}:{contribution.branch}", base=settings.base, state="all")
        found = next((one for one in known if one["state"] == "open"), None)
        if same and found is None and any(one["head"]["sha"] == before for one in known):
            closed = next(one for one in known if one["head"]["sha"] == before)
            return _opened("closed-before", contribution, closed)
        if settings.dry_run:
            if same and found is not None and _has_words(found, contribution):
                return _opened("unchanged", contribution, found)
            return _opened("would-update" if found else "would-open", contribution, found)
        if found is not None:
            return _update(contribution, rest, found, pushed=False)
    if not same:
        commit = git.commit(tree, tip, _message(contribution, tip, tree), settings.identity)
        git.push(settings.url, commit, contribution.branch, expected=before)
    return _create(contribution, settings, rest)


def _fits(contribution: Contribution, settings: Settings, git: Git, tip: str) -> bool:
    """Whether the files on the base branch are those that the proposal was made on; False: they are its own already."""
    now: dict[str, bytes | None] = {}
    for path in {*contribution.files, *contribution.base}:
        entry = git.entry(tip, path)
        now[path] = None if entry is None else git.read(entry[1])
    if all(now[path] == content for path, content in contribution.files.items()):
        return False
    for path, digest in sorted(contribution.base.items()):
        if _digest(now[path]) != digest:
            raise StaleProposal(
                f'the proposal is stale: "{path}" on {settings.base} is not what it was made on '
                f"({_digest(now[path])[:12] or 'no file'}, then {digest[:12] or 'no file'})",
                remedy=f"regenerate the kernel on the tip of {settings.base}",
            )
    entry = git.entry(tip, contribution.config)
    present = {path: now[path] is not None for path in contribution.files}
    allowed.check(contribution, git.read(entry[1]) if entry else None, present)
    return True


def _digest(content: bytes | None) -> str:
    return "" if content is None else hashlib.sha256(content).hexdigest()


def _own_commit(git: Git, branch_tip: str, base: str, branch: str) -> Commit | None:
    """The commit that a program put on the branch; None if all of the branch is in the base.

    Raises:
        GitHubError: the branch has commits of others.
    """
    commits = git.commits(branch_tip, base)
    others = []
    for commit in commits:
        if _is_own(commit):
            break
        others.append(commit)
    if others:
        who = ", ".join(sorted({commit.author for commit in others}))
        raise GitHubError(
            f"{branch} has {len(others)} commits that are not the bot's, by {who}: nothing was changed",
            remedy="merge them, or move them to another branch and delete this one",
        )
    return commits[0] if commits else None


def _is_own(commit: Commit) -> bool:
    """Whether it is as it was made: amended, rebased or merged it has other files or parents than it says."""
    said = commit.trailers
    return PROPOSAL in said and said.get(TREE) == commit.tree and (said.get(BASE),) == commit.parents


def _trailers(contribution: Contribution, tip: str, tree: str) -> dict[str, str]:
    return {PROPOSAL: contribution.proposal, BASE: tip, TREE: tree}


def _message(contribution: Contribution, tip: str, tree: str) -> str:
    trailers = "\n".join(f"{key}: {value}" for key, value in _trailers(contribution, tip, tree).items())
    return f"{contribution.title}\n\nFound by a model, and accepted by the gate.\n\n{trailers}\n"


def _create(contribution: Contribution, settings: Settings, rest: Rest) -> Opened:
    """Open a pull request, or update the one that GitHub says there is."""
    for tried in range(1, UNSEEN_TRIES + 1):
        try:
            made = rest.create_pull(
                title=contribution.title,
                body=contribution.body,
                head=contribution.branch,
                base=settings.base,
                draft=settings.draft,
            )
            return _opened("opened", contribution, made)
        except GitHubError as error:
            if error.status != 422:
                raise
            if "already exists" not in error.what:
                if "head invalid" not in error.what or tried == UNSEEN_TRIES:
                    raise
                time.sleep(float(tried))
                continue
        head = f"{settings.owner}:{contribution.branch}"
        found = next(iter(rest.pulls(head=head, base=settings.base)), None)
        if found is not None:
            return _update(contribution, rest, found, pushed=True)
        time.sleep(float(tried))
    raise GitHubError(
        f"GitHub says that {contribution.branch} has a pull request, and does not list it",
        remedy="run the command again later",
        status=422,
    )


def _update(contribution: Contribution, rest: Rest, found: dict[str, Any], *, pushed: bool) -> Opened:
    """Give the open pull request its new words, if it is the bot's.

    Raises:
        GitHubError: a person opened it.
    """
    if contribution.marker not in (found["body"] or ""):
        raise GitHubError(
            f"pull request #{found['number']} of {contribution.branch} is not the bot's: its words were left alone",
            remedy="close it, or put the hidden marker back into its text",
        )
    if _has_words(found, contribution):
        return _opened("updated" if pushed else "unchanged", contribution, found)
    changed = rest.update_pull(found["number"], title=contribution.title, body=contribution.body)
    return _opened("updated", contribution, changed)


def _has_words(found: dict[str, Any], contribution: Contribution) -> bool:
    # GitHub gives lines back with the ends that a browser would send.
    text = (found["body"] or "").replace("\r\n", "\n").strip()
    return bool(found["title"] == contribution.title and text == contribution.body.strip())


def _opened(state: State, contribution: Contribution, pull: dict[str, Any] | None) -> Opened:
    if pull is None:
        return Opened(state=state, branch=contribution.branch)
    return Opened(state=state, branch=contribution.branch, number=pull["number"], url=pull["html_url"])
