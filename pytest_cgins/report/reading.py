"""Reports of `--cgins-json` read from files that nobody vouches for."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from pytest_cgins.core.errors import ConfigError
from pytest_cgins.core.text import counted

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_cgins.core.model import SessionReport

REPORT_LIMIT_NBYTES = 1 << 28
"""A report of ten thousand cases has some 50 MB."""
_REMEDY = "give it the file that --cgins-json wrote, by the same version of pytest-cgins"


def load(path: Path) -> SessionReport:
    """Read and validate.

    Raises:
        ConfigError: the file cannot be read, is not a report, or one of another version.
    """
    from pytest_cgins.core import documents
    from pytest_cgins.core.model import SessionReport

    try:
        nbytes = path.stat().st_size
        if nbytes > REPORT_LIMIT_NBYTES:
            raise ConfigError(
                f"{path}: {counted(nbytes, 'byte is', 'bytes are')} not a report of pytest-cgins",
                remedy=_REMEDY,
            )
        report = documents.load(SessionReport, path.read_bytes())
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}", remedy=_REMEDY) from None
    except ValueError as error:
        _refuse_other_versions(path)
        lines = str(error).splitlines()
        raise ConfigError(f"{path} is not a report: {' '.join(lines[:3])}", remedy=_REMEDY) from None
    _refuse_other_versions(path)
    return report


def _refuse_other_versions(path: Path) -> None:
    """Their fields mean other things, if they can be read at all."""
    from pytest_cgins.core.model import REPORT_VERSION

    try:
        document = json.loads(path.read_bytes())
    except (ValueError, RecursionError):
        return
    version = document.get("version") if isinstance(document, dict) else None
    if isinstance(version, int) and version != REPORT_VERSION:
        raise ConfigError(
            f"{path}: a report of version {version}; this one reads {REPORT_VERSION}", remedy=_REMEDY
        )
