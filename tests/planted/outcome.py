"""What became of one planted kernel over its cases."""

from __future__ import annotations

import math
import multiprocessing
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing.util import Finalize
from pathlib import Path

import yaml

from pytest_cgins import config
from pytest_cgins.core.case import Case
from pytest_cgins.core.session_report import Evaluation
from pytest_cgins.core.verdict import Check, Status
from pytest_cgins.gate.evaluate import Evaluator

ELSEWHERE = {"apply_rotary-wrong-sign": "columns"}
"""Where a listed place is not where the kernel is wrong: only the first half of a row has a negated part."""


@dataclass(frozen=True)
class Bug:
    """An entry of bugs.yaml."""

    id: str
    op: str
    place: str
    what: str


def listed() -> list[Bug]:
    """All bugs, in the order of bugs.yaml."""
    document = yaml.safe_load((Path(__file__).parent / "bugs.yaml").read_text())
    return [Bug(**entry) for entry in document["bugs"]]


@dataclass(frozen=True)
class Outcome:
    """One kernel in one dtype."""

    kernel: str
    dtype: str
    evaluations: tuple[Evaluation, ...]

    @property
    def caught(self) -> bool:
        """Whether some case was called wrong."""
        found = (Status.INCORRECT, Status.SUSPECT)
        return any(evaluation.verdict.status in found for evaluation in self.evaluations)

    @property
    def false_fails(self) -> list[Evaluation]:
        """Cases that did not pass."""
        return [
            evaluation for evaluation in self.evaluations if evaluation.verdict.status is not Status.PASSED
        ]

    def failed_checks(self) -> list[Check]:
        """All checks that failed, over all cases."""
        return [
            check
            for evaluation in self.evaluations
            if evaluation.correctness is not None
            for check in evaluation.correctness.checks
            if not check.passed
        ]

    def names(self, place: str) -> bool:
        """Whether some message says that the wrong elements are at `place`; any will do if it depends."""
        messages = [check.message for check in self.failed_checks()]
        return any(place in message for message in messages) if place != "input-dependent" else bool(messages)

    @property
    def share(self) -> float:
        """Greatest error as a share of what is allowed; infinite where the form was wrong."""
        shares = [check.share for check in self.failed_checks()]
        if any(share is None for share in shares):
            return float("inf")
        passed = [e.correctness.share for e in self.evaluations if e.correctness and e.correctness.share]
        return max([*passed, *(share for share in shares if share is not None)], default=0.0)


def evaluate_at_once(
    file: Path,
    kernels: Sequence[str],
    cache: Path,
    *,
    processes: int,
    seed: int = 20,
    probes: str = "off",
    seconds: float | None = None,
) -> list[Outcome]:
    """Evaluate the project of the cgins.yaml `file`, a kernel a time in each process; after `seconds` no further one is begun.

    On a GPU each kernel's fresh process takes a second to begin.
    """
    until = time.monotonic() + seconds if seconds is not None else math.inf
    opened = file, cache, seed, probes
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, context, initializer=_open, initargs=opened) as pool:
        parts = [pool.submit(_evaluate_kernel, kernel, until) for kernel in kernels]
        return [outcome for part in parts for outcome in part.result()]


_evaluators: list[Evaluator] = []
"""Of this process of `evaluate_at_once`."""


def _open(file: Path, cache: Path, seed: int, probes: str) -> None:
    evaluator = Evaluator(config.load(file), seed=seed, timing=False, probes=probes, cache=cache)
    _evaluators.append(evaluator)
    Finalize(None, evaluator.close, exitpriority=100)


def _evaluate_kernel(kernel: str, until: float) -> list[Outcome]:
    if time.monotonic() > until:
        return []
    (evaluator,) = _evaluators
    return evaluate(evaluator, [one for one in evaluator.cases() if one.kernel == kernel], [kernel])


def evaluate(evaluator: Evaluator, cases: Iterable[Case], kernels: Sequence[str]) -> list[Outcome]:
    """Evaluate cases, those of a kernel in a row, and gather them by kernel and dtype in the order of `kernels`."""
    gathered: dict[tuple[str, str], list[Evaluation]] = {}
    for case in cases:
        gathered.setdefault((case.kernel, case.dtype), []).append(evaluator.evaluate(case))
    order = {kernel: number for number, kernel in enumerate(kernels)}
    return [
        Outcome(kernel, dtype, tuple(evaluations))
        for (kernel, dtype), evaluations in sorted(gathered.items(), key=lambda item: order[item[0][0]])
    ]
