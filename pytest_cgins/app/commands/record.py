"""`cgins record`."""

from __future__ import annotations

import argparse
import re
import runpy
import sys
import traceback
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_cgins.app.commands.options import Subparsers, command, flag, option
from pytest_cgins.core.console import import_path, new_table, print_table, size_of
from pytest_cgins.core.errors import CginsError, RecordError
from pytest_cgins.core.text import counted
from pytest_cgins.core.trace import Trace, TracePack

if TYPE_CHECKING:
    from rich.table import Table


def add_parsers(subparsers: Subparsers) -> None:
    """Add the command to the `cgins` parser."""
    parser = command(subparsers, "record  run a script and record its op calls as a trace pack", record)
    option(parser, "script  Python script that runs a model", type=Path)
    option(parser, "--out  folder of the trace pack", type=Path, required=True)
    option(
        parser,
        "--ops OP[,OP]  qualified names of ops to record (default: ops that compute)",
        action="extend",
        type=_operators,
    )
    parser.add_argument("--tier", choices=("shapes", "recipe", "full"), default="recipe")
    option(
        parser,
        "--level function|dispatch  function: what the model calls; dispatch: the ATen ops that these calls come down to "
        "(default: %(default)s)",
    )
    option(parser, "--name  name of the pack (default: that of its folder)")
    option(parser, "--max-per-op N  keep at most N signatures of an op", type=int)
    flag(parser, "--backward  also record the backward of the ops, as OP@backward(…)")
    option(
        parser,
        "--top-time SHARE  keep the signatures that together take this share of the ops' time, e.g. 80%%",
        type=_share,
    )
    option(
        parser,
        "--lengths few|all  few: keep at most four of the signatures that differ in one size, as in a generation; all: keep all "
        "(default: %(default)s)",
    )
    option(
        parser,
        "--args  pass everything after this to the script",
        dest="arguments",
        nargs=argparse.REMAINDER,
        default=[],
    )


def _operators(text: str) -> list[str]:
    """Qualified names, separated by commas; those between parentheses belong to a name."""
    return [name.strip() for name in re.split(r",(?![^(]*\))", text) if name.strip()]


def _share(text: str) -> float:
    """`80%` or `0.8` as a share."""
    number = text.strip().removesuffix("%")
    try:
        share = float(number) / (100 if number != text.strip() else 1)
    except ValueError:
        share = 0.0
    if not 0 < share <= 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a share: write 80% or 0.8")
    return share


def record(args: argparse.Namespace) -> int:
    """Run a script as `python SCRIPT` would, and record it.

    Its exit status other than 0 is passed on; 1 after its traceback if it raised.
    """
    from pytest_cgins.recording.record import record as recording_of

    if not args.script.is_file():
        raise RecordError(f"{args.script} is not a file", remedy="name the Python script that runs the model")
    try:
        with _as_script(args.script, args.arguments):
            words = ["ops", "tier", "name", "max_per_op", "backward", "lengths", "level", "top_time"]
            given = {word: getattr(args, word) for word in words}
            with recording_of(args.out, **given, progress=sys.stderr.isatty()) as recording:
                _run(args.script)
    except _ScriptFailed as failure:
        print(f"{args.script} {failure}: nothing was recorded", file=sys.stderr)
        return failure.code
    if recording.pack is not None:
        print_table(_by_op(recording.pack))
        print(
            f"{counted(len(recording.pack.traces), 'trace')}, {size_of(args.out) / 2**20:.2f} MiB in {args.out}"
        )
    for line in recording.left_out():
        print(line)
    return 0


class _ScriptFailed(Exception):
    """The recorded script raised, or asked for an exit status other than 0; the text says which."""

    def __init__(self, what: str, code: int) -> None:
        super().__init__(what)
        self.code = code


def _run(script: Path) -> None:
    try:
        runpy.run_path(str(script), run_name="__main__")
    except SystemExit as error:
        if error.code not in (None, 0):
            code = error.code if isinstance(error.code, int) else 1
            raise _ScriptFailed(f"exited with {error.code}", code) from error
    except CginsError:
        raise
    except Exception as error:
        frames = error.__traceback__
        while frames is not None and frames.tb_frame.f_code.co_filename != str(script):
            frames = frames.tb_next
        traceback.print_exception(type(error), error, frames)
        raise _ScriptFailed(f"raised {type(error).__name__}", 1) from error


@contextmanager
def _as_script(script: Path, arguments: list[str]) -> Iterator[None]:
    """`sys.argv` and `sys.path` as the interpreter would set them for the script."""
    argv, sys.argv = sys.argv, [str(script), *arguments]
    try:
        with import_path(script.resolve().parent):
            yield
    finally:
        sys.argv = argv


def _by_op(pack: TracePack) -> Table:
    table = new_table("op", ">signatures", ">calls", "replay")
    ops: dict[str, list[Trace]] = {}
    for trace in pack.traces:
        ops.setdefault(trace.call.op, []).append(trace)
    for op, traces in ops.items():
        replays = Counter(trace.replay for trace in traces)
        calls = str(sum(trace.count for trace in traces))
        shown = ", ".join(f"{count} {replay}" for replay, count in sorted(replays.items()))
        table.add_row(op, str(len(traces)), calls, shown)
    return table
