"""The formats that are read and written, each with its module, help and options; torch is imported when one runs."""

from __future__ import annotations

import argparse
import importlib
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pytest_cgins.recording.importers.collect import Collector

Option = tuple[str, dict[str, Any]]
"""An option as the help shows it, `--only TEXT  only ops whose name contains this`, and settings of `add_argument`."""


@dataclass(frozen=True, slots=True)
class Importer:
    """A format that is imported."""

    module: str
    """Here, whose `run` hands the calls of `source` to a collector; its options are attributes of the namespace, too."""
    _: KW_ONLY
    help: str
    """What its files are."""
    source: str
    """How its help names them: `FILE.json`."""
    options: tuple[Option, ...] = ()
    """Besides those of all: `--out`, `--name`, `--config`."""
    runs_code: bool = False
    """Its sources are code, which is copied to `references`, and needs `--allow-code`."""
    keeps_all: bool = False
    """It keeps whole tensors, of any size: no `--tier` and no `--max-mib`."""
    chooses_device: bool = True
    """`--device` says where to record."""

    def run(self, args: argparse.Namespace, collector: Collector) -> None:
        """Collect the calls; imports torch, which help on the commands does not."""
        _module(self.module).run(args, collector)


@dataclass(slots=True)
class Exported:
    """What an export did."""

    definitions: dict[str, int] = field(default_factory=dict)
    """Workloads by definition."""
    left_out: list[tuple[str, str]] = field(default_factory=list)
    """Trace and reason."""
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Exporter:
    """A format that packs are exported in."""

    module: str
    """Here, whose `run` writes the traces of a pack to a folder."""
    _: KW_ONLY
    help: str
    """What its files are."""
    out: str
    """What `--out` is."""
    options: tuple[Option, ...] = ()

    def run(self, pack: Path, out: Path, args: argparse.Namespace) -> Exported:
        """Export a pack; imports torch."""
        exported: Exported = _module(self.module).run(pack, out, args)
        return exported


def _module(name: str) -> Any:
    return importlib.import_module(f"pytest_cgins.recording.importers.{name}")


IMPORTERS = {
    "gins": Importer("gins", help="GinS programs (JSON)", source="FILE.json", chooses_device=False),
    "pt": Importer(
        "pt_files",
        help="CGinS pairs of inputs and gold (.pt), tier full",
        source="DIR",
        options=(
            ("--op [NAME=]OP  op of the pairs (whose name begins so)", {"action": "append", "default": []}),
        ),
        keeps_all=True,
    ),
    "backendbench": Importer(
        "backendbench",
        help="operator traces of BackendBench",
        source="FILE",
        options=(
            (
                "--functional  use torch's functions for ATen overloads, where they agree",
                {"action": "store_true"},
            ),
            ("--only TEXT  only ops whose name contains this", {"default": ""}),
        ),
    ),
    "flashinfer-bench": Importer(
        "flashinfer",
        help="definitions and workloads of flashinfer-bench (code)",
        source="DIR",
        runs_code=True,
    ),
    "flashinfer-dump": Importer(
        "flashinfer_dump",
        help="definitions that FLASHINFER_TRACE_DUMP writes (code)",
        source="FILE.json|DIR",
        options=(
            (
                "--axis NAME=SIZE  size of an axis that a dump leaves open (default: 16 and 7)",
                {"action": "append", "default": [], "dest": "axes"},
            ),
        ),
        runs_code=True,
    ),
    "kernelbench": Importer(
        "kernelbench",
        help="problems of KernelBench (code)",
        source="FILE.py|DIR",
        options=(
            (
                "--set NAME=VALUE  another value for a constant of the file, such as batch_size=8",
                {"action": "append", "default": [], "dest": "overrides"},
            ),
            (
                "--shrink  halve the file's sizes until it fits --max-mib; says which",
                {"action": "store_true"},
            ),
        ),
        runs_code=True,
    ),
    "refpy": Importer(
        "refpy",
        help="a ref.py with reference(**kwargs) (code)",
        source="FILE.py",
        options=(
            ('--dims JSON  sizes, such as {"M": 64, "N": 64}', {"required": True}),
            ("--kernel FILE.cu  kernel whose solve(…) says what the arguments are", {"type": Path}),
            ("--numel N  elements of each buffer; default: product of the two largest dims", {"type": int}),
        ),
        runs_code=True,
    ),
    "robustkbench": Importer(
        "robustkbench",
        help="task folders of robust-kbench (code)",
        source="DIR",
        options=(
            ("--seeds N  initialisations a configuration", {"type": int, "default": 1}),
            (
                "--configs  which settings of the task to take",
                {"choices": ("single", "multi"), "default": "multi"},
            ),
        ),
        runs_code=True,
    ),
    "solexecbench": Importer(
        "solexecbench", help="problems of SOL-ExecBench (code)", source="DIR", runs_code=True
    ),
}
"""By KIND of `cgins import`."""
EXPORTERS = {
    "flashinfer-bench": Exporter(
        "flashinfer_export",
        help="definitions and workloads of flashinfer-bench",
        out="root of the trace set",
        options=(
            ("--values  write every tensor's values, not only those that matter", {"action": "store_true"}),
        ),
    )
}
"""By KIND of `cgins export`."""
