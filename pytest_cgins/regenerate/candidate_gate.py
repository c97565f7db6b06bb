"""What the gate says of a candidate: first on the inputs of the run, then on inputs that nobody knew before.

A candidate's code runs in workers of its own, fenced in, and never in the trusted worker: that one imports the project's
ops from the project, and candidates lie in a copy.
"""

from __future__ import annotations

import random
import shutil
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import KW_ONLY, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, TypeVar

from pytest_cgins.building.build_queue import BuildQueue
from pytest_cgins.building.revision.merge_base import NONE
from pytest_cgins.config import Config
from pytest_cgins.core import documents, scratch
from pytest_cgins.core.device import device_of
from pytest_cgins.core.errors import RegenerateError
from pytest_cgins.core.session_report import Environment, Evaluation
from pytest_cgins.core.text import counted
from pytest_cgins.core.verdict import Reason, Status
from pytest_cgins.gate.calibration import Calibrations
from pytest_cgins.gate.evaluate import Evaluator
from pytest_cgins.gate.timing_stage import TimingOptions
from pytest_cgins.regenerate.attempt import Goal, Target, Trial
from pytest_cgins.regenerate.candidate_pool import CandidatePool, Checked, ConcurrentCandidates, Files
from pytest_cgins.regenerate.journal.files import draft_of
from pytest_cgins.regenerate.profiling import disassembly, environment, ncu, selection, tidy
from pytest_cgins.regenerate.profiling.evidence_documents import CaseProfile, SassRow, TidyFinding
from pytest_cgins.regenerate.profiling.profile import Profiler
from pytest_cgins.regenerate.project_copy import CHAMPION, INCUMBENT, ProjectCopy
from pytest_cgins.regenerate.prompts.hardware import Hardware, described
from pytest_cgins.regenerate.search import profile_figures
from pytest_cgins.regenerate.search.profile_figures import Evidence
from pytest_cgins.regenerate.targets import is_of
from pytest_cgins.run import sanitizer
from pytest_cgins.run.early_verdict import is_full
from pytest_cgins.run.pool import WorkerPool
from pytest_cgins.run.sandbox.outside import has_gpu
from pytest_cgins.run.sandbox.sandbox import Sandbox

_Conditions = TypeVar("_Conditions", bound="TrialConditions")
ENOUGH_FAILURES = 3
"""So many failing cases tell a model what is wrong; the others are not run."""
MOST_REPORTS_NBYTES = 256 << 20
"""Of all reports of ncu that a search keeps."""


class DeviceLost(RegenerateError):
    """A candidate's device is not here, or not any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialConditions:
    """What a process brings to trials."""

    sandbox: Sandbox | None
    """None: the user wants none."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Added to that of all workers, such as which GPU they may see."""
    noise: TimingOptions = field(default_factory=TimingOptions)
    """What is known of the noise of devices; its other fields are not used."""
    cache: Path | None = None
    """Folder of built kernels, by default the user's."""
    sanitize: tuple[str, ...] = ()
    """Tools of compute-sanitizer, for acceptance on a GPU."""

    @classmethod
    def here(cls: type[_Conditions], sandbox: Sandbox | None, **more: Any) -> _Conditions:
        """Those of this machine: its noise as it was measured, and memcheck where there are a GPU and the program."""
        noise = TimingOptions(noise=Calibrations().noise)
        sanitize = ("memcheck",) if has_gpu() and sanitizer.find() else ()
        return cls(sandbox=sandbox, noise=noise, sanitize=sanitize, **more)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialSettings(TrialConditions):
    """How candidates are tried; the same for all targets of a run."""

    seed: int
    """Of the inputs of `check`."""
    timing: bool = True
    """Whether times are part of acceptance."""
    compile: bool = False
    """Whether torch.compile is timed there as well."""
    timeout_s: float = 60.0
    """Limit for one request to a worker."""


@dataclass(eq=False, repr=False)
class CandidateGate:
    """Tries candidates for one target."""

    target: Target
    """What is regenerated."""
    copy: ProjectCopy
    """Where its candidates are put."""
    settings: TrialSettings
    """Of the run."""
    _: KW_ONLY
    reference: WorkerPool
    """A pool whose trusted worker all targets share; closed by its owner."""
    pool: CandidatePool
    """Likewise."""
    trusted_root: Path
    """Folder that ops are imported from."""
    before: dict[str, Status]
    """Statuses of cases as the gate found them, by name: a kernel that shares a source with this one, and was wrong
    before, does not count against a candidate."""
    reports: Path | None = None
    """The target's folder in the journal, which takes reports of ncu from it; None keeps none."""
    names: Mapping[str, str] = field(default_factory=dict)
    """What folders that trials speak of are called where these are read."""

    def __post_init__(self) -> None:
        self._is_cuda = device_of(self.target.device).is_cuda
        self._environments: tuple[Environment, ...] = ()
        self._last_tried = self.copy
        self._champion: Files | None = None
        self._candidates = ConcurrentCandidates(self.copy, self._made, self._checked, self.pool)

    def warm(self, count: int = 1) -> None:
        """Start the workers of the next candidates, while their answers are awaited."""
        self.reference.warm(["reference"])
        self._candidates.warm(count)

    def begin(self, candidates: Sequence[Files], champion: Files | None) -> None:
        """Build and check candidates side by side from now on; `check` waits for each.

        Args:
            candidates: sources, in the order in which they will be checked and timed.
            champion: the best one until now; None for the incumbent.
        """
        self.reference.warm(["reference"])
        self._set_champion(champion)
        # The first right answer of a repair is accepted in fresh processes: none of them waits to be timed.
        is_timed = self.settings.timing and self.target.goal == "optimise"
        self._candidates.begin(candidates, champion, timed=is_timed)

    def touched(self) -> tuple[str, ...]:
        """Files that changed in the copy in which a candidate was tried last, and are not its own."""
        return self._last_tried.touched()

    def check(self, files: Mapping[str, str]) -> Trial:
        """Whether a candidate is right on the inputs of the run; ends at the third case that is not."""
        slot = self._candidates.slot_of(files)
        if slot is None:
            self.reference.warm(["reference"])
            self._candidates.begin([files], None, timed=False)
            slot = self._candidates.slot_of(files)
        assert slot is not None
        found = slot.result()
        if any(evaluation.verdict.reason is Reason.OUT_OF_MEMORY for evaluation in found.evaluations):
            found = self._candidates.alone(slot)
            for evaluation in found.evaluations:
                if is_full(evaluation.verdict):
                    tried_here(evaluation)
        self._last_tried = slot.copy
        notes = (f"{counted(found.left, 'more case was', 'more cases were')} not run",) if found.left else ()
        return self._trial("check", found.evaluations, self.settings.seed, found.seconds, notes)

    def _checked(self, evaluator: Evaluator, stopped: threading.Event) -> Checked:
        """In a thread of its own: one case after the other, until enough is known."""
        started = time.monotonic()
        evaluations: list[Evaluation] = []
        # Those that failed before come first.
        cases = sorted(evaluator.cases(), key=lambda case: _passed(self.before.get(case.name)))
        for case in cases:
            if stopped.is_set():
                break
            evaluations.append(tried_here(evaluator.evaluate(case), needs_tools=False))
            statuses = [evaluation.verdict.status for evaluation in evaluations]
            failures = sum(status.outcome != "pass" for status in statuses)
            # What cannot be built comes out no better in any other case.
            if failures >= ENOUGH_FAILURES or Status.BUILD_ERROR in statuses:
                break
        self._environments = evaluator.environments() or self._environments
        return Checked(
            evaluations=tuple(evaluations),
            left=len(cases) - len(evaluations),
            seconds=time.monotonic() - started,
        )

    def times(self, files: Mapping[str, str], champion: Mapping[str, str] | None) -> Trial:
        """How fast a candidate that is right is, beside the best one until now; it is not verified again.

        Args:
            files: the candidate.
            champion: sources of the best one; None for the incumbent.
        """
        right = self.check(files).evaluations
        started = time.monotonic()
        if not self.settings.timing:
            return self._trial("times", right, self.settings.seed, 0.0, ())
        slot = self._candidates.slot_of(files)
        assert slot is not None
        self._set_champion(champion)
        evaluator = self._candidates.timer(slot, champion)
        timed = [tried_here(evaluator.time(checked)) for checked in slot.result().evaluations]
        return self._trial("times", timed, self.settings.seed, time.monotonic() - started, ())

    def evidence(self, files: Mapping[str, str], timed: Sequence[Evaluation]) -> Evidence:
        """What profilers find in a candidate that is right, on the case with the most bytes; never raises for them.

        Args:
            files: the candidate.
            timed: what its times are, as far as they were taken.
        """
        self._put(files)
        with closing(self._evaluator(self.copy.with_implementation(alone=True))) as evaluator:
            (case,) = selection.heaviest(evaluator.cases())[:1]
            with scratch.folder() as folder:
                program = ncu.find() if self._is_cuda else None
                profiler = Profiler(evaluator, folder, program=program, sandbox=self.settings.sandbox)
                profile = with_report(profiler.profile(case), folder, self.reports)
            sm_count = max((device.sm_count for device in evaluator.environments()), default=0)
        measured = next((one.measurement for one in timed if one.case.name == case.name), None)
        return profile_figures.gathered(profile, measured, tidied=self._tidied(), sm_count=sm_count)

    def _tidied(self) -> tuple[TidyFinding, ...]:
        """What clang-tidy says of the candidate in the first copy, where it is installed."""
        program = environment.find_clang_tidy()
        if program.state != "ok":
            return ()
        entry, one = self.copy.entry()
        return tidy.evidence(self.copy.config, entry, [one], program, sandbox=self.settings.sandbox).findings

    def sass_signatures(self, files: Mapping[str, str]) -> SassRow | None:
        """Which methods left their mark in the machine code of a candidate that is right; None if there is no GPU's."""
        if not self._is_cuda:
            return None
        slot = self._candidates.slot_of(files)
        if slot is None:
            self._put(files)
        copy = self.copy if slot is None else slot.copy
        with closing(self._evaluator(copy.with_implementation(alone=True))) as evaluator:
            disassembler = disassembly.Disassembler(evaluator.config, sandbox=self.settings.sandbox)
            if self.target.contract == "python":
                (case,) = selection.heaviest(evaluator.cases())[:1]
                return disassembler.compiled_when_called(evaluator, case)
            return disassembler.built(*copy.entry(), evaluator.kernel_builds.builds)

    def accept(
        self, files: Mapping[str, str], *, goal: Goal, alpha_share: float = 1.0, seed: int | None = None
    ) -> Trial:
        """The whole gate in fresh processes: all cases of all kernels that share a source, held-out inputs, times.

        Args:
            files: the candidate.
            goal: for `optimise` it must be faster than the incumbent as well.
            alpha_share: part of the chance of a false alarm that this candidate may use: 1/M of M candidates.
            seed: of the inputs, where an acceptance is repeated; None draws one now.
        """
        started = time.monotonic()
        seed = random.SystemRandom().randrange(2**31) if seed is None else seed
        self._put(files)
        whole = self.copy.with_implementation(alone=False)
        base = self.copy.against_base
        is_timed = self.settings.timing
        must_win = goal == "optimise" and is_timed
        at_once = must_win and self.copy.base_is_incumbent
        if at_once:
            whole = _with_alpha(whole, alpha_share)
        evaluations = self._all(whole, seed=seed, baseline=base if is_timed else NONE)
        if must_win and not at_once and not rejections(evaluations, self.target, self.before):
            alone = _with_alpha(self.copy.with_implementation(alone=True), alpha_share)
            others = [evaluation for evaluation in evaluations if not is_of(evaluation.case, self.target)]
            own = self._all(alone, seed=seed, baseline=INCUMBENT)
            evaluations = [*others, *own]
        return self._trial("acceptance", evaluations, seed, time.monotonic() - started, ())

    def hardware(self) -> Hardware:
        """What candidates run on."""
        environment = self.settings.environment
        return described(self.copy.config, self.reference, environment, self.target.device)

    def close(self) -> None:
        """End all that is under way."""
        self._candidates.close()

    def _put(self, files: Files) -> None:
        """Have a candidate in the project's first copy, alone: nothing is under way any more."""
        self._candidates.close()
        self.copy.put(files)
        self._last_tried = self.copy

    def _set_champion(self, champion: Files | None) -> None:
        if champion is not None and champion != self._champion:
            self.copy.set_champion(champion)
            self._champion = dict(champion)

    def _all(self, config: Config, *, seed: int, baseline: str) -> list[Evaluation]:
        evaluator = self._evaluator(
            config, seed=seed, timing=self.settings.timing, baseline=baseline, accepts=True
        )
        try:
            return [tried_here(evaluator.evaluate(case)) for case in evaluator.cases()]
        finally:
            self._environments = evaluator.environments() or self._environments
            evaluator.close()

    def _made(self, copy: ProjectCopy, builds: BuildQueue, champion: Files | None, timing: bool) -> Evaluator:
        """See `EvaluatorFactory`."""
        baseline = NONE if not timing else INCUMBENT if champion is None else CHAMPION
        config = copy.with_implementation(alone=True)
        return self._evaluator(config, timing=timing, baseline=baseline, builds=builds, only_gains=True)

    def _evaluator(
        self,
        config: Config,
        *,
        seed: int | None = None,
        timing: bool = False,
        baseline: str = NONE,
        accepts: bool = False,
        builds: BuildQueue | None = None,
        only_gains: bool = False,
    ) -> Evaluator:
        settings, compiles = self.settings, accepts and self.settings.compile
        return Evaluator(
            config,
            seed=settings.seed if seed is None else seed,
            timing=timing,
            timing_options=replace(
                settings.noise, baseline=baseline, tests=None, compile=compiles, only_gains=only_gains
            ),
            cache=settings.cache,
            timeout_s=settings.timeout_s,
            sanitize=settings.sanitize if accepts and self._is_cuda else (),
            sandbox=settings.sandbox,
            environment=settings.environment,
            builds=builds or self.pool.builds,
            reference=self.reference,
            trusted_root=self.trusted_root,
        )

    def _trial(
        self,
        stage: Literal["check", "times", "acceptance"],
        found: Iterable[Evaluation],
        seed: int,
        seconds: float,
        notes: tuple[str, ...],
    ) -> Trial:
        made = Trial(
            stage=stage,
            evaluations=tuple(found),
            environments=self._environments,
            seed=seed,
            sandbox=self.settings.sandbox is not None,
            sanitized=stage == "acceptance" and bool(self.settings.sanitize) and self._is_cuda,
            seconds=seconds,
            notes=notes,
        )
        # The copy is gone when somebody reads this, and a resumed run has another: its files have the project's names.
        return documents.renamed(made, {f"{self._last_tried.top}/": "", **self.names})


def with_report(profile: CaseProfile, written: Path, kept: Path | None) -> CaseProfile:
    """The profile, and its report where the journal takes it from; if it leaves no room for it, that is in the notes.

    Args:
        profile: of a candidate.
        written: folder that the report of ncu is in, if there is one.
        kept: folder of the target; the reports of its candidates are in it and below.
    """
    if not profile.report or kept is None:
        return replace(profile, report="")
    report = written / profile.report
    if note := no_room(kept, report.stat().st_size):
        return replace(profile, report="", notes=(*profile.notes, note))
    shutil.move(report, draft_of(kept, profile.report))
    return profile


def no_room(kept: Path, nbytes: int) -> str:
    """Why a report of ncu is not kept in the folder of its target; "" if it is."""
    if nbytes + sum(file.stat().st_size for file in kept.rglob(f"*{ncu.SUFFIX}")) <= MOST_REPORTS_NBYTES:
        return ""
    room = f"the reports of a search may take {MOST_REPORTS_NBYTES >> 20} MiB together"
    return f"ncu's report was left out, {counted(nbytes, 'byte', grouped=True)}: {room} → cgins evidence profile writes one"


def rejections(
    evaluations: Iterable[Evaluation], target: Target, before: Mapping[str, Status] | None = None
) -> tuple[Evaluation, ...]:
    """Evaluations for which a candidate is not accepted, worst first.

    Args:
        evaluations: of a trial.
        target: what is regenerated: each of its cases must have run and passed, and none of those that are to become
            faster may be undecided.
        before: statuses by case name: cases of other kernels that had failed before may fail again.
    """
    known = before or {}
    bad = []
    for one in evaluations:
        outcome = one.verdict.status.outcome
        if is_of(one.case, target):
            # What is to become faster may not be slower anywhere, and an undecided case says nothing of that.
            is_decisive = target.goal == "optimise" or one.fail_on == "inconclusive"
            if outcome != "pass" or (is_decisive and one.verdict.status is Status.INCONCLUSIVE):
                bad.append(one)
        elif outcome in ("fail", "error") and _passed(known.get(one.case.name)):
            bad.append(one)
    order = ("fail", "error", "skip", "pass")
    return tuple(sorted(bad, key=lambda one: order.index(one.verdict.status.outcome)))


def _passed(status: Status | None) -> bool:
    return status is None or status.outcome == "pass"


def tried_here(evaluation: Evaluation, *, needs_tools: bool = True) -> Evaluation:
    """The same, if it could be run at all: a candidate is not to blame for what this machine lacks.

    Args:
        evaluation: of a case.
        needs_tools: whether all tools had served the candidate before, as one that was found right already, and no other
            candidate takes memory beside it.

    Raises:
        RegenerateError: its device is not here, others hold its device or its memory, or a tool failed that had
            served it.
    """
    reason = evaluation.verdict.reason
    is_late = needs_tools and (is_full(evaluation.verdict) or reason is Reason.TOOL_MISSING)
    if is_late or reason in (Reason.DEVICE_ABSENT, Reason.DEVICE_BUSY):
        when = "where its device is" if reason is Reason.DEVICE_ABSENT else "once that is fixed"
        raise (DeviceLost if reason is Reason.DEVICE_ABSENT else RegenerateError)(
            f"{evaluation.case.name} cannot be tried here: {evaluation.verdict.message}",
            remedy=f"resume the run {when}; the answer is kept",
        )
    return evaluation


def _with_alpha(config: Config, share: float) -> Config:
    kernels = tuple(
        replace(entry, timing=replace(entry.timing, alpha=entry.timing.alpha * share))
        for entry in config.kernels
    )
    return replace(config, kernels=kernels)
