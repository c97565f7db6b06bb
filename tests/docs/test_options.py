"""options.md against what pytest and the command `cgins` declare."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

import pytest
from tables import document, rows, sections

from pytest_cgins import plugin
from pytest_cgins.app import cli

PYTEST = "pytest --cgins"


class Declared:
    """Stands for pytest's parser and its group, and keeps what is declared."""

    def __init__(self) -> None:
        self.parser = argparse.ArgumentParser(add_help=False)
        self.ini: list[str] = []

    def getgroup(self, *_: object, **__: object) -> Declared:
        return self

    def addoption(self, *names: str, **options: Any) -> None:
        self.parser.add_argument(*names, **options)

    def addini(self, name: str, *_: object, **__: object) -> None:
        self.ini.append(name)


def declared(monkeypatch: pytest.MonkeyPatch) -> dict[str, dict[str, str]]:
    """Heading → first cell → default, of every option and argument."""
    options = Declared()
    plugin.pytest_addoption(options)  # type: ignore[arg-type]
    assert options.ini == [], "options.md has no table for ini values yet"
    found = {PYTEST: cells(options.parser)}
    parsers: list[argparse.ArgumentParser] = []

    def keep(self: argparse.ArgumentParser, *_: object) -> None:
        parsers.append(self)
        raise SystemExit

    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", keep)
    with pytest.raises(SystemExit):
        cli.main([])
    for name, parser in commands("cgins", parsers[0]):
        found[name] = cells(parser)
    return found


def commands(name: str, parser: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """Every parser that has options of its own, with the words that lead to it."""
    nested = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    if not nested or cells(parser):
        yield name, parser
    for action in nested:
        for word, child in action.choices.items():
            yield from commands(f"{name} {word}", child)


def cells(parser: argparse.ArgumentParser) -> dict[str, str]:
    """First cell of each row → its default, as the document has to write them."""
    formatter = argparse.HelpFormatter("cgins")
    found = {}
    for action in parser._actions:
        if isinstance(action, (argparse._HelpAction, argparse._SubParsersAction)):
            continue
        if action.option_strings:
            usage = formatter._format_args(action, formatter._get_default_metavar_for_optional(action))
            first = ", ".join(action.option_strings) + (f" {usage}" if usage and action.nargs != 0 else "")
        else:
            first = formatter._format_args(action, formatter._get_default_metavar_for_positional(action))
        default = action.default
        plain = (
            default is None or default is argparse.SUPPRESS or default is False or default in ([], (), "", 0)
        )
        listed = ", ".join(map(str, default)) if isinstance(default, list) else str(default)
        found[f"`{first}`"] = "" if plain and type(default) is not float else f"`{listed}`"
    return found


def test_options_are_those_of_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every option, argument and command has its row, with its values and default; no row is of another."""
    expected = declared(monkeypatch)
    documented = {
        heading: {row[0]: row[1] for row in rows(text)}
        for heading, text in sections(document("options.md")).items()
        if heading != "Exit codes"
    }
    wanted = {heading for heading, found in expected.items() if found}
    assert {heading for heading, found in documented.items() if found} == wanted
    for heading in sorted(wanted):
        assert documented[heading] == expected[heading], heading


def test_every_row_says_what_it_means() -> None:
    """No meaning is left empty."""
    for heading, text in sections(document("options.md")).items():
        for row in rows(text):
            assert len(row) == (2 if heading == "Exit codes" else 3), (heading, row)
            assert row[-1], (heading, row)
