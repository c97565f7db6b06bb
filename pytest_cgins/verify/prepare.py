"""Everything that is known of a trace before a kernel answers: inputs, torch's answers, gold, drift."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from pytest_cgins.config import Tolerance
from pytest_cgins.errors import RandomOp, ReplayError
from pytest_cgins.model import Context, OpCall, Power, TensorMeta, Trace
from pytest_cgins.trace.call import relocate
from pytest_cgins.trace.layout import Layout, dtype_name, lay_out, rebuild
from pytest_cgins.trace.replay import load_inputs, recording_device
from pytest_cgins.trace.source import BlobSource
from pytest_cgins.verify import gold, inputs, power
from pytest_cgins.verify import tolerance as rules
from pytest_cgins.verify.compare import ExpectedSet
from pytest_cgins.verify.expected import ExpectedOutput, GoldElements, as_real
from pytest_cgins.verify.reference import Answers, answers
from pytest_cgins.verify.semantics import chooses

_SHOWN = 4
# What torch raises on arguments that it does not take.
_REFUSALS = (RuntimeError, TypeError, ValueError, IndexError, NotImplementedError)


@dataclass(frozen=True, slots=True, kw_only=True)
class InputSet:
    """One set of inputs and what is expected on it."""

    layout: Layout
    """The argument tensors, on the CPU."""
    outputs: tuple[TensorMeta, ...]
    """Dense layouts for the returned tensors, one storage each: what a launcher writes into."""
    mutated: tuple[int, ...]
    """Indices of the argument tensors that the op changes."""
    expected: ExpectedSet
    """What is expected, on the case's device."""
    call: OpCall
    """The call, with device arguments set to the case's device."""
    context: Context
    """Its context."""
    probe: str = ""
    """The probe that it is there for; "" if it decides whether the kernel is right."""

    @property
    def returns_integers(self) -> bool:
        """Whether a returned tensor holds indices, mostly; one that is changed in place is a counter, mostly."""
        return any("int" in meta.dtype for meta in self.outputs)


@dataclass(frozen=True, slots=True, kw_only=True)
class Preparation:
    """One trace on one device with one seed; any number of kernels can be judged by it."""

    trace: Trace
    """The trace."""
    sets: tuple[InputSet, ...]
    """`recorded` first, then `fresh` and `edge`, then those of probes."""
    notes: tuple[str, ...]
    """What a reader must know: a rule that does not apply, a reference that is not fp64."""
    at_origin: Callable[[], tuple[ExpectedOutput, ...]]
    """What is expected of the recorded inputs on the type of device that recorded them."""
    powers: dict[Tolerance, tuple[Power, ...]] = field(default_factory=dict)
    """The power check by tolerance; no kernel takes part in it, so it is made once."""

    @property
    def core(self) -> tuple[InputSet, ...]:
        """The sets that decide whether a kernel is right: those of no probe."""
        return tuple(made for made in self.sets if not made.probe)

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
        spans = sum(span.nbytes for made in self.sets for span in made.layout.spans)
        return spans + sum(made.expected.nbytes for made in self.sets)

    def drift(self, tolerance: Tolerance, device: str) -> str:
        """How torch fails to reproduce the gold; "" if it does, or if there is none."""
        outputs = self.sets[0].expected.outputs
        return gold.drift(outputs, tolerance, self.trace.origin, device, self.at_origin)

    def power(self, tolerance: Tolerance) -> tuple[Power, ...]:
        """What the case can tell from the right answer."""
        if tolerance not in self.powers:
            self.powers[tolerance] = power.check([made.expected for made in self.core], tolerance)
        return self.powers[tolerance]


def prepare(trace: Trace, source: BlobSource, device: str, seed: int) -> Preparation:
    """Make the input sets of a trace and torch's answers to them.

    Raises:
        PackError: if the pack's inputs cannot be read, or a recipe makes other bytes on this host.
        RandomOp: if the op draws random numbers.
        ReplayError: if torch does not run the recorded call on this device.
    """
    if trace.context.rng_seed is not None:
        raise RandomOp(
            f"{trace.call.op} draws random numbers from torch's generator in this call, and a kernel has its own",
            remedy="make the seed an argument: decorate with @pytest_cgins.mark a function that computes its "
            "mask from a seed it is given, and gate that",
        )
    maker = _Maker(trace, relocate(trace.call, device), device)
    sets: list[InputSet] = []
    notes = _not_compared(trace)
    if trace.gold is None:
        recorded = _blank(trace)
        notes.append("the pack has shapes only: there is no gold, and rule 1 does not apply")
    else:
        recorded = load_inputs(trace, source, "cpu")
        try:
            sets.append(maker.make("recorded", recorded, gold.load(trace, source, device)))
        except _REFUSALS as error:
            raise _refused(trace, device, error) from error
    for name, new in (("fresh", inputs.fresh), ("edge", inputs.edge)):
        if name == "edge" and sets and sets[0].returns_integers:
            # Rows of equal numbers have no one right index of their greatest.
            notes.append("no edge inputs: the op returns integers, and ties may be broken either way")
            continue
        if name == "edge" and chooses(trace.call):
            notes.append(
                "no edge inputs: the gradient goes to chosen elements, and ties may be broken either way"
            )
            continue
        tensors = new(trace.call, recorded, f"{seed}/{trace.id}")
        if sets and _equal(tensors, recorded):
            notes.append(
                f"no {name} inputs: all arguments are integers, indices or masks and stay as recorded"
            )
            continue
        try:
            sets.append(maker.make(name, tensors, ()))
        except _REFUSALS as error:
            if not sets:
                raise _refused(trace, device, error) from error
            notes.append(f"no {name} inputs: torch refuses them ({str(error).splitlines()[0]})")
    notes += dict.fromkeys(note for made in sets if (note := made.expected.note))
    return Preparation(
        trace=trace,
        sets=tuple(sets),
        notes=tuple(notes),
        at_origin=lambda: _at_origin(trace, source),
    )


def _not_compared(trace: Trace) -> list[str]:
    names = trace.rebound
    if not names:
        return []
    shown = [*names[:_SHOWN], *([f"{len(names) - _SHOWN} more"] if len(names) > _SHOWN else [])]
    return [f"the op also sets {', '.join(shown)}, which {'are' if len(names) > 1 else 'is'} not compared"]


def _at_origin(trace: Trace, source: BlobSource) -> tuple[ExpectedOutput, ...]:
    device = recording_device(trace)
    maker = _Maker(trace, relocate(trace.call, device), device)
    recorded = load_inputs(trace, source, "cpu")
    return maker.make("recorded", recorded, gold.load(trace, source, device)).expected.outputs


def _equal(tensors: Sequence[Tensor], others: Sequence[Tensor]) -> bool:
    return all(torch.equal(one, other) for one, other in zip(tensors, others, strict=True))


def _blank(trace: Trace) -> list[Tensor]:
    """The argument tensors of a trace that kept their shapes only, filled with zeros."""
    spans = [torch.zeros(storage.nbytes, dtype=torch.uint8) for storage in trace.storages]
    return rebuild(trace.tensors, spans, "cpu")


def _refused(trace: Trace, device: str, error: Exception) -> ReplayError:
    return ReplayError(
        f"torch {torch.__version__} does not run the recorded call of {trace.call.op} on {device}: {error}",
        remedy="record the pack again with this torch, or leave this trace out",
    )


@dataclass(frozen=True, slots=True)
class _Maker:
    """Makes the input sets of one trace on one device."""

    trace: Trace
    call: OpCall
    device: str

    def make(self, name: str, tensors: Sequence[Tensor], gold_of: Sequence[GoldElements | None]) -> InputSet:
        """Answers of torch on `tensors`; `gold_of` has one entry an output, or none."""
        layout = lay_out(tensors)
        recorded = self.trace.gold
        mutated = None if recorded is None else [index for index, _ in recorded.mutated]
        made = answers(self.call, layout, self.trace.context, self.device, mutated=mutated)
        metas = self._output_metas(made)
        outputs = tuple(
            _expected_output(index, made, meta, gold_of[index] if gold_of else None)
            for index, meta in enumerate(metas)
        )
        here = rebuild(layout.metas, layout.spans, self.device)
        arguments = {
            argument.name: here[int(argument.value.value or 0)]
            for argument in self.call.arguments
            if argument.value.kind == "tensor"
        }
        returned = len(metas) - len(made.mutated)
        return InputSet(
            layout=layout,
            outputs=tuple(metas[:returned]),
            mutated=made.mutated,
            expected=ExpectedSet(name=name, outputs=outputs, arguments=arguments, note=made.note),
            call=self.call,
            context=self.trace.context,
        )

    def _output_metas(self, made: Answers) -> list[TensorMeta]:
        """Dense layouts of all outputs: dimensions as the gold has them in memory, else as torch has.

        A mutated argument, returned or not, lies where it lay: its gaps are not the kernel's choice.
        """
        metas = [dense_meta(tensor, index) for index, tensor in enumerate(made.answer)]
        if self.trace.gold is None:
            places = [tensor.untyped_storage().data_ptr() for tensor in made.answer]
            changed = set(places[len(places) - len(made.mutated) :])
            return [
                replace(meta, stride=tuple(tensor.stride())) if place in changed else meta
                for meta, tensor, place in zip(metas, made.answer, places, strict=True)
            ]
        recorded, numbers = self.trace.gold, gold.order(self.trace.gold)
        sources = {source for source, _ in recorded.mutated}
        placed = {number for _, number in recorded.mutated}
        placed |= {number for number, source in recorded.aliases if source in sources}
        olds = [recorded.tensors[number].meta for number in numbers]
        strides = [
            old.stride if number in placed else dense_stride(old.shape, old.stride)
            for number, old in zip(numbers, olds, strict=True)
        ]
        return [
            # A gold of another shape is drift, and is reported as such.
            replace(meta, stride=stride) if old.shape == meta.shape else meta
            for meta, old, stride in zip(metas, olds, strides, strict=True)
        ]


def dense_meta(tensor: Tensor, index: int) -> TensorMeta:
    """Layout of a dense tensor on a storage of its own, its dimensions ordered as those of `tensor`."""
    shape = tuple(tensor.shape)
    return TensorMeta(
        dtype=dtype_name(tensor.dtype),
        shape=shape,
        stride=dense_stride(shape, tuple(tensor.stride())),
        offset=0,
        storage=index,
    )


def dense_stride(shape: tuple[int, ...], stride: tuple[int, ...]) -> tuple[int, ...]:
    """Strides without gaps that keep the order of dimensions; row-major where that order is not clear.

    A view into something larger, or an expanded tensor, is not a layout that a kernel could write.
    """
    order = sorted(range(len(shape)), key=lambda d: (-stride[d], d))
    if any(stride[d] == 0 and shape[d] > 1 for d in range(len(shape))):
        order = list(range(len(shape)))
    dense, step = [0] * len(shape), 1
    for d in reversed([d for d in order if shape[d] != 1]):
        dense[d] = step
        step *= max(1, shape[d])
    # Dimensions of size 1 address nothing; theirs is what a contiguous tensor would have.
    for d in range(len(shape)):
        if shape[d] == 1:
            dense[d] = 1 if d == len(shape) - 1 else max(1, dense[d + 1] * shape[d + 1])
    return tuple(dense)


def _expected_output(
    index: int, made: Answers, meta: TensorMeta, elements: GoldElements | None
) -> ExpectedOutput:
    answer, reference = as_real(made.answer[index]), as_real(made.reference[index])
    scale = None
    if answer.is_floating_point():
        scale = rules.derive(
            reference.to(torch.float64),
            answer,
            as_real(made.answer32[index]),
            None if made.perturbed is None else as_real(made.perturbed[index]),
        )
    stride = meta.stride if not made.answer[index].is_complex() else (*(2 * s for s in meta.stride), 1)
    return ExpectedOutput(
        index=index,
        shape=tuple(answer.shape),
        complex=made.answer[index].is_complex(),
        stride=stride,
        answer=answer.contiguous(),
        scale=scale,
        gold=elements,
    )
