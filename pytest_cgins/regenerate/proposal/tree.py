"""A proposal and a working tree: whether it fits, and its files written there. Runs nothing of either."""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import Literal

from pytest_cgins.building.contracts import source
from pytest_cgins.config import load
from pytest_cgins.core import git
from pytest_cgins.core.errors import ProposalError, RevisionError
from pytest_cgins.regenerate.proposal import entry as proposal_entry
from pytest_cgins.regenerate.proposal.paths import LINK, open_file, open_folder
from pytest_cgins.regenerate.proposal.read import FILE_LIMIT_NBYTES, Contents

State = Literal["base", "applied", "other"]
"""A file is as the proposal found it; as the proposal wants it; neither."""


def top_of(folder: Path) -> tuple[Path, bool]:
    """The folder that a proposal's paths start at, and whether that is a repository's."""
    try:
        return Path(git.read(folder, "rev-parse", "--show-toplevel").rstrip("\n")), True
    except RevisionError:
        return folder.absolute(), False


def states(contents: Contents, top: Path) -> dict[str, State]:
    """How each file of a proposal stands in the working tree.

    Raises:
        ProposalError: a part of a path is a symbolic link there, or a file is no regular one.
    """
    present = {path: _present(top, path) for path in contents.files}
    return {
        path: "applied"
        if present[path] == new
        else "base"
        if present[path] == contents.base.get(path)
        else "other"
        for path, new in contents.files.items()
    }


def check_own_sources(contents: Contents, top: Path) -> None:
    """Hold the files against `cgins.yaml` of the working tree: they must be the target's own.

    Raises:
        ProposalError: one is not, the target is not there, or a new one has the name of one that is there but for upper
            and lower case.
        ConfigError: `cgins.yaml` cannot be read.
    """
    about = contents.proposal
    for path in sorted(about.created):
        _check_case(top, path)
    if about.config in contents.files:
        return  # A new entry: `read` has held the files against it.
    config = load(top / about.config, require_traces=False, require_sources=False)
    _, one = proposal_entry.find(config, about.target)
    own = {os.path.realpath(path) for path in one.sources}
    if one.contract == "python":
        module, _, function = one.target.partition(":")
        file = source.find_target(module, function, config.root)
        own |= {os.path.realpath(config.root / path) for path in proposal_entry.module_files(one)}
        own |= {os.path.realpath(file)} if file is not None else set()
    for path in contents.files:
        if os.path.realpath(top / path) not in own:
            raise ProposalError(
                f"{path}: is not a source of {about.target.name}, by {about.config}",
                remedy="list it under sources there, if it is one",
            )


def _check_case(top: Path, path: str) -> None:
    """Where upper and lower case are the same, a new file would take the place of another, or of its folder."""
    folder = top
    for part in PurePosixPath(path).parts:
        try:
            names = {place.name for place in folder.iterdir()}
        except OSError:  # not there, or no folder: `states` tells
            return
        twin = next((name for name in names if name.casefold() == part.casefold()), part)
        if part not in names and twin != part:
            raise ProposalError(
                f'{path}: "{part}" is "{twin}" in the working tree, where upper and lower case are the same',
                remedy="rename one of them",
            )
        folder /= part


def git_refusal(contents: Contents, top: Path) -> str:
    """What git has against the patch; "" if it applies."""
    try:
        git.read(top, "apply", "--check", "--whitespace=nowarn", "-p1", "-", given=contents.patch)
    except RevisionError as error:
        return error.what
    return ""


def write_files(contents: Contents, top: Path) -> tuple[str, ...]:
    """Put the new files in place; all are written before the first is exchanged.

    Returns:
        Paths of those that were not there in this form yet.

    Raises:
        ProposalError: a file of the working tree is neither the proposal's base nor its result; nothing is changed.
        OSError: the disk does not take it.
    """
    found = states(contents, top)
    others = [path for path, state in found.items() if state == "other"]
    if others:
        raise ProposalError(
            f"{', '.join(others)}: changed since the proposal was made",
            remedy="go to its base commit, or regenerate on what is there now",
        )
    wanted = [path for path, state in found.items() if state == "base"]
    staged: list[tuple[int, str, str]] = []
    try:
        staged.extend(_stage(top, path, contents.files[path]) for path in wanted)
        for parent, temporary, name in staged:
            os.rename(temporary, name, src_dir_fd=parent, dst_dir_fd=parent)
    finally:
        for parent, temporary, _ in staged:
            with suppress(OSError):
                os.unlink(temporary, dir_fd=parent)
            os.close(parent)
    return tuple(wanted)


@contextmanager
def _opened(top: Path, path: str) -> Iterator[int]:
    """A descriptor of the top folder; what a link on the way from there to a file raises is told as that."""
    descriptor = os.open(top, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield descriptor
    except OSError as error:
        if error.errno in LINK:
            raise _linked(path) from error
        raise
    finally:
        os.close(descriptor)


def _present(top: Path, path: str) -> bytes | None:
    """Content of a file of the working tree; None if it is not there."""
    try:
        with _opened(top, path) as folder:
            descriptor = open_file(folder, PurePosixPath(path))
    except FileNotFoundError:
        return None
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise _linked(path)
        return file.read(FILE_LIMIT_NBYTES + 1)


def _linked(path: str) -> ProposalError:
    return ProposalError(
        f"{path}: a part of it is a symbolic link, or no file, in the working tree",
        remedy="only regular files that lie in the project itself are changed",
    )


def _stage(top: Path, path: str, content: bytes) -> tuple[int, str, str]:
    """Write a file beside its place, with the mode of the one that is there."""
    with _opened(top, path) as folder:
        parent = open_folder(folder, PurePosixPath(path).parent, make=True)
    name = PurePosixPath(path).name
    temporary = f".{name}-{secrets.token_hex(8)}"
    try:
        descriptor = os.open(
            temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666, dir_fd=parent
        )
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            with suppress(FileNotFoundError):
                os.fchmod(
                    file.fileno(), stat.S_IMODE(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode)
                )
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary, dir_fd=parent)
        os.close(parent)
        raise
    return parent, temporary, name
