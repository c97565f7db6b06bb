"""What of a proposal goes into a pull request.

A proposal comes from a process that ran code which a model wrote: each of its names, paths and texts may be a
try to change more than a kernel. `proposal.read` has refused what is not consistent in itself. Here its names
become a branch and a hidden marker, and the report is written anew from its figures: `report.md` is shown to
nobody. Which files belong to the kernel is read from `cgins.yaml` on the base branch (`allowed_files`).
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone

from pytest_cgins.core.errors import ProposalError
from pytest_cgins.regenerate.attempt import Goal
from pytest_cgins.regenerate.proposal import Contents
from pytest_cgins.regenerate.proposal import report as proposal_report

FOLDERS: dict[Goal, str] = {"repair": "repair", "optimise": "optimize", "generate": "generate"}
"""Part of the branch's name, by goal."""
BRANCH = re.compile(rf"cgins/({'|'.join(FOLDERS.values())})/[A-Za-z0-9_][A-Za-z0-9_.-]*")
"""Names of the bot's branches."""
_AHEAD = timedelta(minutes=5)
"""That clocks may differ."""
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")
_JOINT = re.compile(r"(?=-(?:cpu|cuda)-)")
_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./-]{0,399}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Contribution:
    """A checked proposal, in the words of git and GitHub."""

    proposal: str
    kernel: str
    implementation: str
    """Device and name of the implementation: `cuda-triton`."""
    goal: Goal
    key: str
    """Of the kernel in branch and markers: `softmax-cuda-triton`, with a digest where that alone could be
    another's."""
    title: str
    """Of the pull request and of the commit."""
    report: str
    """What the pull request tells of it, in markdown."""
    made: str
    """When it was made: UTC, ISO 8601."""
    base_commit: str
    """Commit that it was measured on; "" if none."""
    config: str
    """Path of the project's `cgins.yaml`, from the top of the repository."""
    files: Mapping[str, bytes]
    """New bytes by path, from the top of the repository."""
    base: Mapping[str, str]
    """sha256 by path of what the proposal was made on, "" where there was no file."""

    @property
    def branch(self) -> str:
        """`cgins/repair/softmax-cuda-triton`: the same for each proposal of the kernel."""
        return f"cgins/{FOLDERS[self.goal]}/{self.key}"

    @property
    def marker(self) -> str:
        """The hidden line by which the kernel's pull request is known again."""
        return marker(self.key)


def marker(key: str) -> str:
    """The hidden line by which the pull request of a kernel is known again."""
    return f"<!-- cgins:pr:{key} -->"


def notice_marker(key: str) -> str:
    """The hidden line of the comment that says that a pull request is stale, or why it was closed."""
    return f"<!-- cgins:notice:{key} -->"


def contribution(contents: Contents, *, config: str) -> Contribution:
    """Put a proposal into the words of git and GitHub; `config` is by the clone, and not by the proposal.

    Raises:
        ProposalError: it is of another project, or has a name that cannot be one of a branch.
    """
    about = contents.proposal
    target, goal = about.target, about.goal
    kernel = _name(target.kernel, "kernel")
    implementation = f"{target.device}-{_name(target.implementation, 'implementation')}"
    if not _ID.fullmatch(about.id):
        raise refused(f"its ID {about.id[:80]!r} is none")
    if about.config != config:
        raise refused(f"it is of the project of {about.config[:200]!r}, and here is that of {config!r}")
    return Contribution(
        proposal=about.id,
        kernel=kernel,
        implementation=implementation,
        goal=goal,
        key=_key(config, kernel, implementation),
        title=about.title,
        report=proposal_report.render(about, contents.evidence, contents.patch),
        made=_made(about.created_at),
        base_commit=about.base_commit,
        config=config,
        files=contents.files,
        base=about.base_digests,
    )


def _made(text: str) -> str:
    """A time that can be compared as text; one that is still to come would keep all later proposals away."""
    try:
        when = datetime.fromisoformat(text).astimezone(timezone.utc)
    except (ValueError, OverflowError):
        raise refused(f"it was made at {text[:40]!r}, which is not a time") from None
    now = datetime.now(timezone.utc)
    if when > now + _AHEAD:
        raise refused(f"it was made at {text[:40]!r}, which is still to come")
    return min(when, now).strftime("%Y-%m-%dT%H:%M:%SZ")


def _name(text: str, role: str) -> str:
    # Two hyphens would end the comment that the name goes into.
    if not _NAME.fullmatch(text) or "--" in text or text.endswith("-"):
        raise refused(f"its {role} {text[:80]!r} cannot be the name of a branch")
    return text


def _key(config: str, kernel: str, implementation: str) -> str:
    """A name for branch and markers that no other kernel of the repository has.

    Kernels of other projects in the repository may have the same names, names may be joined in two ways, and
    git refuses two dots, a dot at an end, and `.lock`.
    """
    name = f"{kernel}-{implementation}"
    plain = re.sub(r"\.{2,}", ".", name).strip(".").removesuffix(".lock")
    if plain == name and "/" not in config and len(_JOINT.findall(name)) == 1:
        return name
    digest = hashlib.sha256(json.dumps([config, kernel, implementation]).encode()).hexdigest()
    return f"{plain}-{digest[:8]}"


def refused(why: str) -> ProposalError:
    """The error for a proposal that no pull request is made of."""
    return ProposalError(f"the proposal is refused: {why}", remedy="regenerate it: --cgins-regenerate")
