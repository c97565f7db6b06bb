"""The formats that are read and written, as `formats.json` lists them with help and options; torch is imported when one runs."""

from __future__ import annotations

import argparse
import importlib
import json
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pytest_cgins.recording.importers.collect import Collector

Option = dict[str, Any]
"""`line`, an option as the help shows it, `--only TEXT  only ops whose name contains this`, and settings of `add_argument`."""


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
    options: Sequence[Option] = ()
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
    options: Sequence[Option] = ()

    def run(self, pack: Path, out: Path, args: argparse.Namespace) -> Exported:
        """Export a pack; imports torch."""
        exported: Exported = _module(self.module).run(pack, out, args)
        return exported


def _module(name: str) -> Any:
    return importlib.import_module(f"pytest_cgins.recording.importers.{name}")


def _typed(part: dict[str, Any]) -> dict[str, Any]:
    """An object of `formats.json`; in an option `type` is the name of one."""
    return {**part, "type": {"int": int, "path": Path}[part["type"]]} if "type" in part else part


_FORMATS = json.loads(
    Path(__file__).with_name("formats.json").read_text(encoding="utf-8"), object_hook=_typed
)
IMPORTERS = {kind: Importer(**entry) for kind, entry in _FORMATS["importers"].items()}
"""By KIND of `cgins import`."""
EXPORTERS = {kind: Exporter(**entry) for kind, entry in _FORMATS["exporters"].items()}
"""By KIND of `cgins export`."""
