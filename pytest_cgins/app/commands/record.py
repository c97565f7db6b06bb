"""`cgins record` and `cgins traces ls|show|verify`."""

from __future__ import annotations

import argparse
import os
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
from pytest_cgins.core import text
from pytest_cgins.core.call_text import arguments_line
from pytest_cgins.core.console import import_path, new_table, print_failures, print_table, size_of
from pytest_cgins.core.errors import CginsError, PackError, RecordError, ReplayError, TraceError
from pytest_cgins.core.model import Trace, TracePack
from pytest_cgins.core.text import counted
from pytest_cgins.packs.store import MANIFEST, PackReader, open_pack
from pytest_cgins.recording import profile

if TYPE_CHECKING:
    from rich.table import Table


def add_trust(parser: argparse.ArgumentParser) -> None:
    """Add `--trust OP`, which `trust_named` acts on."""
    option(parser, "--trust OP  run this unmarked function, if it is an op", action="append", default=[])


def trust_named(args: argparse.Namespace) -> None:
    """Let the ops of `--trust` be run."""
    from pytest_cgins.packs.ops import trust

    for op in args.trust:
        trust(op)


def project_of(pack: Path) -> list[Path]:
    """The folder of the nearest `cgins.yaml` at or above a pack, if there is one."""
    found = text.upwards(pack.resolve())
    return [] if found is None else [found.parent]


def add_parsers(subparsers: Subparsers) -> Subparsers:
    """Add the commands about traces to the `cgins` command line; gives those of `cgins traces`."""
    _add_record(subparsers)
    traces = subparsers.add_parser("traces", help="look at trace packs").add_subparsers(required=True)
    parser = command(traces, "ls  list the packs under folders", ls)
    parser.add_argument("folders", nargs="*", type=Path, default=[Path()])
    parser = command(traces, "show  list the traces of a pack", show)
    parser.add_argument("pack", type=Path)
    option(parser, "--op  only ops whose name contains this")
    parser = command(traces, "verify  check a pack's files, and replay every trace", verify)
    parser.add_argument("packs", nargs="+", type=Path, metavar="pack")
    add_trust(parser)
    return traces


def _add_record(subparsers: Subparsers) -> None:
    parser = command(subparsers, "record  run a script and record its op calls as a trace pack", record)
    option(parser, "script  Python script that runs a model", type=Path)
    option(parser, "--out  folder of the trace pack", type=Path, required=True)
    option(
        parser, "--ops OP[,OP]  qualified names; default: ops that compute", action="extend", type=_operators
    )
    parser.add_argument("--tier", choices=("shapes", "recipe", "full"), default="recipe")
    option(
        parser,
        "--level  see what the model calls, or the ATen ops that this comes down to",
        choices=("function", "dispatch"),
        default="function",
    )
    option(parser, "--name  name of the pack; default: that of its folder")
    option(parser, "--max-per-op N  keep at most N signatures of an op", type=int)
    flag(parser, "--backward  also record the backward of the ops, as OP@backward(…)")
    option(
        parser,
        "--top-time SHARE  keep the signatures that together take this share of the ops' time, e.g. 80%%",
        type=_share,
    )
    option(
        parser,
        "--lengths  of signatures that differ in one size, as a generation's do, keep at most four, or all",
        choices=("few", "all"),
        default="few",
    )
    option(
        parser,
        "--args  everything after this is for the script",
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


def ls(args: argparse.Namespace) -> int:
    """List the packs under folders; 1 if one of them is damaged."""
    for root in args.folders:
        if not root.is_dir():
            what = "is not a folder" if root.exists() else "does not exist"
            raise PackError(f"{root} {what}", remedy="name folders that hold trace packs")
    table = new_table("pack", "tier", ">traces", ">ops", ">MiB", "recorded on", "torch")
    failed = 0
    for folder in sorted({found for root in args.folders for found in _packs(root)}):
        try:
            pack = open_pack(folder).pack
        except PackError as error:
            print(error, file=sys.stderr)
            failed = 1
            continue
        origins = {(trace.origin.device_name, trace.origin.torch) for trace in pack.traces}
        table.add_row(
            str(folder),
            pack.tier,
            str(len(pack.traces)),
            str(len({trace.call.op for trace in pack.traces})),
            f"{size_of(folder) / 2**20:.2f}",
            ", ".join(sorted({device for device, _ in origins})),
            ", ".join(sorted({version for _, version in origins})),
        )
    print_table(table)
    return failed


def show(args: argparse.Namespace) -> int:
    """List the traces of a pack."""
    table = new_table("op", "signature", ">calls", "replay", "arguments")
    for trace in open_pack(args.pack).pack.traces:
        if args.op is None or args.op in trace.call.op:
            line = arguments_line(trace.call, trace.tensors)
            table.add_row(trace.call.op, trace.signature, str(trace.count), trace.replay, line)
    print_table(table)
    return 0


def verify(args: argparse.Namespace) -> int:
    """Check every file of packs, and replay every trace; 1 if a pack or a trace fails.

    Marked functions are looked up from the folder of the nearest `cgins.yaml` at or above a pack, as the
    gate does, and then from the current folder, as `python -m` does.
    """
    trust_named(args)
    failures: list[TraceError] = []
    for folder in args.packs:
        try:
            reader = open_pack(folder)
            reader.verify()
            profile.read_all(reader)
        except PackError as error:
            failures.append(error)
            continue
        with import_path(*project_of(folder), Path.cwd()):
            failures += _replay(folder, reader)
    print_failures(failures)
    return 1 if failures else 0


def _replay(folder: Path, reader: PackReader) -> list[TraceError]:
    """Replay every trace of a pack, and print the outcomes by op; what failed is given back."""
    from pytest_cgins.packs.replay import check

    failures: list[TraceError] = []
    outcomes: dict[str, Counter[str]] = {}
    for trace in reader.pack.traces:
        outcome = "failed"
        try:
            outcome = check(trace, reader) if trace.gold is not None else "without values"
        except (PackError, ReplayError) as error:
            failures.append(error)
        outcomes.setdefault(trace.call.op, Counter())[outcome] += 1
    print(f"{folder}: {counted(len(reader.pack.traces), 'trace')}, tier {reader.pack.tier}")
    for op, counts in outcomes.items():
        print(f"  {op}: {', '.join(f'{count} {outcome}' for outcome, count in sorted(counts.items()))}")
    return failures


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


def _packs(root: Path) -> Iterator[Path]:
    """Folders with a manifest under `root`; hidden ones are left out."""
    for folder, below, files in os.walk(root):
        below[:] = sorted(name for name in below if not name.startswith("."))
        if MANIFEST in files:
            below.clear()
            yield Path(folder)


def _by_op(pack: TracePack) -> Table:
    table = new_table("op", ">signatures", ">calls", "replay")
    ops: dict[str, list[Trace]] = {}
    for trace in pack.traces:
        ops.setdefault(trace.call.op, []).append(trace)
    for op, traces in ops.items():
        replays = Counter(trace.replay for trace in traces)
        table.add_row(
            op,
            str(len(traces)),
            str(sum(trace.count for trace in traces)),
            ", ".join(f"{count} {replay}" for replay, count in sorted(replays.items())),
        )
    return table
