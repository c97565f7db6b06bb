"""NVIDIA's Nsight Compute around a process: how it is called, and what its refusals mean."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from pytest_cgins.doctor import compilers, profiling, tools
from pytest_cgins.regenerate.profiling.metrics import SECTIONS, Reading

NAME_COLUMNS = ("Kernel Name", "Demangled Name", "Function Name")
METRIC_COLUMNS = ("Metric Name", "Metric Unit", "Metric Value")
_KNOWN = frozenset({
    "ID", "Process ID", "Process Name", "Host Name", "Kernel Time", "Context", "Stream", "Block Size", "Grid Size",
    "Device", "CC", "Section Name", "Rule Name", "Rule Type", "Rule Description", "Estimated Speedup Type",
    "Estimated Speedup", "thread Domain:Push/Pop_Range:PL_Type:PL_Value:CLR_Type:Color:Msg_Type:Msg", *NAME_COLUMNS,
    *METRIC_COLUMNS,
})  # fmt: skip
ADVICE = ("OPT", "WRN")
"""Types of rules that advise something."""
_NUMBER = re.compile(r"[+-]?(?:\d[\d,]*\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")
_TIMES = {"nsecond": 1.0, "ns": 1.0, "usecond": 1e3, "us": 1e3, "µs": 1e3, "msecond": 1e6, "ms": 1e6, "second": 1e9,
          "s": 1e9}  # fmt: skip
_PREFIXES = {"K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
_SCALED = re.compile(r"([KMGT])(byte|hz|b|B)(.*)")

Cells = dict[str, str]
"""Of one row, by column; the first of several columns with one name."""


@dataclass(slots=True)
class Launch:
    """One launch of a kernel, as ncu numbers them."""

    id: str
    """Of the launch."""
    name: str
    """Of the kernel."""
    grid: str = ""
    """Blocks."""
    block: str = ""
    """Threads a block."""
    columns: dict[str, Reading] = field(default_factory=dict)
    """By metric; times in nanoseconds, sizes in bytes."""
    suggested: list[str] = field(default_factory=list)
    """What ncu's rules say of it: on the page of details alone."""


def parse_csv(text: str) -> tuple[Launch, ...]:
    """The launches of one output, in their order; () if there is no table in it."""
    launches: dict[str, Launch] = {}
    for header, rows in _tables(text):
        units: Cells = {}
        for row in rows:
            cells: Cells = {}
            for name, cell in zip(header, row, strict=False):
                cells.setdefault(name, cell)
            launch = _launch(cells, launches)
            if launch is None:
                units = units or cells
            elif "Metric Name" in cells:
                _read_long(cells, launch)
            else:
                _read_wide(cells, units, launch)
    return tuple(launches.values())


def number(text: str) -> float | None:
    """A number as ncu writes it under LC_ALL=C; None if it is none, or none that is finite."""
    text = text.strip()
    value = float(text.replace(",", "")) if _NUMBER.fullmatch(text) else math.inf
    return value if math.isfinite(value) else None


def based(value: float, unit: str) -> Reading:
    """A value in base units: nanoseconds, bytes, hertz; others as they are."""
    unit = unit.strip()
    if unit in _TIMES:
        return Reading(value * _TIMES[unit], "ns")
    scaled = _SCALED.fullmatch(unit)
    if scaled:
        return Reading(value * _PREFIXES[scaled[1]], f"{scaled[2]}{scaled[3]}")
    return Reading(value, unit)


def _tables(text: str) -> Iterator[tuple[list[str], list[list[str]]]]:
    """Header and rows of each table; a line that is no row of its table ends it."""
    header: list[str] = []
    rows: list[list[str]] = []
    for record in _records(text):
        if any(name in record for name in NAME_COLUMNS) and "ID" in record:
            if header:
                yield header, rows
            header, rows = record, []
        elif header and len(record) > 1:
            rows.append(record)
    if header:
        yield header, rows


def _records(text: str) -> Iterator[list[str]]:
    """Fields of each line that is quoted as ncu quotes; a kernel's name may have commas, never line ends."""
    for line in map(str.strip, text.splitlines()):
        if line.startswith(('"', "ID,")):
            try:
                yield next(csv.reader(io.StringIO(line)))
            except (csv.Error, StopIteration):
                continue


def _launch(cells: Cells, launches: dict[str, Launch]) -> Launch | None:
    """The launch that a row is of; None for the row of units."""
    identity = cells.get("ID", "").strip()
    name = next((cells[column] for column in NAME_COLUMNS if column in cells), "").strip()
    if not identity or not name:
        return None
    made = Launch(identity, name, grid=cells.get("Grid Size", ""), block=cells.get("Block Size", ""))
    return launches.setdefault(identity, made)


def _read_wide(cells: Cells, units: Cells, launch: Launch) -> None:
    for column, cell in cells.items():
        value = number(cell) if column not in _KNOWN else None
        if value is not None:
            name, unit = _with_unit(column, units.get(column, ""))
            launch.columns.setdefault(name, based(value, unit))


def _with_unit(column: str, unit: str) -> tuple[str, str]:
    """Name and unit; some versions write `gpu__time_duration.sum [ns]` in one cell."""
    matched = re.fullmatch(r"(\S+__\S+) \[(.+)\]", column)
    return (matched[1], matched[2]) if matched and not unit else (column, unit)


def _read_long(cells: Cells, launch: Launch) -> None:
    name, value = cells["Metric Name"], number(cells.get("Metric Value", ""))
    if name and value is not None:
        unit = cells.get("Metric Unit", "")
        known = launch.columns.get(name)
        # "Memory Throughput" is in two sections: a share in one, bytes a second in the other.
        if known is None or (known.unit != "%" and unit == "%"):
            launch.columns[name] = based(value, unit)
    if cells.get("Rule Type") in ADVICE:
        speedup = number(cells.get("Estimated Speedup", ""))
        estimated = f" (estimated speedup: {speedup:g}%)" if speedup else ""
        launch.suggested.append(f"{cells.get('Rule Description', '')}{estimated}")


IMPORT_LIMIT_S = 120.0
SUFFIX = ".ncu-rep"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ncu:
    """An installed ncu."""

    path: str
    """Of the program."""
    version: str
    """Its version; "" if it does not say."""
    sections: tuple[str, ...] = SECTIONS
    """Those of ours that it has: it refuses all for one whose name it does not know."""

    def around(self, command: Sequence[str], report: Path, *, extra: Sequence[str]) -> list[str]:
        """The command that profiles what another one does between cudaProfilerStart and cudaProfilerStop.

        The clocks are left alone. Caches are emptied before each pass, so that data comes from memory.

        Args:
            command: the program; only its own process is looked at.
            report: file to write, without its suffix.
            extra: counters besides those of the sections; see `metrics.EXTRAS`.
        """
        words = [self.path, "--export", str(report), "--force-overwrite", "--profile-from-start", "off"]
        words += ["--target-processes", "application-only"]
        words += ["--clock-control", "none", "--cache-control", "all"]
        for section in self.sections:
            words += ["--section", section]
        return [*words, *(["--metrics", ",".join(extra)] if extra else []), *command]

    def read(self, report: Path) -> tuple[tuple[Launch, ...], str]:
        """The launches of a report, and the trouble, "" if there is none.

        Args:
            report: file with its suffix.
        """
        launches, ran = self._imported(report, "raw", "--print-units", "base")
        if not launches and "print-units" in ran.output:
            launches, ran = self._imported(report, "raw")
        if not launches:
            return (), f"{report.name} has no launch that can be read: {ran.last_line}"
        suggested = {one.id: one.suggested for one in self._imported(report, "details")[0]}
        return tuple(replace(one, suggested=suggested.get(one.id, [])) for one in launches), ""

    def _imported(
        self, report: Path, page: str, *options: str
    ) -> tuple[tuple[Launch, ...], tools.ProgramResult]:
        table = report.with_suffix(".csv")
        command = [self.path, "--import", str(report), "--csv", "--page", page, *options]
        # To a file: a long call has more than a pipe of ours takes.
        ran = tools.run([*command, "--log-file", str(table)], limit_s=IMPORT_LIMIT_S)
        text = table.read_text(encoding="utf-8", errors="replace") if table.is_file() else ""
        table.unlink(missing_ok=True)
        return parse_csv(text) or parse_csv(ran.output), replace(ran, output=f"{text}{ran.output}")


def find() -> Ncu | None:
    """The ncu that the doctor finds; None without."""
    found = profiling.ncu(compilers.toolkit())
    if not found.where:
        return None
    listed = tools.run([found.where, "--list-sections"]).output.split()
    sections = tuple(name for name in SECTIONS if name in listed) or SECTIONS
    return Ncu(path=found.where, version=found.version, sections=sections)


def refusal(output: str) -> str:
    """Why ncu measured nothing, and the remedy, one line; "" if its output does not say so."""
    if "ERR_NVGPUCTRPERM" in output:
        return f"ncu may not read performance counters (ERR_NVGPUCTRPERM) → {profiling.COUNTERS_REMEDY}"
    if "already in use" in output.lower():
        return "another profiler holds the performance counters → stop it (DCGM: dcgmi profiling --pause)"
    errors = [line.strip() for line in output.splitlines() if line.strip().startswith("==ERROR==")]
    if errors:
        return f"ncu: {errors[0].removeprefix('==ERROR==').strip()[:300]}"
    if "No kernels were profiled" in output:
        return "ncu saw no kernel: the call launches none on the GPU"
    return ""
