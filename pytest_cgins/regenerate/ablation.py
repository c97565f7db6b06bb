"""Methods taken out of a kernel one by one, each variant gated and timed against the champion.

A variant takes the place of the kernel's main source in a copy of the project, whose base revision is the champion: so
it is judged exactly as a slower edit would be, in interleaved blocks and by the sequential test.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pytest_cgins.building.revision.merge_base import NONE
from pytest_cgins.config import Config
from pytest_cgins.core import documents
from pytest_cgins.core.model import Environment, Evaluation, Status
from pytest_cgins.gate.case_timing import Noise, NoiseOf
from pytest_cgins.gate.evaluate import Evaluator, worker_environment
from pytest_cgins.gate.timing_stage import TimingOptions
from pytest_cgins.regenerate import scratch
from pytest_cgins.regenerate.profiling.attribution import attribute
from pytest_cgins.regenerate.profiling.model import EVIDENCE_VERSION, Attribution, AttributionEvidence
from pytest_cgins.regenerate.profiling.selection import label
from pytest_cgins.regenerate.project_copy import ProjectCopy
from pytest_cgins.run.pool import WorkerPool
from pytest_cgins.run.sandbox.fence import Sandbox

ENDS = (Status.BUILD_ERROR, Status.INCORRECT, Status.RUNTIME_ERROR, Status.TIMEOUT, Status.SUSPECT)
"""What one case says of a method for all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """The champion without one method."""

    method: str
    """Name of what was taken out."""
    text: str
    """What the main source is then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How variants are tried."""

    seed: int
    """Of the inputs."""
    sandbox: Sandbox | None
    """Around the variants; None trusts them."""
    cases: str = ""
    """Only cases with this in their names."""
    timeout_s: float = 60.0
    """Limit of one request to a worker."""
    cache: Path | None = None
    """Folder of built kernels, by default the user's."""
    noise: Callable[[Environment], NoiseOf] = lambda _: lambda _: Noise()
    """What is known of the noise of devices."""


def ablate(
    config: Config,
    implementation: tuple[str, str, str],
    variants: Sequence[Variant],
    settings: Settings,
    *,
    say: Callable[[str], object] = lambda _: None,
) -> AttributionEvidence:
    """What each method is worth.

    Args:
        config: the project's file: the champion is what it names.
        implementation: names of kernel and implementation, and device type.
        variants: one a method. All of their tests share the chance of a false alarm.
        settings: how they are tried.
        say: takes a line of progress.

    Raises:
        RegenerateError: the kernel's sources cannot be copied.
    """
    kernel, name, device = implementation
    with (
        scratch.folder() as folder,
        WorkerPool(env=worker_environment()) as reference,
    ):
        copy = ProjectCopy(config, kernel, name, device, folder / "project", baseline=NONE)
        methods = [
            _ablated(copy, variant, settings, reference, config.root, tests=len(variants), say=say)
            for variant in variants
        ]
        made = AttributionEvidence(
            version=EVIDENCE_VERSION,
            kernel=kernel,
            implementation=label(name, device),
            seed=settings.seed,
            methods=tuple(methods),
        )
        # The copy is gone when somebody reads this: its files have the project's names.
        top = json.dumps(f"{copy.top}/", ensure_ascii=False)[1:-1]
        return documents.load(AttributionEvidence, documents.dump(made).replace(top, ""))


def _ablated(
    copy: ProjectCopy,
    variant: Variant,
    settings: Settings,
    reference: WorkerPool,
    trusted_root: Path,
    *,
    tests: int,
    say: Callable[[str], object],
) -> Attribution:
    copy.put({**copy.incumbent(), copy.files[0]: variant.text})
    count = 0

    def all_tests() -> int:
        return max(1, 2 * count * tests)  # of medians and of sums

    options = TimingOptions(baseline=copy.against_incumbent, noise=settings.noise, tests=all_tests)
    evaluator = Evaluator(
        copy.with_implementation(alone=True),
        seed=settings.seed,
        timing_options=options,
        cache=settings.cache,
        timeout_s=settings.timeout_s,
        sandbox=settings.sandbox,
        reference=reference,
        trusted_root=trusted_root,
    )
    found: list[Evaluation] = []
    try:
        cases = [case for case in evaluator.cases() if settings.cases in case.name]
        count = len(cases)
        for number, case in enumerate(cases, 1):
            say(f"without {variant.method}: {case.name} ({number} of {count})")
            found.append(evaluator.evaluate(case))
            if found[-1].verdict.status in ENDS:
                break
    finally:
        evaluator.close()
    return attribute(variant.method, found)
