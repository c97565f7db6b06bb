"""Files of a run, whole or not at all, and what is left of those that a killed process was writing."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path

from pytest_cgins.config.llm import ROLES
from pytest_cgins.core import atomic

_DRAFT = re.compile(r"\..+\.(\d+)\.\w+\.(?:tmp|part)")
"""What is written first, with the number of its process; `part` by a courier of a former version."""


def write_text(file: Path, text: str) -> None:
    """Write a file, whole or not at all, and on the disk; a model's text may hold what is no Unicode."""
    atomic.write_text(file, text, durable=True, errors="backslashreplace")


def write_files(folder: Path, files: Mapping[str, str]) -> None:
    """Write texts by path, all or none; what the folder had is replaced."""
    with atomic.replaced_folder(folder) as made:
        for name, text in files.items():
            path = made / name
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("w", encoding="utf-8", newline="") as opened:
                opened.write(text)
                opened.flush()
                os.fsync(opened.fileno())


def read_files(folder: Path) -> dict[str, str]:
    """Texts by path, in the order of the paths."""
    files = (file for file in sorted(folder.rglob("*")) if file.is_file())
    return {str(file.relative_to(folder)): file.read_bytes().decode() for file in files}


def draft_of(folder: Path, name: str) -> Path:
    """Where a file waits until it is put in its place; `sweep` removes it if a kill comes first."""
    return folder / f".{name}"


def sweep(folder: Path) -> None:
    """Remove what was being written when a process was killed. Nothing else begins with a dot, sources apart.

    Args:
        folder: of a run, held by this process. A courier of an earlier part may still write an answer there.
    """
    places = [folder, *folder.glob("*/"), *folder.glob("*/attempt-*/")]
    places += [place for role in ROLES for place in folder.glob(f"*/attempt-*/{role}/")]
    for place in places:
        for left in place.glob(".*"):
            draft = _DRAFT.fullmatch(left.name)
            if draft is not None and _lives(int(draft[1])):
                continue
            if left.is_dir() and not left.is_symlink():
                shutil.rmtree(left, ignore_errors=True)
            else:
                left.unlink(missing_ok=True)


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True
