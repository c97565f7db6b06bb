"""Runs of `optimise.py`: begun from one gate, taken up again, and put together when they are done."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from optimise_project import KERNELS
from outcome import journals

from pytest_cgins import config as configuration
from pytest_cgins.core import documents
from pytest_cgins.core.options import RUNS_FOLDER
from pytest_cgins.core.session_report import SessionReport
from pytest_cgins.regenerate import run, run_setup, run_status, targets
from pytest_cgins.regenerate.journal.journal import Journal
from pytest_cgins.regenerate.project_copy import head


def gated(report: Path) -> SessionReport:
    """What a gate found."""
    return documents.load(SessionReport, report.read_bytes())


def begin(project: Path, report: Path, *, sandbox: bool) -> None:
    """Write down a run of all kernels, as `pytest --cgins-regenerate` does after the tests."""
    found = gated(report)
    with _within(project):
        config = configuration.load(project / "cgins.yaml")
        record = {
            "seed": found.seed,
            "baseline": "merge-base",
            "base_commit": head(config.root),
            "sandbox": sandbox,
            "command": "optimise.py",
        }
        settings = run_setup.settings_of(config, run_setup.RunOptions())
        chosen = targets.choose(config, found.evaluations, tuple(KERNELS))
        with run.begin(config, settings, chosen, found.evaluations, record=record):
            pass


def of_policy(work: Path, policy: str) -> Journal | None:
    """A policy's run; None if it was not begun."""
    return next(iter(journals(work / policy / RUNS_FOLDER)), None)


def prompts(journal: Journal) -> list[Path]:
    """All that are asked and not taken up yet, answered or not; of one target there may be several."""
    folder = run_setup.answers_folder(journal)
    left = [one for one in journal.record.targets if journal.result(one) is None]
    asked = [
        file.parent
        for one in left
        for file in sorted((journal.folder / one.name).glob("attempt-*/*/request.json"))
    ]
    return [
        folder / place.relative_to(journal.folder) / "prompt.md"
        for place in asked
        if folder is not None and not any((place / name).exists() for name in ("answer.json", "error.json"))
    ]


def to_resume(work: Path, policies: Sequence[str]) -> list[tuple[str, str]]:
    """Policies and names of runs that can go on: new ones, ones with an answer, and ones that were stopped."""
    found = []
    for policy in policies:
        journal = of_policy(work, policy)
        if journal is None:
            continue
        state = run_status.state_of(journal)
        answered = any(prompt.with_name("answer.md").exists() for prompt in prompts(journal))
        if state == "stopped" or (state == "waiting" and answered):
            found.append((policy, journal.record.id))
    return found


def waiting(work: Path, policies: Sequence[str]) -> list[Path]:
    """Prompts without an answer."""
    found = [journal for policy in policies if (journal := of_policy(work, policy)) is not None]
    return [
        prompt
        for journal in found
        for prompt in prompts(journal)
        if not prompt.with_name("answer.md").exists()
    ]


def finished(work: Path, policy: str) -> tuple[Path, list[str]]:
    """Put what a policy's run accepted into a copy of its project; the report that its gate is to have, and the kernels."""
    journal = of_policy(work, policy)
    folder = work / f"last-{policy}"
    report = folder.with_suffix(".json")
    results = [(one, journal.result(one)) for one in journal.record.targets] if journal is not None else []
    won = [one for one, result in results if result is not None and result.state == "accepted"]
    if journal is not None and won and not report.exists():
        shutil.rmtree(folder, ignore_errors=True)
        left_out = shutil.ignore_patterns(".cgins", "__pycache__", ".pytest_cache")
        shutil.copytree(work / policy, folder, ignore=left_out)
        for target in won:
            final = journal.folder / target.name / "final"
            shutil.copytree(final, folder, dirs_exist_ok=True)
    return report, [one.kernel for one in won]


@contextmanager
def _within(folder: Path) -> Iterator[None]:
    """What is written down is relative to where a person would have been."""
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)
