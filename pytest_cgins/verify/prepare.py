"""Everything that is known of a trace before a kernel answers: inputs, torch's answers, gold, drift."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial

import torch
from torch import Tensor

from pytest_cgins.config import Declared, Tolerance
from pytest_cgins.core.bitwise import equal
from pytest_cgins.core.errors import (
    CginsError,
    ConfigError,
    InfrastructureError,
    PackError,
    RandomOp,
    ReferenceStopped,
    ReplayError,
    TraceError,
)
from pytest_cgins.core.failure_kinds import cause_of, stops_device
from pytest_cgins.core.layout import lay_out, rebuild
from pytest_cgins.core.text import first_line
from pytest_cgins.core.trace import Context, OpCall, Trace
from pytest_cgins.core.verdict import GOLD_ALONE, ForgeryCheck, Reason
from pytest_cgins.packs.call import relocate
from pytest_cgins.packs.ops import declared_of
from pytest_cgins.packs.recipe import BlobSource
from pytest_cgins.packs.replay import load_inputs, recording_device
from pytest_cgins.verify import coupled, forgery_check, inputs, probe_inputs, random_outputs, sign_trial
from pytest_cgins.verify.expected import ExpectedOutput, gold_drift, gold_elements
from pytest_cgins.verify.input_sets import InputSet, InputSetBuilder, reference_set
from pytest_cgins.verify.messages import PrepareOptions
from pytest_cgins.verify.op_calls import multiplies, op_calls, rounds
from pytest_cgins.verify.probes import invariance, sizes
from pytest_cgins.verify.proven_couplings import proven
from pytest_cgins.verify.quantization import GRIDS
from pytest_cgins.verify.random_outputs import Domain
from pytest_cgins.verify.rank_mistakes import RankedAnswers
from pytest_cgins.verify.reference import REFUSALS, memory_taken
from pytest_cgins.verify.semantics import Semantics, check_names, chooses, semantics_for
from pytest_cgins.verify.size_search import ProbedCall

_SHOWN = 4
_ATTEMPTS = 6
"""How often few fresh elements are drawn at most: of six numbers, relu drops all in one draw of fourteen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Preparation:
    """One trace on one device with one seed; any number of kernels can be judged by it."""

    trace: Trace
    sets: tuple[InputSet, ...]
    """`recorded` first, then `fresh` and `edge`, then those of probes."""
    notes: tuple[str, ...]
    """What a reader must know: a rule that does not apply, a reference that is not fp64."""
    builder: InputSetBuilder
    """Made the sets, and makes torch's answers to others."""
    at_origin: Callable[[], tuple[ExpectedOutput, ...]]
    """What is expected of the recorded inputs on the type of device that recorded them."""
    not_run: Mapping[str, str] = field(default_factory=dict)
    """Why a probe has no sets, by its name."""
    powers: dict[Tolerance, tuple[ForgeryCheck, ...]] = field(default_factory=dict)
    """The power check by tolerance; no kernel takes part in it, so it is made once."""
    gold_alone: bool = False
    """Whether nothing but the recorded gold tells what is right: the op cannot be run here."""
    reference: str = ""
    """Name of the function that stands for the op; "" for the op itself."""
    calls: list[dict[str, int]] = field(default_factory=list)
    """What `op_calls` found, once it was asked for."""
    ranked: RankedAnswers | None = None
    """What is known beside of a call that several ranks make together."""

    @property
    def core(self) -> tuple[InputSet, ...]:
        """The sets that decide whether a kernel is right: those of no probe."""
        return tuple(input_set for input_set in self.sets if not input_set.probe)

    @property
    def reference_set(self) -> InputSet:
        """The set whose numbers are those of other sets: `fresh`, or the first."""
        return reference_set(self.core)

    @property
    def call(self) -> OpCall:
        """The trace's call, with device arguments set to the case's device."""
        return self.sets[0].call

    @property
    def context(self) -> Context:
        """The trace's context."""
        return self.sets[0].context

    @property
    def nbytes(self) -> int:
        """Memory held, in bytes."""
        return sum(input_set.nbytes + input_set.expected.nbytes for input_set in self.sets)

    def drift(self, tolerance: Tolerance, device: str) -> str:
        """How torch fails to reproduce the gold; "" if it does, or if there is none."""
        if self.gold_alone:
            return ""
        outputs = self.sets[0].expected.outputs
        return gold_drift(
            outputs, tolerance, self.trace.origin, device, self.at_origin, reference=self.reference
        )

    def op_calls(self, device: str) -> dict[str, int]:
        """The operators that torch's own op runs on the first set; none if they cannot be seen."""
        if not self.calls and not self.gold_alone:
            try:
                self.calls.append(op_calls(self.call, self.sets[0].layout, self.context, device))
            except REFUSALS:
                self.calls.append({})
        return self.calls[0] if self.calls else {}

    def memory_taken(self, name: str, device: str) -> int:
        """Bytes that torch's own op takes on a set of inputs; 0 if there is no such set."""
        input_set = next((input_set for input_set in self.sets if input_set.expected.name == name), None)
        if input_set is None or self.gold_alone:
            return 0
        return memory_taken(input_set.call, input_set.layout, input_set.context, device)

    def power(self, tolerance: Tolerance) -> tuple[ForgeryCheck, ...]:
        """What the case can tell from the right answer."""
        if tolerance not in self.powers:
            self.powers[tolerance] = forgery_check.check(
                [input_set.expected for input_set in self.core], tolerance
            )
        return self.powers[tolerance]


def prepare(  # noqa: PLR0917
    trace: Trace,
    source: BlobSource,
    device: str,
    seed: int,
    options: PrepareOptions = PrepareOptions(),  # noqa: B008 - it is frozen
    others: Sequence[OpCall] = (),
) -> Preparation:
    """Make the input sets of a trace and torch's answers to them.

    By default these are the sets that decide, and those alone; `others` were recorded of the op as well.

    Raises:
        ConfigError: if the entry speaks of an argument that the call does not have, or its reference is not of the op.
        PackError: if the pack's inputs cannot be read, or a recipe makes other bytes on this host.
        ReferenceStopped: if torch's own code stops the device on a set that is not left out for that.
        InfrastructureError: if the device has no memory left for torch's own answers.
        RandomOp: if the op draws random numbers, and nobody says which outputs these are.
        ReplayError: if torch does not run the recorded call on this device.
    """
    check_names(trace.call, options.declared)
    if options.gold_alone:
        return _by_gold_alone(trace, source, device, options)
    if trace.call.op != options.reference != "":
        return _by_reference(trace, source, device, seed, options, others)
    options = replace(options, declared=options.declared | declared_of(trace.call.op))
    semantics, key = semantics_for(trace.call, options.declared), f"{seed}/{trace.id}"
    drawn = _drawn(trace, semantics)
    builder = InputSetBuilder(
        trace,
        relocate(trace.call, device),
        device,
        mutable=semantics.mutated(trace.call),
        random=drawn,
        declared=options.declared,
    )
    sets: list[InputSet] = []
    notes = _not_compared(trace)
    if options.reference:
        notes.append(f"{options.reference} is the reference: it stands for the op")
    if drawn:
        notes.append(random_outputs.described(sorted(drawn)))
    recorded = recorded_inputs(trace, source)
    if trace.gold is None:
        notes.append("the pack has shapes only: there is no gold, and rule 1 does not apply")
    else:
        if options.allow_tf32:
            builder = _with_tf32(builder, recorded, notes)
        try:
            sets.append(builder.make("recorded", recorded, gold_elements(trace, source, device)))
        except REFUSALS as error:
            raise refused(trace, device, error) from error
    if couplings := proven(builder, recorded):
        options = replace(options, declared=options.declared | Declared(coupled=couplings))
        builder = replace(builder, declared=options.declared)
        notes += [f"torch's answers prove that {one.argument} holds {one.kind}" for one in couplings]
    drawn_sets, told = _CoreSets(builder, recorded, key, options.stopping, next(iter(sets), None)).make()
    sets += drawn_sets
    notes += told
    notes += dict.fromkeys(note for input_set in sets if (note := input_set.expected.note))
    _check_numbers(drawn, options.declared, sets[0], trace.call)
    builder = replace(builder, coarseness=_coarseness(sets))
    probed = ProbedCall(
        builder=builder,
        recorded=recorded,
        reference_set=reference_set(sets),
        key=key,
        others=others,
        claims=tuple(claim for claim in options.claims if claim != invariance.CLAIM),
        recorded_sizes_only=sizes.NAME not in options.probes,
        interpreted=options.interpreted,
    )
    probing, not_run, told = probe_inputs.make(probed, options.probes, stopping=options.stopping)
    sets += probing
    notes += told
    return Preparation(
        trace=trace,
        sets=tuple(sets),
        notes=tuple(notes),
        not_run=not_run,
        builder=builder,
        at_origin=lambda: _at_origin(trace, source),
        reference=options.reference,
    )


def recorded_inputs(trace: Trace, source: BlobSource) -> list[Tensor]:
    """The inputs as they were recorded; zeros where the pack has shapes only."""
    if trace.gold is not None:
        return load_inputs(trace, source, "cpu")
    blank = [torch.zeros(storage.nbytes, dtype=torch.uint8) for storage in trace.storages]
    return rebuild(trace.tensors, blank, "cpu")


def _by_reference(  # noqa: PLR0917
    trace: Trace,
    source: BlobSource,
    device: str,
    seed: int,
    options: PrepareOptions,
    others: Sequence[OpCall],
) -> Preparation:
    """`prepare` with a function that is the op from here on."""
    op = options.reference
    try:
        return prepare(
            replace(trace, call=replace(trace.call, op=op)),
            source, device, seed, options, [replace(call, op=op) for call in others],
        )  # fmt: skip
    except TraceError as error:
        if isinstance(error, PackError | RandomOp):
            raise
        raise ConfigError(
            f"reference {op} does not stand for {trace.call.op}: {error.what}",
            remedy="have it take the operator's arguments as the recorded call passes them, change the same ones, and return "
            "the same",
        ) from error


def _by_gold_alone(trace: Trace, source: BlobSource, device: str, options: PrepareOptions) -> Preparation:
    """The recorded inputs and their gold: the op is the code of others, maybe the very code that is gated."""
    semantics = semantics_for(trace.call, options.declared)
    if trace.gold is None or _drawn(trace, semantics):
        why = "the pack has shapes only" if trace.gold is None else "its outputs are random"
        raise ReplayError(
            f"nothing tells what is right of {trace.call.op}: {why}, and its kernel has no reference",
            remedy="name a function of torch that computes the same, reference: MODULE:FUNCTION, or record values",
        )
    builder = InputSetBuilder(
        trace, relocate(trace.call, device), device, tf32=options.allow_tf32, declared=options.declared
    )
    recorded = builder.from_gold(load_inputs(trace, source, "cpu"), gold_elements(trace, source, device))
    return Preparation(
        trace=trace,
        sets=(recorded,),
        notes=(*_not_compared(trace), GOLD_ALONE),
        not_run=dict.fromkeys(
            options.probes, "there is no reference to tell the right answers to other inputs"
        ),
        builder=builder,
        at_origin=tuple,
        gold_alone=True,
    )


@dataclass(frozen=True, slots=True)
class _CoreSets:
    """Makes the sets that decide, beside the recorded one."""

    builder: InputSetBuilder
    recorded: Sequence[Tensor]
    key: str
    """Seed of the session and name of the trace."""
    stopping: Sequence[str]
    """See `PrepareOptions`."""
    first: InputSet | None
    """The recorded set, if there is one."""

    def make(self) -> tuple[list[InputSet], list[str]]:
        """The sets of fresh, of edge and of coupled inputs, and what is to be said of them."""
        sets: list[InputSet] = []
        notes: list[str] = []
        for name in ("fresh", "edge"):
            if name in self.stopping:
                notes.append(f"no {name} inputs: {probe_inputs.STOPPED}")
                continue
            first = self.first or next(iter(sets), None)
            try:
                drawn, told = self._draw(name, first)
            except REFUSALS as error:
                if first is None or _lacks_memory(error):
                    raise refused(self.builder.trace, self.builder.device, error) from error
                if stops_device(error):
                    raise ReferenceStopped(name) from error
                told = [f"no {name} inputs: torch refuses them ({first_line(error)})"]
            else:
                sets += drawn
            notes += told
        edges, told = self._coupled_edges()
        ties = self._ties(self.first or next(iter(sets), None)) if not self.stopping else []
        return [*sets, *edges, *ties], [*notes, *told]

    @property
    def _is_legal(self) -> bool:
        """Whether the recorded integers are a call's."""
        return self.builder.trace.gold is not None

    def _draw(self, name: str, first: InputSet | None) -> tuple[list[InputSet], list[str]]:
        """The set of fresh or of edge inputs, if there is one, and what is to be said of it.

        Raises:
            Exception: whatever the op raises on them.
        """
        call, declared = self.builder.trace.call, self.builder.declared
        if name == "edge" and first is not None and first.returns_integers:
            # Rows of equal numbers have no one right index of their greatest.
            return [], ["no edge inputs: the op returns integers, and ties may be broken either way"]
        if name == "edge" and chooses(call):
            why = "the gradient goes to chosen elements, and ties may be broken either way"
            return [], [f"no edge inputs: {why}"]
        drawn_by = inputs.fresh if name == "fresh" else inputs.edge
        draw = partial(drawn_by, call, self.recorded, legal=self._is_legal)
        if name == "fresh" and first is not None and not call.op.startswith("torch."):
            draw = partial(draw, positions=first.returns_integers)
        tensors = draw(self.key, declared)
        if first is not None and all(map(equal, tensors, self.recorded)):
            why = "all arguments are integers, indices or masks and stay as recorded"
            return [], [f"no {name} inputs: {why}"]
        if name == "fresh":
            return self._fresh(tensors, lambda again: draw(again, declared))
        make, semantics = partial(self.builder.make, name), self.builder.semantics
        input_set, told = forgery_check.edge_set(make, partial(draw, self.key, declared), semantics)
        return [input_set], told

    def _fresh(
        self, drawn: list[Tensor], redraw: Callable[[str], list[Tensor]]
    ) -> tuple[list[InputSet], list[str]]:
        """The set of fresh inputs; few elements are drawn again while torch's answer to them is one that can be forged."""
        for attempt in range(1, _ATTEMPTS + 1):
            tensors, signed = sign_trial.spread(self.builder, drawn, self.key)
            input_set = self.builder.make("fresh", tensors)
            if attempt == _ATTEMPTS or not forgery_check.forged_by_chance(input_set.expected):
                break
            drawn = redraw(f"{self.key}/{attempt}")
        return [input_set], [sign_trial.note(signed)] if signed else []

    def _coupled_edges(self) -> tuple[list[InputSet], list[str]]:
        """The sets in which arguments that belong together go to their edges, and what is to be said of them.

        Those on which a wrong answer would pass are drawn once more.
        """
        builder, sets, notes = self.builder, dict[str, InputSet](), list[str]()
        call = builder.trace.call
        count = coupled.edge_count(builder.semantics, call, self.recorded)
        if "coupled" in self.stopping and count:
            return [], [f"no edges of coupled arguments: {probe_inputs.STOPPED}"]
        for number in range(count):
            try:
                for lots in (self.key, f"{self.key}/again"):
                    like, tensors = inputs.coupled_edge(
                        call, self.recorded, lots, builder.declared, number, legal=self._is_legal
                    )
                    if like in ("", *sets):
                        break
                    input_set = builder.make(like, tensors)
                    blind = forgery_check.blind_to(input_set.expected)
                    if not blind or lots != self.key:
                        sets[like] = input_set
                        notes += [f"{like}: {blind}, so these inputs prove nothing"] if blind else []
                        break
            except REFUSALS as error:
                if stops_device(error):
                    raise ReferenceStopped("coupled") from error
                notes.append(
                    f"no inputs with edge {number} of coupled arguments: torch refuses them ({first_line(error)})"
                )
        return list(sets.values()), notes

    def _ties(self, first: InputSet | None) -> list[InputSet]:
        """The set on which all that rounds meets ties, if the op is exact there; of products kernels may not be."""
        builder = self.builder
        if first is None or builder.random or builder.semantics.indices(builder.call):
            return []
        quantises = any(output.answer.dtype in GRIDS for output in first.expected.outputs)
        with suppress(*REFUSALS):
            if rounds(builder.call, first.layout, first.context, builder.device, known=quantises):
                tensors = inputs.halves(builder.call, self.recorded, f"{self.key}/ties", builder.declared)
                return [builder.make("exact ties", tensors, exact=True)]
        return []


def _drawn(trace: Trace, semantics: Semantics) -> dict[int, Domain]:
    """The random outputs of a trace, with their domains."""
    draws = trace.context.rng_seed is not None
    drawn = semantics.random(trace.call, draws=draws)
    if draws and not drawn:
        raise RandomOp(
            f"{trace.call.op} draws random numbers from torch's generator in this call, and a kernel has its own",
            remedy="say which outputs are random (semantics: {outputs: {0: random}}), or make the seed an argument: "
            "decorate with @pytest_cgins.mark a function that computes its mask from a seed it is given, and gate that",
        )
    return drawn


def _check_numbers(
    drawn: Mapping[int, object], declared: Declared, input_set: InputSet, call: OpCall
) -> None:
    outputs = input_set.expected.outputs
    said = {
        **dict.fromkeys(drawn, "is random"),
        **{index.number: "holds indices" for index in declared.indices},
    }
    for number, what in said.items():
        if number >= len(outputs):
            raise ConfigError(
                f"semantics says that output {number} of {call.op} {what}, and it has {len(outputs)}",
                remedy=f"count from 0: the last one is {len(outputs) - 1}",
            )
        if number not in drawn and outputs[number].indices is None:
            dtype = str(outputs[number].answer.dtype).removeprefix("torch.")
            raise ConfigError(
                f"semantics says that output {number} of {call.op} holds indices, and it is {dtype}",
                remedy="write the number of an output of integers, counted from 0",
            )


def _with_tf32(builder: InputSetBuilder, recorded: Sequence[Tensor], notes: list[str]) -> InputSetBuilder:
    """A builder that lets TF32 pass, if the op multiplies at all."""
    layout = lay_out(recorded, copy=False)
    try:
        allowed = multiplies(builder.call, layout, builder.trace.context, builder.device)
    except REFUSALS:
        return builder  # it will say so when the recorded set is made
    if not allowed:
        return builder
    notes.append("products of inputs rounded to TF32 are allowed (cgins.yaml: precision)")
    return replace(builder, tf32=True)


def _coarseness(core: Sequence[InputSet]) -> dict[int, float]:
    """`Scale.coarseness` of each output on the inputs that show most of it."""
    most: dict[int, float] = {}
    for output in (output for one in core for output in one.expected.outputs):
        if output.scale is not None:
            most[output.index] = max(most.get(output.index, 1.0), output.scale.coarseness)
    return most


def _not_compared(trace: Trace) -> list[str]:
    names = trace.rebound
    if not names:
        return []
    shown = [*names[:_SHOWN], *([f"{len(names) - _SHOWN} more"] if len(names) > _SHOWN else [])]
    return [f"the op also sets {', '.join(shown)}, which {'are' if len(names) > 1 else 'is'} not compared"]


def _at_origin(trace: Trace, source: BlobSource) -> tuple[ExpectedOutput, ...]:
    device = recording_device(trace)
    builder = InputSetBuilder(trace, relocate(trace.call, device), device)
    recorded = load_inputs(trace, source, "cpu")
    return builder.make("recorded", recorded, gold_elements(trace, source, device)).expected.outputs


def _lacks_memory(error: Exception) -> bool:
    return cause_of(type(error).__name__, str(error)) is Reason.OUT_OF_MEMORY


def refused(trace: Trace, device: str, error: Exception) -> CginsError:
    """What to raise where torch does not run a call."""
    if _lacks_memory(error):
        return InfrastructureError(
            f"no memory is left on {device} for torch's own answers to {trace.call.op}: {str(error).splitlines()[0]}",
            remedy="end what else holds the device's memory, have fewer runs share it, or leave this trace out there",
        )
    return ReplayError(
        f"torch {torch.__version__} does not run the recorded call of {trace.call.op} on {device}: {error}",
        remedy="record the pack again with this torch, or leave this trace out",
    )
