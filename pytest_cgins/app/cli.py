"""The shell's door: `cgins`. The subcommands are in the parts that they belong to."""

from __future__ import annotations

import argparse
import functools
import io
import os
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import NoReturn

from pytest_cgins import __version__
from pytest_cgins.app.commands import import_export
from pytest_cgins.app.commands.options import Subparsers, command
from pytest_cgins.core import logs, waiting
from pytest_cgins.core.errors import CginsError
from pytest_cgins.core.text import nearest

COMMANDS = (
    "init record traces profile import_export build schema cache doctor report history calibrate compare_env evidence "
    "bench_model generate suite runs proposal methods pull_request annotate_comment"
)
"""Modules of `app.commands`."""
GROUPS = {
    "record and packs": "init record traces profile import export",
    "kernels": "schema build cache",
    "gate and time, besides pytest --cgins": "calibrate compare-env evidence bench-model",
    "reports and CI": "report history summary merge annotate comment",
    "regenerate": "generate run suite runs proposal pull-request methods",
    "help": "doctor completion help",
}
"""Commands below their headings, in the order in which a user meets them."""
PLUMBING = ("summary", "merge", "annotate", "comment")
"""Commands that the GitHub Action and other pipelines call, and people seldom."""
SHELLS = ("bash", "zsh", "fish")
EXIT_ERROR = 2
EXIT_INTERRUPTED = 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Returns:
        The command's own exit code; 2 after an error of ours or of the arguments; 130 after Ctrl-C.
    """
    words = sys.argv[1:] if argv is None else argv
    if not words:
        _parser().print_help(sys.stderr)
        return EXIT_ERROR
    arguments = _parser().parse_args(import_export.kind_first(words))
    if isinstance(sys.stdout, io.TextIOWrapper):
        # In a locale without arrows they are spelled out.
        sys.stdout.reconfigure(errors="backslashreplace")
    with _messages(arguments):
        try:
            code: int = arguments.run(arguments)
            sys.stdout.flush()
        except CginsError as error:
            _print_error(str(error))
            return EXIT_ERROR
        except BrokenPipeError:
            # Who reads our output has enough of it; what is left must not be written to the pipe at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return EXIT_ERROR
        except OSError as error:
            _print_error(f"{error.filename or 'system'}: {error.strerror or error}")
            return EXIT_ERROR
        except KeyboardInterrupt:
            return EXIT_INTERRUPTED
    return code


@functools.cache
def _parser() -> argparse.ArgumentParser:
    """All commands; tests run many in one process."""
    parser: argparse.ArgumentParser = _Commands(
        prog="cgins",
        description="Record traces of torch ops and build kernels; `pytest --cgins` gates them.",
        epilog="cgins COMMAND --help says what a command does and takes.",
    )
    parser.add_argument("--version", action="version", version=f"pytest-cgins {__version__}")
    logs.add_option(parser)
    plain: type[argparse.ArgumentParser] = _Parser
    subparsers = parser.add_subparsers(metavar="COMMAND", required=True, parser_class=plain)
    for name in COMMANDS.split():
        import_module(f"pytest_cgins.app.commands.{name}").add_parsers(subparsers)
    _add_completion(parser, subparsers)
    _hide_plumbing(parser, subparsers)
    return parser


@contextmanager
def _messages(arguments: argparse.Namespace) -> Iterator[None]:
    """Around a command: its messages go to stderr, at the end what it waited for."""
    waiting.forget()
    messages = logs.to_stderr(arguments)
    try:
        yield
    finally:
        waiting.sum_up()
        messages.close()


class _Parser(argparse.ArgumentParser):
    """One that guesses which word was meant."""

    def error(self, message: str) -> NoReturn:
        """Print usage and message, and end with 2."""
        if "are required" in message and isinstance(
            commands := self._actions[-1], argparse._SubParsersAction
        ):
            message = f"{commands.metavar} is missing → {self._all_of(commands.choices)}"
        found = re.search(r"invalid choice: '(?P<word>[^']*)'", message)
        if found:
            # Of several with choices it is the one that is told of, by its name or its place.
            told = message.removeprefix("argument ").partition(":")[0]
            names = {
                "/".join(action.option_strings) or action.metavar or action.dest: action
                for action in self._actions
            }
            last = self._actions[-1]  # commands without a name of their own are told of by all their names
            known = names.get(told, last).choices or ()
            guess = nearest(found["word"], map(str, known))
            message = f"{found['word']} is not known → {guess or self._all_of(map(str, known))}"
        super().error(message)

    def _all_of(self, known: Iterable[str]) -> str:
        """Where no word is near: all that there are, unless they are too many for a line."""
        if isinstance(self, _Commands):
            return "cgins help lists the commands"
        return f"there are {', '.join(known)}"


class _Commands(_Parser):
    """The one of `cgins` itself, whose help lists the commands in groups."""

    def format_help(self) -> str:
        """Usage, the groups, the options."""
        formatter = argparse.HelpFormatter(prog=self.prog, max_help_position=16)  # each on one line
        formatter.add_usage(self.usage, self._actions, self._mutually_exclusive_groups)
        formatter.add_text(self.description)
        commands = next(one for one in self._actions if isinstance(one, argparse._SubParsersAction))
        listed = {command.dest: command for command in commands._choices_actions}
        for heading, names in GROUPS.items():
            formatter.start_section(heading)
            formatter.add_arguments([listed[name] for name in names.split() if name in listed])
            formatter.end_section()
        formatter.start_section("options")
        formatter.add_arguments([action for action in self._actions if action is not commands])
        formatter.end_section()
        formatter.add_text(self.epilog)
        return formatter.format_help()


def _add_completion(parser: argparse.ArgumentParser, subparsers: Subparsers) -> None:
    """`cgins completion SHELL`: a script for a shell, from the commands as they are declared here."""

    def run(arguments: argparse.Namespace) -> int:
        import shtab

        _complete_paths(parser, shtab.FILE)
        print(shtab.complete(parser, shell=arguments.shell))
        return 0

    completion = command(
        subparsers, "completion  print a script that completes commands in your shell", run,
        'Print a script for a shell. In bash: eval "$(cgins completion bash)"; in zsh, after compinit: '
        'eval "$(cgins completion zsh)"; in fish: cgins completion fish | source.',
    )  # fmt: skip
    completion.add_argument("shell", choices=SHELLS)


def _complete_paths(parser: argparse.ArgumentParser, files: object) -> None:
    """Have names of files completed where a command takes a path."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for child in action.choices.values():
                _complete_paths(child, files)
        elif action.type is Path:
            action.complete = files  # type: ignore[attr-defined]


def _hide_plumbing(parser: argparse.ArgumentParser, subparsers: Subparsers) -> None:
    """Leave commands that pipelines use out of the first help; `cgins help --all` lists them."""
    everything = subparsers._choices_actions
    listed = [one for one in everything if one.dest not in PLUMBING]

    def run(arguments: argparse.Namespace) -> int:
        subparsers._choices_actions = everything if arguments.all else listed
        parser.print_help()
        subparsers._choices_actions = listed
        return 0

    helper = command(subparsers, "help  this list; with --all, the commands of pipelines too", run)
    helper.add_argument("--all", action="store_true", help="list every command")
    listed.append(everything[-1])
    subparsers._choices_actions = listed


def _print_error(text: str) -> None:
    """Print an error, which may quote a file of anybody's: a terminal or a runner that reads the log obeys none of it."""
    from pytest_cgins.report import escape

    print(escape.lines(f"cgins: {text}"), file=sys.stderr)
