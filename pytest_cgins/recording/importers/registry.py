"""The formats that are read and written: each is a module here that says in one object what it takes."""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pytest_cgins.recording.importers.collect import Collector

IMPORTERS = {
    "gins": "gins",
    "pt": "pairs",
    "backendbench": "backendbench",
    "flashinfer-bench": "flashinfer",
    "kernelbench": "kernelbench",
    "refpy": "refpy",
    "robustkbench": "robustkbench",
}
"""KIND of `cgins import` → the module with its `IMPORTER`."""
EXPORTERS = {"flashinfer-bench": "flashinfer_export"}
"""KIND of `cgins export` → the module with its `EXPORTER`."""

Option = tuple[str, dict[str, Any]]
"""An option as the help shows it, `--only TEXT  only ops whose name contains this`, and settings of `add_argument`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Importer:
    """A format that is imported."""

    help: str
    """What its files are."""
    source: str
    """How its help names them: `FILE.json`."""
    run: Callable[[argparse.Namespace, Collector], None]
    """Hands the calls of `source` to the collector; its other options are attributes, too."""
    options: tuple[Option, ...] = ()
    """Besides those of all: `--out`, `--name`, `--config`."""
    runs_code: bool = False
    """Its sources are code, which is copied to `references`, and needs `--allow-code`."""
    keeps_all: bool = False
    """It keeps whole tensors, of any size: no `--tier` and no `--max-mib`."""
    chooses_device: bool = True
    """`--device` says where to record."""


@dataclass(slots=True)
class Exported:
    """What an export did."""

    definitions: dict[str, int] = field(default_factory=dict)
    """Workloads by definition."""
    left_out: list[tuple[str, str]] = field(default_factory=list)
    """Trace and reason."""
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class Exporter:
    """A format that packs are exported in."""

    help: str
    """What its files are."""
    out: str
    """What `--out` is."""
    run: Callable[[Path, Path, argparse.Namespace], Exported]
    """Writes the traces of a pack to a folder; its options are attributes of the third."""
    options: tuple[Option, ...] = ()


def importer(kind: str) -> Importer:
    """That of a KIND; imports torch."""
    found: Importer = _module(IMPORTERS[kind]).IMPORTER
    return found


def exporter(kind: str) -> Exporter:
    """That of a KIND; imports torch."""
    found: Exporter = _module(EXPORTERS[kind]).EXPORTER
    return found


def _module(name: str) -> Any:
    return importlib.import_module(f"pytest_cgins.recording.importers.{name}")
