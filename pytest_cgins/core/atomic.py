"""Files that are replaced whole."""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from pathlib import Path


def write_text(path: Path, text: str, *, durable: bool = False, errors: str = "strict") -> None:
    """Replace a file. A reader sees the old text or the new one, never half of one.

    Args:
        path: its folder is created if needed; the umask decides who may read it.
        text: encoded as UTF-8.
        durable: return only when the text is on the disk.
        errors: how to encode what is no Unicode, as `open` takes it.

    Raises:
        OSError: the folder or file cannot be written; the old file is unchanged.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    try:
        with draft.open("x", encoding="utf-8", errors=errors) as file:
            file.write(text)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        draft.replace(path)
    except BaseException:
        with suppress(OSError):
            draft.unlink()
        raise
