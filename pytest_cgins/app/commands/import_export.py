"""`cgins import KIND SOURCE --out PACK`, `cgins export KIND PACK --out DIR` and `cgins export torch-library KERNEL`."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_cgins.app.commands.options import Subparsers, command, flag, group, option, repeatable, sentence
from pytest_cgins.app.commands.schema import add_config_option
from pytest_cgins.config import load, select
from pytest_cgins.core.console import import_path, new_table, print_table, size_of
from pytest_cgins.core.device import DEVICES, require_device
from pytest_cgins.core.errors import RecordError
from pytest_cgins.core.options import above_zero
from pytest_cgins.core.text import counted
from pytest_cgins.recording.importers.registry import EXPORTERS, IMPORTERS, Exporter, Importer
from pytest_cgins.report.escape import visible

if TYPE_CHECKING:
    from pytest_cgins.packs.inputs import Tier
    from pytest_cgins.recording.importers.collect import Report


_MAX_MIB = 1024.0


def add_parsers(subparsers: Subparsers) -> None:
    """Add the commands to the `cgins` parser."""
    kinds = group(subparsers, "import  make a trace pack from another benchmark's files", metavar="KIND")
    exports = group(
        subparsers,
        "export  write a pack for another benchmark, or kernels for torch",
        "Write a trace pack as another benchmark's files, or kernels as a torch library.",
        metavar="KIND",
    )
    for kind, importer in IMPORTERS.items():
        _add(kinds, kind, importer)
    for kind, exporter in EXPORTERS.items():
        _add_export(exports, kind, exporter)
    _add_torch_library(exports)


def _add(kinds: Subparsers, kind: str, importer: Importer) -> None:
    parser = kinds.add_parser(kind, help=importer.help, description=sentence(importer.help))
    parser.add_argument("source", type=Path, metavar=importer.source)
    option(parser, "--out  folder of the trace pack", type=Path, required=True)
    option(parser, "--name  name of the pack (default: that of its folder)")
    if not importer.keeps_all:
        parser.add_argument("--tier", choices=("recipe", "full"), default="recipe")
        option(
            parser,
            f"--max-mib N  leave out calls with larger tensors (default: {_MAX_MIB:g})",
            type=above_zero,
            default=_MAX_MIB,
        )
    if importer.chooses_device:
        option(parser, "--device  device to record on (default: %(default)s)", choices=DEVICES, default="cpu")
    option(parser, "--config FILE  write a cgins.yaml for the ops, or print what to add to it", type=Path)
    if importer.runs_code:
        flag(parser, "--allow-code  run the source's code")
        option(
            parser,
            "--references DIR  package that the code is copied to (default: %(default)s)",
            default=Path("references"),
        )
    for line, settings in importer.options:
        option(parser, line, **settings)
    parser.set_defaults(run=import_, kind=kind)


def _add_export(kinds: Subparsers, kind: str, exporter: Exporter) -> None:
    parser = command(kinds, f"{kind}  {exporter.help}", export)
    parser.add_argument("pack", type=Path, metavar="PACK")
    option(parser, f"--out DIR  {exporter.out}", type=Path, required=True)
    for line, settings in exporter.options:
        option(parser, line, **settings)
    parser.set_defaults(kind=kind)


def import_(args: argparse.Namespace) -> int:
    """Import one source; 1 if nothing of it could be imported."""
    from pytest_cgins.recording.importers.collect import Collector

    importer = IMPORTERS[args.kind]
    if importer.runs_code:
        from pytest_cgins.recording.importers.references import require_permission

        require_permission(args.kind, args.allow_code)
    if not args.source.exists():
        raise RecordError(f"{args.source} does not exist", remedy="name the file or folder to import")
    require_device(getattr(args, "device", "cpu"))
    tier: Tier = "full" if importer.keeps_all else args.tier
    with import_path(Path.cwd()), Collector(args.out, tier, args.name) as collector:
        try:
            importer.run(args, collector)
        except SystemExit as error:
            # Foreign code must not end the import as if all were well.
            raise RecordError(
                f"code of {args.source} ended the import, with status {error.code}", remedy="fix or remove it"
            ) from error
        report = collector.finish()
    _print(report, args.out)
    if report.pack is None:
        return 1
    if args.config is not None:
        from pytest_cgins.recording.importers import config_entry

        print(config_entry.write(args.config, report, args.out))
        folder = args.config.absolute().parent
        if importer.runs_code and args.references.absolute().parent != folder:
            print(
                f"note      ops are imported from {folder}: put {args.references.absolute().parent} on PYTHONPATH"
            )
    return 0


def export(args: argparse.Namespace) -> int:
    """Export one pack; 1 if nothing of it can be said in the format."""
    with import_path(Path.cwd()):
        made = EXPORTERS[args.kind].run(args.pack, args.out, args)
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


def _print(report: Report, out: Path) -> None:
    if report.imported:
        table = new_table("imported", "op", "signature", "replay")
        for one in report.imported:
            table.add_row(_short(one.entry), one.op, one.signature, one.replay)
        print_table(table)
    for note in report.notes:
        print(f"note      {visible(note)}")
    for other in report.left_out:
        print(f"left out  {_short(other.entry)}: {visible(other.reason)}")
    for remedy in dict.fromkeys(other.remedy for other in report.left_out if other.remedy):
        print(f"→ {visible(remedy)}")
    if report.pack is None:
        print(f"nothing was imported, {len(report.left_out)} left out", file=sys.stderr)
        return
    size = size_of(out) / 2**20
    print(
        f"{counted(len(report.pack.traces), 'trace')}, {size:.2f} MiB in {out}; {len(report.left_out)} left out"
    )


def _short(entry: str) -> str:
    return visible(entry if len(entry) <= 90 else f"{entry[:87]}…")


def kind_first(words: Sequence[str]) -> list[str]:
    """The words of a command line, with `export WHAT --as KIND` written as `export KIND WHAT`."""
    listed = [part for word in words for part in (word.split("=", 1) if word.startswith("--as=") else [word])]
    # `cgins runs export` is another command, whose `--as` is an option.
    start = listed[: listed.index("export")] if "export" in listed else ["runs"]
    if "runs" not in start and "--as" in listed[:-1]:
        place = listed.index("--as")
        kind = listed[place + 1]
        del listed[place : place + 2]
        listed.insert(listed.index("export") + 1, kind)
    return listed


def _add_torch_library(kinds: Subparsers) -> None:
    """Add the kind `torch-library` to `cgins export`."""
    export = command(
        kinds,
        "torch-library  kernels as operators of torch, in a package that is built and used without pytest-cgins",
        export_torch_library,
        "Write a Python package with the kernels' sources, a generated binding over torch's stable ABI, shapes for "
        "torch.compile, and gradients. Kernels for the backward of an exported op are included. "
        "`cgins export KERNEL --as torch-library` is the same.",
    )
    option(export, "kernels KERNEL  names in cgins.yaml", nargs="+")
    repeatable(
        export,
        "--implementation NAME  implementation to export; repeatable (default: the launchers, one per device)",
        dest="implementations",
    )
    option(export, "--out DIR  folder of the package (default: NAMESPACE-torch-library)", type=Path)
    option(
        export,
        "--namespace NS  namespace in torch.ops and name of the package (default: the project folder's name)",
    )
    add_config_option(export)


def export_torch_library(arguments: argparse.Namespace) -> int:
    """Write the package, and say what to do with it."""
    from pytest_cgins.building.torch_library import package

    config = load(arguments.config, require_traces=False)
    kernels = select(config, [*dict.fromkeys(arguments.kernels)])
    # Ops of the project are found as pytest finds them: from the folder of cgins.yaml.
    sys.path.insert(0, str(config.root))
    namespace = arguments.namespace or re.sub(r"\W", "_", config.root.name)
    folder = arguments.out or Path(f"{namespace}-torch-library")
    written = package.write(
        config,
        kernels,
        folder=folder,
        namespace=namespace,
        implementations=arguments.implementations,
    )
    for one in written.exported:
        print(f"{one.operator.qualified:40} {', '.join(one.devices)}")
    print(f"{folder}: {', '.join(written.libraries)}\nbuild it: pip install --no-build-isolation {folder}")
    return 0
