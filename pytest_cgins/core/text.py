"""Small pieces of wording that many messages share."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Sequence
from datetime import datetime, timezone
from difflib import get_close_matches
from pathlib import Path
from typing import TextIO

UNLIMITED = 100_000
"""Columns at which nothing is folded or cut."""


def columns(stream: TextIO) -> int:
    """Columns of the terminal that a stream writes to; without one, as in a log of CI, nothing is folded.

    A name or a remedy that is broken into lines can be neither searched for nor copied.
    """
    return shutil.get_terminal_size().columns if stream.isatty() else UNLIMITED


def now() -> str:
    """UTC, ISO 8601, to the second."""
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


def first_line(error: Exception) -> str:
    """Of what an exception says; its name if it says nothing."""
    return (str(error).splitlines() or [type(error).__name__])[0]


def why_unnameable(path: Path) -> tuple[str, str] | None:
    """What is wrong with a path that no document can name, and what to do; None if nothing is.

    Python stands lone surrogates for bytes that the locale cannot decode, and no JSON has these.
    """
    name = str(path)
    try:
        name.encode()
    except UnicodeEncodeError:
        shown = name.encode(errors="backslashreplace").decode()
    else:
        return None
    try:
        os.fsencode(path).decode()
    except UnicodeDecodeError:
        return f"{shown}: a name in this path is not UTF-8", "rename it"
    return f"{shown}: the locale cannot encode this path", "set PYTHONUTF8=1, or a locale such as C.UTF-8"


def upwards(folder: Path, name: str = "cgins.yaml") -> Path | None:
    """The file of a name in a folder, or in the nearest folder above it; None if there is none."""
    above = (folder.absolute(), *folder.absolute().parents)
    return next((place / name for place in above if (place / name).is_file()), None)


def counted(number: int, one: str, several: str = "", *, grouped: bool = False) -> str:
    """`1 branch`, `2 branches`; several are one with an s unless said otherwise.

    A verb goes along: `counted(n, "case was", "cases were")`. Grouped, thousands are set off by commas.
    """
    return f"{number:{',' if grouped else ''}} {one if number == 1 else several or f'{one}s'}"


def numbered(noun: str, numbers: Sequence[int]) -> str:
    """`rank 1`, `ranks 0, 2`."""
    return f"{noun if len(numbers) == 1 else f'{noun}s'} {', '.join(map(str, numbers))}"


def nearest(word: str, known: Iterable[str]) -> str:
    """`did you mean "…"?` for the most similar known word, else the empty string."""
    matches = get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f'did you mean "{matches[0]}"?' if matches else ""


def shown(file: Path) -> str:
    """A path as a person would write it: relative to the current folder if it lies below."""
    try:
        return str(file.relative_to(Path.cwd()))
    except ValueError:
        return str(file)


def text_of(file: Path, most: int = -1) -> str:
    """Text of a file, or its first characters, with marks for what is no UTF-8; "" if it cannot be read."""
    try:
        with file.open(encoding="utf-8", errors="replace") as opened:
            return opened.read(most)
    except OSError:
        return ""


def nearest_path(path: Path, shown: str) -> str:
    """`did you mean "…"?` for the most similar name in the folder of a path, written as the path is `shown`."""
    try:
        names = [entry.name for entry in path.parent.iterdir()]
    except (OSError, ValueError):
        return ""
    folder = shown.rstrip("/").removesuffix(path.name)
    return nearest(path.name, names).replace('"', f'"{folder}', 1)


def inputs_phrase(name: str, article: str = "") -> str:
    """A set of inputs as reports call it: `edge inputs`, or `inputs with NaN and infinity` where the name is not one word."""
    return f"inputs with {name}" if " " in name else f"{article}{name} inputs"
