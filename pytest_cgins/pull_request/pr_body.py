"""The text of a pull request: the hidden marker, the report of the proposal, and where the branch stands.

The bot owns what is between its two markers, and nothing of what people write around it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from pytest_cgins.core.errors import GitHubError
from pytest_cgins.core.text import counted
from pytest_cgins.pull_request.contribution import Contribution
from pytest_cgins.pull_request.rest import plain
from pytest_cgins.regenerate.proposal.report import inline

SHOWN_FILES = 10
PATH_LENGTH = 120
NOT_READ = frozenset({".gif", ".jpeg", ".jpg", ".md", ".pdf", ".png", ".rst", ".svg"})
"""Endings of files on which no measurement depends; all others may be read by a build or a test."""
LIMIT_CHARACTERS = 65_536
"""GitHub refuses a longer text."""
END = "<!-- cgins:end -->"


@dataclass(frozen=True, slots=True, kw_only=True)
class Basis:
    """What the branch stands on, and what was measured."""

    base: str
    tip: str
    measured: str
    """Commit that was measured on; "" if none is known."""
    moved: tuple[str, ...] | None
    """Files that the gate may read and that differ between the two; None: nobody can tell."""


def own_part(contribution: Contribution, basis: Basis) -> str:
    """The bot's part of the text, its markers included."""
    of = _of(contribution.proposal, contribution.made)
    return f"{contribution.marker}\n{of}\n{contribution.report}{_basis(contribution, basis)}\n{END}"


def is_of(text: str, proposal: str, made: str) -> bool:
    """Whether a pull request's text is about a certain proposal."""
    return _of(proposal, made) in text


def has_part(text: str, part: str) -> bool:
    """Whether a pull request's text has a part as it is."""
    return plain(part) in plain(text)


def with_part(text: str, marker: str, part: str) -> str:
    """A pull request's text with the bot's part put in place of the old one.

    Raises:
        GitHubError: people wrote so much around it that GitHub would refuse it.
    """
    before, _, rest = plain(text).partition(marker)
    _, end, after = rest.partition(END)
    whole = f"{before}{part}{after if end else ''}"
    if len(whole) > LIMIT_CHARACTERS:
        raise GitHubError(
            f"the description would have {counted(len(whole), 'character')}",
            remedy=f"shorten what people wrote around the bot's part: GitHub takes {LIMIT_CHARACTERS}",
        )
    return whole


def relevant(paths: Sequence[str]) -> tuple[str, ...]:
    """Those of changed files on which a measurement may depend: all but documents and pictures."""
    return tuple(
        path
        for path in paths
        if PurePosixPath(path).suffix.lower() not in NOT_READ and not path.startswith(".github/")
    )


def moved(basis: Basis) -> str:
    """What changed on the base branch since the measurement, in a sentence; "" for nothing."""
    if basis.moved is None:
        return f"nobody can tell what {basis.base} has changed since it was measured"
    if not basis.moved:
        return ""
    shown = ", ".join(path[:PATH_LENGTH] for path in basis.moved[:SHOWN_FILES])
    more = f" and {len(basis.moved) - SHOWN_FILES} more" if len(basis.moved) > SHOWN_FILES else ""
    return f"{basis.base} has changed since it was measured: {shown}{more}"


def _of(proposal: str, made: str) -> str:
    return f"<!-- cgins:of:{hashlib.sha256(f'{proposal} {made}'.encode()).hexdigest()[:32]} -->"


def _basis(contribution: Contribution, basis: Basis) -> str:
    where = f"The branch stands on {inline(basis.tip[:12])} of {inline(basis.base)}"
    if basis.measured == basis.tip:
        where += ", where it was measured."
    elif basis.measured:
        where += f", and was measured on {inline(basis.measured[:12])}."
    else:
        where += "."
    since = moved(basis)
    if since:
        where += f" Mind: {inline(since, 4 * PATH_LENGTH)}. The gate on this pull request measures it again."
    elif basis.measured != basis.tip:
        where += " Only documents and pictures have changed in between."
    fetch = inline(f"git fetch origin {contribution.branch} && git checkout FETCH_HEAD")
    proposal = inline(contribution.proposal)
    return f"\n<p>{where}</p>\n<p>The branch: {fetch}. The proposal: {proposal}.</p>\n"
