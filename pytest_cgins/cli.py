"""The shell's door: `cgins`. The subcommands are in the parts that they belong to."""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Sequence

from pytest_cgins import __version__, logs
from pytest_cgins.doctor import commands as doctor
from pytest_cgins.errors import CginsError
from pytest_cgins.github import annotate_command, comment_command
from pytest_cgins.github import commands as github
from pytest_cgins.kernels import cache_commands, export_commands
from pytest_cgins.kernels import commands as kernels
from pytest_cgins.methods import commands as methods
from pytest_cgins.profiling import commands as profiling
from pytest_cgins.regenerate import ablate_command, judge_command, verifiers_command
from pytest_cgins.regenerate import commands as regenerate
from pytest_cgins.regenerate.proposal import commands as proposal_commands
from pytest_cgins.report import commands as report
from pytest_cgins.report import history_commands, merge_command
from pytest_cgins.session import build_command, calibrate_command, resume_command
from pytest_cgins.trace import commands as trace
from pytest_cgins.trace import maintenance_commands, profile_commands
from pytest_cgins.trace.importers import commands as importers
from pytest_cgins.verify import commands as verify
from pytest_cgins.whole_model import commands as whole_model

EXIT_ERROR = 2
EXIT_INTERRUPTED = 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Returns:
        The command's own exit code; 2 after an error of ours or of the arguments; 130 after Ctrl-C.
    """
    parser = argparse.ArgumentParser(
        prog="cgins", description="Record traces of torch ops and build kernels; `pytest --cgins` gates them."
    )
    parser.add_argument("--version", action="version", version=f"pytest-cgins {__version__}")
    logs.add_option(parser)
    subparsers = parser.add_subparsers(metavar="COMMAND", required=True)
    traces = trace.add_parsers(subparsers)
    maintenance_commands.add_parsers(traces)
    verify.add_parsers(traces)
    judge_command.add_parser(traces)
    profile_commands.add_parsers(subparsers)
    exports = importers.add_parsers(subparsers)
    build_command.add_parsers(subparsers)
    kernels.add_parsers(subparsers)
    export_commands.add_parser(exports)
    cache_commands.add_parsers(subparsers)
    doctor.add_parsers(subparsers)
    report.add_parsers(subparsers)
    merge_command.add_parser(subparsers)
    history_commands.add_parsers(subparsers)
    calibrate_command.add_parsers(subparsers)
    ablate_command.add_parser(profiling.add_parsers(subparsers))
    whole_model.add_parsers(subparsers)
    runs = regenerate.add_parsers(subparsers)
    resume_command.add_parser(runs)
    verifiers_command.add_parser(runs)
    proposal_commands.add_parsers(subparsers)
    methods.add_parsers(subparsers)
    github.add_parsers(subparsers)
    annotate_command.add_parser(subparsers)
    comment_command.add_parser(subparsers)
    arguments = parser.parse_args(export_commands.kind_first(sys.argv[1:] if argv is None else argv))
    messages = logs.to_stderr(arguments)
    if isinstance(sys.stdout, io.TextIOWrapper):
        # In a locale without arrows they are spelled out.
        sys.stdout.reconfigure(errors="backslashreplace")
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
    finally:
        messages.close()
    return code


def _print_error(text: str) -> None:
    """Print an error, which may quote a file of anybody's: a terminal or a runner that reads the log obeys none of it."""
    from pytest_cgins.report import escape

    print(escape.lines(f"cgins: {text}"), file=sys.stderr)
