"""Traces that cannot tell a wrong kernel: robust-kbench's task filters, and what they mean to the gate.

The five filters look at torch's answers to five draws of fresh inputs, with the threshold 0.01 of their
source (Lange et al., 2025, "Towards Robust Agentic CUDA Kernel Benchmarking", filters of tasks):

1. range: all elements of all answers within ±0.01;
2. seeds: the standard deviation over the draws below 0.01 for every element;
3. axis: an axis along which the standard deviation is below 0.01 everywhere;
4. initialisation: parameters drawn anew, data kept: no element moves by 0.01;
5. inputs: data drawn anew, parameters kept: no element moves by 0.01.

The threshold has a scale, and answers have theirs: probabilities of a softmax over a thousand classes are
all within ±0.01, and a gate that is exact to 1e-7 tells them apart nevertheless; a bias that moves answers of
size 1e4 by 1 passes filter 4 and is lost in fp16. So the figures are reported as they are, and the verdict
rests on a relative form, whose scale is the gate's own tolerance: each filter has a forged answer that
exploits what it looks for, which all of the gate's inputs, recorded, fresh and edge, refuse or accept:

- range: the power check's zeros and ones (and its copies of inputs and moved rows);
- seeds: the answer to another draw;
- axis: one slice repeated along the axis;
- initialisation and inputs: for each argument that can be drawn anew, the answer to another one.

A trace is weak if the power check is not passed, which is what the gate says of its cases: `WEAK` is one word here
and there, at the tolerance and the semantics that cgins.yaml gives the op's kernels. The other forgeries are right
answers of ops that do not look at all of their inputs, or cannot be given others: a kernel may take the shortcut, and
the gate passes it. Such a trace is exploitable, as a task for whoever writes kernels.

A filter that trips where no forgery is accepted is a matter of scale. Where torch takes no fresh inputs, or
there is nothing to draw (integers, masks), filters 2, 4 and 5 do not apply.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from pytest_cgins.config import Declared, IndexOutput, Tolerance
from pytest_cgins.config.coupled import yaml_of
from pytest_cgins.core.bitwise import as_real, equal
from pytest_cgins.core.document_base import Document
from pytest_cgins.core.errors import RandomOp
from pytest_cgins.core.layout import Layout, lay_out, rebuild
from pytest_cgins.core.trace import Context, Trace
from pytest_cgins.packs.backward import is_derived
from pytest_cgins.packs.recipe import BlobSource
from pytest_cgins.verify import inputs, semantics
from pytest_cgins.verify.compare import accepts
from pytest_cgins.verify.couplings import inferred, tensors_of
from pytest_cgins.verify.forgery_check import FORGERIES
from pytest_cgins.verify.forgery_check import Forgery as PowerForgery
from pytest_cgins.verify.input_sets import InputSet
from pytest_cgins.verify.messages import PrepareOptions
from pytest_cgins.verify.prepare import Preparation, prepare
from pytest_cgins.verify.reference import answer, widen
from pytest_cgins.verify.ties import candidates, chooses_extremes

EMPTY = "nothing can be compared: the op's outputs have no elements in this call, and the gate skips it"
SEEDS = 5
THRESHOLD = 0.01

FilterName = Literal["range", "seeds", "axis", "initialisation", "inputs"]
Forgery = Literal[PowerForgery, "other-draw", "by-heart", "repeated-slice", "other-argument"]

_WHY: dict[str, str] = {
    "zeros": "zeros pass",
    "ones": "ones pass",
    "input-copy": "a copy of an input passes",
    "permuted-gold": "its rows in another order pass",
    "other-draw": "the answer to other inputs passes",
    "by-heart": "no argument can be drawn anew: a kernel that knows this answer by heart passes",
}
_REMEDY: dict[str, str] = {
    "input-copy": "record it on inputs that the op changes",
    "by-heart": "record more calls of it, with other integers",
    "repeated-slice": "record it on inputs whose answers differ along that axis",
    "other-argument": "record a call in which that argument counts",
}
_OTHERWISE = "record it on inputs to which its answers differ, or leave it out through ops=[…]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter(Document):
    """One of robust-kbench's filters on one trace."""

    name: FilterName
    value: float | None
    """What is compared with 0.01: greatest magnitude, greatest standard deviation, least over the axes of
    the greatest standard deviation along one, greatest movement. None if it does not apply."""
    tripped: bool
    """Whether `value` is below the threshold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepted(Document):
    """A forged answer that the gate would take for the right one, on all sets of inputs."""

    forgery: Forgery
    where: str = ""
    """The axis or the argument that it is about; "" for the others."""

    @property
    def why(self) -> str:
        """What passes, in words."""
        if self.forgery == "repeated-slice":
            return f"one slice repeated along {self.where} passes"
        if self.forgery == "other-argument":
            return f"the answer to another {self.where} passes"
        return _WHY[self.forgery]

    @property
    def remedy(self) -> str:
        """What can be done."""
        return _REMEDY.get(self.forgery, _OTHERWISE)


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceAudit(Document):
    """What one trace can tell."""

    trace: str
    op: str
    signature: str
    filters: tuple[Filter, ...]
    """All five, at their own threshold."""
    accepted: tuple[Accepted, ...]
    """Forged answers that the gate would take."""
    notes: tuple[str, ...]
    """What a reader must know: no fresh inputs, a reference that is not fp64."""
    kernel: str = ""
    """The kernel of cgins.yaml at whose tolerance this holds; "" if none replaces the op."""
    proposed: tuple[str, ...] = ()
    """What to write in cgins.yaml of outputs that hold positions, so that any of equal values is right."""
    coupled: tuple[str, ...] = ()
    """What to write there of arguments that look as if they belonged together, so that fresh inputs draw them, too."""

    @property
    def weak(self) -> bool:
        """Whether the gate says `WEAK` of its cases."""
        return any(one.forgery in FORGERIES for one in self.accepted)

    @property
    def exploitable(self) -> bool:
        """Whether only forgeries pass that the gate does not try."""
        return bool(self.accepted) and not self.weak

    @property
    def tripped(self) -> tuple[FilterName, ...]:
        """Filters below their threshold."""
        return tuple(found.name for found in self.filters if found.tripped)


def audit(
    trace: Trace,
    source: BlobSource,
    device: str,
    *,
    seed: int,
    tolerance: Tolerance,
    options: PrepareOptions = PrepareOptions(),  # noqa: B008 - it is frozen
    kernel: str = "",
) -> TraceAudit:
    """Apply the filters, on five seeds from one on, and the power check to one trace.

    Raises:
        PackError: if the pack's inputs cannot be read.
        RandomOp: if the op draws random numbers: no kernel is gated on it.
        ReplayError: if torch does not run the recorded call on this device.
    """
    prepared = prepare(trace, source, device, seed, options)
    if any(output.draws is not None for output in prepared.sets[0].expected.outputs):
        raise RandomOp(
            f"outputs of {trace.call.op} are random, and an audit compares elements",
            remedy="leave the trace out of the audit: the gate holds such outputs against draws of torch",
        )
    auditor = _Auditor(prepared, device, seed, tolerance, options.declared)
    return TraceAudit(
        trace=trace.id,
        op=trace.call.op,
        signature=trace.signature,
        filters=tuple(auditor.filters()),
        accepted=tuple(auditor.accepted()) if auditor.compares else (),
        notes=(*prepared.notes, *(() if auditor.compares else (EMPTY,))),
        kernel=kernel,
        proposed=tuple(auditor.proposed()),
        coupled=tuple(auditor.coupled()) if trace.gold is not None else (),
    )


class _Auditor:
    """The draws of one trace, and torch's answers to mixtures of them."""

    def __init__(
        self, prepared: Preparation, device: str, seed: int, tolerance: Tolerance, declared: Declared
    ) -> None:
        self._prepared = prepared
        self._device = device
        self._tolerance = tolerance
        self._semantics = prepared.builder.semantics
        trace, first = prepared.trace, prepared.core[0]
        self.compares = any(output.answer.numel() for one in prepared.core for output in one.expected.outputs)
        self._has_fresh = any(input_set.expected.name == "fresh" for input_set in prepared.core)
        recorded = first.tensors()
        self._draws = [
            lay_out(inputs.fresh(trace.call, recorded, f"{seed + number}/{trace.id}", declared))
            for number in range(SEEDS if self._has_fresh else 0)
        ]
        two = [rebuild(draw.metas, draw.spans, "cpu") for draw in self._draws[:2]]
        self._drawn = [
            index
            for index, pair in enumerate(zip(*two, strict=True))
            if not equal(*pair) and self._role(index) != "keep"
        ]
        """Arguments whose content differs from draw to draw, but for those that go with others."""

    # ---- the filters ----------------------------------------------------------------------------

    def filters(self) -> Iterator[Filter]:
        """All five in their order."""
        first = self._prepared.core[0]
        draws = [self._answers(draw) for draw in self._draws] or [
            [_finite(output.answer) for output in first.expected.outputs]
        ]
        stacks = [torch.stack(each) for each in zip(*draws, strict=True) if each[0].numel()]
        yield _filter("range", max((float(stack.abs().max()) for stack in stacks), default=None))
        spreads = [float(stack.std(0).max()) for stack in stacks if self._has_fresh]
        yield _filter("seeds", max(spreads, default=None))
        spreads = [float(stack.std(axis + 1).max()) for stack in stacks for axis in _axes(stack)]
        yield _filter("axis", min(spreads, default=None))
        parameters = [index for index in self._drawn if self._role(index) != "data"]
        data = [index for index in self._drawn if self._role(index) == "data"]
        yield _filter("initialisation", self._movement(parameters))
        yield _filter("inputs", self._movement(data))

    def _movement(self, chosen: Sequence[int]) -> float | None:
        """How far an element moves at most when these arguments are drawn anew and all else is kept."""
        if not chosen:
            return None
        first, *others = self._draws
        base = self._answers(first)
        moved = [self._answers(_mixed(first, other, chosen)) for other in others]
        distances = [
            float((one - was).abs().max())
            for now in moved
            for one, was in zip(now, base, strict=True)
            if was.numel()
        ]
        return max(distances, default=None)

    def _answers(self, layout: Layout) -> list[Tensor]:
        return [_finite(output) for output in self._run(layout)]

    def _run(self, layout: Layout) -> list[Tensor]:
        """Torch's answer to a draw, in the form in which answers are compared."""
        outputs = self._prepared.core[0].answer(rebuild(layout.metas, layout.spans, "cpu"))
        return [as_real(tensor).contiguous() for tensor in outputs]

    def _role(self, index: int) -> semantics.Role:
        return self._semantics.role(index, self._draws[0].metas[index])

    # ---- outputs that hold positions ------------------------------------------------------------

    def coupled(self) -> Iterator[str]:
        """What recorded arguments look like that may belong together."""
        recorded = self._prepared.sets[0].tensors()
        return map(yaml_of, inferred(self._semantics, self._prepared.trace.call, recorded))

    def proposed(self) -> Iterator[str]:
        """What fits the recorded inputs and every draw."""
        outputs = self._prepared.core[0].expected.outputs
        for output in outputs:
            if output.scale is None and output.indices is None and output.answer.dtype != torch.bool:
                layouts = [self._prepared.core[0].layout, *self._draws]
                fitting = [self._fitting(output.index, layout) for layout in layouts]
                in_all = [said for said in fitting[0] if all(said in others for others in fitting)]
                yield from (said.yaml for said in in_all[:1])

    def _fitting(self, number: int, layout: Layout) -> list[IndexOutput]:
        """Arguments that an output may point into, by torch's answers to one draw."""
        answers, tensors = self._run(layout), rebuild(layout.metas, layout.spans, self._device)
        arguments = tensors_of(self._prepared.call, tensors)
        found = candidates(number, arguments, answers[number])
        return [one.declared for one in found if chooses_extremes(one, answers)]

    # ---- forged answers -------------------------------------------------------------------------

    def accepted(self) -> Iterator[Accepted]:
        """Forged answers that every rule accepts on every set of inputs."""
        for power in self._prepared.power(self._tolerance):
            if not power.caught:
                yield Accepted(forgery=power.forgery)
        if not self._has_fresh:
            if not any("torch refuses" in note for note in self._prepared.notes):
                yield Accepted(forgery="by-heart")
        elif self._passes(lambda _: self._run(self._draws[1])):
            yield Accepted(forgery="other-draw")
        yield from self._repeated_slices()
        yield from self._other_arguments()

    def _repeated_slices(self) -> Iterator[Accepted]:
        outputs = self._prepared.core[0].expected.outputs
        for number, output in enumerate(outputs):
            for axis in _axes(output.answer[None]):
                if self._passes(lambda input_set, n=number, d=axis: _repeated(input_set, n, d)):  # type: ignore[misc]
                    of = f" of output {number}" if len(outputs) > 1 else ""
                    yield Accepted(forgery="repeated-slice", where=f"axis {axis}{of}")

    def _other_arguments(self) -> Iterator[Accepted]:
        # With one argument that can be drawn anew, another one is another draw.
        for index in self._drawn if len(self._drawn) > 1 else ():
            if self._counts(index) and self._passes(
                lambda input_set, i=index: self._run(_mixed(input_set.layout, self._draws[1], [i]))  # type: ignore[misc]
            ):
                yield Accepted(forgery="other-argument", where=self._semantics.names[index])

    def _counts(self, index: int) -> bool:
        """Whether a backward looks at an argument: the gradient of a weight is the same for every weight.

        A forward that leaves one of its own arguments out was recorded where it does not count.
        """
        if not is_derived(self._prepared.call.op):
            return True
        first, second = self._draws[:2]
        call, context = self._prepared.call, Context(default_dtype="float64")
        try:
            wide = (widen(layout, torch.float64) for layout in (first, _mixed(first, second, [index])))
            answers = [answer(call, layout, context, self._device) for layout in wide]
        except (RuntimeError, NotImplementedError, TypeError):  # not in fp64
            return True
        return not all(equal(one, other) for one, other in zip(*answers, strict=True))

    def _passes(self, forge: Callable[[InputSet], list[Tensor]]) -> bool:
        """Whether all sets accept what is forged for them; fresh ones, which tell most, are asked first."""
        sets = sorted(self._prepared.core, key=lambda input_set: input_set.expected.name != "fresh")
        return all(accepts(input_set.expected, forge(input_set), self._tolerance) for input_set in sets)


def _filter(name: FilterName, value: float | None) -> Filter:
    return Filter(name=name, value=value, tripped=value is not None and value < THRESHOLD)


def _finite(answer: Tensor) -> Tensor:
    """The answer in fp64, with zeros where it is not finite: a mask's infinities are the same in all draws."""
    wide = as_real(answer).to(torch.float64)
    return wide.nan_to_num(nan=0.0, posinf=0.0, neginf=0.0)


def _axes(stack: Tensor) -> list[int]:
    """Axes of the answers in a stack of them (draws, …) that have more than one element."""
    return [axis for axis in range(stack.ndim - 1) if stack.shape[axis + 1] > 1]


def _mixed(layout: Layout, other: Layout, chosen: Sequence[int]) -> Layout:
    """A draw with the storages of some arguments from another."""
    taken = {layout.metas[index].storage for index in chosen}
    spans = [other.spans[n] if n in taken else span for n, span in enumerate(layout.spans)]
    return Layout(layout.metas, spans)


def _repeated(input_set: InputSet, number: int, axis: int) -> list[Tensor]:
    """The right answers, but one of them its first slice along an axis, over and over."""
    answers = [output.answer for output in input_set.expected.outputs]
    right = answers[number]
    answers[number] = right.narrow(axis, 0, 1).expand_as(right).contiguous()
    return answers
