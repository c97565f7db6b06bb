"""SEED_SYSTEMS.md against the files and tests that there are."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tables import rows

from pytest_cgins.app import cli
from pytest_cgins.regenerate.methods import registry

PACKAGE = Path(cli.__file__).parents[1]
REPOSITORY = Path(__file__).parents[2]
TEXT = (REPOSITORY / ".github" / "SEED_SYSTEMS.md").read_text(encoding="utf-8")
ROWS = list(rows(TEXT))
LINES = {
    *map(str, range(1, 31)),
    "29a",
    "29b",
    "29c",
    "requirements",
    "later form",
    "format",
    "other summary",
    "defaults",
}
EXCUSE = "missing: "
"""What a note begins with if a row has nothing to show."""


def test_every_line_has_a_row() -> None:
    """All numbered lines are there, the sentences without a number too, and no other."""
    assert {line for line, *_ in ROWS} == LINES


def test_places_exist() -> None:
    """Each file is there, below the package or in the repository."""
    for line, ability, where, *_ in ROWS:
        for name in _quoted(where):
            assert (PACKAGE / name).exists() or (REPOSITORY / name).exists(), f"{line}, {ability}: {name}"


def test_tests_exist() -> None:
    """Each test that is named, in a row or in its note, is a function of its file."""
    for line, ability, _, test, note in ROWS:
        for name in (*_quoted(test), *(one for one in _quoted(note) if "::" in one)):
            file, _, function = name.partition("::")
            assert function in _functions(REPOSITORY / "tests" / file), f"{line}, {ability}: {name}"


def test_methods_exist() -> None:
    """Each method that a note names is in the registry."""
    named = {
        name for *_, note in ROWS if "methods `" in note for name in _quoted(note.partition("methods ")[2])
    }
    assert len(named) > 3
    for name in named:
        assert registry.shipped().get(name).id == name


def test_what_is_not_shown_has_a_reason() -> None:
    """A row without a place or a test says in its note that something is missing, and why; one with both does not."""
    for line, ability, where, test, note in ROWS:
        shown = bool(_quoted(where)) and bool(_quoted(test))
        excused = note.startswith(EXCUSE) and len(note) > len(EXCUSE)
        assert shown != excused, f"{line}, {ability}"


def _quoted(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


@cache
def _functions(file: Path) -> frozenset[str]:
    return frozenset(_names(ast.parse(file.read_text(encoding="utf-8")))) if file.exists() else frozenset()


def _names(tree: ast.AST) -> Iterator[str]:
    return (one.name for one in ast.walk(tree) if isinstance(one, (ast.FunctionDef, ast.AsyncFunctionDef)))
