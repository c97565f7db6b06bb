"""A run, from its targets to their results: what it needs is put together here, once, and taken down again."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Literal

from pytest_cgins import __version__
from pytest_cgins.building.revision import merge_base
from pytest_cgins.config import Config
from pytest_cgins.config.llm import LlmSettings
from pytest_cgins.core import scratch
from pytest_cgins.core.device import DeviceName
from pytest_cgins.core.errors import CginsError, JournalError, RegenerateError
from pytest_cgins.core.session_report import Evaluation
from pytest_cgins.core.text import now
from pytest_cgins.gate.evaluate import Evaluator
from pytest_cgins.packs.store import open_pack
from pytest_cgins.recording import profile
from pytest_cgins.regenerate import exchange_folder, guard, run_status, static_check
from pytest_cgins.regenerate.attempt import Guarded, Result, Target
from pytest_cgins.regenerate.budget import Ledger
from pytest_cgins.regenerate.candidate_gate import TrialConditions, TrialSettings
from pytest_cgins.regenerate.executor.executor import executor_of
from pytest_cgins.regenerate.executor.gates import Gate
from pytest_cgins.regenerate.journal.journal import RUN_VERSION, Found, Journal, RunRecord, new_id
from pytest_cgins.regenerate.judgement import GuardedFiles, moved_error
from pytest_cgins.regenerate.methods import memory_file
from pytest_cgins.regenerate.methods.classes import Tried
from pytest_cgins.regenerate.new_kernel import reloaded
from pytest_cgins.regenerate.progress import Event
from pytest_cgins.regenerate.project_copy import ProjectCopy
from pytest_cgins.regenerate.prompts.hardware import Hardware
from pytest_cgins.regenerate.prompts.target_prompts import ContextPrompts
from pytest_cgins.regenerate.proposal.from_journal import proposed
from pytest_cgins.regenerate.proposal.write import check_changeable
from pytest_cgins.regenerate.provider import of_settings
from pytest_cgins.regenerate.run_status import RunResult
from pytest_cgins.regenerate.scheduler import Scheduler
from pytest_cgins.regenerate.search import policies, policy
from pytest_cgins.regenerate.target_loop import TargetLoop
from pytest_cgins.regenerate.targets import is_of
from pytest_cgins.run.pool import WorkerPool


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions(TrialConditions):
    """What this process brings to a run, besides what the journal has of it."""

    on_event: Callable[[Event], object] = lambda _: None
    """Told at each stage of each target."""
    check: Callable[[], object] = lambda: None
    """Called again and again; what it raises ends this part of the run."""
    gives_up: bool = False
    """Whether nothing more is asked for: a search ends with the best that it has."""


def begin(
    config: Config,
    llm: LlmSettings,
    targets: Sequence[Target],
    evaluations: Iterable[Evaluation],
    *,
    record: Mapping[str, object],
    overlays: Mapping[str, Mapping[str, str]] | None = None,
    goes_on: bool = False,
) -> Journal:
    """Write down what is to be done; `work` does it.

    Args:
        config: the project's file.
        llm: who is asked.
        targets: what is regenerated.
        evaluations: what the gate had found, of all cases that it ran.
        record: further fields of the journal's `RunRecord`.
        overlays: what the run adds to the project for a target, by its name, as of `ProjectCopy`.
        goes_on: whether a faster kernel is searched for where a first right one was accepted.

    Raises:
        JournalError: the folder cannot be written.
        RegenerateError: another run waits for answers where the prompts would lie.
    """
    models, name = llm.models, new_id()
    journal = Journal.create(
        llm.runs,
        RunRecord(
            version=RUN_VERSION,
            id=name,
            created_at=now(),
            cgins=__version__,
            config=os.path.relpath(config.file, llm.runs / name),
            here=os.path.relpath(Path.cwd(), llm.runs / name),
            targets=tuple(_with_next(targets) if goes_on else targets),
            provider=llm.provider,
            policy=llm.policy,
            models={"generator": models.generator, "helper": models.helper, "verifier": models.verifier},
            exchange=exchange_folder.own_folder(llm, config.root, name),
            **record,  # type: ignore[arg-type]
        ),
    )
    try:
        _provided(journal, llm)
        found = tuple(sorted(evaluations, key=lambda one: one.verdict.status.outcome != "fail"))
        for target in journal.record.targets:
            if not target.improves:
                _lay_out(journal, config, target, found, (overlays or {}).get(target.name, {}))
        journal.begun()
    except BaseException:
        journal.drop()
        raise
    return journal


def _provided(journal: Journal, llm: LlmSettings) -> LlmSettings:
    """The same, with the folder in which this run's prompts lie; nobody else's do.

    Raises:
        RegenerateError: another run waits for answers there.
    """
    found = replace(llm, path=exchange_folder.folder_of(journal, llm))
    if found.provider == "exchange" and found.path is not None:
        exchange_folder.claim(journal, found.path)
    return found


def _lay_out(
    journal: Journal, config: Config, target: Target, found: Iterable[Evaluation], overlay: Mapping[str, str]
) -> None:
    with scratch.folder() as folder:
        try:
            copy = _copy(config, target, folder, journal.record.baseline, overlay)
            incumbent = copy.incumbent()
        except RegenerateError as error:
            # Nobody is asked, and nothing in this run can change that.
            journal.begin(target, Found(evaluations=()), {}, Guarded(files={}), overlay)
            journal.keep_result(_unasked(target, "failed", error), {})
            return
        kept = guard.guarded(config, copy.project, copy.files, copy.base_commit)
        journal.begin(target, Found(evaluations=_concerning(found, target, copy)), incumbent, kept, overlay)


def _with_next(targets: Iterable[Target]) -> Iterator[Target]:
    """Each target, and that of a faster kernel after one that is not right yet."""
    for target in targets:
        yield target
        if target.goal != "optimise":
            yield replace(target, goal="optimise", statuses=(), improves=target.name)


@dataclass(eq=False, repr=False)
class Run:
    """What a journal says, done from where it ends."""

    journal: Journal
    """Held by this process."""
    config: Config
    """The project's file."""
    llm: LlmSettings
    """Who is asked."""
    conditions: Conditions
    """Of this process."""

    def __post_init__(self) -> None:
        self._ledger = Ledger(self.llm.budget, self.llm.prices, earlier_s=self.journal.seconds)
        self._methods = self.config.root / memory_file.FOLDER / memory_file.NAME

    def work(self) -> RunResult:
        """Go on until every target is done, waits, or was stopped.

        Raises:
            CginsError: the project is not what it was, or nobody can be asked.
        """
        with ExitStack() as stack:
            folder = stack.enter_context(scratch.folder())
            reference = stack.enter_context(WorkerPool(env=self.conditions.environment))
            executor = executor_of(
                self.journal.record.executor, self.config, self._settings, self.journal.tell, reference
            )
            stack.callback(executor.close)

            @cache
            def hardware(device: DeviceName) -> Hardware:
                # When the first prompt is made, and not of a run that is done.
                self._profile(reference, device)
                return next(gate for gate in gates.values() if gate.target.device == device).hardware()

            provider = of_settings(_provided(self.journal, self.llm), run=self.journal.record.id)
            stack.callback(provider.close)
            works: list[TargetLoop] = []
            gates: dict[str, Gate] = {}
            copies: dict[str, ProjectCopy] = {}
            results: dict[str, Result] = {}

            def opened(target: Target) -> TargetLoop | None:
                try:
                    copy = self._copy_of(target, folder)
                except CginsError as error:
                    results[target.name] = self._without_work(target, error)
                    return None
                copies[target.name] = copy
                before = {one.case.name: one.verdict.status for one in self.journal.before(target)}
                gate = executor.gate(target, copy, before, self.journal.folder / target.name)
                gates[target.name] = gate
                stack.callback(gate.close)
                works.append(self._work_on(target, copy, gate, hardware))
                return works[-1]

            def follow(result: Result) -> TargetLoop | None:
                faster = self._begun_after(result)
                return None if faster is None else opened(faster)

            for target in self.journal.record.targets:
                if not target.improves:
                    opened(target)
                    if target.name in results:
                        follow(results[target.name])
            stack.callback(executor.stop)
            scheduler = Scheduler(
                tuple(works),
                self.journal,
                provider,
                self._ledger,
                on_wait=lambda: _warm_one(works, gates) if self.llm.asks_server else None,
                check=self.conditions.check,
                gives_up=self.conditions.gives_up,
                on_result=lambda result: proposed(
                    self.journal, self.config, copies.get(result.target.name), result
                ),
                follow=follow,
            )
            results |= {result.target.name: result for result in scheduler.run()}
            return RunResult(
                journal=self.journal.folder,
                results=tuple(self._in_order(results)),
                spent=self._ledger.spent(),
            )

    def _profile(self, reference: WorkerPool, device: DeviceName) -> None:
        """Have each pack know what torch runs for its traces on a device, and how long: prompts tell it."""
        evaluator = Evaluator(
            self.config, seed=0, timing=False, environment=self.conditions.environment, reference=reference
        )
        with closing(evaluator):
            for folder in self.config.traces:
                if any(one.device == device for one in profile.read_all(open_pack(folder))):
                    continue
                try:
                    made = evaluator.devices.profile(folder, device)
                    if made is not None and made.traces:
                        profile.write(folder, made)
                except OSError as error:
                    self.journal.tell(f"no profile of {folder}: {error}")

    def _begun_after(self, result: Result) -> Target | None:
        """The target that goes on from what was accepted, laid out; None if there is none, or nothing to go on from."""
        first = result.target
        faster = self.journal.next(first)
        if faster is None or result.state not in ("accepted", "failed"):
            return None
        if result.state == "failed":
            error = RegenerateError("there is no right kernel to begin with", remedy=f"see {first.name}")
            self.journal.begin(faster, Found(evaluations=()), {}, Guarded(files={}))
            self.journal.keep_result(_unasked(faster, "failed", error), {})
        else:
            attempts = self.journal.attempts(first)
            accepted = next(attempt for attempt in reversed(attempts) if attempt.outcome == "accepted")
            overlay = {**self.journal.overlay(first), **self.journal.sources(first, accepted.number)}
            _lay_out(self.journal, self.config, faster, accepted.trials[-1].evaluations, overlay)
        return faster

    def _in_order(self, results: Mapping[str, Result]) -> Iterator[Result]:
        """As the run's targets are; one that has not begun has none, and of two proposals of a kernel there is the last."""
        for target in self.journal.record.targets:
            if target.name in results:
                is_superseded = run_status.is_superseded(self.journal, target)
                yield replace(results[target.name], proposal="") if is_superseded else results[target.name]

    def _without_work(self, target: Target, error: CginsError) -> Result:
        """What is known of a target that is done; else why it cannot be worked on."""
        known = self.journal.result(target)
        if known is None:
            known = _unasked(target, "stopped", error)
            known = replace(known, attempts=self.journal.attempts(target))
            self.journal.keep_result(known, {})
        elif run_status.is_proposed(self.journal, target):
            known = proposed(self.journal, self.config, None, known)
        return known

    def _copy_of(self, target: Target, folder: Path) -> ProjectCopy:
        """Where candidates are tried.

        Raises:
            CginsError: none need be, since it is known what became of the target; or none can be, by an older
                version's run; or the project is not what it was, which must not be laid at a candidate's door.
        """
        journal = self.journal
        if journal.result(target) is not None and run_status.is_proposed(journal, target):
            raise RegenerateError(f"{target.name} is done")
        # The base is a commit of when the run began, not what its name means by now.
        kept = journal.guarded(target)
        base = kept.files.get(guard.BASE) if kept is not None else None
        baseline = journal.record.baseline if base is None else base or merge_base.NONE
        copy = _copy(self.config, target, folder / target.name, baseline, journal.overlay(target))
        moved = self._moved(target, copy, {})
        if moved and journal.result(target) is None:
            raise moved_error(moved)
        return copy

    def _moved(self, target: Target, copy: ProjectCopy, candidate: Mapping[str, str]) -> tuple[str, ...]:
        """Files that a verdict on a candidate depends on, and that are not as they were when the run began."""
        kept = self.journal.guarded(target)
        if kept is None:
            return ()
        incumbent = self.journal.incumbent(target)
        begun = self.journal.incumbent(self.journal.first(target))
        now = guard.guarded(self.config, copy.project, copy.files, copy.base_commit)
        own = [path for path, text in copy.texts(copy.files).items() if begun.get(path) != text]
        changed = guard.differences(kept, now)
        known, kernels = {*kept.files, *now.files}, copy.with_implementation(alone=False)
        goalposts = guard.relevant_changes(
            changed, known, incumbent, candidate, config=self.config, top=copy.project, kernels=kernels
        )
        return (*own, *goalposts)

    @property
    def _settings(self) -> TrialSettings:
        record, conditions = self.journal.record, self.conditions
        return TrialSettings(
            seed=record.seed,
            sandbox=conditions.sandbox,
            timing=record.timing,
            compile=record.compile,
            timeout_s=record.timeout_s,
            environment=conditions.environment,
            cache=conditions.cache,
            sanitize=conditions.sanitize,
            noise=conditions.noise,
        )

    def _work_on(
        self, target: Target, copy: ProjectCopy, gate: Gate, hardware: Callable[[DeviceName], Hardware]
    ) -> TargetLoop:
        kept = self.journal.incumbent(target)
        incumbent = {path: kept[path] for path in copy.files}
        check = partial(
            static_check.check,
            op=target.op,
            contract=target.contract,
            incumbent=incumbent,
            headers=copy.headers(),
        )
        prompts = ContextPrompts(
            target, copy, incumbent, lambda: hardware(target.device), self.journal.before(target),
            memory=lambda: memory_file.read(self._methods), runs=self.journal.folder.parent,
        )  # fmt: skip
        goalposts = GuardedFiles(
            moved=lambda candidate: self._moved(target, copy, candidate), touched=gate.touched
        )
        return TargetLoop(
            target, self.journal, gate, prompts, self._policy(target), settings=self.llm, incumbent=incumbent,
            check=check, goalposts=goalposts, on_event=self.conditions.on_event, remember=self._remember,
        )  # fmt: skip

    def _remember(self, tried: tuple[Tried, ...]) -> None:
        """For other runs; the journal has it in any case."""
        try:
            memory_file.remember(self._methods, tried)
        except (OSError, JournalError) as error:
            self.journal.tell(f"what was learned of methods is not in {self._methods}: {error}")

    def _policy(self, target: Target) -> policy.Policy:
        """A search's is the one that the run was begun with."""
        llm, record = self.llm, self.journal.record
        means = policy.Means(
            models=llm.models.generator,
            temperature=llm.temperature.generator,
            seed=record.seed,
            budget=llm.budget,
        )
        if target.goal != "optimise":
            return policies.policy("repair", means, llm.budget.repair_attempts)
        return policies.policy(record.policy, means, llm.budget.candidates)


def _copy(
    config: Config, target: Target, folder: Path, baseline: str, overlay: Mapping[str, str]
) -> ProjectCopy:
    """A copy of the project for a kernel that can be proposed.

    Raises:
        RegenerateError: it cannot be, whatever it is.
    """
    copy = ProjectCopy(
        reloaded(config, overlay), target.key, folder / "copy", baseline=baseline, overlay=overlay
    )
    contents = {path: text.encode() for path, text in copy.incumbent().items()}
    check_changeable(copy.files, contents, goal=target.goal, config=copy.relative(config.file))
    return copy


def _concerning(found: Iterable[Evaluation], target: Target, copy: ProjectCopy) -> tuple[Evaluation, ...]:
    """Evaluations of the target's cases, and of kernels that share a source with it."""
    sharing = copy.with_implementation(alone=False).implementations
    kept = [evaluation for evaluation in found if evaluation.case.key in sharing]
    return tuple(sorted(kept, key=lambda evaluation: not is_of(evaluation.case, target)))


def _warm_one(works: Sequence[TargetLoop], gates: Mapping[str, Gate]) -> None:
    """Have the workers of one target's next candidates import torch while their answers are awaited."""
    for work in works:
        if not work.done and work.target.name in gates:
            gates[work.target.name].warm(work.awaited)
            return


def _unasked(target: Target, state: Literal["failed", "stopped"], error: CginsError) -> Result:
    """A target for which nobody is asked."""
    what, remedy = (" ".join(text.split("\n")) for text in (error.what, error.remedy))
    return Result(target=target, state=state, attempts=(), why=what, remedy=remedy)
