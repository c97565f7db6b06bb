"""NVIDIA's Nsight Compute around a process: how it is called, and what its refusals mean."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pytest_cgins.doctor import compilers, parse, profiling, tools
from pytest_cgins.regenerate.profiling import ncu_csv
from pytest_cgins.regenerate.profiling.metric_table import SECTIONS
from pytest_cgins.regenerate.profiling.ncu_csv import Launch

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
        launches = ncu_csv.parse(text) or ncu_csv.parse(ran.output)
        if not launches and "print-units" in f"{text}{ran.output}":
            ran = tools.run(command[:-2], limit_s=IMPORT_LIMIT_S)
            launches = ncu_csv.parse(ran.output)
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
