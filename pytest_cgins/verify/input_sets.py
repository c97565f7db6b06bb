"""Sets of inputs, and torch's answers to them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import torch
from torch import Tensor

from pytest_cgins.config import Declared
from pytest_cgins.core.bitwise import as_real
from pytest_cgins.core.layout import Layout, dtype_name, lay_out, rebuild
from pytest_cgins.core.trace import Context, OpCall, TensorMeta, Trace
from pytest_cgins.verify import tolerance as rules
from pytest_cgins.verify.compare import ExpectedSet
from pytest_cgins.verify.couplings import tensors_of
from pytest_cgins.verify.expected import ExpectedOutput, GoldElements, arranged_gold, gold_order
from pytest_cgins.verify.inputs import row_numbers
from pytest_cgins.verify.messages import LargeTrial
from pytest_cgins.verify.op_calls import operators
from pytest_cgins.verify.quantization import GRIDS, all_exact, grids
from pytest_cgins.verify.random_outputs import Domain, draw
from pytest_cgins.verify.reference import Answers, answer, answers, inputs_on, widened
from pytest_cgins.verify.semantics import Semantics, semantics_for
from pytest_cgins.verify.ties import arrangement, indices_of, window_of

NARROW = ("int8", "uint8")
"""Integers that are rounded numbers, codes and exponents, and no positions."""
_STEPS = 8
"""At most one of so many integers is near a step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowTrial:
    """Which rows of a set come again in others, of the probe `invariance`."""

    axis: int
    """The outputs' dimension that numbers rows."""
    sources: tuple[int, ...]
    """Number of the row at each position; -1 where another row's content lies, and nothing is compared."""
    outputs: tuple[int, ...]
    """Outputs that have a row for each."""
    count: int
    """Outputs of the op."""
    base: str = ""
    """Set with the same rows at the same positions, all of them compared; "" where the batch is another."""
    torch_keeps_bits: bool = False
    """Whether torch's own rows are the same bits as in that set, or in the first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InputSet:
    """One set of inputs and what is expected on it."""

    device: str
    """Where torch answers: `cpu` or `cuda:0`."""
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
    probe: str = ""
    """The probe that it is there for; "" if it decides whether the kernel is right."""
    origin: InputSet | None = None
    """The set whose arguments were changed for it, of the probe `arguments`."""
    rows: RowTrial | None = None
    """Its rows, of the probes `invariance` and `large_indices`."""
    large: LargeTrial | None = None
    """How it becomes a large call, of the latter."""

    def tensors(self) -> list[Tensor]:
        """The arguments on fresh memory of the CPU."""
        return rebuild(self.layout.metas, self.layout.spans, "cpu")

    def answer(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """Torch's own to the call on other numbers; whatever the op raises is raised."""
        layout = lay_out(tensors, copy=False)
        return answer(self.call, layout, self.context, self.device, mutated=self.mutated)

    def widened(self, tensors: Sequence[Tensor], dtype: torch.dtype = torch.float64) -> tuple[Tensor, ...]:
        """The same of numbers in a wider dtype."""
        layout = lay_out(tensors, copy=False)
        return widened(self.call, layout, self.context, self.device, self.mutated, dtype=dtype)

    def operators(self) -> frozenset[str]:
        """What the call dispatches: see `op_calls.operators`."""
        return operators(self.call, self.layout, self.context, self.device)

    def looser(self, times: float, *, rms_times: float = 1.0) -> InputSet:
        """A copy with so many times the limits of single elements and of all together."""
        outputs = tuple(output.looser(times, rms_times) for output in self.expected.outputs)
        return replace(self, expected=replace(self.expected, outputs=outputs))

    def named(self, name: str, probe: str) -> InputSet:
        """A copy with another name, of a probe."""
        return replace(self, expected=replace(self.expected, name=name), probe=probe)

    @property
    def nbytes(self) -> int:
        """Memory of the arguments, in bytes."""
        return sum(span.nbytes for span in self.layout.spans)

    @property
    def returns_integers(self) -> bool:
        """Whether a returned tensor holds integers of which nobody says what they point into.

        Mostly they are indices; one that is changed in place is a counter, mostly.
        """
        outputs = zip(self.outputs, self.expected.outputs, strict=False)
        return any(
            "int" in meta.dtype and meta.dtype not in NARROW and output.must_equal for meta, output in outputs
        )


def reference_set(core: Sequence[InputSet]) -> InputSet:
    """The fresh set, or the first: numbers of N(0, 1) show most."""
    return next((input_set for input_set in core if input_set.expected.name == "fresh"), core[0])


@dataclass(frozen=True)
class InputSetBuilder:
    """Makes the input sets of one trace on one device."""

    trace: Trace
    call: OpCall
    """The trace's call, with device arguments set to the device."""
    device: str
    """`cpu` or `cuda:0`."""
    tf32: bool = False
    """Whether products of inputs rounded to TF32 are right."""
    mutable: tuple[int, ...] = ()
    """Tensors that the op changes, also where the recorded call left their numbers as they were."""
    random: Mapping[int, Domain] = field(default_factory=dict)
    """Outputs that are random, with their least and greatest value."""
    declared: Declared = field(default_factory=Declared)
    """What the user says of the op."""
    coarseness: Mapping[int, float] = field(default_factory=dict)
    """`Scale.coarseness` of outputs on the recorded inputs, for sets of other sizes and strides."""

    @cached_property
    def semantics(self) -> Semantics:
        """Semantics of the call."""
        return semantics_for(self.call, self.declared)

    @property
    def mutated(self) -> list[int] | None:
        """Indices of the tensors that the op changes, None if that was not recorded."""
        recorded = self.trace.gold
        return None if recorded is None else [index for index, _ in recorded.mutated]

    def _in_call(self, call: OpCall, indices: Sequence[int]) -> Sequence[int]:
        """These tensors of the trace's call in another one: where a list is longer, all of its items are as one was."""
        names, others = self.semantics.names, semantics_for(call, self.declared).names
        if call is self.call or len(names) == len(others):
            return indices
        found = {names.get(index) for index in indices}
        return [index for index, name in others.items() if name in found]

    def make(
        self,
        name: str,
        tensors: Sequence[Tensor],
        gold_of: Sequence[GoldElements | None] = (),
        *,
        probe: str = "",
        call: OpCall | None = None,
        patterns_only: bool = False,
        exact: bool = False,
    ) -> InputSet:
        """Answers of torch on `tensors` of the CPU, to the trace's call or another one.

        Where but `patterns_only` of NaN and infinities will be looked at, a run of the op less is enough. Where it is to be
        `exact`, the op has to be that in fp32, ties included, which then go one way.

        Raises:
            Exception: whatever the op raises.
        """
        layout, call = lay_out(tensors), call or self.call
        context, given = self.trace.context, inputs_on(layout, self.device)
        torch_answers = answers(
            call,
            given,
            context,
            self.device,
            mutated=None if self.mutated is None else self._in_call(call, self.mutated),
            mutable=self._in_call(call, self.mutable),
            conditioning=not (patterns_only or exact),
            tf32=self.tf32 and not patterns_only,
        )
        pairs = zip(torch_answers.answer32, torch_answers.reference, strict=True)
        # Of what is rounded to float8 `grids` asks that before the rounding.
        if exact and not all(all_exact(*pair) for pair in pairs if pair[0].dtype not in GRIDS):
            raise ValueError("the op is not exact on them")
        metas = self._output_metas(torch_answers)
        recorded = () if self.trace.gold is None else self.trace.gold.tensors
        if recorded and not metas:
            # As attention does on a GPU for a batch of 0: there is nothing to be held against.
            raise RuntimeError("torch gives nothing back")
        arguments = tensors_of(call, rebuild(given.metas, given.spans, self.device, copy=False))
        first = arguments.get(call.arguments[0].name) if call.arguments else None
        arranged = arrangement(call, first, torch_answers.answer)
        if arranged is not None:
            torch_answers, gold_of = torch_answers.arranged(arranged), arranged_gold(gold_of, arranged)
        semantics = semantics_for(call, self.declared)

        def rows_of(answer: Tensor) -> Tensor | None:
            return row_numbers(semantics, call, tensors, as_real(answer))

        on_grids = (
            {}
            if patterns_only or arranged is not None
            else grids(call, given, context, self.device, torch_answers, rows_of, exact=exact)
        )
        if exact and any(
            one.dtype in GRIDS and n not in on_grids for n, one in enumerate(torch_answers.answer)
        ):
            raise ValueError("how it rounds is not known")
        outputs = tuple(
            replace(
                _expected_output(
                    index,
                    torch_answers,
                    meta,
                    gold_of[index] if index < len(gold_of) else None,
                    rows_of(torch_answers.answer[index]),
                    self.coarseness.get(index),
                ),
                grid=on_grids.get(index),
                resized=index < len(recorded) and meta.shape != recorded[index].meta.shape,
            )
            for index, meta in enumerate(metas)
        )
        outputs = tuple(
            self._drawn(output, call, given, torch_answers.mutated) if output.index in self.random else output
            for output in self._pointing(outputs, call, arguments)
        )
        returned = len(metas) - len(torch_answers.mutated)
        return InputSet(
            device=self.device,
            layout=layout,
            outputs=tuple(metas[:returned]),
            mutated=torch_answers.mutated,
            expected=ExpectedSet(
                name=name, outputs=outputs, arguments=arguments, note=torch_answers.note, arrangement=arranged
            ),
            call=call,
            context=context,
            probe=probe,
        )

    def from_gold(self, tensors: Sequence[Tensor], gold_of: Sequence[GoldElements | None]) -> InputSet:
        """The recorded inputs with the recorded gold as the one right answer: nothing is run."""
        assert self.trace.gold is not None
        metas = [self.trace.gold.tensors[number].meta for number in gold_order(self.trace.gold)]
        known = [element for element in gold_of if element is not None]
        whole = tuple(
            torch.view_as_complex(element.whole) if "complex" in meta.dtype else element.whole
            for element, meta in zip(known, metas, strict=True)
        )
        answers = Answers(
            answer=whole, answer32=whole, reference=whole, perturbed=None, rounded=None,
            mutated=tuple(self.mutated or ()), steps=1.0, note="",
        )  # fmt: skip
        layout = lay_out(tensors)
        arguments = tensors_of(self.call, rebuild(layout.metas, layout.spans, self.device))
        laid_out = self._output_metas(answers)
        outputs = [
            _expected_output(index, answers, meta, known[index], None) for index, meta in enumerate(laid_out)
        ]
        scales = [output.scale and rules.of_gold(output.answer, tf32=self.tf32) for output in outputs]
        alone = [replace(one, gold_alone=True, scale=own) for one, own in zip(outputs, scales, strict=True)]
        return InputSet(
            device=self.device,
            layout=layout,
            outputs=tuple(laid_out[: len(laid_out) - len(answers.mutated)]),
            mutated=answers.mutated,
            expected=ExpectedSet(
                name="recorded",
                outputs=tuple(self._pointing(alone, self.call, arguments)),
                arguments=arguments,
            ),
            call=self.call,
            context=self.trace.context,
        )

    def _pointing(
        self, outputs: Sequence[ExpectedOutput], call: OpCall, arguments: Mapping[str, Tensor]
    ) -> Iterator[ExpectedOutput]:
        """The outputs, those of positions with what they point into."""
        known = semantics_for(call, self.declared).indices(call)
        for output in outputs:
            said = known.get(output.index)
            if said is None or not output.must_equal or output.answer.dtype == torch.bool:
                yield output
            else:
                into = arguments.get(said.into)
                window = window_of(call, into, output.answer)
                yield replace(output, indices=indices_of(said, call.op, into, output.answer, window))

    def _drawn(
        self, output: ExpectedOutput, call: OpCall, layout: Layout, mutated: Sequence[int]
    ) -> ExpectedOutput:
        """A random output: torch's draws take the place of reference and gold."""

        def run(context: Context) -> Tensor:
            return as_real(answer(call, layout, context, self.device, mutated=mutated)[output.index])

        draws = draw(run, self.trace.context, self.random[output.index])
        return replace(output, scale=None, gold=None, draws=draws, grid=None)

    def _output_metas(self, torch_answers: Answers) -> list[TensorMeta]:
        """Dense layouts of all outputs: dimensions as the gold has them in memory, else as torch has.

        A mutated argument, returned or not, lies where it lay: its gaps are not the kernel's choice.
        """
        tensors = torch_answers.answer
        metas = [dense_meta(tensor, index) for index, tensor in enumerate(tensors)]
        own = [replace(meta, stride=tensor.stride()) for meta, tensor in zip(metas, tensors, strict=True)]
        if self.trace.gold is None:
            places = [tensor.untyped_storage().data_ptr() for tensor in tensors]
            changed = set(places[len(places) - len(torch_answers.mutated) :])
            return [own[n] if place in changed else metas[n] for n, place in enumerate(places)]
        recorded, numbers = self.trace.gold, gold_order(self.trace.gold)
        sources = {source for source, _ in recorded.mutated} | set(self.mutable)
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
            for meta, old, stride in zip(metas, olds, strides, strict=False)
        ] + own[len(olds) :]


def _doubtful(answer: Tensor, reference: Tensor, answers: Answers, index: int) -> tuple[Tensor, ...]:
    """See `ExpectedOutput.doubtful`. An op that turns most numbers into others by a rounding is to be exact in these."""
    near = reference if answers.perturbed is None else as_real(answers.perturbed[index])
    if answer.shape != reference.shape:  # how much it gives depends on the numbers
        return ()
    steps = int((near != reference).sum()) * _STEPS <= reference.numel()
    right = (reference, near) if steps else (reference,)
    return right if any(bool((one != answer).any()) for one in right) else ()


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
    for d in (d for d in range(len(shape)) if shape[d] == 1):
        dense[d] = 1 if d == len(shape) - 1 else max(1, dense[d + 1] * shape[d + 1])
    return tuple(dense)


def _expected_output(  # noqa: PLR0917
    index: int,
    torch_answers: Answers,
    meta: TensorMeta,
    elements: GoldElements | None,
    rows: Tensor | None,
    coarseness: float | None = None,
) -> ExpectedOutput:
    answer, reference = as_real(torch_answers.answer[index]), as_real(torch_answers.reference[index])
    scale = None
    if answer.is_floating_point():
        further = (torch_answers.perturbed, torch_answers.rounded)
        scale = rules.derive(
            reference.to(torch.float64),
            answer,
            as_real(torch_answers.answer32[index]),
            *(None if tensors is None else as_real(tensors[index]) for tensors in further),
            rows=rows,
            steps=torch_answers.steps,
            coarseness=coarseness,
        )
    stride = (
        meta.stride if not torch_answers.answer[index].is_complex() else (*(2 * s for s in meta.stride), 1)
    )
    return ExpectedOutput(
        index=index,
        shape=tuple(answer.shape),
        complex=torch_answers.answer[index].is_complex(),
        stride=stride,
        own_stride=tuple(answer.stride()),
        answer=answer.contiguous(),
        scale=scale,
        doubtful=() if scale is not None else _doubtful(answer, reference, torch_answers, index),
        gold=elements,
    )
