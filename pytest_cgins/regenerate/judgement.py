"""What becomes of a candidate by what the gate says of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from pytest_cgins.model import Evaluation, Status
from pytest_cgins.regenerate import guard
from pytest_cgins.regenerate.model import Attempt, Guarded, Outcome, Target, Trial
from pytest_cgins.regenerate.trial import Bench, rejections


@dataclass(frozen=True, slots=True, kw_only=True)
class Goalposts:
    """What no candidate may move."""

    kept: Guarded | None
    """Digests when the run began; None if they are not known."""
    now: Callable[[], Guarded]
    """Digests as they are now."""
    touched: Callable[[], tuple[str, ...]]
    """Files of the copy that something changed that had no business there."""

    def moved(self) -> tuple[str, ...]:
        """What is not as it was; none, unless something got at it."""
        moved = guard.differences(self.kept, self.now()) if self.kept is not None else ()
        return (*moved, *(f"{path} (in the candidate's copy)" for path in self.touched()))


def accepted(made: Attempt, target: Target, bench: Bench, moved: tuple[str, ...]) -> Attempt:
    """An attempt after its acceptance, the last of its trials.

    Args:
        made: the attempt, with its trials.
        target: what is regenerated.
        bench: that it was tried on.
        moved: goalposts that are not where they were.
    """
    acceptance = made.trials[-1]
    if moved:
        names = ", ".join(moved[:5]) + (f" and {len(moved) - 5} more" if len(moved) > 5 else "")
        text = f"files that no candidate may change are not as they were when the run began: {names}"
        return replace(made, outcome="tampered", reason="guarded-files", message=text)
    bad = rejections(acceptance.evaluations, target, bench.before)
    if bad:
        return judged(made, "not-accepted", bad, made.trials)
    if target.goal == "optimise" and not is_faster(acceptance):
        text = "right, and not faster than the kernel that it would replace in any case"
        return replace(made, outcome="not-accepted", reason="not-faster", message=text)
    return replace(made, outcome="accepted", reason="ok", message="all cases passed on inputs held out")


def judged(
    made: Attempt, outcome: Outcome, bad: tuple[Evaluation, ...], trials: tuple[Trial, ...]
) -> Attempt:
    """An attempt that the gate turned down, in the gate's words."""
    worst = bad[0]
    lines = [
        f"{one.case.name}: {one.verdict.status.value} ({one.verdict.reason.value}): {one.verdict.message}"
        for one in bad
    ]
    log = worst.output if worst.verdict.status is Status.BUILD_ERROR else ""
    return replace(
        made,
        outcome="build-error" if worst.verdict.status is Status.BUILD_ERROR else outcome,
        reason=worst.verdict.reason.value,
        message="\n\n".join(lines),
        log=log,
        trials=trials,
    )


def is_faster(trial: Trial) -> bool:
    """Whether a case was proven faster."""
    return any(one.verdict.status is Status.FASTER for one in trial.evaluations)
