"""Where a run that is answered by hand has its prompts, and which run a folder of prompts belongs to.

`.cgins/exchange` has a folder for each run. Another folder, which somebody named, is taken as it is: several runs may
share it, but a target of one of them at a time. So `used-by.json` beside a target's attempts says whose they are.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from pytest_cgins.config.llm import EXCHANGE_FOLDER, LlmSettings
from pytest_cgins.core import documents
from pytest_cgins.core.document_base import Document
from pytest_cgins.core.errors import JournalError, RegenerateError
from pytest_cgins.regenerate.attempt import Target
from pytest_cgins.regenerate.journal.journal import Journal
from pytest_cgins.regenerate.provider import files
from pytest_cgins.regenerate.run_status import open_request

USED_BY = "used-by.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class UsedBy(Document):
    """The run whose prompts lie in a target's folder."""

    run: str
    """Its name."""
    journal: str
    """Folder of its journal, as a path from here."""


def own_folder(settings: LlmSettings, root: Path, run: str) -> str:
    """The folder that a new run gets for itself, as a path from its journal's; "" if it is told which to take.

    Args:
        settings: who is asked.
        root: folder of cgins.yaml.
        run: name of the run.
    """
    if settings.provider != "exchange" or settings.path is None:
        return ""
    if settings.path.resolve() != (root / EXCHANGE_FOLDER).resolve():
        return ""
    return os.path.relpath(settings.path / run, settings.runs / run)


def folder_of(journal: Journal, settings: LlmSettings) -> Path | None:
    """Where the prompts of a run lie; None if no prompts and no recordings lie anywhere."""
    if settings.provider == "exchange" and journal.record.exchange:
        return Path(os.path.normpath(journal.folder.absolute() / journal.record.exchange))
    return settings.path


def claim(journal: Journal, folder: Path) -> None:
    """Note that the open targets of a run have their prompts in a folder.

    Raises:
        RegenerateError: another run waits there for the answer to a prompt of one of them.
    """
    own = [target for target in journal.record.targets if journal.result(target) is None]
    taken = {target.name: other for target in own if (other := _other(journal, folder, target)) is not None}
    if taken:
        raise RegenerateError(
            f"{folder}: run {_listed(taken.values())} waits there for answers to prompts of {_listed(taken)}",
            remedy="answer them and resume that run, or end it: cgins runs resume RUN --give-up; "
            "or name another folder: --cgins-llm=exchange:FOLDER",
        )
    for target in own:
        path = folder / target.name
        used = UsedBy(run=journal.record.id, journal=os.path.relpath(journal.folder.absolute(), path))
        if _used_by(path) != used:
            path.mkdir(parents=True, exist_ok=True)
            files.write_json(path / USED_BY, used)


def _other(journal: Journal, folder: Path, target: Target) -> str | None:
    """The other run that has an open request of the same target there."""
    used = _used_by(folder / target.name)
    if used is None or used.run == journal.record.id:
        return None
    try:
        other = Journal.read_only(Path(os.path.normpath(folder / target.name / used.journal)))
        same = next((one for one in other.record.targets if one.name == target.name), None)
        waits = same is not None and other.result(same) is None and open_request(other, same) is not None
    except JournalError:
        # What was deleted or is damaged does not go on.
        return None
    return used.run if waits else None


def _used_by(folder: Path) -> UsedBy | None:
    try:
        return documents.load(UsedBy, (folder / USED_BY).read_bytes())
    except (OSError, ValueError):
        return None


def _listed(names: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(names))
