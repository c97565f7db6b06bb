"""The text of a pull request: the hidden marker, where the branch stands, and the report of the proposal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pytest_cgins.github.contribution import Contribution
from pytest_cgins.regenerate.proposal.paths import SUFFIXES
from pytest_cgins.regenerate.proposal.report import inline

SHOWN_FILES = 10
READ_BY_THE_GATE = SUFFIXES | {".json", ".lock", ".safetensors", ".toml", ".txt", ".yaml", ".yml"}
"""Endings of files that a measurement may depend on: sources, traces, settings, requirements."""
LIMIT_CHARACTERS = 65_536
"""GitHub refuses a longer text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stand:
    """What the branch stands on, and what was measured."""

    base: str
    """Name of the base branch."""
    tip: str
    """Its commit."""
    measured: str
    """Commit that was measured on; "" if none is known."""
    moved: tuple[str, ...] | None
    """Files that the gate may read and that differ between the two; None: nobody can tell."""


def body(contribution: Contribution, stand: Stand) -> str:
    """The whole text, of at most `LIMIT_CHARACTERS`."""
    return f"{contribution.marker}\n{contribution.report}{_stand(contribution, stand)}"


def relevant(paths: Sequence[str]) -> tuple[str, ...]:
    """Those of changed files on which a measurement may depend."""
    return tuple(path for path in paths if any(path.endswith(suffix) for suffix in READ_BY_THE_GATE))


def moved(stand: Stand) -> str:
    """What changed on the base branch since the measurement, in a sentence; "" for nothing."""
    if stand.moved is None:
        return f"nobody can tell what {stand.base} has changed since it was measured"
    if not stand.moved:
        return ""
    shown = ", ".join(stand.moved[:SHOWN_FILES])
    more = f" and {len(stand.moved) - SHOWN_FILES} more" if len(stand.moved) > SHOWN_FILES else ""
    return f"{stand.base} has changed since it was measured: {shown}{more}"


def _stand(contribution: Contribution, stand: Stand) -> str:
    where = f"The branch stands on {inline(stand.tip[:12])} of {inline(stand.base)}"
    if stand.measured == stand.tip:
        where += ", where it was measured."
    elif stand.measured:
        where += f", and was measured on {inline(stand.measured[:12])}."
    else:
        where += "."
    since = moved(stand)
    if since:
        where += f" Mind: {inline(since)}. The gate on this pull request measures anew."
    elif stand.measured != stand.tip:
        where += " Nothing that the gate reads has changed in between."
    fetch = inline(f"git fetch origin {contribution.branch} && git checkout FETCH_HEAD")
    proposal = inline(contribution.proposal)
    return f"\n<p>{where}</p>\n<p>The branch: {fetch}. The proposal: {proposal}.</p>\n"
