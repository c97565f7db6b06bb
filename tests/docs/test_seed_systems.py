"""SEED_SYSTEMS.md against the files and tests that there are."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import pytest
from tables import functions

from pytest_cgins.app import cli
from pytest_cgins.regenerate.methods import registry

PACKAGE = Path(cli.__file__).parents[1]
REPOSITORY = Path(__file__).parents[2]
TEXT = (REPOSITORY / ".github" / "SEED_SYSTEMS.md").read_text(encoding="utf-8")
NUMBERS = {*map(str, range(1, 31)), "29a", "29b", "29c"}
EXCUSE = "missing: "
"""What a note begins with if a line has nothing to show."""
_LINE = re.compile(
    r"(?m)^- (?:(?P<number>\d+[abc]?) )?(?P<ability>.+?) \((?P<file>`[^`]+`)?; (?P<test>`[^`]+`)?\)(?:: (?P<note>.+))?$"
)


@dataclass(frozen=True)
class Ability:
    """One line: what another system does, and what shows that it is here."""

    number: str
    ability: str
    file: str
    test: str
    note: str


ABILITIES = [
    Ability(**{name: (value or "").strip("`") if name in ("file", "test") else value or ""
               for name, value in match.groupdict().items()})
    for match in _LINE.finditer(TEXT)
]  # fmt: skip


def test_every_line_is_read() -> None:
    """Each line of a list has its ability, file and test, and each numbered ability has a line."""
    assert len(ABILITIES) == len(re.findall(r"(?m)^- ", TEXT)) > 70
    assert {ability.number for ability in ABILITIES} - {""} == NUMBERS


def test_places_exist() -> None:
    """Each file is there, below the package or in the repository."""
    for line in ABILITIES:
        if line.file:
            assert (PACKAGE / line.file).exists() or (REPOSITORY / line.file).exists(), line


@pytest.mark.exam
def test_tests_exist() -> None:
    """Each test that is named, in a line or in its note, is a function of its file."""
    for line in ABILITIES:
        for name in (line.test, *(name for name in _quoted(line.note) if "::" in name)):
            file, _, function = name.partition("::")
            assert not name or function in functions(REPOSITORY / "tests" / file), line


def test_methods_exist() -> None:
    """Each method that a note names is in the registry."""
    named = {
        name
        for line in ABILITIES
        if "methods `" in line.note
        for name in _quoted(line.note.partition("methods ")[2])
    }
    assert len(named) > 3
    for name in named:
        assert registry.shipped().get(name).id == name


def test_what_is_not_shown_has_a_reason() -> None:
    """A line without a file or a test says in its note that something is missing, and why; one with both does not."""
    for line in ABILITIES:
        excused = line.note.startswith(EXCUSE) and len(line.note) > len(EXCUSE)
        assert bool(line.file and line.test) != excused, line


def _quoted(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)
