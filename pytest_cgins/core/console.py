"""What commands print and need: tables, failures, sizes, import paths."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeVar

from pytest_cgins.core import text
from pytest_cgins.core.errors import CginsError, TraceError

if TYPE_CHECKING:
    from rich.table import Table

ItemT = TypeVar("ItemT")


def new_table(*columns: str) -> Table:
    """A plain table; a column whose title begins with > is aligned to the right."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for column in columns:
        # What a terminal has no room for goes on in the next line: nothing is cut.
        justify: Literal["left", "right"] = "right" if column.startswith(">") else "left"
        table.add_column(column.removeprefix(">"), justify=justify, overflow="fold")
    return table


def print_table(table: Table) -> None:
    """Print a table to stdout."""
    from rich.console import Console

    # Names in brackets are no markup.
    Console(
        width=text.columns(sys.stdout), soft_wrap=False, markup=False, emoji=False, highlight=False
    ).print(table)


def print_failures(failures: Iterable[CginsError]) -> None:
    """Print what failed to stderr, and each remedy once, after all that it is for."""
    by_remedy: dict[str, list[str]] = {}
    for error in failures:
        by_remedy.setdefault(error.remedy, []).append(error.what)
    for remedy, whats in by_remedy.items():
        print(TraceError("\n".join(whats), remedy=remedy), file=sys.stderr)


def size_of(folder: Path) -> int:
    """Bytes of all files under a folder."""
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


@contextmanager
def import_path(*folders: Path) -> Iterator[None]:
    """Have modules looked up in these folders first."""
    path = list(sys.path)
    sys.path[:0] = map(str, folders)
    try:
        yield
    finally:
        sys.path[:] = path


def tracked(items: Sequence[ItemT], what: str, *, shown: bool = True) -> Iterable[ItemT]:
    """The items, with a progress bar where stderr is a terminal, if it is to be `shown`."""
    if not shown:
        return items
    from rich.console import Console
    from rich.progress import track

    console = Console(stderr=True)
    return track(items, what, console=console, transient=True, disable=not console.is_terminal)
