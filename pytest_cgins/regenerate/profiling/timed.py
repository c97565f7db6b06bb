"""Cases checked and timed, for the kinds of evidence that rest on times."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass

from pytest_cgins.building.revision.merge_base import NONE
from pytest_cgins.config import Config
from pytest_cgins.core.model import Environment, Evaluation
from pytest_cgins.gate.calibration import Calibrations
from pytest_cgins.gate.evaluate import Evaluator
from pytest_cgins.gate.timing_stage import TimingOptions
from pytest_cgins.regenerate.profiling import selection


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    """What came of it."""

    evaluations: tuple[Evaluation, ...]
    """One a case."""
    seed: int
    """Of the inputs."""
    environments: tuple[Environment, ...]
    """The devices of the machine."""

    @property
    def device_name(self) -> str:
        """Of the devices that the cases ran on."""
        used = {one.case.device.partition(":")[0] for one in self.evaluations}
        return ", ".join(one.device_name for one in self.environments if one.device in used)

    @property
    def failed(self) -> bool:
        """Whether a case came out as one that the gate would fail."""
        return any(one.verdict.status.outcome in ("fail", "error") for one in self.evaluations)


def evaluate(
    config: Config,
    wanted: str,
    *,
    device: str | None,
    text: str,
    seed: int,
    baseline: str = NONE,
    compile_arm: bool = False,
    say: Callable[[str], object] = lambda _: None,
) -> Timed:
    """Check and time the cases of a kernel.

    Args:
        config: the file.
        wanted: `NAME` or `NAME/IMPLEMENTATION`.
        device: `cpu` or `cuda` leaves the other's cases out.
        text: only cases with this in their names.
        seed: of the inputs.
        baseline: what they are timed against besides torch.
        compile_arm: whether torch.compile is an arm.
        say: takes a line of progress.

    Raises:
        ConfigError: there is no such kernel or case.
        RevisionError: a commit was named, and git does not know it.
    """
    chosen = selection.chosen(config, wanted, device)
    count = 0
    options = TimingOptions(
        baseline=baseline, compile=compile_arm, noise=Calibrations().noise, tests=lambda: max(1, 4 * count)
    )
    evaluator = Evaluator(config, seed=seed, timing_options=options)
    with closing(evaluator):
        evaluator.require_base()
        cases = selection.cases_of(evaluator.cases(), chosen, text)
        count = len(cases)
        evaluator.build_ahead(cases)
        found = []
        for number, case in enumerate(cases, 1):
            say(f"{case.name} ({number} of {count})")
            found.append(evaluator.evaluate(case))
        environments = evaluator.environments()
    return Timed(
        evaluations=tuple(found),
        seed=seed,
        environments=environments,
    )
