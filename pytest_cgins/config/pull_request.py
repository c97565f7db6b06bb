"""`pull_request` of cgins.yaml: what `cgins pull-request open` gives to its pull requests."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

from pytest_cgins.config.document import Reader, Value, Wrong
from pytest_cgins.core.text import counted

MOST_LABELS = 100
MOST_LABEL_CHARACTERS = 50
MOST_LOGIN_CHARACTERS = 39
MOST_TEAM_CHARACTERS = 100
MOST_REVIEWERS = 15
"""People and teams together."""
MOST_ASSIGNEES = 10

# The users of an enterprise that manages them itself end in `_` and its short code.
_LOGIN = re.compile(r"[A-Za-z0-9](?:-?[A-Za-z0-9])*(?:_[A-Za-z0-9]+)*")
_TEAM = re.compile(r"[a-z0-9][a-z0-9_-]*")
_JOINER = "\N{ZERO WIDTH JOINER}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PullRequestSettings:
    """The section `pull_request`, with all defaults filled in. No list has a name twice, be it in other case."""

    draft: Annotated[bool, Value.boolean] = True
    """Whether they are opened as drafts."""
    labels: Annotated[tuple[str, ...], _names(wrong_with_label, MOST_LABELS)] = ()
    """Names of labels, without commas."""
    reviewers: Annotated[tuple[str, ...], _names(wrong_with_login, MOST_REVIEWERS)] = ()
    """Logins of people who are asked for a review."""
    team_reviewers: Annotated[tuple[str, ...], _names(wrong_with_team, MOST_REVIEWERS)] = ()
    """Slugs of teams of the repository's owner that are asked for a review."""
    assignees: Annotated[tuple[str, ...], _names(wrong_with_login, MOST_ASSIGNEES)] = ()
    """Logins of people who are assigned."""


def pull_request_settings(value: Value | None) -> PullRequestSettings:
    """The section `pull_request`; the defaults if the file has none.

    Raises:
        ConfigError: an unknown key, a name that GitHub cannot have, a name twice, or too many; with file, line and
            remedy.
    """
    if value is None:
        return PullRequestSettings()
    section = value.mapping("pull_request")
    settings = PullRequestSettings(**section.fields(PullRequestSettings))
    count = len(settings.reviewers) + len(settings.team_reviewers)
    if count > MOST_REVIEWERS:
        section["team_reviewers"].fail(
            f"reviewers and team_reviewers in pull_request are {count} together, of at most {MOST_REVIEWERS}",
            remedy=f"name at most {MOST_REVIEWERS} people and teams",
        )
    return settings


def wrong_with_label(name: str) -> Wrong:
    """What is wrong with the name of a label, and the remedy."""
    if "," in name:
        return "has a comma", "write one label in each item of the list, without commas"
    if name != name.strip() or not name.replace(_JOINER, "").isprintable():
        return "is not a label name", "write it without control characters, and without space around it"
    if len(name) > MOST_LABEL_CHARACTERS:
        return (
            f"has {counted(len(name), 'character')}",
            f"write at most {MOST_LABEL_CHARACTERS}: GitHub takes no more",
        )
    return None


def wrong_with_login(name: str) -> Wrong:
    """What is wrong with the login of a person, and the remedy."""
    if len(name) > MOST_LOGIN_CHARACTERS or not _LOGIN.fullmatch(name):
        return (
            "is not a login",
            f"write it as in the profile's address, without @ (at most {MOST_LOGIN_CHARACTERS} characters)",
        )
    return None


def wrong_with_team(name: str) -> Wrong:
    """What is wrong with the slug of a team, and the remedy."""
    if "/" in name:
        return "has a slash", "write the team's slug alone, without its organisation: it is the owner's"
    if len(name) > MOST_TEAM_CHARACTERS or not _TEAM.fullmatch(name):
        return (
            "is not a team slug",
            f"write it as in the team's address: at most {MOST_TEAM_CHARACTERS} of a-z, 0-9, - and _",
        )
    return None


def _names(wrong_with: Callable[[str], Wrong], most: int) -> Reader:
    """A reader of a list of names that GitHub compares without regard to case."""

    def names(value: Value) -> tuple[str, ...]:
        given = value.distinct(name, str.lower)
        if len(given) > most:
            value.items()[most].fail(
                f"{value.label} has more than {most} names", remedy=f"name at most {most}"
            )
        return given

    def name(item: Value) -> str:
        text = item.text()
        item.check(wrong_with(text), f"{item.label}: {text[:80]!a}")
        return text

    return names
