"""Take the files out of an artifact with proposals, which are a model's work. Standard library only.

    python unpack_proposals.py ARCHIVE FOLDER

All files are written as plain ones, below the folder, which is new; a name that leads elsewhere is refused.
"""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path, PurePosixPath

from workflow import InputError, error

LIMIT_NBYTES = 1 << 28
"""Of all files."""
LIMIT_FILES = 10_000


def unpack(archive: Path, folder: Path) -> None:
    """Write the files.

    Raises:
        InputError: it is no archive, has a path that leads elsewhere or is there twice, or more than proposals have.
    """
    room = LIMIT_NBYTES
    try:
        with zipfile.ZipFile(archive) as file:
            members = [one for one in file.infolist() if not one.is_dir()]
            if len(members) > LIMIT_FILES:
                raise InputError("the artifact has more files than any proposals")
            folder.mkdir(parents=True)
            for member in members:
                with file.open(member) as source:
                    content = source.read(room + 1)
                room -= len(content)
                if room < 0:
                    raise InputError("the files in the artifact are larger than any proposals")
                target = folder / _inside(member.filename)
                target.parent.mkdir(parents=True, exist_ok=True)
                with target.open("xb") as made:
                    made.write(content)
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, OSError, EOFError):
        raise InputError("the artifact is no archive that can be read") from None


def _inside(name: str) -> PurePosixPath:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or not name.isprintable():
        raise InputError("the artifact has a file whose path leads out of it")
    return path


def main() -> int:
    """Write the files; 2 if they are refused."""
    archive, folder = map(Path, sys.argv[1:])
    try:
        unpack(archive, folder)
    except InputError as wrong:
        error(str(wrong))
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
