"""options.md against what pytest and the command `cgins` declare."""

from __future__ import annotations

import argparse
import re
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
        cli.main(["completion"])
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


ITEM = re.compile(r"(?m)^- (`[^`]+`)(?: \((`[^`]+`)\))?: (.+)$")


def options(text: str) -> Iterator[tuple[str, str, str]]:
    """Option, default and meaning of each item of a section."""
    return ((item[1], item[2] or "", item[3]) for item in ITEM.finditer(text))


GROUP = " COMMAND"
"""Ends the heading of a table of options that the commands with the words before it share."""


def documented() -> dict[str, dict[str, str]]:
    """Heading → first cell → default, with the shared options that a section names after `Shared:`."""
    tables = {
        heading: {cell: default for cell, default, _ in options(text)}
        for heading, text in sections(document("options.md")).items()
    }
    groups = {heading: tables.pop(heading) for heading in list(tables) if heading.endswith(GROUP)}
    for heading, text in sections(document("options.md")).items():
        listed = re.search(r"Shared: ((?:(?:all|`[^`]+`)(?:,\s)?)+)", text)
        for name in re.findall(r"all|`[^`]+`", listed[1]) if listed else ():
            found = own(heading, groups) if name == "all" else [shared(heading, name.strip("`"), groups)]
            for cell, default in found:
                assert cell not in tables[heading], (heading, cell)
                tables[heading][cell] = default
    return tables


def own(heading: str, groups: dict[str, dict[str, str]]) -> list[tuple[str, str]]:
    """All rows of the table that the command's own group shares."""
    return list(groups[f"{heading.rpartition(' ')[0]}{GROUP}"].items())


def shared(heading: str, name: str, groups: dict[str, dict[str, str]]) -> tuple[str, str]:
    """The row of a shared option, of the group nearest to the command."""
    for group in sorted(groups, key=len, reverse=True):
        if heading.startswith(group.removesuffix(GROUP) + " "):
            for cell, default in groups[group].items():
                if cell == f"`{name}`" or cell.startswith(f"`{name} "):
                    return cell, default
    raise AssertionError(f"{heading}: no table of shared options has {name}")


def test_options_are_those_of_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every option, argument and command has its row, with its values and default; no row is of another."""
    expected = declared(monkeypatch)
    described = documented()
    wanted = {heading for heading, found in expected.items() if found}
    assert {heading for heading, found in described.items() if found} == wanted
    for heading in sorted(wanted):
        assert described[heading] == expected[heading], heading


def test_every_option_says_what_it_means() -> None:
    """Each item is an option with its default and meaning; exit codes have two cells."""
    for heading, text in sections(document("options.md")).items():
        items = re.findall(r"(?m)^- `", text)
        assert len(list(options(text))) == len(items), heading
        assert all(meaning.strip() for *_, meaning in options(text)), heading
        for row in rows(text):
            assert heading == "Exit codes"
            assert len(row) == 2
            assert all(row)
