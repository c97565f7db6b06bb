"""Files that are replaced whole, and the folder of those that nobody has to keep."""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


def write_text(path: Path, text: str, *, durable: bool = False, errors: str = "strict") -> None:
    """Replace a file. A reader sees the old text or the new one, never half of one.

    Its folder is created if needed; the umask decides who may read it. A `durable` one is on the disk on return.

    Raises:
        OSError: the folder or file cannot be written; the old file is unchanged.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}.tmp")
    try:
        with draft.open("x", encoding="utf-8", errors=errors) as file:
            file.write(text)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        draft.replace(path)
        if durable:
            sync_folder(path.parent)
    except BaseException:
        with suppress(OSError):
            draft.unlink()
        raise


@contextmanager
def replaced_folder(folder: Path) -> Iterator[Path]:
    """An empty folder beside this one, in whose place it is put at the end, whole or not at all.

    Raises:
        OSError: the folder cannot be written; the old one is unchanged.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        made = draft / "new"
        made.mkdir()  # mkdtemp's own is for its owner only
        yield made
        with suppress(FileNotFoundError):
            folder.rename(draft / "old")
        made.rename(folder)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def sync_folder(folder: Path) -> None:
    """Have the names in a folder on the disk."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def cache_folder(name: str) -> Path:
    """`$CGINS_CACHE_DIR/NAME`, else a folder of that name in the user's cache folder; it need not be there."""
    if named := os.environ.get("CGINS_CACHE_DIR"):
        return Path(named).absolute() / name
    from platformdirs import user_cache_path

    return user_cache_path("pytest-cgins") / name
