"""Which implementations are regenerated, by what the gate found."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from pytest_cgins.config import Config, Implementation, KernelEntry
from pytest_cgins.core.case import Case
from pytest_cgins.core.errors import ConfigError
from pytest_cgins.core.session_report import Evaluation
from pytest_cgins.core.text import nearest
from pytest_cgins.core.verdict import Status
from pytest_cgins.regenerate.attempt import Goal, Target

FAILED, SLOW = "failed", "slow"
"""Words of `--cgins-regenerate`; all others are names of kernels."""

REPAIR = frozenset({
    Status.INCORRECT, Status.RUNTIME_ERROR, Status.TIMEOUT, Status.SUSPECT, Status.BUILD_ERROR
})  # fmt: skip
OPTIMISE = frozenset({Status.SLOWER, Status.BELOW_FLOOR, Status.RESOURCES})


def choose(config: Config, evaluations: Iterable[Evaluation], wanted: Sequence[str]) -> tuple[Target, ...]:
    """Targets of one `cgins.yaml`, in its order.

    Args:
        config: the loaded file.
        evaluations: of its cases.
        wanted: `failed`, `slow`, or names of kernels; empty for all that failed or are slow. A kernel that is named
            and passed is optimised.

    Raises:
        ConfigError: there is no such kernel.
    """
    names = {entry.name for entry in config.kernels}
    for word in wanted:
        if word not in names and word not in (FAILED, SLOW):
            raise ConfigError(
                f'--cgins-regenerate={word}: {config.file.name} has no kernel "{word}"',
                remedy=nearest(word, [*names, FAILED, SLOW]) or "give failed, slow, or names of kernels",
            )
    found: dict[tuple[str, str, str], list[Status]] = {}
    for evaluation in evaluations:
        found.setdefault(evaluation.case.key, []).append(evaluation.verdict.status)
    targets = []
    for entry in config.kernels:
        for implementation in entry.implementations:
            statuses = found.get((entry.name, implementation.name, implementation.device), [])
            if implementation.is_operator and implementation.contract == "python":
                if entry.name in wanted:
                    raise ConfigError(
                        f"--cgins-regenerate={entry.name}: {entry.name}/{implementation.name} is an operator that its own build makes",
                        remedy="enter its kernel with a contract of its own, as a launcher or module:function, and name that",
                    )
                continue
            goal = _goal(statuses, named=entry.name in wanted)
            word = FAILED if goal == "repair" else SLOW
            if goal is not None and (not wanted or entry.name in wanted or word in wanted):
                targets.append(target_of(entry, implementation, goal, statuses))
    return tuple(targets)


def target_of(
    entry: KernelEntry, implementation: Implementation, goal: Goal, statuses: Iterable[Status] = ()
) -> Target:
    """A target from its entry."""
    return Target(
        kernel=entry.name,
        implementation=implementation.name,
        device=implementation.device,
        op=entry.op,
        contract=implementation.contract,
        goal=goal,
        statuses=tuple(sorted(set(statuses), key=lambda status: status.value)),
    )


def only(config: Config, keep: Callable[[tuple[str, str, str], Implementation], bool]) -> Config:
    """A configuration with some implementations alone, which are told by their keys; kernels without any go."""
    kernels = []
    for entry in config.kernels:
        kept = tuple(one for one in entry.implementations if keep((entry.name, one.name, one.device), one))
        if kept:
            kernels.append(replace(entry, implementations=kept))
    return replace(config, kernels=tuple(kernels))


def is_of(case: Case, target: Target) -> bool:
    """Whether a case is one of the target's."""
    return case.key == target.key


def _goal(statuses: Sequence[Status], *, named: bool) -> Goal | None:
    if not REPAIR.isdisjoint(statuses):
        return "repair"
    if not OPTIMISE.isdisjoint(statuses):
        return "optimise"
    ran = [status for status in statuses if status.outcome == "pass"]
    return "optimise" if named and ran else None
