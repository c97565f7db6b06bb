"""Files of a journal: written whole or not at all, and on the disk once that is said; what a killed writer left is swept."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from pytest_cgins.config.llm import ROLES
from pytest_cgins.core import atomic

_COURIERS = re.compile(r"\..+\.(\d+)\.\d+\.part")
"""What `provider.files.write` writes to first, with the number of its process."""


def write_text(file: Path, text: str) -> None:
    """Write a file, whole or not at all, and on the disk; a model's text may hold what is no Unicode."""
    atomic.write_text(file, text, durable=True, errors="backslashreplace")


def write_files(folder: Path, files: Mapping[str, str]) -> None:
    """Write texts by path, all or none; what the folder had is replaced."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    made = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        for name, text in files.items():
            place = made / name
            place.parent.mkdir(parents=True, exist_ok=True)
            with place.open("w", encoding="utf-8", newline="") as opened:
                opened.write(text)
                opened.flush()
                os.fsync(opened.fileno())
        made.chmod(0o755)
        if folder.exists():
            shutil.rmtree(folder)
        made.rename(folder)
    except BaseException:
        shutil.rmtree(made, ignore_errors=True)
        raise


def read_files(folder: Path) -> dict[str, str]:
    """Texts by path, in the order of the paths."""
    found = {}
    for place in sorted(folder.rglob("*")):
        if place.is_file():
            with place.open(encoding="utf-8", newline="") as file:
                found[str(place.relative_to(folder))] = file.read()
    return found


def sweep(folder: Path) -> None:
    """Remove what was being written when a process was killed. Nothing else begins with a dot, sources apart.

    Args:
        folder: of a run, held by this process. A courier of an earlier part may still write an answer there.
    """
    places = [folder, *folder.glob("*/"), *folder.glob("*/attempt-*/")]
    places += [place for role in ROLES for place in folder.glob(f"*/attempt-*/{role}/")]
    for place in places:
        for left in place.glob(".*"):
            couriers = _COURIERS.fullmatch(left.name)
            if couriers is not None and _lives(int(couriers[1])):
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
        return True
    return True
