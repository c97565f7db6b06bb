"""Files of a folder that anybody may have made: regular files of bounded size, and no others beside them.

Everything is opened relative to the folder's descriptor, so that nothing can be exchanged for a link in between.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from pytest_cgins.core.errors import ProposalError
from pytest_cgins.core.text import counted
from pytest_cgins.regenerate.proposal.paths import quoted

REMEDY = "do not use it: it is not what cgins wrote; make the proposal again"
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


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
        place = PurePosixPath(name)
        with self._opened(place.parent) as parent:
            try:
                flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
                descriptor = os.open(place.name, flags, dir_fd=parent)
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
            with self._opened(folder) as descriptor, os.scandir(descriptor) as entries:
                extra = next((entry.name for entry in entries if entry.name not in known), None)
            if extra is not None:
                raise self._error(str(folder / extra), "does not belong into a proposal")

    @contextmanager
    def _opened(self, place: PurePosixPath) -> Iterator[int]:
        """Descriptor of a folder below, of whose parts none is a link."""
        descriptor = os.dup(self._descriptor)
        try:
            for part in place.parts:
                try:
                    below = os.open(part, _FOLDER, dir_fd=descriptor)
                except OSError as error:
                    raise self._error(str(place), _why(error)) from error
                os.close(descriptor)
                descriptor = below
            yield descriptor
        finally:
            os.close(descriptor)

    def _error(self, name: str, what: str) -> ProposalError:
        return ProposalError(f"{self.path}: {quoted(name)[1:-1]}: {what}", remedy=REMEDY)


def _why(error: OSError) -> str:
    if isinstance(error, FileNotFoundError):
        return "is not there"
    # With O_NOFOLLOW a link is ELOOP, and ENOTDIR where a folder was asked for.
    return "is a symbolic link, or no file" if error.errno in _LINK else error.strerror or str(error)


_LINK = (errno.ELOOP, errno.ENOTDIR)
