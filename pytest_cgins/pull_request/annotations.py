"""What failed, as annotations on the lines of kernels' sources: commands that GitHub's runner reads in a log.

A report is not trusted: its texts become data of a command, escaped as the runner's protocol says, and its
paths only choose among the sources that `cgins.yaml` of the checkout names. The files are read for line
numbers, and nothing runs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Literal

from pytest_cgins import config as configuration
from pytest_cgins.config import Config, Implementation
from pytest_cgins.core.errors import CginsError
from pytest_cgins.core.session_report import Compilation, Evaluation, SessionReport
from pytest_cgins.core.text import counted
from pytest_cgins.core.verdict import Status, Verdict
from pytest_cgins.report import summary
from pytest_cgins.report.escape import cut, visible
from pytest_cgins.report.failure import headline

Level = Literal["error", "warning"]
LIMIT = 10
"""Annotations of one level that GitHub shows of a step."""
TEXT_LENGTH = 1000
SOURCE_LIMIT_NBYTES = 4 << 20
_WARNED = (Status.WEAK, Status.INCONCLUSIVE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Annotation:
    """One remark on a line of a file."""

    level: Level
    """`error` where the gate failed."""
    path: str
    """From the top of the repository; "" for none."""
    line: int
    """From 1 on; 0 for none."""
    title: str
    """The kernel's implementation and its worst status."""
    text: str
    """How many cases, and what the worst of them is."""

    def command(self) -> str:
        """The line that the runner reads."""
        position = f"file={_property(self.path)},line={max(self.line, 1)}," if self.path else ""
        return f"::{self.level} {position}title={_property(self.title)}::{_data(cut(self.text, TEXT_LENGTH))}"


@dataclass(slots=True)
class _Group:
    """What was found of one implementation on one device."""

    level: Level
    config: str
    kernel: str
    implementation: str
    findings: list[tuple[Verdict, str, str]] = field(default_factory=list)
    """Verdict, name of the case or build, and its headline."""


def annotate(report: SessionReport, *, folder: Path, root: Path) -> tuple[Annotation, ...]:
    """One for each implementation that failed or is in doubt, worst first.

    Pytest was started in `folder`; from `root`, the top of the checkout, GitHub counts paths.
    """
    groups: dict[tuple[str, str, str, str], _Group] = {}
    for level, config, kernel, implementation, device, finding in _findings(report):
        key = (level, config, kernel, f"{device}-{implementation}")
        groups.setdefault(key, _Group(level, config, kernel, implementation)).findings.append(finding)
    for group in groups.values():
        group.findings.sort(key=lambda finding: summary.rank(finding[0].status))
    ordered = sorted(
        groups.values(), key=lambda group: (group.level, summary.rank(group.findings[0][0].status))
    )
    load = cache(lambda config: _config(folder / config))
    return tuple(_annotation(group, folder, root, load) for group in ordered)


def commands(annotations: Iterable[Annotation]) -> str:
    """Lines for the runner: as many of a level as GitHub shows, the last of which counts what is left out."""
    lines: list[str] = []
    every = list(annotations)
    for level in ("error", "warning"):
        mine = [annotation for annotation in every if annotation.level == level]
        shown = mine if len(mine) <= LIMIT else mine[: LIMIT - 1]
        lines += [annotation.command() for annotation in shown]
        if len(shown) < len(mine):
            more = counted(len(mine) - len(shown), "more implementation")
            text = f"{more}: the job summary and the report have them all"
            lines.append(f"::{level} title=cgins::{_data(text)}")
    return "".join(f"{line}\n" for line in lines)


def _findings(report: SessionReport) -> Iterable[tuple[Level, str, str, str, str, tuple[Verdict, str, str]]]:
    results: list[Evaluation | Compilation] = [*summary.worst_first(report.evaluations), *report.compilations]
    for result in results:
        failed = summary.outcome(result, strict=report.strict) in ("fail", "error")
        if failed or result.verdict.status in _WARNED:
            level: Level = "error" if failed else "warning"
            of = result if isinstance(result, Compilation) else result.case
            device = "cuda" if isinstance(of, Compilation) else of.device
            finding = (result.verdict, of.name, headline(result))
            yield level, summary.file(result), of.kernel, of.implementation, device, finding


def _annotation(group: _Group, folder: Path, root: Path, load: Callable[[str], Config | None]) -> Annotation:
    verdict, name, words = group.findings[0]
    others = len(group.findings) - 1
    path, line = _place(group, verdict, folder, root, load(group.config))
    more = f"\nand {others} more of this implementation" if others else ""
    return Annotation(
        level=group.level,
        path=path,
        line=line,
        title=f"cgins: {group.kernel}/{group.implementation} {verdict.status.value}",
        text=f"{name}: {words}{more}",
    )


def _place(
    group: _Group, verdict: Verdict, folder: Path, root: Path, config: Config | None
) -> tuple[str, int]:
    """Where a compiler stopped, else where the entry point is, else the entry in cgins.yaml."""
    implementation = _implementation(config, group)
    if config is None or implementation is None:
        return _below(folder / group.config, root), 1
    for file in implementation.sources:
        stopped_at = re.search(rf"{re.escape(file.name)}:(\d{{1,7}})\b", verdict.message)
        if stopped_at and _below(file, root):
            return _below(file, root), int(stopped_at[1])
    for file in [*implementation.sources, *_target_file(config, implementation)]:
        line = _entry_line(file, implementation)
        if line and _below(file, root):
            return _below(file, root), line
    return _below(config.file, root), max(implementation.line, 1)


def _implementation(config: Config | None, group: _Group) -> Implementation | None:
    """By its name, as the checkout has it."""
    for (kernel, name, _), (_, found) in config.implementations.items() if config is not None else ():
        if (kernel, name) == (group.kernel, group.implementation):
            return found
    return None


def _config(file: Path) -> Config | None:
    """What the checkout has; None where it cannot be read, which the gate has told already."""
    try:
        return configuration.load(file, require_traces=False, require_sources=False)
    except (CginsError, OSError):
        return None


def _target_file(config: Config, implementation: Implementation) -> list[Path]:
    """The module of a Python target, where it lies below cgins.yaml."""
    module = implementation.target.partition(":")[0]
    return [config.root / f"{module.replace('.', '/')}.py"] if module else []


def _entry_line(file: Path, implementation: Implementation) -> int:
    """The line of the schema, of the named entry, or of the Python function; 0 if there is none."""
    try:
        if file.stat().st_size > SOURCE_LIMIT_NBYTES:
            return 0
        lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return 0
    name = re.escape((implementation.target.partition(":")[2] or implementation.entry).rpartition("::")[2])
    patterns = [r"\s*//\s*cgins:"]
    if name:
        patterns = [rf"\s*(?:async\s+)?(?:def|class)\s+{name}\b", rf"\s*{name}\s*=", rf".*\b{name}\s*\("]
    for pattern in patterns:
        for number, line in enumerate(lines, 1):
            if re.match(pattern, line):
                return number
    return 0


def _below(file: Path, root: Path) -> str:
    """A path from the top of the checkout; "" outside of it."""
    path, top = file.resolve(), root.resolve()
    return path.relative_to(top).as_posix() if path.is_relative_to(top) else ""


def _data(text: str) -> str:
    shown = "\n".join(visible(line) for line in text.splitlines())
    return shown.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(visible(text)).replace(":", "%3A").replace(",", "%2C")
