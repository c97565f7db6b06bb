"""Which files a proposal may change, by their paths alone.

What is allowed is told, and all else is refused: a proposal becomes a commit, and may have been made by anybody.
"""

from __future__ import annotations

import errno
import os
import re
import stat
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path, PurePosixPath

from pytest_cgins.core.errors import ProposalError
from pytest_cgins.core.text import counted
from pytest_cgins.regenerate.attempt import Goal

MOST_FILES = 32
LONGEST = 240
"""Characters of a path."""
CONFIG_NAME = "cgins.yaml"
SUFFIXES = frozenset({".c", ".cc", ".cpp", ".cxx", ".cu", ".cuh", ".h", ".hh", ".hpp", ".inc", ".inl", ".py"})
"""Sources of kernels. `cgins.yaml` is allowed besides, for a kernel that is new."""

# Plain ASCII: no character that a file system drops, folds or shows as another, no name that hides itself,
# no `~`, in which short names for `.git` end.
_PART = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.+=, -]*[A-Za-z0-9_+=-])?")
_RUN_BY_OTHERS = re.compile(
    r"(conftest|setup|noxfile|sitecustomize|usercustomize|test_.*|.*_test)\.py", re.IGNORECASE
)
_REMEDY = (
    "only a kernel's own sources can be proposed, C++, CUDA and Python files with plain names: "
    "rename the file or folder, in cgins.yaml too"
)


def check_path(path: str, *, goal: Goal, config: str = CONFIG_NAME) -> None:
    """Refuse a path that no proposal may change.

    Args:
        path: from the top of the repository.
        goal: `cgins.yaml` may be changed for `generate` alone.
        config: path of the project's `cgins.yaml`, likewise.

    Raises:
        ProposalError: with what is wrong with it.
    """
    wrong = _wrong(path) or _wrong_name(path, goal, config)
    if wrong:
        raise ProposalError(f"{quoted(path)}: {wrong}", remedy=_REMEDY)


def check_paths(paths: Iterable[str], *, goal: Goal, config: str) -> None:
    """Refuse paths of which one is not allowed, or of which two are one file, or a file and its folder.

    Raises:
        ProposalError: naming the first.
    """
    seen: dict[str, str] = {}
    for count, path in enumerate(paths, 1):
        if count > MOST_FILES:
            raise ProposalError(f"more than {MOST_FILES} files", remedy="propose fewer: a kernel has few")
        check_path(path, goal=goal, config=config)
        twin = seen.setdefault(path.casefold(), path)
        if twin != path:
            raise ProposalError(
                f"{path} and {twin} are one file where upper and lower case are the same",
                remedy="rename one of them",
            )
    for folded, path in seen.items():
        for parent in PurePosixPath(folded).parents:
            if str(parent) in seen:
                raise ProposalError(
                    f"{seen[str(parent)]} is a file, and the folder of {path}", remedy=_REMEDY
                )


def quoted(text: str) -> str:
    """Hostile text within a message: one line of ASCII, cut."""
    said = ascii(text)
    return said if len(said) <= 120 else f"{said[:120]}…"


def _wrong(path: str) -> str:
    if not path or len(path) > LONGEST:
        return f"a path has 1 to {LONGEST} characters, not {len(path)}"
    for part in path.split("/"):
        if not part or part in (".", ".."):
            return "paths are relative to the repository, without empty parts, `.` and `..`"
        if part.startswith("."):
            return "hidden files and folders cannot be changed"
        if not _PART.fullmatch(part):
            return "a name has ASCII letters, digits and `_.+=,- ` only, and ends in neither dot nor blank"
    return ""


def _wrong_name(path: str, goal: Goal, config: str) -> str:
    folder, _, name = path.rpartition("/")
    if name.casefold() == CONFIG_NAME:
        allowed = goal == "generate" and path == config
        return "" if allowed else f"{CONFIG_NAME} may change only where a new kernel is added to it"
    place = PurePosixPath(name)
    if place.suffix not in SUFFIXES:
        return f"files with the ending {place.suffix or 'none'!r} are not sources of kernels"
    if _RUN_BY_OTHERS.fullmatch(name):
        return "other tools run this file by its name, outside of any sandbox"
    if (
        place.stem.casefold() in _STDLIB
        and folder in ("", config.rpartition("/")[0])
        and place.suffix == ".py"
    ):
        return "it would stand in for a module of Python's own"
    return ""


_STDLIB = frozenset(name.casefold() for name in sys.stdlib_module_names)


LINK = (errno.ELOOP, errno.ENOTDIR)
REMEDY = "do not use it: it is not what cgins wrote; make the proposal again"
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def open_folder(top: int, folder: PurePosixPath, *, make: bool = False) -> int:
    """Open a folder below an open one, through no link; if `make`, folders that are not there are made."""
    descriptor = os.dup(top)
    for part in folder.parts:
        try:
            if make:
                with suppress(FileExistsError):
                    os.mkdir(part, dir_fd=descriptor)
            below = os.open(part, _FOLDER, dir_fd=descriptor)
        finally:
            os.close(descriptor)
        descriptor = below
    return descriptor


def open_file(top: int, path: PurePosixPath) -> int:
    """Open a file below an open folder for reading, through no link; of a pipe no writer is waited for."""
    parent = open_folder(top, path.parent)
    try:
        return os.open(path.name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK, dir_fd=parent)
    finally:
        os.close(parent)


class Folder:
    """One folder, opened once."""

    def __init__(self, path: Path) -> None:
        """Open it.

        Raises:
            ProposalError: it is not there, or no folder.
        """
        self.path = path
        try:
            self._descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise ProposalError(
                f"{path}: {error.strerror}", remedy="name the folder of a proposal: it has a proposal.json"
            ) from error

    def __enter__(self) -> Folder:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)

    def read(self, name: str, limit: int) -> bytes:
        """Content of a regular file.

        Args:
            name: its path in the folder; checked before, part by part.
            limit: most bytes.

        Raises:
            ProposalError: it is missing, a link, no file, or too large.
        """
        try:
            descriptor = open_file(self._descriptor, PurePosixPath(name))
        except OSError as error:
            raise self._error(name, _why(error)) from error
        with os.fdopen(descriptor, "rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise self._error(name, "is not a regular file")
            if status.st_size > limit:
                raise self._error(name, f"has {counted(status.st_size, 'byte')}; at most {limit} are allowed")
            content = file.read(limit + 1)
        if len(content) > limit:
            raise self._error(name, f"has more than {counted(limit, 'byte')}")
        return content

    def require_only(self, names: Iterable[str]) -> None:
        """Refuse a folder that has anything but these files and the folders that they are in.

        Raises:
            ProposalError: naming what is too much.
        """
        wanted: dict[PurePosixPath, set[str]] = {}
        for name in names:
            place = PurePosixPath(name)
            while place.name:
                wanted.setdefault(place.parent, set()).add(place.name)
                place = place.parent
        for folder, known in wanted.items():
            try:
                descriptor = open_folder(self._descriptor, folder)
            except OSError as error:
                raise self._error(str(folder), _why(error)) from error
            with os.scandir(descriptor) as entries:
                extra = next((entry.name for entry in entries if entry.name not in known), None)
            os.close(descriptor)
            if extra is not None:
                raise self._error(str(folder / extra), "does not belong into a proposal")

    def _error(self, name: str, what: str) -> ProposalError:
        return ProposalError(f"{self.path}: {quoted(name)[1:-1]}: {what}", remedy=REMEDY)


def _why(error: OSError) -> str:
    if isinstance(error, FileNotFoundError):
        return "is not there"
    # With O_NOFOLLOW a link is ELOOP, and ENOTDIR where a folder was asked for.
    return "is a symbolic link, or no file" if error.errno in LINK else error.strerror or str(error)
