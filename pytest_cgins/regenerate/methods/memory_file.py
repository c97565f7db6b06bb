"""`.cgins/methods.json`: read whole, changed under a lock, and replaced at once."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from pytest_cgins.core import atomic, documents, locks
from pytest_cgins.core.errors import JournalError
from pytest_cgins.core.text import counted
from pytest_cgins.regenerate.methods.classes import MethodMemory, Tried

FOLDER = ".cgins"
"""Of a project, beside its cgins.yaml."""
NAME = "methods.json"
"""In that folder."""
LIMIT_NBYTES = 2**24
LOCK_WAIT_S = 30.0
_REMEDY = "remove the file: only what was learned of methods is lost"


def read(file: Path) -> MethodMemory:
    """What is remembered; nothing where there is no file.

    Raises:
        JournalError: the file cannot be read, or is not a method memory file.
    """
    try:
        if not file.exists():
            return MethodMemory()
        if not file.is_file():
            raise JournalError(f"{file} is not a regular file", remedy="name another one")
        nbytes = file.stat().st_size
        if nbytes > LIMIT_NBYTES:
            raise JournalError(
                f"{file}: {counted(nbytes, 'byte is', 'bytes are')} more than {LIMIT_NBYTES}", remedy=_REMEDY
            )
        return documents.load(MethodMemory, file.read_bytes())
    except OSError as error:
        raise JournalError(f"{file}: {error.strerror or error}", remedy="make it readable") from None
    except ValueError as error:
        said = " ".join(str(error).split())[:300]
        raise JournalError(f"{file} is not a method memory file: {said}", remedy=_REMEDY) from None


def remember(file: Path, tried: Iterable[Tried]) -> MethodMemory:
    """Add results; the folder is made if it is not there.

    Raises:
        JournalError: the file is damaged, or another process holds it for too long.
        OSError: it cannot be written.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    # A file of its own: the other one is replaced. It stays: who waits for a removed file waits for nothing.
    with locks.holding(file.with_name(f".{file.name}.lock"), LOCK_WAIT_S, str(file)) as is_held:
        if not is_held:
            raise JournalError(
                f"{file} was locked by another process for {LOCK_WAIT_S:g} s", remedy="end that process"
            )
        memory = read(file).with_more(tried)
        atomic.write_text(file, documents.dump(memory, indent=1) + "\n", durable=True)
    return memory
