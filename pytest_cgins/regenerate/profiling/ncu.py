"""NVIDIA's Nsight Compute around a process: how it is called, and what its refusals mean."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pytest_cgins.doctor import compilers, parse, profiling, tools
from pytest_cgins.regenerate.profiling.metrics import SECTIONS, Reading

NAME_COLUMNS = ("Kernel Name", "Demangled Name", "Function Name")
METRIC_COLUMNS = ("Metric Name", "Metric Unit", "Metric Value")
_KNOWN = frozenset({
    "ID", "Process ID", "Process Name", "Host Name", "Kernel Time", "Context", "Stream", "Block Size", "Grid Size",
    "Device", "CC", "Section Name", "Rule Name", "Rule Type", "Rule Description", "Estimated Speedup Type",
    "Estimated Speedup", "thread Domain:Push/Pop_Range:PL_Type:PL_Value:CLR_Type:Color:Msg_Type:Msg", *NAME_COLUMNS,
    *METRIC_COLUMNS,
})  # fmt: skip
_NUMBER = re.compile(r"[+-]?(?:\d[\d,]*\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")
_TIMES = {"nsecond": 1.0, "ns": 1.0, "usecond": 1e3, "us": 1e3, "µs": 1e3, "msecond": 1e6, "ms": 1e6, "second": 1e9,
          "s": 1e9}  # fmt: skip
_PREFIXES = {"K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
_SCALED = re.compile(r"([KMGT])(byte|hz|b|B)(.*)")


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


def parse_csv(text: str) -> tuple[Launch, ...]:
    """The launches of one output, in their order; () if there is no table in it."""
    launches: dict[str, Launch] = {}
    for header, rows in _tables(text):
        places = {name: index for index, name in reversed(list(enumerate(header)))}
        if "Metric Name" in places:
            _read_long(rows, places, launches)
        else:
            _read_wide(rows, header, places, launches)
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


def _launch(row: Sequence[str], places: dict[str, int], launches: dict[str, Launch]) -> Launch | None:
    def cell(*names: str) -> str:
        return next((row[places[name]] for name in names if places.get(name, len(row)) < len(row)), "")

    identity = cell("ID").strip()
    name = cell(*NAME_COLUMNS).strip()
    if not identity or not name:
        return None  # the row of units
    return launches.setdefault(
        identity, Launch(identity, name, grid=cell("Grid Size"), block=cell("Block Size"))
    )


def _read_wide(
    rows: Sequence[Sequence[str]], header: Sequence[str], places: dict[str, int], launches: dict[str, Launch]
) -> None:
    units: Sequence[str] = ()
    for row in rows:
        launch = _launch(row, places, launches)
        if launch is None:
            units = units or row
            continue
        for index, column in enumerate(header):
            value = number(row[index]) if index < len(row) and column not in _KNOWN else None
            if value is not None:
                name, unit = _with_unit(column, units[index] if index < len(units) else "")
                launch.columns.setdefault(name, based(value, unit))


def _with_unit(column: str, unit: str) -> tuple[str, str]:
    """Name and unit; some versions write `gpu__time_duration.sum [ns]` in one cell."""
    matched = re.fullmatch(r"(\S+__\S+) \[(.+)\]", column)
    return (matched[1], matched[2]) if matched and not unit else (column, unit)


def _read_long(rows: Sequence[Sequence[str]], places: dict[str, int], launches: dict[str, Launch]) -> None:
    name_at, value_at = places["Metric Name"], places.get("Metric Value", -1)
    unit_at = places.get("Metric Unit", -1)
    for row in rows:
        launch = _launch(row, places, launches)
        if launch is None or not 0 <= value_at < len(row) or name_at >= len(row):
            continue
        value = number(row[value_at])
        if value is not None and row[name_at]:
            unit = row[unit_at] if 0 <= unit_at < len(row) else ""
            known = launch.columns.get(row[name_at])
            # "Memory Throughput" is in two sections: a share in one, bytes a second in the other.
            if known is None or (known.unit != "%" and unit == "%"):
                launch.columns[row[name_at]] = based(value, unit)


INSTALL = "install Nsight Compute (nsight-compute, part of the CUDA toolkit)"
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
        words += [
            "--target-processes",
            "application-only",
            "--clock-control",
            "none",
            "--cache-control",
            "all",
        ]
        for section in self.sections:
            words += ["--section", section]
        return [*words, *(["--metrics", ",".join(extra)] if extra else []), *command]

    def read(self, report: Path) -> tuple[tuple[Launch, ...], str]:
        """The launches of a report, and the trouble, "" if there is none.

        Args:
            report: file with its suffix.
        """
        table = report.with_suffix(".csv")
        table.unlink(missing_ok=True)
        command = [self.path, "--import", str(report), "--csv", "--page", "raw", "--print-units", "base"]
        # To a file: a long call has more than a pipe of ours takes.
        ran = tools.run([*command, "--log-file", str(table)], limit_s=IMPORT_LIMIT_S)
        try:
            text = table.read_text(encoding="utf-8", errors="replace")
        except OSError:
            text = ran.output
        table.unlink(missing_ok=True)
        launches = parse_csv(text) or parse_csv(ran.output)
        if not launches and "print-units" in f"{text}{ran.output}":
            ran = tools.run(command[:-2], limit_s=IMPORT_LIMIT_S)
            launches = parse_csv(ran.output)
        trouble = "" if launches else f"{report.name} has no launch that can be read: {ran.last_line}"
        return launches, trouble


def find() -> Ncu | None:
    """The ncu that the doctor finds; None without."""
    path = tools.find("ncu", profiling.folders(compilers.toolkit()))
    if not path:
        return None
    ran = tools.run([path, "--version"])
    line = next((line for line in ran.output.splitlines() if line.strip().startswith("Version")), ran.output)
    listed = tools.run([path, "--list-sections"]).output.split()
    return Ncu(
        path=path,
        version=parse.written(parse.version(line)) if ran.status == 0 else "",
        sections=tuple(name for name in SECTIONS if name in listed) or SECTIONS,
    )


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
