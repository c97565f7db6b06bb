"""What a plain harness says of a suite's answers, beside what the gate said.

It is what many benchmarks of kernels count by: each kernel runs once on the recorded inputs, is right if `torch.allclose`
says so, and faster if the mean of its calls, between two events, is the lesser one. Kernel, check and clock share a
process, in which the kernel may change the others: that is what is compared.
"""

from __future__ import annotations

import math
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from statistics import geometric_mean

from pytest_cgins.building.revision.merge_base import NONE
from pytest_cgins.config import Config
from pytest_cgins.core import atomic, documents, scratch
from pytest_cgins.core.document_base import Document
from pytest_cgins.core.errors import CginsError, InfrastructureError
from pytest_cgins.gate.evaluate import Evaluator
from pytest_cgins.regenerate.attempt import Attempt, Target
from pytest_cgins.regenerate.journal.journal import Journal
from pytest_cgins.regenerate.new_kernel import reloaded
from pytest_cgins.regenerate.profiling.child import Child, fence_for
from pytest_cgins.regenerate.project_copy import ProjectCopy
from pytest_cgins.regenerate.suite import speed_vs_torch
from pytest_cgins.run.early_verdict import EndedError
from pytest_cgins.run.pool import WorkerPool
from pytest_cgins.run.sandbox.sandbox import Sandbox

NAME = "plain.json"
MOST = 1e6
"""What is told of a kernel that has stopped its own clock."""
_JUDGED = frozenset({"refused", "build-error", "failed", "right", "not-accepted", "accepted", "tampered"})
"""Outcomes by which the gate has said whether an answer's kernel is right."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainAnswer(Document):
    """One answer's kernel."""

    run: str
    """Of the variant."""
    target: str
    """Name of the run's target."""
    number: int
    """Of the answer."""
    right: bool
    """Whether the plain harness says so."""
    speed: float
    """torch's mean time over the kernel's, by the plain harness, geometric mean over the cases, at most a million; 0 if it is
    wrong, or no number came."""
    why: str
    """Why it is not right, one line."""
    gate_right: bool
    """Whether the gate says so."""
    gate_speed: float
    """torch's time over the kernel's, as the gate measured it; 0 where it is not right or was not timed."""
    gate_reason: str
    """Code of what the gate has against it; "" if nothing."""

    @property
    def is_refuted(self) -> bool:
        """Whether the gate takes it for wrong, or for no faster although the plain harness does."""
        return not self.gate_right or (self.speed > 1 and 0 < self.gate_speed <= 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainAnswers(Document):
    """`plain.json` of a suite."""

    version: int
    """1."""
    answers: tuple[PlainAnswer, ...]
    """In the order in which they were looked at."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Told(Document):
    """What the kernel's own process says of a case: it may be anything."""

    right: bool
    why: str = ""
    kernel_s: float = 0.0
    torch_s: float = 0.0

    @property
    def speed(self) -> float:
        """As of `PlainAnswer`."""
        if not (math.isfinite(self.kernel_s) and math.isfinite(self.torch_s) and self.torch_s > 0):
            return 0.0
        return self.torch_s / max(self.kernel_s, self.torch_s / MOST)


def read(folder: Path) -> tuple[PlainAnswer, ...]:
    """What a suite's folder has; () where nothing was looked at."""
    place = folder / NAME
    return documents.load(PlainAnswers, place.read_bytes()).answers if place.exists() else ()


def score(answers: Sequence[PlainAnswer]) -> tuple[int, ...]:
    """Count a variant's answers, as `suite_report.PLAIN_COLUMNS` has them.

    Those with a source, on which both have said something; right by the plain harness; of these wrong by the gate; of
    those right by the plain harness faster by it; of these wrong, or not faster where the gate timed it; right by the gate
    alone.
    """
    right = [one for one in answers if one.right]
    faster = [one for one in right if one.speed > 1]
    wrong, slower = (sum(not one.gate_right for one in right), sum(one.is_refuted for one in faster))
    missed = sum(one.gate_right and not one.right for one in answers)
    return len(answers), len(right), wrong, len(faster), slower, missed


def look(folder: Path, config: Config, journal: Journal, sandbox: Sandbox | None) -> None:
    """Run the kernels of a run's answers that nobody has looked at, and keep what is found after each.

    Args:
        folder: of the suite.
        config: its file.
        journal: the run, in which nothing is under way.
        sandbox: around each kernel.
    """
    known = read(folder)
    seen = {(one.run, one.target, one.number) for one in known}
    for target in journal.record.targets:
        wanted = [
            one
            for one in journal.attempts(target)
            if one.outcome in _JUDGED and (journal.record.id, target.name, one.number) not in seen
        ]
        for one in _looked_at(config, journal, target, wanted, sandbox):
            known = (*known, one)
            atomic.write_text(
                folder / NAME, documents.dump(PlainAnswers(version=1, answers=known), indent=1) + "\n"
            )


def _looked_at(
    config: Config, journal: Journal, target: Target, attempts: Iterable[Attempt], sandbox: Sandbox | None
) -> Iterator[PlainAnswer]:
    with ExitStack() as stack:
        copy: ProjectCopy | None = None
        for attempt in attempts:
            if not (sources := journal.sources(target, attempt.number)):
                continue
            if copy is None:
                overlay = journal.overlay(target)
                place = stack.enter_context(scratch.folder()) / "copy"
                own = reloaded(config, overlay)
                copy = ProjectCopy(own, target.key, place, baseline=NONE, overlay=overlay)
                reference = stack.enter_context(WorkerPool())
            copy.put(sources)
            evaluator = Evaluator(
                copy.with_implementation(alone=True), seed=journal.record.seed, timing=False, sandbox=sandbox,
                reference=reference, trusted_root=config.root,
            )  # fmt: skip
            with closing(evaluator):
                try:
                    speeds, why = _run(evaluator, sandbox)
                except CginsError as error:  # of the machine: the next run may look
                    print(
                        f"cgins: {target.name}, answer {attempt.number}, without a plain harness: {error}",
                        file=sys.stderr,
                    )
                    continue
            gate_right = attempt.is_right or attempt.outcome == "accepted"
            yield PlainAnswer(
                run=journal.record.id,
                target=target.name,
                number=attempt.number,
                right=not why,
                speed=geometric_mean(speeds) if min(speeds, default=0.0) > 0 else 0.0,
                why=why,
                gate_right=gate_right,
                gate_speed=speed_vs_torch(attempt, target),
                gate_reason="" if attempt.outcome == "accepted" else attempt.reason,
            )


def _run(evaluator: Evaluator, sandbox: Sandbox | None) -> tuple[list[float], str]:
    """Speeds by case, and why the kernel is not right; what ends it first is told.

    Raises:
        CginsError: the machine lacks something.
    """
    speeds = []
    fence = fence_for(evaluator.config, sandbox)
    for case in evaluator.cases():
        try:
            with evaluator.made_ready(case) as ready, tempfile.TemporaryDirectory() as folder:
                child = Child(Path(folder), ready, import_root=evaluator.config.root, sandbox=fence)
                answered = child.begin("plain").alone(evaluator.stage, case.device)
        except EndedError as end:
            if end.verdict.status.outcome != "fail":
                raise InfrastructureError(end.verdict.message, remedy="run cgins doctor") from end
            return [], end.verdict.message.partition("\n")[0]
        if answered.trouble:
            return [], answered.trouble
        told = read_told(answered.answer.get("plain"))
        if not told.right:
            return [], f"{case.name}: {told.why}"
        speeds.append(told.speed)
    return speeds, ""


def read_told(answer: object) -> Told:
    """What a process said, or that it said nothing of use."""
    try:
        return documents.load_python(Told, answer)
    except ValueError as error:
        return Told(right=False, why=f"its process says no result: {str(error).partition(chr(10))[0]}")
