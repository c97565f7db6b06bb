"""Which files a proposal may change, by their paths alone.

What is allowed is told, and all else is refused: a proposal becomes a commit, and may have been made by anybody.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from pathlib import PurePosixPath

from pytest_cgins.core.errors import ProposalError
from pytest_cgins.regenerate.model import Goal

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
