"""What of a proposal goes into a pull request, after it was taken for hostile.

A proposal comes from a process that ran code which a model wrote: each of its names, paths and texts may be a try to
change more than a kernel. Which files belong to the kernel is not said here: that is read from `cgins.yaml` on the base
branch (`allowed`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from pytest_cgins.errors import ProposalError
from pytest_cgins.github.body import body
from pytest_cgins.regenerate.model import Goal
from pytest_cgins.regenerate.proposal_model import Proposal, title_of
from pytest_cgins.regenerate.proposal_paths import check_paths

MOST_NBYTES = 4 << 20
"""Of all files together."""
FOLDERS: dict[Goal, str] = {"repair": "repair", "optimise": "optimize", "generate": "generate"}
"""Part of the branch's name, by goal."""
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:/-]{0,199}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Contribution:
    """A checked proposal, in the words of git and GitHub."""

    proposal: str
    """Its ID."""
    kernel: str
    """Name of the kernel."""
    implementation: str
    """Device and name of the implementation: `cuda-triton`."""
    goal: Goal
    """What was asked for."""
    branch: str
    """`cgins/repair/softmax-cuda-triton`: the same for each proposal of the kernel."""
    title: str
    """Of the pull request and of the commit."""
    body: str
    """Of the pull request."""
    config: str
    """Path of the project's `cgins.yaml`, from the top of the repository."""
    files: Mapping[str, bytes]
    """New bytes by path, from the top of the repository."""
    base: Mapping[str, str]
    """sha256 by path of what the proposal was made on, "" where there was no file."""


def checked(proposal: Proposal, *, files: Mapping[str, bytes], report: str, config: str) -> Contribution:
    """Check names, paths, sizes and texts.

    Args:
        proposal: what it says of itself.
        files: new bytes by path, from the top of the repository.
        report: markdown.
        config: path of the project's `cgins.yaml`, by the clone and not by the proposal.

    Raises:
        ProposalError: one of them is not what an honest proposal has; the message names it.
    """
    target, goal = proposal.target, proposal.goal
    kernel = _name(target.kernel, "kernel")
    implementation = f"{target.device}-{_name(target.implementation, 'implementation')}"
    if not _ID.fullmatch(proposal.id):
        raise _refused(f"its ID {proposal.id[:80]!r} is none")
    if proposal.config != config:
        raise _refused(f"it is of the project of {proposal.config[:200]!r}, and here is that of {config!r}")
    if set(proposal.base_digests) != set(files):
        raise _refused("its files are not those of which it says what they were before")
    check_paths(files, goal=goal, config=config)
    _check_texts(files)
    return Contribution(
        proposal=proposal.id,
        kernel=kernel,
        implementation=implementation,
        goal=goal,
        branch=f"cgins/{FOLDERS[goal]}/{_ref(kernel)}-{_ref(implementation)}",
        title=title_of(target, goal),
        body=body(report, f"{kernel}-{implementation}"),
        config=config,
        files=dict(files),
        base=dict(proposal.base_digests),
    )


def _name(text: str, what: str) -> str:
    # Two hyphens would end the comment that the name goes into.
    if not _NAME.fullmatch(text) or "--" in text:
        raise _refused(f"its {what} {text[:80]!r} is no name of one")
    return text


def _ref(name: str) -> str:
    """A name as a part of a branch: git refuses two dots, a dot at an end, and `.lock`."""
    return re.sub(r"\.{2,}", ".", name).strip(".").removesuffix(".lock") or "kernel"


def _check_texts(files: Mapping[str, bytes]) -> None:
    total = sum(len(content) for content in files.values())
    if total > MOST_NBYTES:
        raise _refused(f"its files have {total} bytes; {MOST_NBYTES} are allowed")
    for path, content in files.items():
        try:
            text = content.decode()
        except UnicodeDecodeError:
            raise _refused(f'"{path}" is no text in UTF-8') from None
        if "\0" in text:
            raise _refused(f'"{path}" has a zero byte: it is no source')


def _refused(why: str) -> ProposalError:
    return ProposalError(f"the proposal is refused: {why}", remedy="make it anew with --cgins-regenerate")
