"""`cgins run`: from a benchmark file of GinS to a project with kernels.

folder/
  traces/<stem>/    what the file's programs call, recorded with the torch that is installed
  cgins.yaml        names the traces; at the end an entry for each op that has a kernel
  kernels/          what the gate accepted
  .cgins/runs/      how that came about
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_cgins import config as configuration
from pytest_cgins.config import Config
from pytest_cgins.core import atomic
from pytest_cgins.core.errors import ConfigError, RecordError, RegenerateError
from pytest_cgins.packs.store import open_pack
from pytest_cgins.regenerate import new_kernel, run_status
from pytest_cgins.regenerate.attempt import Result, Target
from pytest_cgins.regenerate.journal.files import read_files
from pytest_cgins.regenerate.journal.journal import Journal
from pytest_cgins.regenerate.project_copy import top_of
from pytest_cgins.run.forking import PATH

if TYPE_CHECKING:
    from pytest_cgins.core.case import Contract
    from pytest_cgins.regenerate.new_kernel import Language, NewKernel
    from pytest_cgins.regenerate.run_status import RunResult


def prepare(
    file: Path, folder: Path, *, language: Language, contract: Contract | None
) -> tuple[Config, tuple[NewKernel, ...]]:
    """Make a project of a benchmark file: its traces, and a cgins.yaml without kernels; plan one for each op.

    Args:
        file: programs of operations and definitions, as `cgins import gins` takes them.
        folder: of the project; made if need be.
        language: what kernels are to be written in.
        contract: how they are to be called; None for the language's own.

    Raises:
        ConfigError: the folder has a cgins.yaml already.
        RecordError: nothing of the file could be recorded.
    """
    yaml = folder / "cgins.yaml"
    if yaml.exists():
        raise ConfigError(
            f"{yaml} already exists",
            remedy="name a new folder: --out FOLDER; or go on with what began there: cgins runs resume --runs "
            f"{folder / '.cgins' / 'runs'}",
        )
    pack = folder / "traces" / (re.sub(r"[^\w.-]+", "_", file.stem) or "programs")
    imported(["gins", str(file), "--out", str(pack)], file)
    traces = pack.relative_to(folder).as_posix()
    atomic.write_text(yaml, f"version: 1\ntraces: [{traces}]\nkernels: {{}}\n", durable=True)
    try:
        config = configuration.load(yaml)
        return config, planned(config, pack, language, contract)
    except BaseException:
        yaml.unlink()
        raise


def settle(config: Config, ran: RunResult) -> tuple[str, ...]:
    """Write what was accepted into the project: sources, and entries in cgins.yaml.

    Nothing is touched while a target waits or can be resumed. What is done is not done twice.

    Args:
        config: the project's file.
        ran: what became of the run.

    Returns:
        What the user should know, one line each.

    Raises:
        RegenerateError: a source already exists, and another one.
    """
    if any(result.state in ("waiting", "stopped") for result in ran.results):
        return (f"kernels come into {run_status.shown_path(config.root)} when the run is done",)
    journal = Journal.read_only(ran.journal)
    accepted = [
        result
        for result in ran.results
        if result.state == "accepted" and not run_status.is_superseded(journal, result.target)
    ]
    lines = []
    for result in accepted:
        overlay = journal.overlay(journal.first(result.target))
        sources = read_files(journal.folder / result.target.name / "final")
        written = _write(new_kernel.reloaded(config, overlay), result.target, sources)
        lines += [f"wrote {run_status.shown_path(path)}" for path in written]
        # Into cgins.yaml; everything else in it stays as it is.
        text, (changed,) = config.file.read_bytes().decode(), overlay.values()
        entered = new_kernel.entered(text, config.file, changed, result.target.kernel)
        atomic.write_text(config.file, entered, durable=True)
    lines += [
        _left_out(journal, result)
        for result in ran.results
        if result.state == "failed" and not result.target.improves
    ]
    configuration.load(config.file)
    if accepted:
        lines.append(f"next: pytest --cgins {run_status.shown_path(config.root)}")
    else:
        lines.append(f"{run_status.shown_path(config.file)} has traces, and no kernel: none was accepted")
    return tuple(lines)


def imported(words: Sequence[str], what: Path, *, folder: Path | None = None) -> None:
    """Run `cgins import`: torch stays out of this process, and what is recorded does not depend on it.

    Args:
        words: its arguments.
        what: is imported.
        folder: in which it runs; None for this one.

    Raises:
        RecordError: nothing could be recorded.
    """
    boot = f"{PATH}from pytest_cgins.app.cli import main; sys.exit(main())"
    sys.stdout.flush()
    done = subprocess.run([sys.executable, "-c", boot, "import", *words], cwd=folder, check=False)
    if done.returncode:
        raise RecordError(f"no trace could be made of {what}", remedy="fix the problems listed above")


def planned(
    config: Config, pack: Path, language: Language, contract: Contract | None
) -> tuple[NewKernel, ...]:
    """One kernel for each op of a pack, each as if it were to be the only one that is new."""
    found: dict[str, NewKernel] = {}
    for op in dict.fromkeys(trace.call.op for trace in open_pack(pack).pack.traces):
        name = new_kernel.word_of(op)
        if name in found:  # all of its words, where two ops share the last
            name = re.sub(r"\W+", "_", op).strip("_")
        found[name] = new_kernel.planned(
            config, op, language=language, contract=contract, kernel=name, top=top_of(config)
        )
    return tuple(found.values())


def _write(config: Config, target: Target, sources: Mapping[str, str]) -> list[Path]:
    """Write the sources of a kernel's own, and no others; gives those that were not there as they are."""
    top = top_of(config)
    own = set(map(os.path.realpath, config.implementations[target.key][1].sources))
    written = []
    for path, text in sources.items():
        place = top / path
        if os.path.realpath(place) not in own:
            raise RegenerateError(
                f"{path} is not a source of {target.name} in {config.file}", remedy="start a new run"
            )
        if place.exists():
            if place.read_bytes() == text.encode():
                continue
            raise RegenerateError(
                f"{place} is there, and is not what the run accepted",
                remedy="move it away, and resume the run",
            )
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text, encoding="utf-8", newline="")
        written.append(place)
    return written


def _left_out(journal: Journal, result: Result) -> str:
    failed = journal.folder / result.target.name / "FAILED"
    last = f"; its last source is in {run_status.shown_path(failed)}" if failed.is_dir() else ""
    return f"no kernel for {result.target.op}: {result.target.name} {result.state}{last}"
