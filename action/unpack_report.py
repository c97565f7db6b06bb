"""Take the one JSON file out of an artifact, which may be anybody's. Standard library only.

    python unpack_report.py ARCHIVE TARGET

Names in the archive choose nothing but which file it is; what is larger than a report is refused while it is read.
"""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path

from workflow import InputError, error

LIMIT_NBYTES = 1 << 28
"""As for `cgins report`."""


def unpack(archive: Path) -> bytes:
    """Contents of the only JSON file.

    Raises:
        InputError: it is no archive, has none or several, or one that is too large.
    """
    try:
        with zipfile.ZipFile(archive) as file:
            names = [one for one in file.namelist() if one.endswith(".json")]
            if len(names) != 1:
                raise InputError(f"the artifact has {len(names)} JSON files, and a report is one")
            with file.open(names[0]) as member:
                content = member.read(LIMIT_NBYTES + 1)
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, OSError, EOFError):
        raise InputError("the artifact is no archive that can be read") from None
    if len(content) > LIMIT_NBYTES:
        raise InputError("the file in the artifact is larger than any report")
    return content


def main() -> int:
    """Write the file; 2 if it is refused."""
    archive, target = map(Path, sys.argv[1:])
    try:
        target.write_bytes(unpack(archive))
    except InputError as wrong:
        error(str(wrong))
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
