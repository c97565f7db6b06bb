"""`--cgins-store` and `--cgins-resume`: verdicts of earlier runs are taken over, and those of this one kept."""

from __future__ import annotations

import os
import platform
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import cached_property
from pathlib import Path

import pytest

from pytest_cgins.app.session.coverage import is_given
from pytest_cgins.core import git
from pytest_cgins.core.errors import CginsError, VerdictStoreError
from pytest_cgins.core.session_report import Evaluation
from pytest_cgins.core.text import counted
from pytest_cgins.gate.known_verdicts import KnownVerdicts, VerdictStore, line_of, new_name
from pytest_cgins.report.git_branch import Place, place

UNFINISHED = Path(".cgins", "unfinished")
"""Folder in pytest's root: a file of each run that has not ended, to which a line is added as a case ends."""
OPTIONS = ("--cgins-store", "--cgins-store-write", "--cgins-resume")


class EarlierVerdicts:
    """What a session takes over, and what it leaves for later ones. Under xdist each worker takes, the controller keeps."""

    def __init__(self, config: pytest.Config) -> None:
        option = config.getoption
        self._config = config
        self._lines: list[str] = []
        self._unknown: Counter[str] = Counter()
        self._said: list[str] = []
        self._journal = config.rootpath / UNFINISHED / new_name()
        _require_sound(config)
        taken, self._kept = (_opened(option(name), config) for name in OPTIONS[:2])
        resumed = _opened(str(self._journal.parent) if option("--cgins-resume") else None, config)
        self._texts: dict[str, str] = {}
        for store in filter(None, (taken, resumed)):
            try:
                found = store.read()
                self._texts |= found
                if store is taken and not found:
                    self._said.append(f"{store.address} has none")
            except VerdictStoreError as error:
                self._said.append(f"none is taken: {error.what}")
        days: float = option("--cgins-store-days")
        self.known = KnownVerdicts(self._texts.values(), days=days, seed=option("--cgins-seed"))

    def keep(self, evaluations: Iterable[Evaluation]) -> None:
        """Keep what was found just now, as far as it may be taken over: at once, since the run may be killed."""
        for evaluation in evaluations:
            if evaluation.tested is not None and evaluation.tested.unknown:
                self._unknown[evaluation.tested.unknown] += 1
            line = line_of(evaluation, writer=self._writer, revision=self._place.head.commit)
            if line:
                self._lines.append(line)
                with suppress(OSError):  # where nobody may write, no run can be resumed
                    self._journal.parent.mkdir(parents=True, exist_ok=True)
                    with self._journal.open("ab") as file:
                        file.write(line.encode())

    def close(self, *, finished: bool) -> None:
        """Write what was kept, where that was asked for and this is the default branch; of a finished run nothing is left to resume."""
        unfinished = self._journal.parent
        taken = (Path(name) for name in self._texts)
        for file in (self._journal, *taken) if finished else ():
            if file.parent == unfinished:
                file.unlink(missing_ok=True)
        with suppress(OSError):  # others' files are there, or nothing is
            unfinished.rmdir()
            unfinished.parent.rmdir()
        if self._kept is not None:
            self._said.append(self._written(self._kept))

    def _written(self, store: VerdictStore) -> str:
        changed = "the working tree is not that of its commit" if self._place.head.dirty else ""
        if refusal := self._place.refusal or changed:
            return f"not written to {store.address}: {refusal}"
        try:
            store.write(self._lines, days=self._config.getoption("--cgins-store-days"))
        except VerdictStoreError as error:
            return str(error)
        return f"{counted(len(self._lines), 'verdict')} written to {store.address}"

    def lines(self) -> Iterator[str]:
        """What there is to say at the end."""
        yield from self._said
        for why, cases in self._unknown.most_common() if self._texts or self._kept else ():
            yield f"{counted(cases, 'case')} run each time: {why}"

    @cached_property
    def _writer(self) -> str:
        """The run's address in CI, else who runs it where."""
        named = os.environ.get
        if run := named("GITHUB_RUN_ID"):
            return f"{named('GITHUB_SERVER_URL')}/{named('GITHUB_REPOSITORY')}/actions/runs/{run}"
        at_home = f"{named('USER', os.getuid())}@{platform.node()}"
        return named("CI_JOB_URL") or named("BUILD_URL") or at_home

    @cached_property
    def _place(self) -> Place:
        return place(self._config.rootpath)


def _require_sound(config: pytest.Config) -> None:
    """Refuse what would let a pull request choose its verdicts, or hide times from who needs them.

    Raises:
        pytest.UsageError: it is so.
    """
    for name in filter(config.getoption, OPTIONS):
        if config.getoption("--cgins-regenerate"):
            raise pytest.UsageError(
                f"{name} and --cgins-regenerate: verdicts that are taken over have no times\n→ leave one of them out"
            )
        if not (hasattr(config, "workerinput") or is_given(name, config)):
            raise pytest.UsageError(
                f"{name} in a file's addopts: a pull request could choose its own verdicts\n"
                "→ give it on the command line or in $PYTEST_ADDOPTS"
            )


def _opened(address: str | None, config: pytest.Config) -> VerdictStore | None:
    """A store, unless git has files in it; None without an address.

    Raises:
        pytest.UsageError: it cannot be opened, or could be a pull request's own.
    """
    if not address:
        return None
    folder = Path(config.invocation_params.dir, address)
    is_folder = "://" not in address
    with suppress(CginsError):  # there is no git
        if is_folder and folder.is_dir() and git.read(folder, "ls-files", "--", ".", check=False):
            raise pytest.UsageError(
                f"{folder}: verdicts that are in git could be a pull request's own\n"
                "→ git rm them, and name another folder"
            )
    try:
        return VerdictStore(str(folder) if is_folder else address)
    except VerdictStoreError as error:
        raise pytest.UsageError(str(error)) from error
