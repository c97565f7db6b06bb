"""What is asked and answered about a kernel that is timed."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Annotated

from annotated_types import Ge, Le, MaxLen

from pytest_cgins.core.case import CompiledKernel
from pytest_cgins.core.document_base import Document
from pytest_cgins.core.measurement import ARM_LETTERS, ArmName, JitCompilations, TunedConfig
from pytest_cgins.core.verdict import Probe
from pytest_cgins.timing.block import Block
from pytest_cgins.timing.block_sampler import Prepared
from pytest_cgins.verify.messages import SHOWN, Answer, CaseRequest, Facts, KernelRequest, Tuned
from pytest_cgins.verify.probes.registry import When

_Batch = Annotated[int, Ge(1), Le(10**9)]
_Ns = Annotated[float, Ge(1e-9), Le(1e18)]
"""Other numbers are no clock's."""
_MOST_NOTES = 16


@dataclass(frozen=True, slots=True)
class Ready(Document):
    """Have the context of a GPU made."""

    device: str
    """`cpu` or `cuda:0`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenTiming(KernelRequest):
    """Make the arms of a case ready; its sets differ in their numbers alone."""

    limit_s: float = 0.0
    """Bounds one batch of every arm together."""
    base: CompiledKernel | None = None
    """The kernel at the base revision, if that is an arm."""
    torch: bool = True
    compile: bool = False
    cache: str = "cold"
    """`warm`: tensors may stay in it."""
    longer: float = 1.0
    """Factor for the length of batches."""
    fenced: bool = False
    """Whether a GPU is timed by loops between fences."""
    tuned: tuple[TunedConfig, ...] = ()
    """What autotuners are to choose, where that was chosen elsewhere."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened(Prepared, Document):
    """What was made ready. Arms come in the record's order, and long texts are cut."""

    calls: dict[ArmName, _Batch]
    batch_seconds: dict[ArmName, _Ns]
    host_ns_per_call: dict[ArmName, _Ns]
    launch_ns: Annotated[float, Ge(0), Le(1e18)] = 0.0
    refused: dict[ArmName, str] = field(default_factory=dict)
    """Why arms that were wanted are not there, by arm."""
    peak_nbytes: Annotated[int, Ge(0)] | None = None
    """Memory that a call of the kernel takes at its peak beyond its inputs; None on a CPU."""
    tuned: Tuned = ()
    """What the kernel's autotuners chose."""
    base_tuned: Tuned = ()
    """What the base's chose, or were given."""
    jit: JitCompilations | None = None
    base_jit: JitCompilations | None = None

    def __post_init__(self) -> None:
        arms = tuple(arm for arm in ARM_LETTERS if arm in self.arms)
        if "kernel" not in arms or not set(arms) <= self.calls.keys() & self.batch_seconds.keys():
            raise ValueError(f"no measurement of {', '.join(arms) or 'nothing'}")
        object.__setattr__(self, "arms", arms)
        object.__setattr__(self, "notes", tuple(note[:SHOWN] for note in self.notes[:_MOST_NOTES]))
        object.__setattr__(self, "refused", {arm: why[:SHOWN] for arm, why in self.refused.items()})


@dataclass(frozen=True, slots=True)
class RunBlocks(Document):
    """Run blocks of batches."""

    orders: tuple[str, ...]
    """Letters of the arms, as in `measurement.ARM_LETTERS`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedBlock(Document):
    """One block as a worker tells it: see `timing.block.Block`."""

    order: str
    ns_per_call: tuple[_Ns, ...]
    mean_ns_per_call: tuple[_Ns, ...] = ()
    sm_mhz: Annotated[int, Ge(0), Le(10**6)] | None = None
    throttled: Annotated[tuple[Annotated[str, MaxLen(SHOWN)], ...], MaxLen(_MOST_NOTES)] = ()

    def checked(self) -> Block:
        """The block; ValueError if its parts do not fit each other. A worker that has a false clock tells such ones, too."""
        return Block(**{field.name: getattr(self, field.name) for field in fields(self)})


@dataclass(frozen=True, slots=True)
class TimedBlocks(Document):
    """The blocks that were asked for."""

    blocks: tuple[TimedBlock, ...]
    """One an order."""


@dataclass(frozen=True, slots=True)
class RepeatCalls(Document):
    """Call an arm in a row, for whoever times it from outside."""

    arm: ArmName
    calls: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedAnswer(Answer):
    """An answer that a kernel gave while it was timed: see `verify.probes.after_timing`."""

    when: When
    """The call that gave the answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedTiming(Document):
    """What there is to judge after a kernel was timed; one buffer an answer."""

    answers: tuple[TimedAnswer, ...]
    """Answers of the last calls, and of some afterwards."""
    observed: Facts


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeTiming(Document):
    """Judge what was seen of a kernel while it was timed; one buffer an answer."""

    case_request: CaseRequest
    """The request that the case was prepared with."""
    cold: bool
    """Whether inputs came from memory."""
    median_ns_per_call: float
    launch_ns: float
    """What the launch of a kernel that does nothing takes."""
    timing: FinishedTiming
    """Under the sets' own names."""


@dataclass(frozen=True, slots=True)
class TimingJudgement(Document):
    """Results of the probes of timing."""

    probes: tuple[Probe, ...]
    floor_ns_per_call: float
    """0 where no floor is known."""
