"""Commands and options, written as the help shows them: the word, two blanks, and what it is for; what commands share."""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pytest_cgins.core.options import described

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
    """Add a subcommand: `"close  close pull requests"`; `run` gives its exit status, and settings are those of `add_parser`."""
    name, _, text = line.partition("  ")
    parser = subparsers.add_parser(name, help=text, description=description or sentence(text), **settings)
    parser.set_defaults(run=run)
    return parser


def sentence(text: str) -> str:
    """`close pull requests` as the help of the command itself has it."""
    return f"{text[:1].upper()}{text[1:]}."


def group(
    subparsers: Subparsers, line: str, description: str | None = None, *, metavar: str = "COMMAND"
) -> Subparsers:
    """Add a command that has subcommands, which are added to what is returned."""
    name, _, text = line.partition("  ")
    parser = subparsers.add_parser(name, help=text, description=description or sentence(text))
    return parser.add_subparsers(metavar=metavar, required=True)


def option(parser: argparse._ActionsContainer, line: str, **settings: Any) -> None:
    """Add an argument, as `described` has it: `"-j/--jobs N  builds at a time"`; `--cgins-seed` is known as `seed`."""
    names, told = described(line, settings)
    if names.startswith("--cgins-"):
        told.setdefault("dest", names.removeprefix("--cgins-").replace("-", "_"))
    parser.add_argument(*names.split("/"), **told)


def repeatable(parser: argparse._ActionsContainer, line: str, **settings: Any) -> None:
    """Add an option that may be given several times; without it the list is empty."""
    option(parser, line, action="append", **{"default": [], **settings})


def flag(parser: argparse._ActionsContainer, line: str, **settings: Any) -> None:
    """Add an option without a value."""
    option(parser, line, action="store_true", **settings)


def listed(text: str) -> list[str]:
    """The words of a list with commas between."""
    return [word.strip() for word in text.split(",") if word.strip()]


def add_seed(parser: argparse.ArgumentParser, what: str = "of the inputs") -> None:
    """Add `--cgins-seed`, which `seed_of` reads."""
    option(parser, f"--cgins-seed N  seed {what}", type=int)


def seed_of(arguments: argparse.Namespace) -> int:
    """Seed that was given, or else one drawn."""
    return random.SystemRandom().randrange(2**31) if arguments.seed is None else int(arguments.seed)


def add_sandbox(parser: argparse.ArgumentParser, text: str) -> None:
    """Add `--cgins-sandbox` of commands that run what a model wrote."""
    option(parser, f"--cgins-sandbox auto|off  {text}", default="auto")


def add_executor(parser: argparse.ArgumentParser) -> None:
    """Add `--cgins-executor` of commands that try candidates."""
    where = "local, on this machine (the default); ray or ray=ADDRESS, on the nodes of a Ray cluster"
    option(parser, f"--cgins-executor EXECUTOR  where candidates are tried: {where}", default="")


def add_model(parser: argparse.ArgumentParser, asked: str) -> None:
    """Add `--cgins-llm` and `--cgins-model`, named as `pytest --cgins-regenerate` has them."""
    places = "--cgins-llm PROVIDER[:PLACE]  provider of the language model (default: llm of cgins.yaml)"
    option(parser, places, default="")
    option(parser, f"--cgins-model NAME  {asked}", default="")


def write(text: str) -> None:
    """Print what is not ASCII: a runner's locale may be C."""
    sys.stdout.flush()
    sys.stdout.buffer.write(text.encode())


def say(line: str) -> None:
    """Tell a line of progress."""
    print(f"cgins: {line}", file=sys.stderr, flush=True)
