"""Which headers a source includes, found without a compiler: NVRTC writes no depfile."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pytest_cgins.building.contracts.cxx import is_endless, without_comments
from pytest_cgins.building.contracts.source import read
from pytest_cgins.core.errors import SourceError

INCLUDE_LINE = re.compile(r"^[ \t]*#[ \t]*include(?:_next)?[ \t]*(.*)$", re.MULTILINE)
NAMED = re.compile(r'(["<])([^">\n]+)[">]')


@dataclass(frozen=True, slots=True, kw_only=True)
class Includes:
    """What a source includes, conditional includes too."""

    files: tuple[Path, ...]
    """Headers in the user's folders, those that they include as well, in order."""
    others: tuple[str, ...]
    """Names that are not found there: headers of CUDA, of libraries, or none."""


def scan(main: Path, folders: Sequence[Path]) -> Includes:
    """The headers of a source.

    Args:
        main: the source.
        folders: where headers are looked up besides the folder of the file that includes them.

    Raises:
        SourceError: an include names its header by a macro, or a header cannot be read.
    """
    files: dict[Path, None] = {}
    others: dict[str, None] = {}
    todo = [main]
    while todo:
        file = todo.pop(0)
        text = without_comments(read(file))
        for line in INCLUDE_LINE.finditer(text):
            named = NAMED.match(line[1].strip())
            if named is None:
                number = text.count("\n", 0, line.start()) + 1
                # Of another file, which may be any that the source names, no text is told.
                macro = f": {line[1].strip()}" if file == main else ""
                raise SourceError(
                    f"{file}:{number}: the include's file is named by a macro{macro}",
                    remedy='write its name: #include "rows.cuh"',
                )
            if any(is_endless(place / named[2]) for place in (file.parent, *folders)):
                raise SourceError(
                    f"{file} includes {named[2]}, a device, a pipe or a file of the system's",
                    remedy="include plain files",
                )
            places = [file.parent, *folders] if named[1] == '"' else folders
            found = next((place / named[2] for place in places if (place / named[2]).is_file()), None)
            if found is None:
                others[named[2]] = None
            elif found not in files and found != main:
                files[found] = None
                todo.append(found)
    return Includes(files=tuple(files), others=tuple(others))
