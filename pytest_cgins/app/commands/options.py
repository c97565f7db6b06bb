"""Commands and options, written as the help shows them: the word, two blanks, and what it is for."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]
else:
    Subparsers = argparse._SubParsersAction


def command(
    subparsers: Subparsers,
    line: str,
    run: Callable[[argparse.Namespace], int],
    description: str | None = None,
    **settings: Any,
) -> argparse.ArgumentParser:
    """Add a subcommand: `"close  close pull requests"`; `run` gives its exit status."""
    name, _, text = line.partition("  ")
    parser = subparsers.add_parser(name, help=text, description=description, **settings)
    parser.set_defaults(run=run)
    return parser


def group(subparsers: Subparsers, line: str, description: str | None = None) -> Subparsers:
    """Add a command that has subcommands, which are added to what is returned."""
    name, _, text = line.partition("  ")
    parser = subparsers.add_parser(name, help=text, description=description)
    return parser.add_subparsers(metavar="COMMAND", required=True)


def option(parser: argparse._ActionsContainer, line: str, **settings: Any) -> None:
    """Add an argument: `"-j/--jobs N  builds at a time"`; `settings` are those of `add_argument`."""
    form, _, text = line.partition("  ")
    names, _, metavar = form.partition(" ")
    if metavar:
        settings["metavar"] = metavar
    parser.add_argument(*names.split("/"), help=text, **settings)


def flag(parser: argparse._ActionsContainer, line: str, **settings: Any) -> None:
    """Add an option without a value."""
    option(parser, line, action="store_true", **settings)
