"""`cgins traces gc|diff`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_cgins.app.commands.options import Subparsers, command, flag
from pytest_cgins.core import documents
from pytest_cgins.core.console import new_table, print_table
from pytest_cgins.core.text import counted
from pytest_cgins.packs.store import open_pack

if TYPE_CHECKING:
    from pytest_cgins.packs.difference import GoldDifference, PackDifference, TraceDifference


def add_parsers(traces: Subparsers) -> None:
    """Add `gc` and `diff` to `cgins traces`."""
    parser = command(traces, "gc  remove what nothing in a pack refers to", gc)
    parser.add_argument("packs", nargs="+", type=Path, metavar="PACK")
    flag(parser, "--dry-run  say what would be removed, and leave it")
    parser = command(
        traces,
        "diff  compare two packs, trace by trace",
        diff,
        "Compare two packs by op and signature. Exit status 1 if they differ.",
    )
    parser.add_argument("before", type=Path, metavar="A")
    parser.add_argument("after", type=Path, metavar="B")
    flag(parser, "--json  print a document instead of tables")


def gc(args: argparse.Namespace) -> int:
    """Remove unused blobs, profiles of other traces, and leftovers of killed recordings."""
    from pytest_cgins.recording.maintenance import garbage, remove

    for folder in args.packs:
        found = garbage(folder)
        for item in found:
            print(f"{item.path}: {item.why}, {_mib(item.nbytes)}")
            if not args.dry_run:
                remove(item)
        verb = "would be removed" if args.dry_run else "removed"
        total = _mib(sum(item.nbytes for item in found))
        print(f"{folder}: {counted(len(found), 'file or folder', 'files or folders')}, {total}, {verb}")
    return 0


def _mib(nbytes: int) -> str:
    return f"{nbytes / 2**20:.2f} MiB"


def diff(args: argparse.Namespace) -> int:
    """Print in what two packs differ; 1 if they do."""
    from pytest_cgins.packs.difference import compare

    found = compare(open_pack(args.before), open_pack(args.after))
    if args.json:
        print(documents.dump(found, indent=1))
    else:
        _print(found)
    return 0 if found.is_empty else 1


def _print(found: PackDifference) -> None:
    if not found.is_empty:
        table = new_table("", "op", "signature", ">calls", "what differs", "gold")
        for sign, names in (("-", found.removed), ("+", found.added)):
            for name in names:
                table.add_row(sign, name.op, name.signature, str(name.calls), "", "")
        for trace in found.changed:
            table.add_row("~", trace.op, trace.signature, _calls(trace), ", ".join(trace.parts), _gold(trace))
        print_table(table)
    print(
        f"{counted(found.same, 'trace is', 'traces are')} the same, {len(found.changed)} changed, "
        f"{len(found.added)} added, {len(found.removed)} removed"
    )


def _calls(trace: TraceDifference) -> str:
    before, after = trace.calls
    return str(before) if before == after else f"{before} → {after}"


def _gold(trace: TraceDifference) -> str:
    """The worst output."""
    worst = max(trace.gold, key=_severity, default=None)
    if worst is None:
        return ""
    ulps = "" if worst.max_ulps is None else f", {counted(worst.max_ulps, 'ulp')}"
    distance = "not finite" if worst.max_abs is None else f"{worst.max_abs:.3g}"
    return f"output {worst.output}: {worst.different} of {counted(worst.compared, 'element')}, by up to {distance}{ulps}"


def _severity(difference: GoldDifference) -> float:
    return float("inf") if difference.max_abs is None else difference.max_abs
