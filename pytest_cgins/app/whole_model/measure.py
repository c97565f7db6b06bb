"""One model measured with the kernels of a `cgins.yaml`: swapped in, compared, timed."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from typing import Literal

from pytest_cgins.app.whole_model import workload
from pytest_cgins.app.whole_model.bench import Arms, difference
from pytest_cgins.app.whole_model.document import (
    MODEL_BENCH_VERSION,
    Base,
    Difference,
    ModelBench,
    ModelBenches,
)
from pytest_cgins.app.whole_model.end_to_end import Expected
from pytest_cgins.app.whole_model.kernels import Loaded, at_base, load_kernels
from pytest_cgins.app.whole_model.swap import Swap
from pytest_cgins.building.loading.callable import LoadedKernel
from pytest_cgins.building.revision.base_kernels import BaseKernels
from pytest_cgins.building.revision.merge_base import NONE
from pytest_cgins.config import Config, ModelEntry, TimingGate, Tolerance
from pytest_cgins.core.device import DeviceName, device_of
from pytest_cgins.core.errors import ConfigError
from pytest_cgins.core.measurement import ArmName
from pytest_cgins.core.session_report import PlainTimes, SwappedKernel
from pytest_cgins.core.verdict import Check
from pytest_cgins.regenerate.profiling import bench as ratios
from pytest_cgins.timing.environment import describe

NOT_COMPARED = "the model's outputs are not tensors of one form, and were not compared"


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What is measured, and how."""

    make: str
    """`MODULE:FUNCTION`."""
    device: DeviceName
    """Type of its device."""
    entry: ModelEntry | None = None
    """Of cgins.yaml; None for a function that is named on the command line."""
    kernels: Sequence[str] = ()
    """Those that are put in, before those of the entry."""
    against: Sequence[str] = ()
    """Others that they are compared with."""
    baseline: str = NONE
    """Revision whose kernels they are compared with otherwise."""
    compile: bool = False
    """Whether torch.compile is timed, too."""
    timing: bool = True
    """Whether anything is."""
    tests: int = 1
    """Tests of times that share the chance of a false alarm."""
    seed: int = 0
    """Of the order of blocks."""


def measured(config: Config, subject: Subject) -> ModelBench:
    """Swap, compare, time. Kernels run in this process, with its rights.

    Raises:
        CginsError: there is no such model or kernel, it cannot be run, or no call goes to a kernel.
    """
    entry, kind = subject.entry, subject.device
    device = device_of(kind).case_name
    wanted = subject.kernels or (entry.chosen if entry is not None else ())
    loaded, left_out = load_kernels(config, wanted, kind)
    with ExitStack() as opened:
        others, base = _others(config, subject, loaded, opened)
        swaps: dict[ArmName, Swap] = {
            "kernel": Swap({op: one.kernel for op, one in loaded.items()}, device),
            **({"base": Swap(others, device)} if others else {}),
        }
        made = workload.made(subject.make, device)
        arms = Arms(made, swaps, list(dict.fromkeys([*loaded, *others])), device)
        opened.enter_context(arms.ready())
        with arms.locked(timing=False):
            tallies = arms.learn()
            checks, found, notes = _compared(arms, made, entry, list(loaded), device)
            if subject.compile and made.model is not None:
                arms.compile(made.model, made.inputs)
        measurement = plain = None
        by_torch, by_kernel = dict[str, float](), dict[str, float]()
        if subject.timing:
            gate = entry.timing if entry is not None else TimingGate()
            with arms.locked(timing=True):
                timed = arms.timed(gate, tests=subject.tests, seed=subject.seed)
                measurement = replace(timed, base_revision=base.commit)
                plain = PlainTimes(
                    kernel_ns=arms.mean_of_ten_ns("kernel"),
                    torch_ns=arms.mean_of_ten_ns("torch"),
                    base_ns=arms.mean_of_ten_ns("base") if others else None,
                )
                by_torch, by_kernel = arms.op_ns("torch"), arms.op_ns("kernel")
        environment = describe(device)
        return ModelBench(
            model=entry.name if entry is not None else subject.make,
            device=device,
            device_name=environment.device_name,
            torch=environment.torch,
            kernels=tuple(
                SwappedKernel(
                    kernel=one.label,
                    op=op,
                    calls=tallies[op].swapped,
                    left=dict(tallies[op].left),
                    torch_ns_per_run=by_torch.get(op, 0.0),
                    kernel_ns_per_run=by_kernel.get(op, 0.0),
                )
                for op, one in loaded.items()
            ),
            checks=checks,
            difference=found,
            base=base,
            measurement=measurement,
            ratios=ratios.ratios(measurement) if measurement is not None else (),
            plain=plain,
            notes=(*left_out, *notes),
        )


def _others(
    config: Config, subject: Subject, loaded: dict[str, Loaded], opened: ExitStack
) -> tuple[dict[str, LoadedKernel], Base]:
    if subject.against:
        others, _ = load_kernels(config, subject.against, subject.device)
        found = {op: one.kernel for op, one in others.items()}
        return found, Base(state="changed", label=", ".join(one.label for one in others.values()))
    if subject.baseline == NONE:
        return {}, Base(state="none")
    return at_base(opened.enter_context(closing(BaseKernels(config, wanted=subject.baseline))), loaded)


def _compared(
    arms: Arms, made: workload.Workload, entry: ModelEntry | None, ops: Collection[str], device: str
) -> tuple[tuple[Check, ...], Difference | None, list[str]]:
    result = arms.swapped()
    found = difference(arms.plain(), result)
    notes = [] if found is not None else [NOT_COMPARED]
    try:
        expected = Expected(made, entry.tolerance if entry is not None else Tolerance(), device)
    except ConfigError as error:
        if entry is not None:
            raise
        return (), found, [*notes, f"no check of its outputs: {error.what}"]
    checks = expected.checks(result)
    if any(not check.passed for check in checks):
        alone = [op for op in ops if expected.failed(arms.swapped(ops=[op])) is not None]
        notes.append(f"wrong with the kernel of {alone[0]} alone" if alone else "wrong with no kernel alone")
    return checks, found, notes


def together(models: Sequence[ModelBench]) -> ModelBenches:
    """All of them; of several, the sums of their times."""

    def speedup(against: Literal["torch", "base"]) -> float | None:
        sides = [_medians(model, against) for model in models]
        if len(sides) < 2 or None in sides:
            return None
        kernels, others = zip(*filter(None, sides), strict=True)
        return float(sum(others) / sum(kernels))

    return ModelBenches(
        version=MODEL_BENCH_VERSION,
        models=tuple(models),
        speedup_vs_torch=speedup("torch"),
        speedup_vs_base=speedup("base"),
    )


def _medians(model: ModelBench, against: Literal["torch", "base"]) -> tuple[float, float] | None:
    """Median times of a model with kernels, and of the other arm."""
    measured = model.measurement
    other = getattr(measured, against, None)
    return (measured.kernel.median_ns_per_call, other.median_ns_per_call) if measured and other else None
