"""What becomes of a candidate by what the gate says of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from pytest_cgins.core.errors import RegenerateError
from pytest_cgins.core.model import Evaluation, Status
from pytest_cgins.regenerate.model import Attempt, Outcome, Target, Trial
from pytest_cgins.regenerate.trial import Bench, rejections


@dataclass(frozen=True, slots=True, kw_only=True)
class Goalposts:
    """What a candidate is judged by, in the project and in its own copy of it."""

    moved: Callable[[Mapping[str, str]], tuple[str, ...]]
    """Files of the project that the verdict on these sources depends on, and that are not as they were when the run began."""
    touched: Callable[[], tuple[str, ...]]
    """Files of the candidate's copy that it changed, and that are not its own."""

    def require(self, sources: Mapping[str, str]) -> None:
        """Refuse to judge a candidate by what is not as it was.

        The candidate is not to blame: it has a copy. Nothing is kept of the trial, so that a resumed run repeats it.

        Raises:
            RegenerateError: something changed; all of it is named.
        """
        moved = self.moved(sources)
        if moved:
            raise moved_error(moved)


def moved_error(moved: tuple[str, ...]) -> RegenerateError:
    """What is said of goalposts that are not where they were."""
    return RegenerateError(
        f"changed since the run began: {', '.join(moved)}",
        remedy="undo that and resume the run, which keeps all answers; or begin a new run",
    )


def accepted(made: Attempt, target: Target, bench: Bench, touched: tuple[str, ...]) -> Attempt:
    """An attempt after its acceptance, the last of its trials.

    Args:
        made: the attempt, with its trials.
        target: what is regenerated.
        bench: that it was tried on.
        touched: files that are not its own and that it changed in its copy.
    """
    acceptance = made.trials[-1]
    if touched:
        text = f"it changed files of its copy that are not its own: {', '.join(touched)}"
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
