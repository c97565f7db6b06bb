"""A page of tables, as markdown and as plain text for a terminal.

Names, messages and ids of methods come from models, compilers and repositories: in markdown they stand in HTML `code`
elements, on a terminal what controls it is spelled out. The tables themselves are plain texts that nobody has escaped.
"""

from __future__ import annotations

import html
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from pytest_cgins.report import console
from pytest_cgins.report.escape import code, one_line
from pytest_cgins.report.markdown import row

T = TypeVar("T")

NOTHING = "–"
CELL_LENGTH = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A table, and what is said below it."""

    title: str
    """Our own words."""
    columns: tuple[str, ...] = ()
    """Likewise."""
    rows: tuple[tuple[str, ...], ...] = ()
    """A cell a column."""
    foreign: frozenset[str] = frozenset()
    """Columns whose cells may have anybody's words."""
    notes: tuple[str, ...] = ()
    """Lines that may have anybody's words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """What a file or a command tells of one thing."""

    of: tuple[str, str]
    """What it tells, in our own words, and the name of whom it tells it."""
    opening: str
    """The first sentence."""
    facts: Sequence[tuple[str, str]]
    """A label of ours, and a text."""
    sections: Sequence[Section]
    """In the order in which a person reads them."""

    def markdown(self) -> str:
        """For a file."""
        what, name = self.of
        lines = "".join(row(html.escape(label), _code(text)) for label, text in self.facts)
        # Within a heading of markdown's own, even what stands in a code element is markdown.
        title = f"<h2>{what.capitalize()} of {_code(name)}</h2>\n\n<p>{_code(self.opening)}</p>\n"
        return "".join([title, f"\n<table>\n{lines}</table>\n", *map(_markdown, self.sections)])

    def terminal(self) -> str:
        """The same as plain text."""
        what, name = self.of
        facts = "".join(f"{label.ljust(10)}  {_line(text)}\n" for label, text in self.facts)
        parts = [f"{what} of {_line(name)}\n{_line(self.opening)}\n\n{facts}"]
        for section in self.sections:
            parts.append(f"\n{section.title}\n")
            if section.rows:
                table = console.table(*section.columns, colour=False)
                for cells in section.rows:
                    table.add_row(*map(_line, cells))
                parts.append(console.text(table, colour=False))
            parts += [f"{_line(note)}\n" for note in section.notes]
        return "".join(parts)


def section(
    title: str,
    items: Sequence[T],
    columns: Mapping[str, Callable[[T], str]],
    *,
    empty: str = "",
    foreign: Sequence[str] = (),
    notes: Sequence[str] = (),
) -> Section:
    """A row an item; where there is none, what is said instead."""
    if not items:
        return Section(title=title, notes=(empty,) if empty else tuple(notes))
    rows = tuple(tuple(cell(item) for cell in columns.values()) for item in items)
    return Section(
        title=title, columns=tuple(columns), rows=rows, foreign=frozenset(foreign), notes=tuple(notes)
    )


def known(value: T | None, write: Callable[[T], str]) -> str:
    """A value as text; a dash where there is none."""
    return NOTHING if value is None else write(value)


def _markdown(one: Section) -> str:
    text = f"\n### {one.title}\n"
    if one.rows:
        head = "".join(f"<th>{html.escape(column)}</th>" for column in one.columns)
        written = [_code if column in one.foreign else html.escape for column in one.columns]
        rows = "".join(
            row(*(write(cell) for write, cell in zip(written, cells, strict=True))) for cells in one.rows
        )
        text += f"\n<table>\n<tr>{head}</tr>\n{rows}</table>\n"
    return text + "".join(f"\n<p>{_code(note)}</p>\n" for note in one.notes)


def _code(text: str) -> str:
    return code(text, length=CELL_LENGTH)


def _line(text: str) -> str:
    return one_line(text, length=CELL_LENGTH)
