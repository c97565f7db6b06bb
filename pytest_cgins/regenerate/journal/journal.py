"""A run on disk: every prompt, answer, source, build log, verdict and cost, readable without this tool.

    .cgins/runs/20261122-0731-5f3a/
      run.json                     what was asked: RunRecord
      events.log                   a line for each thing that happened
      softmax-cpu-cpp/
        target.json  before.json   what is regenerated, and what the gate had found
        incumbent/                 its sources as they were
        attempt-01/
          generator/               request.json prompt.md answer.json answer.md
          source/  build.log       the candidate, and what the compiler said
          attempt.json             what became of it, with all verdicts
          evidence.json            what profilers found, where a search asked; analysis.md for people, *.ncu-rep of ncu
          helper/  advice.json     advice for the next attempt
        result.json                  what became of it; why it waits, or was stopped, until the run goes on
        final/ or FAILED/          the accepted sources, or the last ones that failed
      proposals/softmax-cpu-cpp/
      rebased/softmax-cpu-cpp/     the same, measured again on a base that had moved

A file is written whole or not at all, so a run that was killed goes on from its last file. `run.json` comes when all
targets are laid out: without it there is no run, and nobody was asked.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Literal, TypeVar

from pytest_cgins.core import documents, locks
from pytest_cgins.core.document_base import Document
from pytest_cgins.core.errors import JournalError
from pytest_cgins.core.options import Policy
from pytest_cgins.core.session_report import Evaluation
from pytest_cgins.core.text import counted, now
from pytest_cgins.regenerate.attempt import Advice, Attempt, Guarded, Result, Target
from pytest_cgins.regenerate.conversation import Answer, Request
from pytest_cgins.regenerate.journal.files import draft_of, read_files, sweep, write_files, write_text
from pytest_cgins.regenerate.methods.classes import MethodMemory, Tried
from pytest_cgins.regenerate.profiling.evidence_documents import SassRow
from pytest_cgins.regenerate.search.profile_figures import Evidence

RUN_VERSION = 1
MAX_NBYTES = 256 << 20
"""Larger JSON is no file of a journal."""
DONE = ("accepted", "failed")
"""States of a target for which nothing is left to do."""

T = TypeVar("T", bound=Document)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord(Document):
    """What a run was asked for: enough to resume it."""

    version: int
    """Of this format."""
    id: str
    """Name of its folder."""
    created_at: str
    """ISO 8601, UTC."""
    cgins: str
    """Version of pytest-cgins."""
    config: str
    """The cgins.yaml, as a path from the run's folder."""
    targets: tuple[Target, ...]
    """In order."""
    provider: str
    """Name of the provider."""
    models: dict[str, tuple[str, ...]]
    """By role."""
    llm: str = ""
    """`--cgins-llm`, as it was given."""
    model: str = ""
    """`--cgins-model`, as it was given."""
    budget: str = ""
    """`--cgins-budget`, as it was given."""
    policy: Policy = "refine"
    """How a faster kernel is searched for."""
    here: str = ""
    """Folder in which these were given, as a path from the run's folder."""
    seed: int = 0
    """Of the inputs that candidates are checked on."""
    baseline: str = "merge-base"
    """What times are compared with."""
    base_commit: str = ""
    """Commit of the working tree at the start; "" without a repository."""
    sandbox: bool = True
    """Whether candidates run fenced in."""
    timing: bool = True
    """Whether times are part of acceptance."""
    compile: bool = False
    """Whether torch.compile is timed, too, when a candidate is accepted."""
    timeout_s: float = 60.0
    """Limit for one request to a worker."""
    command: str = ""
    """What started it."""
    made_project: bool = False
    """Whether `cgins run` made the project, so that what was accepted is written into it at the end."""
    pull_requests: Literal["auto", "draft", "off"] = "off"
    """`--cgins-pr`: whether proposals become pull requests, also when the run is resumed."""
    executor: str = ""
    """`--cgins-executor`: where candidates are tried, also when the run is resumed."""
    exchange: str = ""
    """The run's own folder of prompts and answers, as a path from its journal's; "" where `llm` says which it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found(Document):
    """What the gate had found of a target's cases, and of those that share a source with it."""

    evaluations: tuple[Evaluation, ...]
    """Failing ones first."""


class Journal:
    """The folder of one run; open in one process at a time."""

    def __init__(self, folder: Path, record: RunRecord) -> None:
        """For `create` and `resume`."""
        self.folder = folder
        self.record = record
        self._lock: int | None = None
        self._started = time.monotonic()

    @classmethod
    def create(cls, runs: Path, record: RunRecord) -> Journal:
        """Make the folder of a run; it is one once its targets are laid out and `begun` is called.

        Args:
            runs: folder of all runs; made if need be, and kept out of git.
            record: what is asked for.

        Raises:
            JournalError: the folder cannot be made.
        """
        folder = runs / record.id
        try:
            folder.mkdir(parents=True)
            ignore = runs / ".gitignore"
            if not ignore.exists():
                ignore.write_text("*\n", encoding="utf-8")
        except OSError as error:
            raise JournalError(
                f"{folder}: {error.strerror}",
                remedy="make it writable, or name another folder: --cgins-runs PATH",
            ) from error
        return cls(folder, record).locked()

    def begun(self) -> None:
        """Make it a run: all targets are laid out. One that is killed before that has asked nobody, and is none."""
        self.write(self.folder / "run.json", self.record)

    def drop(self) -> None:
        """Take back a run that cannot begin."""
        self.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    @classmethod
    def resume(cls, folder: Path) -> Journal:
        """Go on with a run.

        Raises:
            JournalError: there is none in the folder, it is damaged, or another process works on it.
        """
        journal = cls.read_only(folder).locked()
        sweep(folder)
        return journal

    @classmethod
    def read_only(cls, folder: Path) -> Journal:
        """A run to look at.

        Raises:
            JournalError: there is none in the folder, or it is damaged.
        """
        if not (folder / "run.json").is_file():
            raise JournalError(f"{folder} has no run.json", remedy="cgins runs ls lists the runs")
        record = load(RunRecord, folder / "run.json")
        if record.version > RUN_VERSION:
            raise JournalError(
                f"{folder} is of version {record.version}, and this pytest-cgins knows {RUN_VERSION}",
                remedy="upgrade pytest-cgins",
            )
        return cls(folder, record)

    def locked(self) -> Journal:
        """The same journal, held by this process alone.

        Raises:
            JournalError: another process has it.
        """
        self._lock = locks.try_lock(self.folder / "run.lock")
        if self._lock is None:
            raise JournalError(
                f"run {self.record.id} is in use by another process", remedy="wait for it, or end it"
            )
        return self

    def close(self) -> None:
        """Let others have it; all that was written stays."""
        if self._lock is not None:
            self._keep_clock()
            os.close(self._lock)
            self._lock = None

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---- what is in it

    def begin(
        self,
        target: Target,
        before: Found,
        incumbent: Mapping[str, str],
        kept: Guarded,
        overlay: Mapping[str, str] | None = None,
    ) -> None:
        """Lay out a target's folder, unless it is there."""
        folder = self.folder / target.name
        if (folder / "target.json").exists():
            return
        folder.mkdir(exist_ok=True)
        write_files(folder / "incumbent", incumbent)
        write_files(folder / "overlay", overlay or {})
        self.write(folder / "before.json", before)
        self.write(folder / "guarded.json", kept)
        self.write(folder / "target.json", target)

    def first(self, target: Target) -> Target:
        """The target whose accepted kernel this one is to make faster, else itself."""
        return next((one for one in self.record.targets if one.name == target.improves), target)

    def next(self, target: Target) -> Target | None:
        """The target that is to make this one's accepted kernel faster, if the run has one."""
        return next((one for one in self.record.targets if one.improves == target.name), None)

    def before(self, target: Target) -> tuple[Evaluation, ...]:
        """What the gate had found; empty if that is not known."""
        found = self.read(Found, self.folder / target.name / "before.json")
        return found.evaluations if found else ()

    def incumbent(self, target: Target) -> dict[str, str]:
        """Sources as they were when the run began, by path."""
        return read_files(self.folder / target.name / "incumbent")

    def guarded(self, target: Target) -> Guarded | None:
        """Digests when the run began."""
        return self.read(Guarded, self.folder / target.name / "guarded.json")

    def place(self, request: Request) -> Path:
        """The folder where a request's answer will lie, with the prompt in it."""
        path = self.folder / request.id
        path.mkdir(parents=True, exist_ok=True)
        if not (path / "request.json").exists():
            prompt = "\n\n".join(f"# {message.role}\n\n{message.text}" for message in request.messages)
            write_text(path / "prompt.md", f"{prompt}\n")
            self.write(path / "request.json", request)
            self.tell(f"{request.id}: asked")
        return path

    def keep_answer(self, request: Request, answer: Answer) -> None:
        """Have the answer beside its prompt for readers, too."""
        file = self.folder / request.id / "answer.md"
        if not file.exists():
            write_text(file, answer.text)
            cost = "cost unknown" if answer.usage.usd is None else f"{answer.usage.usd:.4f} USD"
            tokens = answer.usage.prompt_tokens + answer.usage.answer_tokens
            self.tell(
                f"{request.id}: answered ({answer.finish}, {counted(tokens, 'token')}, {cost}, {answer.seconds:.1f} s)"
            )

    def answered(self) -> tuple[tuple[Request, Answer], ...]:
        """All requests whose answers are there, with these."""
        places = sorted(file.parent for file in self.folder.glob("*/attempt-*/*/answer.json"))
        return tuple(
            (load(Request, place / "request.json"), load(Answer, place / "answer.json")) for place in places
        )

    def folder_of(self, target: Target, number: int) -> Path:
        """The folder of an attempt."""
        return self.folder / target.name / f"attempt-{number:02d}"

    def attempt(self, target: Target, number: int) -> Attempt | None:
        """What became of an attempt; None if that is not known yet."""
        return self.read(Attempt, self.folder_of(target, number) / "attempt.json")

    def has_champion(self, target: Target) -> bool:
        """Whether a search that is not done has found a kernel that is faster."""
        return self.result(target) is None and any(one.beats_champion for one in self.attempts(target))

    def attempts(self, target: Target) -> tuple[Attempt, ...]:
        """Those that are done, in order."""
        files = (self.folder / target.name).glob("attempt-*/attempt.json")
        return tuple(sorted((load(Attempt, file) for file in files), key=lambda one: one.number))

    def overlay(self, target: Target) -> dict[str, str]:
        """What the run itself adds to the project for this target, by path: the entry of a kernel that is new."""
        return read_files(self.folder / target.name / "overlay")

    def evidence(self, target: Target, number: int) -> Evidence | None:
        """What profilers found in a candidate, 0 for the incumbent; None if they were not asked."""
        return self.read(Evidence, self._place_of(target, number) / "evidence.json")

    def keep_evidence(self, target: Target, number: int, evidence: Evidence) -> None:
        """Write it down; what a person reads, and ncu's report, have files of their own."""
        place = self._place_of(target, number)
        place.mkdir(parents=True, exist_ok=True)
        if evidence.report:
            draft_of(self.folder / target.name, evidence.report).replace(place / evidence.report)
        write_text(place / "analysis.md", evidence.analysis)
        self.write(place / "evidence.json", replace(evidence, analysis=""))
        self.tell(f"{target.name}: profiled {f'attempt {number}' if number else 'the incumbent'}")

    def sass_signatures(self, target: Target, number: int) -> SassRow | None:
        """What machine code says of a candidate's methods; None if it was not looked at."""
        return self.read(SassRow, self.folder_of(target, number) / "sass_check.json")

    def keep_sass_signatures(self, target: Target, number: int, marks: SassRow) -> None:
        """Write it down."""
        self.write(self.folder_of(target, number) / "sass_check.json", marks)

    def tried(self, target: Target) -> tuple[Tried, ...]:
        """What was learned of methods in this run, one a method and round."""
        known = self.read(MethodMemory, self.folder / target.name / "methods.json")
        return known.tried if known is not None else ()

    def keep_tried(self, target: Target, tried: Iterable[Tried]) -> None:
        """Write it down, in the place of what was known before."""
        self.write(self.folder / target.name / "methods.json", MethodMemory(tried=tuple(tried)))

    def _place_of(self, target: Target, number: int) -> Path:
        return self.folder_of(target, number) if number else self.folder / target.name

    def keep_attempt(self, target: Target, attempt: Attempt, sources: Mapping[str, str]) -> None:
        """Write down what became of an attempt."""
        folder = self.folder_of(target, attempt.number)
        folder.mkdir(parents=True, exist_ok=True)
        if sources:
            write_files(folder / "source", sources)
        if attempt.log:
            write_text(folder / "build.log", attempt.log)
        self.write(folder / "attempt.json", attempt)
        self.tell(f"{target.name}/attempt-{attempt.number:02d}: {attempt.outcome} ({attempt.reason})")

    def sources(self, target: Target, number: int) -> dict[str, str]:
        """A candidate's sources, by path; empty if the answer had none."""
        return read_files(self.folder_of(target, number) / "source")

    def advice(self, target: Target, number: int) -> Advice | None:
        """The helper's advice after an attempt."""
        return self.read(Advice, self.folder_of(target, number) / "advice.json")

    def keep_advice(self, target: Target, number: int, advice: Advice) -> None:
        """Write the helper's advice down."""
        self.write(self.folder_of(target, number) / "advice.json", advice)

    def result(self, target: Target) -> Result | None:
        """What became of a target; None while it is not done."""
        ended = self.ended(target)
        return ended if ended is not None and ended.state in DONE else None

    def ended(self, target: Target) -> Result | None:
        """The same, or why the last part of the run ended before it was done; None if nobody could say it."""
        return self.read(Result, self.folder / target.name / "result.json")

    def go_on(self, target: Target) -> None:
        """Forget why an earlier part of the run ended before a target was done."""
        if self.ended(target) is not None and self.result(target) is None:
            (self.folder / target.name / "result.json").unlink()

    def keep_result(self, result: Result, sources: Mapping[str, str]) -> None:
        """Write down what became of a target, with its accepted or last failed sources; or why it is not done."""
        folder = self.folder / result.target.name
        if result.state in DONE and sources:
            write_files(folder / ("final" if result.state == "accepted" else "FAILED"), sources)
        self.write(folder / "result.json", result)
        self.tell(f"{result.target.name}: {result.state}{f' ({result.why})' if result.why else ''}")

    def proposal(self, target: Target) -> Path:
        """The folder of a target's proposal; that of a faster kernel takes the place of the first one's."""
        return self.folder / "proposals" / (target.improves or target.name)

    def tell(self, line: str) -> None:
        """Add a line to events.log."""
        with (self.folder / "events.log").open("a", encoding="utf-8", errors="backslashreplace") as file:
            file.write(f"{now()} {line}\n")
        self._keep_clock()

    @property
    def seconds(self) -> float:
        """Worked on so far, over all processes that did."""
        return self.earlier_s() + (time.monotonic() - self._started)

    def earlier_s(self) -> float:
        """Worked on by the processes before this one, and by this one until its last line in events.log."""
        try:
            return float((self.folder / "seconds").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return 0.0

    def _keep_clock(self) -> None:
        total, self._started = self.seconds, time.monotonic()
        write_text(self.folder / "seconds", f"{total:.1f}\n")

    def write(self, file: Path, document: Document) -> None:
        """Write JSON, whole or not at all."""
        write_text(file, documents.dump(document, indent=1) + "\n")

    def read(self, cls: type[T], file: Path) -> T | None:
        """Read JSON; None if the file is not there.

        Raises:
            JournalError: it is damaged.
        """
        return load(cls, file) if file.exists() else None


def new_id() -> str:
    """A run's name: when it began, and four digits against chance."""
    return f"{datetime.now(timezone.utc):%Y%m%d-%H%M%S}-{os.urandom(2).hex()}"


def runs_in(folder: Path) -> tuple[Path, ...]:
    """Folders of runs, newest first."""
    if not folder.is_dir():
        return ()
    return tuple(sorted((one for one in folder.iterdir() if (one / "run.json").is_file()), reverse=True))


def load(cls: type[T], file: Path) -> T:
    """Read JSON of a journal.

    Raises:
        JournalError: it is not there or damaged.
    """
    try:
        if file.stat().st_size > MAX_NBYTES:
            raise JournalError(f"{file} is larger than {MAX_NBYTES >> 20} MiB", remedy="remove this run")
        return documents.load(cls, file.read_bytes())
    except OSError as error:
        raise JournalError(f"{file}: {error.strerror}", remedy="restore it, or start a new run") from error
    except ValueError as error:
        first = str(error).partition("\n")[0]
        raise JournalError(f"{file} is damaged: {first}", remedy="restore it, or start a new run") from error
