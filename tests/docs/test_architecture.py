"""ARCHITECTURE.md against the rooms that there are."""

from __future__ import annotations

import re
from pathlib import Path

from tables import rows, sections

from pytest_cgins import plugin

PACKAGE = Path(plugin.__file__).parent
REPOSITORY = Path(__file__).parents[2]
FILE = REPOSITORY / ".github" / "ARCHITECTURE.md"
TEXT = FILE.read_text(encoding="utf-8")


def test_rooms_are_listed_in_the_order_of_imports() -> None:
    """The table has the layers that import-linter holds, from the first to the last."""
    layers = (REPOSITORY / "pyproject.toml").read_text(encoding="utf-8").partition("\nlayers = [")[2]
    names = re.findall(r'"(\w+)"', layers.partition("]")[0])
    assert [row[0].strip("`") for row in rows(sections(TEXT)["Rooms"])] == [*reversed(names)][
        : len(names) - 1
    ]


def test_files_exist() -> None:
    """Each file and folder that is named is there, below the package or in the repository."""
    named = re.findall(r"`([\w/]+(?:/|\.py|\.md))`", TEXT)
    rooms = sorted(path.parent.name for path in PACKAGE.glob("*/__init__.py"))
    assert len(named) > 40
    for name in named:
        folders = [PACKAGE, REPOSITORY, *(PACKAGE / room for room in rooms)]
        assert any((folder / name).exists() for folder in folders), name
