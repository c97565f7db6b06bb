"""`cgins import KIND SOURCE --out PACK` and `cgins export KIND PACK --out DIR`."""

from __future__ import annotations

import argparse
import ast
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_cgins.app.commands.options import Subparsers, command, flag, option
from pytest_cgins.core.console import import_path, new_table, print_table, size_of
from pytest_cgins.core.device import DEVICES, require_device
from pytest_cgins.core.errors import RecordError
from pytest_cgins.core.text import counted

if TYPE_CHECKING:
    from pytest_cgins.packs.inputs import Tier
    from pytest_cgins.recording.importers.collect import Collector, Report
    from pytest_cgins.recording.importers.references import References


CODE = ("flashinfer-bench", "kernelbench", "refpy", "robustkbench")
"""Kinds whose sources are code, which an import runs."""
_MAX_MIB = 1024.0


def add_parsers(subparsers: Subparsers) -> Subparsers:
    """Add the commands to the `cgins` command line.

    Returns:
        The kinds of `cgins export`, to which others may add.
    """
    kinds = subparsers.add_parser(
        "import", help="make a trace pack from another benchmark's files"
    ).add_subparsers(metavar="KIND", required=True)
    parser = _add(kinds, "gins", "GinS programs (JSON)", "FILE.json")
    parser = _add(kinds, "pt", "CGinS pairs of inputs and gold (.pt), tier full", "DIR", tier=False)
    option(parser, "--op [NAME=]OP  op of the pairs (whose name begins so)", action="append", default=[])
    parser = _add(kinds, "backendbench", "operator traces of BackendBench", "FILE")
    flag(parser, "--functional  use torch's functions for ATen overloads, where they agree")
    option(parser, "--only TEXT  only ops whose name contains this", default="")
    parser = _add(kinds, "flashinfer-bench", "definitions and workloads of flashinfer-bench (code)", "DIR")
    parser = _add(kinds, "kernelbench", "problems of KernelBench (code)", "FILE.py|DIR")
    option(
        parser,
        "--set NAME=VALUE  another value for a constant of the file, such as batch_size=8",
        action="append",
        default=[],
        dest="overrides",
    )
    flag(parser, "--shrink  halve the file's sizes until it fits --max-mib; says which")
    parser = _add(kinds, "refpy", "a ref.py with reference(**kwargs) (code)", "FILE.py")
    option(parser, '--dims JSON  sizes, such as {"M": 64, "N": 64}', required=True)
    option(parser, "--kernel FILE.cu  kernel whose solve(…) says what the arguments are", type=Path)
    option(parser, "--numel N  elements of each buffer; default: product of the two largest dims", type=int)
    parser = _add(kinds, "robustkbench", "task folders of robust-kbench (code)", "DIR")
    option(parser, "--seeds N  initialisations a configuration", type=int, default=1)
    option(
        parser, "--configs  which settings of the task to take", choices=("single", "multi"), default="multi"
    )
    return _add_export(subparsers)


def _add(
    kinds: Subparsers,
    kind: str,
    what: str,
    source: str,
    *,
    tier: bool = True,
) -> argparse.ArgumentParser:
    parser = kinds.add_parser(kind, help=what)
    parser.add_argument("source", type=Path, metavar=source)
    option(parser, "--out  folder of the trace pack", type=Path, required=True)
    option(parser, "--name  name of the pack; default: that of its folder")
    if tier:
        parser.add_argument("--tier", choices=("recipe", "full"), default="recipe")
        option(
            parser,
            f"--max-mib N  leave out calls with bigger tensors; default: {_MAX_MIB:g}",
            type=_mib,
            default=_MAX_MIB,
        )
    if kind != "gins":
        option(parser, "--device  where to record", choices=DEVICES, default="cpu")
    option(parser, "--config FILE  write a cgins.yaml for the ops, or print what to add to it", type=Path)
    if kind in CODE:
        flag(parser, "--allow-code  run the source's code")
        option(
            parser,
            "--references DIR  package that the code is copied to; default: references",
            type=Path,
            default=Path("references"),
        )
    parser.set_defaults(run=import_, kind=kind)
    return parser


def _add_export(subparsers: Subparsers) -> Subparsers:
    kinds = subparsers.add_parser(
        "export", help="write a trace pack as another benchmark's files, or kernels as a torch library"
    ).add_subparsers(metavar="KIND", required=True)
    parser = command(kinds, "flashinfer-bench  definitions and workloads of flashinfer-bench", export)
    parser.add_argument("pack", type=Path, metavar="PACK")
    option(parser, "--out DIR  root of the trace set", type=Path, required=True)
    flag(parser, "--values  write every tensor's values, not only those that matter")
    return kinds


def import_(args: argparse.Namespace) -> int:
    """Import one source; 1 if nothing of it could be imported."""
    from pytest_cgins.recording.importers.collect import Collector

    if args.kind in CODE:
        from pytest_cgins.recording.importers.references import require_permission

        require_permission(args.kind, args.allow_code)
    if not args.source.exists():
        raise RecordError(f"{args.source} does not exist", remedy="name the file or folder to import")
    require_device(getattr(args, "device", "cpu"))
    tier: Tier = "full" if args.kind == "pt" else args.tier
    with import_path(Path.cwd()), Collector(args.out, tier, args.name) as collector:
        try:
            _COLLECT[args.kind](args, collector)
        except SystemExit as error:
            # Foreign code must not end the import as if all were well.
            raise RecordError(
                f"code of {args.source} ended the import, with status {error.code}",
                remedy="mend or remove it",
            ) from error
        report = collector.finish()
    _print(report, args.out)
    if report.pack is None:
        return 1
    if args.config is not None:
        from pytest_cgins.recording.importers import config_entry

        print(config_entry.write(args.config, report, args.out))
        folder = args.config.absolute().parent
        if args.kind in CODE and args.references.absolute().parent != folder:
            print(
                f"note      ops are imported from {folder}: put {args.references.absolute().parent} on PYTHONPATH"
            )
    return 0


def _mib(text: str) -> float:
    value = float(text)
    if not value > 0:
        raise argparse.ArgumentTypeError(f"{text} is not above 0")
    return value


def export(args: argparse.Namespace) -> int:
    """Export one pack; 1 if nothing of it can be said in the format."""
    from pytest_cgins.recording.importers import flashinfer_export

    with import_path(Path.cwd()):
        made = flashinfer_export.export(args.pack, args.out, values=args.values)
    for name, workloads in made.definitions.items():
        print(f"exported  {name}: {counted(workloads, 'workload')}")
    for note in made.notes:
        print(f"note      {note}")
    for entry, reason in made.left_out:
        print(f"left out  {entry}: {reason}")
    print(
        f"{counted(len(made.definitions), 'definition')} in {args.out}, {counted(len(made.left_out), 'trace')} left out"
    )
    return 0 if made.definitions else 1


def _gins(args: argparse.Namespace, collector: Collector) -> None:
    from pytest_cgins.recording.importers import gins

    gins.collect(args.source, collector, max_mib=args.max_mib)


def _pt(args: argparse.Namespace, collector: Collector) -> None:
    from pytest_cgins.recording.importers import pairs

    ops = dict(_split(text) for text in args.op)
    pairs.collect(args.source, collector, op=ops, device=args.device)


def _split(text: str) -> tuple[str, str]:
    start, found, op = text.rpartition("=")
    return (start, op) if found else ("", text)


def _backendbench(args: argparse.Namespace, collector: Collector) -> None:
    from pytest_cgins.recording.importers import backendbench

    backendbench.collect(
        args.source,
        collector,
        max_mib=args.max_mib,
        device=args.device,
        functional=args.functional,
        only=args.only,
    )


def _references(args: argparse.Namespace) -> References:
    from pytest_cgins.recording.importers.references import References

    return References(args.references)


def _flashinfer(args: argparse.Namespace, collector: Collector) -> None:
    from pytest_cgins.recording.importers import flashinfer

    flashinfer.collect(args.source, collector, _references(args), max_mib=args.max_mib, device=args.device)


def _kernelbench(args: argparse.Namespace, collector: Collector) -> None:
    from pytest_cgins.recording.importers import kernelbench

    kernelbench.collect(
        args.source,
        collector,
        _references(args),
        overrides=dict(_override(text) for text in args.overrides),
        max_mib=args.max_mib,
        shrink=args.shrink,
        device=args.device,
    )


def _override(text: str) -> tuple[str, Any]:
    name, found, value = text.partition("=")
    try:
        if found and name.isidentifier():
            return name, ast.literal_eval(value)
    except (ValueError, SyntaxError):
        pass
    raise RecordError(
        f"--set {text!r} is not NAME=VALUE", remedy="write a Python literal, such as batch_size=8"
    )


def _refpy(args: argparse.Namespace, collector: Collector) -> None:
    from pytest_cgins.recording.importers import refpy

    refpy.collect(
        args.source,
        collector,
        _references(args),
        dims=refpy.parse_dims(args.dims),
        kernel=args.kernel,
        numel=args.numel,
        max_mib=args.max_mib,
        device=args.device,
    )


def _robustkbench(args: argparse.Namespace, collector: Collector) -> None:
    from pytest_cgins.recording.importers import robustkbench

    robustkbench.collect(
        args.source,
        collector,
        _references(args),
        seeds=args.seeds,
        configs=args.configs,
        max_mib=args.max_mib,
        device=args.device,
    )


_COLLECT = {
    "gins": _gins,
    "pt": _pt,
    "backendbench": _backendbench,
    "flashinfer-bench": _flashinfer,
    "kernelbench": _kernelbench,
    "refpy": _refpy,
    "robustkbench": _robustkbench,
}


def _print(report: Report, out: Path) -> None:
    if report.imported:
        table = new_table("imported", "op", "signature", "replay")
        for one in report.imported:
            table.add_row(_short(one.entry), one.op, one.signature, one.replay)
        print_table(table)
    for note in report.notes:
        print(f"note      {_visible(note)}")
    for other in report.left_out:
        print(f"left out  {_short(other.entry)}: {_visible(other.reason)}")
    for remedy in dict.fromkeys(other.remedy for other in report.left_out if other.remedy):
        print(f"→ {_visible(remedy)}")
    if report.pack is None:
        print(f"nothing was imported, {len(report.left_out)} left out", file=sys.stderr)
        return
    size = size_of(out) / 2**20
    print(
        f"{counted(len(report.pack.traces), 'trace')}, {size:.2f} MiB in {out}; {len(report.left_out)} left out"
    )


def _short(entry: str) -> str:
    return _visible(entry if len(entry) <= 90 else f"{entry[:87]}…")


def _visible(text: str) -> str:
    """The text without what a terminal or a runner would obey: names come from foreign files."""
    return "".join(c if c.isprintable() else f"\\u{ord(c):04x}" for c in text)
