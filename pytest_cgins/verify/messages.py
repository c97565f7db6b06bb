"""What workers are asked and what they answer: every message has its type here, and is checked where it arrives.

JSON travels between processes (see `run.protocol`), and beside it the buffers that tensors lie in. A worker that runs a
kernel is hostile: `read` takes nothing from it that our own service would not tell. Two parts of an answer are checked
by whoever can: `Header`, which only means something beside its buffer, and `Facts`, whose form each probe knows.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from functools import wraps
from typing import Annotated, Any, Literal, TypeVar

from annotated_types import MaxLen

from pytest_cgins.config import Declared, ProbeException, Ranks, Repeatability, Tolerance
from pytest_cgins.config.kernel import Claim
from pytest_cgins.core import documents
from pytest_cgins.core.buffers import Buffer
from pytest_cgins.core.case import Case, CompiledKernel, OperatorCheck
from pytest_cgins.core.device import DeviceName
from pytest_cgins.core.document_base import Document
from pytest_cgins.core.errors import ProtocolError
from pytest_cgins.core.measurement import JitCompilations, TunedConfig
from pytest_cgins.core.session_report import Environment
from pytest_cgins.core.trace import Context, OpCall, TensorMeta
from pytest_cgins.core.verdict import Check, Correctness, Reason
from pytest_cgins.timing.measured_peaks import MeasuredPeaks
from pytest_cgins.verify.probes.registry import ALWAYS, PREPARED

T = TypeVar("T")
Served = Callable[[Any, Any, list[Buffer]], tuple[Any, list[Buffer]]]

Header = dict[str, Any]
"""How tensors lie in a buffer: made and checked by `core.tensors`."""
Facts = dict[str, Any]
"""What probes saw, by probe: checked by `verify.probe_verdicts`."""
_Text = Annotated[str, MaxLen(2**17)]
"""Twice what `building.loading.exceptions` leaves of a kernel's own words."""
Tuned = Annotated[tuple[TunedConfig, ...], MaxLen(64)]

SHOWN = 600
"""Characters of a text that is shown."""
_SHOWN_FIELD = 100


def read(message: type[T], value: Any) -> T:
    """A message from JSON values.

    Raises:
        ValueError: it is not such a message. The text says which field is wrong, and shows little of what was sent.
    """
    from pydantic import ValidationError

    try:
        return documents.load_python(message, value)
    except ValidationError as error:
        wrong = error.errors(include_url=False, include_input=False, include_context=False)[0]
        where = ".".join(map(str, wrong["loc"]))[:_SHOWN_FIELD]
        raise ValueError(f"{message.__name__} {where}: {wrong['msg'][:SHOWN]}") from None
    except (TypeError, RecursionError) as error:
        raise ValueError(f"{message.__name__} cannot be read: {type(error).__name__}") from None


def serves(request: type[T]) -> Callable[[Callable[..., Any]], Served]:
    """Make a method of a service what `run.worker` calls: from JSON to JSON.

    Its parameters are none, a message, or one and buffers; it gives a message, or one and buffers.
    """

    def around(method: Callable[..., Any]) -> Served:
        count = len(inspect.signature(method).parameters) - 1

        @wraps(method)
        def served(service: Any, params: Any, buffers: list[Buffer]) -> tuple[Any, list[Buffer]]:
            try:
                asked = read(request, params)
            except ValueError as error:
                raise ProtocolError(f"what {method.__name__!r} was asked is malformed: {error}") from error
            answer = method(service, *(asked, buffers)[:count])
            message, results = answer if isinstance(answer, tuple) else (answer, [])
            return documents.dump_python(message), results

        return served

    return around


@dataclass(frozen=True, slots=True)
class EmptyMessage(Document):
    """A request or an answer without content."""


# ---- sets of inputs, and kernels that are run on them


@dataclass(frozen=True, slots=True, kw_only=True)
class LargeTrial(Document):
    """How a set becomes a large call, of the probe `large_indices`: its rows are repeated, or lie far apart."""

    batched: tuple[int, ...]
    """Tensors that have the rows."""
    axis: int
    """The outputs' dimension that numbers rows."""
    rows: int
    """Rows of the set."""
    apart: bool
    """Whether they lie apart; else they are repeated."""
    sizes: tuple[int, ...]
    """Rows of the large call, or elements from one row to the next: the first that memory allows."""
    units: dict[str, int]
    """Elements and bytes of each tensor in a row; of rows that lie apart in one of these elements."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedInputs(Document):
    """One set of a case's inputs; its tensors' bytes are in a buffer."""

    name: str
    """For a worker that runs kernels, a word that tells nothing."""
    call: OpCall
    tensors: Header
    """Layout of the set's argument tensors."""
    outputs: tuple[TensorMeta, ...]
    """What a launcher's outputs are allocated by."""
    context: Context = field(default_factory=Context)
    mutated: tuple[int, ...] = ()
    """Indices of the tensors that the op itself changes."""
    probe: str = ""
    """The probe that it is there for alone; a worker that runs kernels does not learn it."""
    once: bool = False
    """Whether probes do not run it again."""
    op_calls: dict[str, int] = field(default_factory=dict)
    """What torch's own op runs, if a probe wants to know."""
    large: LargeTrial | None = None
    """How it becomes a large call, if it is to."""

    @property
    def metas(self) -> tuple[TensorMeta, ...]:
        """How the argument tensors lie."""
        return tuple(documents.load_python(TensorMeta, meta) for meta in self.tensors["metas"])


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelRequest(Document):
    """A kernel, and what it is run on."""

    kernel: CompiledKernel
    device: str
    """`cpu` or `cuda:0`."""
    sets: tuple[PackedInputs, ...] = ()
    """One a buffer."""
    import_root: str = ""
    """Folder that the op's module is imported from."""
    probes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RunKernel(KernelRequest):
    """Run a kernel on each set, and again in the ways that probes want."""

    ordinary: bool = False
    """Put nothing around outputs, and hide our own modules: the process is as a program's own, and no good for others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckOperator(KernelRequest):
    """Look at how a kernel that is a torch operator is registered; its sets differ in their numbers alone."""

    check: OperatorCheck
    followed: tuple[int, ...] = ()
    """Tensors that required gradients when the call was recorded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorFinding(Document):
    """What came of one check of an operator."""

    reason: Reason
    """`ok`, or what is wrong; `not-applicable` where it says nothing of this call."""
    message: _Text = ""
    """For a person; "" where nothing is wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RaisedError(Document):
    """What a kernel raised, or died of."""

    kind: _Text
    """Class of the exception."""
    message: _Text
    remedy: _Text = ""
    """What to do about an error of ours."""
    trace: _Text = ""
    """The end of its traceback."""
    phase: Literal["load", "bind", "run", "died"] = "run"
    """`bind`: arguments are matched; no code of the kernel runs but a launcher's `_workspace`. `died` is said by the parent."""
    others_nbytes: int = 0
    """Where memory ran out: what other processes held of the device's then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer(Document):
    """An answer of a kernel to a set of inputs. With an error there are no tensors."""

    name: str
    tensors: Header
    """Outputs, and after them the mutated inputs."""
    error: RaisedError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SetAnswer(Answer):
    """The first one."""

    devices: tuple[str, ...] = ()
    """Where they lie, one a tensor."""
    inputs_changed: tuple[int, ...] = ()
    """Tensors that the kernel changed though the op does not."""
    overrun: _Text = ""
    """What was written outside of outputs."""
    unlike: tuple[_Text, ...] = ()
    """Outputs that are no plain tensors: see `verify.probes.plain_outputs`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviantAnswer(Answer):
    """A later answer that is not the first one: see `verify.probes.rerun.Deviation`."""

    probe: str
    reused: bool = False
    about: _Text = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelAnswers(Document):
    """What a kernel gave; one buffer a set, and then one a deviation."""

    sets: tuple[SetAnswer, ...]
    """Answers to the sets, in the order in which these were sent."""
    deviations: tuple[DeviantAnswer, ...] = ()
    observed: Facts = field(default_factory=dict)
    tuned: Tuned = ()
    jit: JitCompilations | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinRanks(Document):
    """Join the processes that call a kernel, or the op, together: they become torch's default group."""

    rank: int
    """Number of the process that is asked."""
    count: int
    device: str
    folder: str
    """Where they find each other."""
    limit_s: float
    """Limit of a request."""


# ---- the reference worker, which runs no kernel


@dataclass(frozen=True, slots=True, kw_only=True)
class PrepareOptions:
    """What a kernel's entry in cgins.yaml asks of the preparation of a trace; kernels with equal ones share it."""

    probes: tuple[str, ...] = ()
    claims: tuple[Claim, ...] = ()
    """What the kernel is said to take beyond what was recorded."""
    declared: Declared = field(default_factory=Declared)
    """What the user says of the op."""
    allow_tf32: bool = False
    """Whether fp32 products of inputs rounded to TF32 are right."""
    interpreted: bool = False
    """Whether the kernel runs in Triton's interpreter, which takes a millisecond for what others do at once."""
    reference: str = ""
    """Qualified name of the function that stands for the op; "" for the op itself."""
    gold_alone: bool = False
    """Whether nothing but the recorded gold tells what is right."""
    stopping: tuple[str, ...] = ()
    """Sets, `fresh`, `edge` or a probe's, that are left out since torch's own code stops the device on them."""
    ranks: Ranks = field(default_factory=Ranks)
    """Processes that call it together."""
    rank: int = 0
    """The one that is asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseRequest(PrepareOptions, Document):
    """What the reference worker must know to prepare and to judge a case."""

    case: Case
    tolerance: Tolerance
    seed: int
    """Seed of the fresh inputs."""
    import_root: str = ""
    """Folder that the op's module is imported from."""
    probes: tuple[str, ...] = ALWAYS
    exceptions: tuple[ProbeException, ...] = ()
    """What the kernel is excused from."""
    repeatability: Repeatability = field(default_factory=Repeatability)
    """How far its answers may differ from each other."""
    large_case: str = ""
    """The case that makes the large calls of `large_indices` instead; "" for this one."""
    untimed: str = "the kernel was not timed"
    """Why it will not be timed, for the probes of timing."""

    @property
    def options(self) -> PrepareOptions:
        """What it asks of the preparation: of its probes those that have sets of inputs."""
        options = {field.name: getattr(self, field.name) for field in fields(PrepareOptions)}
        own = PREPARED - ({"large_indices"} if self.large_case else set())
        return PrepareOptions(**{**options, "probes": tuple(name for name in self.probes if name in own)})


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareAnswers(Document):
    """Compare answers of two environments to the same sets; the buffers are those of both, one after the other."""

    first: KernelAnswers
    """The base's."""
    second: KernelAnswers
    """The kernel's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift(Document):
    """How far answers lie from each other."""

    elements: int
    differing: int
    """How many of them differ in a bit, other than one NaN from another."""
    greatest: float
    """Greatest distance, over the greatest magnitude of its output; infinite where only one of both is finite."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedCase(Document):
    """The inputs of a case; one buffer a set."""

    drift: str | None
    """How torch no longer gives what was recorded; then there are no sets."""
    sets: tuple[PackedInputs, ...]
    """The deciding sets and the probes' sets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeAnswers(Document):
    """Compare a kernel's answers; the buffers are those of `answers`."""

    case_request: CaseRequest
    """The request that the case was prepared with."""
    answers: KernelAnswers
    """Under the sets' own names."""


@dataclass(frozen=True, slots=True)
class Judgement(Document):
    """What was found of a kernel's answers. A set without an answer is a failed check."""

    correctness: Correctness
    wrong: dict[str, tuple[Check, ...]] = field(default_factory=dict)
    """The first failed check of each set that was answered wrongly, by probe, of those that saw nothing else."""


@dataclass(frozen=True, slots=True)
class FirstFailure(Document):
    """The first check that a kernel fails on the sets that decide, and on others that it was asked again."""

    check: Check | None


@dataclass(frozen=True, slots=True, kw_only=True)
class AskOutputs(Document):
    """Ask for the layouts of what torch returns for a call; the buffer holds its tensors."""

    call: OpCall
    tensors: Header
    context: Context = field(default_factory=Context)
    device: str = "cpu"
    import_root: str = ""
    """Folder that the op's module is imported from."""


@dataclass(frozen=True, slots=True)
class OutputMetas(Document):
    """How torch's outputs lie."""

    outputs: tuple[TensorMeta, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine(Document):
    """The devices of this machine."""

    environments: dict[str, Environment]
    """Environments by `cpu` and `cuda`."""
    locks: dict[str, str]
    """The name of each device, `cpu`, `cuda:0`, …, for `timing.lock`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileRequest(Document):
    """Count and time what torch runs for the traces of a pack."""

    pack: str
    """Its folder."""
    device: DeviceName
    """`cpu` or `cuda`."""
    import_root: str
    """Folder that ops' modules are imported from."""


@dataclass(frozen=True, slots=True)
class DevicePeak(Document):
    """What a device reaches; None where even a copy fails, for want of memory."""

    peaks: MeasuredPeaks | None
