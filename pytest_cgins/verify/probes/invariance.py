"""Probe `invariance`: what a row's answer is does not depend on the rows beside it.

Rows are drawn once, and come again alone, in other batches, at other positions and in another order; then beside rows of NaN,
infinity and huge numbers. So are rows of any argument that torch does not read: padding, unused pages, excluded keys.

Each must be within the tolerance that all rows had together. Where only the content of other rows changed, to finite numbers, a
kernel whose rows are independent has no reason to give others: where torch gives the same bits, so must it. A test whether
all numbers are finite may choose another path. Where the batch changed, tiles, tails and splits may change honestly: bits
count where the kernel claims `batch_invariant`, and are told elsewhere.

That rows are independent is not taken from the op's name alone: torch runs every set, and where its own answers depend on
the batch there is none. A path that is taken only for more rows than are tried is not seen.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import cycle, islice
from typing import TypeVar

import torch
from torch import Tensor

from pytest_cgins.config import Tolerance
from pytest_cgins.core.bitwise import as_real, movable
from pytest_cgins.core.device import device_of
from pytest_cgins.core.failure_kinds import stops_device
from pytest_cgins.core.layout import lay_out, metas_of, rebuild
from pytest_cgins.core.text import counted, first_line
from pytest_cgins.core.trace import OpCall, TensorMeta
from pytest_cgins.packs.backward import is_derived
from pytest_cgins.packs.recipe import seed_of
from pytest_cgins.verify import inputs
from pytest_cgins.verify.changed_rows import bits_differ, own_rows
from pytest_cgins.verify.compare import ExpectedSet, accepts
from pytest_cgins.verify.coupled import edge_count
from pytest_cgins.verify.couplings import tensors_of
from pytest_cgins.verify.expected import ExpectedOutput
from pytest_cgins.verify.input_sets import InputSet, RowTrial, dense_meta
from pytest_cgins.verify.semantics import op_word
from pytest_cgins.verify.size_groups import resized
from pytest_cgins.verify.size_search import FEW_ROWS, ProbedCall
from pytest_cgins.verify.unread import ReadOp, Rows, fill

T = TypeVar("T")

NAME = "invariance"
CLAIM = "batch_invariant"
"""What a kernel claims whose bits must not depend on the batch."""
BATCHES = (257, 65, 17, 5, 3)
"""Rows of the largest batch: the first that memory allows. Kernels change their ways at 16, 32, 64 and 256 rows."""
MOST_BYTES, MOST_BYTES_OF_GPU = 4 << 20, 32 << 20
"""Arguments and outputs of the largest batch."""
NOT_FINITE, INFINITE, HUGE = "NaN and infinity", "infinity", "huge numbers"
"""What other rows hold; nobody says what an op that chooses among elements makes of NaN."""
_LOOSER = 4.0
"""Limits of all sets but the first, as a multiple of those of all rows together: one row errs more than many do."""
_UNREAD: Mapping[str, Sequence[Sequence[float]]] = {
    NOT_FINITE: [(-torch.nan, torch.inf, -torch.inf)],  # memory that nobody has written holds the other NaN
    HUGE: [(size, -size) for size in (2.0**60, 2.0**30, 2.0**12)],
}
"""What rows that are not read hold, in turns: the first of which torch's answer stays as it is."""


def sets(probed_call: ProbedCall, key: str) -> tuple[list[InputSet], str]:
    """The sets of batches, of other rows' content, and of excluded keys; or none and why."""
    if probed_call.builder.random:
        return [], "the op's outputs are random"
    of_rows, refusal = _attempt(partial(_row_sets, probed_call, key))
    rows, why = of_rows or ([], f"torch refuses the batches ({refusal})")
    unread = _unread_sets(probed_call, key)
    return [*rows, *unread], "" if rows or unread else why


def _attempt(make: Callable[[], T]) -> tuple[T | None, str]:
    """What is made, or None and what the op raised: one of a user may refuse by any exception."""
    try:
        return make(), ""
    except Exception as error:
        if stops_device(error):
            raise
        return None, first_line(error)


# ---- rows of a batch


@dataclass(frozen=True, kw_only=True)
class Batch:
    """The largest batch, of which all others are parts."""

    probed_call: ProbedCall
    tensors: Sequence[Tensor]
    """Its arguments."""
    batched: Sequence[int]
    """Arguments whose first dimension is the batch."""
    size: int
    """Rows of the largest batch."""
    call: OpCall
    """The call, with integers of the sizes that moved."""
    as_recorded: bool
    """Whether there are to be as many rows as were recorded."""

    def all_rows(self, probe: str = NAME, *, axes: Sequence[int] = (0,)) -> InputSet:
        """The set of the largest batch; its outputs' rows are along the first axis along which there are any."""
        name = counted(self.size, "row")
        made = self.probed_call.builder.make(name, self.tensors, probe=probe, call=self.call).looser(_LOOSER)
        tried = [_of_all(made, axis, self.size) for axis in axes]
        return next((each for each in tried if each.rows and each.rows.outputs), tried[0])

    def part(self, rows: Sequence[int]) -> list[Tensor]:
        """The arguments with some rows alone, in this order, laid out as the recorded ones are."""
        metas, chosen = metas_of(self.tensors), torch.tensor(rows)
        picked = [
            tensor.index_select(0, chosen) if index in self.batched else tensor
            for index, tensor in enumerate(self.tensors)
        ]
        shapes = [tuple(tensor.shape) for tensor in picked]
        return resized(picked, metas, shapes, {}, self.probed_call.builder.semantics)

    def beside(self, rows: Sequence[int], foreign: Sequence[int], content: str) -> list[Tensor] | None:
        """The same with something else in the rows at some positions; None where no argument could hold it."""
        tensors, semantics = self.part(rows), self.probed_call.builder.semantics
        metas = metas_of(tensors)
        data = [
            tensors[index]
            for index in self.batched
            if semantics.role(index, metas[index]) == "data"
            and tensors[index].is_floating_point()
            and not metas[index].is_expanded
        ]
        for tensor in data:
            half = torch.finfo(tensor.dtype).max / 2
            fills = {
                HUGE: (half, -half, 2.0**14),
                INFINITE: (torch.inf, -torch.inf),
                NOT_FINITE: (torch.nan, torch.inf, -torch.inf),
            }[content]
            numbers = torch.tensor([*islice(cycle(fills), len(foreign))], dtype=tensor.dtype)
            of_rows = movable(numbers).reshape(-1, *[1] * (tensor.ndim - 1))
            movable(tensor)[torch.tensor(foreign)] = of_rows
        return tensors if data else None


def _row_sets(probed_call: ProbedCall, key: str) -> tuple[list[InputSet], str]:
    on_gpu = device_of(probed_call.builder.device).is_accelerator
    sizes = [size for size in BATCHES if size <= FEW_ROWS or not probed_call.interpreted]
    batch, why = batch_of(probed_call, key, sizes, MOST_BYTES_OF_GPU if on_gpu else MOST_BYTES)
    if batch is None:
        return [], why
    whole = batch.all_rows()
    if whole.expected.arrangement is not None:
        return [], "several answers are right as a whole"
    draw = random.Random(seed_of(f"{key}/{NAME}"))  # noqa: S311
    smaller: list[InputSet] = []
    for how, rows in _plan(batch.size, draw, same=probed_call.recorded_sizes_only):
        name = f"{counted(len(rows), 'row')}{how}"
        held = held_rows(whole, name, batch.part(rows), tuple(rows))
        if held is None:
            why = "torch's own rows depend on each other, or no output has a row for each row of the inputs"
            return [], why
        smaller.append(held)
    few = [each for each in smaller if each.rows and 2 < len(each.rows.sources) < batch.size][-1:]
    beside = [each for base in (whole, *few) for each in _beside_others(batch, base, draw)]
    return [whole, *smaller, *beside], ""


def batch_of(
    probed_call: ProbedCall,
    key: str,
    sizes: Sequence[int],
    most: int,
    *,
    most_of_rows: float = math.inf,
    as_wide: bool = False,
) -> tuple[Batch | None, str]:
    """The first batch that fits, or none and why.

    Args:
        probed_call: the call.
        key: of this draw.
        sizes: numbers of rows that are tried; the recorded one alone where that must not change.
        most: bytes of arguments and outputs.
        most_of_rows: bytes of the arguments that have the rows.
        as_wide: try all of them with rows as they were recorded before smaller ones.
    """
    builder, semantics = probed_call.builder, probed_call.builder.semantics
    search = probed_call.search
    places = search.places
    outputs = probed_call.reference_set.expected.outputs
    batched = places.batch_of_rows([output.shape[0] for output in outputs if output.shape])
    if places.are_tied or not batched:
        return None, "no argument has a first dimension that may change"
    first = places.metas[batched[0]].shape
    if 0 not in semantics.lanes(builder.call, batched[0], first):
        return None, "the op's rows do not lie side by side along the first dimension"
    as_recorded = probed_call.recorded_sizes_only or places.is_offset(first[0])
    if as_recorded and first[0] < 2:
        return None, "the recorded batch has a single row"
    given = sum(output.answer.nbytes for output in outputs)
    given_of_each = given / max(1, sum(tensor.nbytes for tensor in probed_call.recorded))
    smaller = ({},) if as_recorded else ({}, search.small)
    plan = [(size, moves) for size in ([first[0]] if as_recorded else sizes) for moves in smaller]
    for size, moves in sorted(plan, key=lambda pair: bool(pair[1])) if as_wide else plan:
        shapes = [places.shape(index, moves) for index in range(len(places.metas))]
        for index in batched:
            shapes[index] = (size, *shapes[index][1:])
        tensors = [
            tensor.element_size() * math.prod(shape)
            for tensor, shape in zip(probed_call.recorded, shapes, strict=True)
        ]
        of_rows = sum(tensors[index] for index in batched)
        if sum(tensors) * (1 + given_of_each) > most or of_rows > most_of_rows:
            continue
        call = places.call(builder.call, moves)
        resized_tensors = resized(probed_call.recorded, places.metas, shapes, moves, semantics)
        declared, positions = semantics.declared, probed_call.gives_positions
        drawn = inputs.fresh(
            call, resized_tensors, f"{key}/{NAME}", declared, legal=False, positions=positions
        )
        batch = Batch(
            probed_call=probed_call,
            tensors=drawn,
            batched=batched,
            size=size,
            call=call,
            as_recorded=as_recorded,
        )
        return batch, ""
    return None, "no batch of several rows is small enough"


def _plan(size: int, draw: random.Random, *, same: bool) -> Iterator[tuple[str, list[int]]]:
    """The rows of each other batch, with what is to be said of them."""
    order = list(range(size))
    draw.shuffle(order)
    yield " in another order", order
    # A drawn size, so that no kernel is right for those that are tried and for no others.
    for count in () if same else (256, draw.randint(33, 128), 17, 2, 1):
        if count < size:
            yield f" of {size}", list(range(size - count, size)) if count == 256 else order[-count:]


def _beside_others(batch: Batch, base: InputSet, draw: random.Random) -> Iterator[InputSet]:
    """Sets in which half of a set's rows hold NaN, infinity or huge numbers, as far as torch keeps the others."""
    rows = base.rows.sources if base.rows is not None else ()
    semantics = batch.probed_call.builder.semantics
    positions = any("int" in meta.dtype for meta in base.outputs)
    chooses = positions or (semantics.chooses and not semantics.entry.nan_wins)
    for content in (INFINITE if chooses else NOT_FINITE, HUGE):
        foreign = draw.sample(range(len(rows)), len(rows) // 2)
        tensors = batch.beside(rows, foreign, content)
        if tensors is None:
            return
        sources = tuple(-1 if position in foreign else position for position in range(len(rows)))
        name = f"{counted(len(rows), 'row')} beside {content}"
        held, _ = _attempt(partial(held_rows, base, name, tensors, sources))
        if held is not None and held.rows is not None:
            yield replace(held, rows=replace(held.rows, base=base.expected.name))


# ---- rows that are not read


def _unread_sets(probed_call: ProbedCall, key: str) -> list[InputSet]:
    """Sets beside those in which rows that torch does not read hold NaN, infinity or huge numbers."""
    small = probed_call.reference_set if probed_call.recorded_sizes_only else probed_call.small
    if is_derived(small.call.op) or small.nbytes > MOST_BYTES:
        return []
    bases = [("", small.tensors(), None), *_masked(probed_call, small, key), *_at_edges(probed_call, key)]
    output = small.expected.outputs[0].shape if small.expected.outputs else ()
    if len(output) > 2 and output[-2] > 1:
        bases.append(("first half: ", small.tensors(), output[-2] // 2))
    return [
        each for base in bases for each in _attempt(partial(_unread, probed_call, small.call, *base))[0] or ()
    ]


def _masked(
    probed_call: ProbedCall, small: InputSet, key: str
) -> Iterator[tuple[str, list[Tensor], int | None]]:
    """The call with a third of the columns of its masks excluded in all rows."""
    tensors, semantics = small.tensors(), probed_call.builder.semantics
    draw = random.Random(seed_of(f"{key}/{NAME}/masks"))  # noqa: S311
    names = []
    for index, meta in enumerate(small.layout.metas):
        tensor = tensors[index]
        if semantics.kept(index, meta) == "mask" and tensor.ndim > 1 and tensor.shape[-1] > 1:
            size = tensor.shape[-1]
            excluded = sorted(draw.sample(range(1, size), max(1, size // 3)))
            tensor[..., excluded] = False if tensor.dtype == torch.bool else -torch.inf
            tensor[..., 0] = True if tensor.dtype == torch.bool else 0
            names.append(semantics.names.get(index, "mask"))
    if names:
        yield f"other {', '.join(names)}: ", tensors, None


def _at_edges(probed_call: ProbedCall, key: str) -> Iterator[tuple[str, list[Tensor], int | None]]:
    """The call with arguments that belong together at their edges: sequences that are shorter than their buffer."""
    builder, recorded = probed_call.builder, probed_call.recorded
    if sum(tensor.nbytes for tensor in recorded) > MOST_BYTES:
        return
    labels = set[str]()
    for number in range(edge_count(builder.semantics, builder.call, recorded)):
        name = f"{key}/{NAME}"
        made, _ = _attempt(
            partial(inputs.coupled_edge, builder.call, recorded, name, builder.declared, number)
        )
        if made is not None and made[0] not in labels:
            labels.add(made[0])
            yield f"{made[0]}: ", made[1], None


def _unread(
    probed_call: ProbedCall, call: OpCall, label: str, tensors: list[Tensor], half: int | None
) -> list[InputSet]:
    """A set, and the same with other content in the rows that the outputs, or their first half, do not depend on."""
    builder, layout = probed_call.builder, lay_out(tensors)
    seen = partial(Tensor.narrow, dim=-2, start=0, length=half) if half else (lambda output: output)
    op = ReadOp(
        call=call, inputs=layout, context=builder.trace.context, mutated=builder.mutated or (), seen=seen
    )
    roles = {index: builder.semantics.role(index, meta) for index, meta in enumerate(layout.metas)}
    flat = {index: rows for index, rows in op.flat().items() if roles[index] != "keep"}
    # A model's weights are finite, used or not. Tiles of attention hold keys that are not to be seen, and multiply them by 0:
    # torch's kernels do so themselves.
    tiled = "att" in op_word(call) and call.op.startswith("torch.")
    data = {index: rows for index, rows in flat.items() if roles[index] == "data" and not tiled}
    unread = {
        content: op.unread(rows, _UNREAD[content][0])
        for content, rows in ((NOT_FINITE, data), (HUGE, flat))
        if rows
    }
    if not any(unread.values()):
        return []
    name = f"{label}rows that are read"
    whole = builder.make(name, tensors, probe=NAME, call=call)
    shape = whole.expected.outputs[0].shape
    axis = -2 if len(shape) > 1 else -1
    base = _of_all(whole.looser(_LOOSER), axis, shape[axis])
    sources = tuple(row if half is None or row < half else -1 for row in range(shape[axis]))
    held = [
        _beside_unread(base, f"{label}{{}} of {content}", rows, _UNREAD[content], sources)
        for content, rows in unread.items()
        if rows
    ]
    trials = [replace(each, rows=replace(each.rows, base=name)) for each in held if each and each.rows]
    return [base, *trials] if trials else []


def _beside_unread(
    base: InputSet, name: str, rows: Rows, fills: Sequence[Sequence[float]], sources: tuple[int, ...]
) -> InputSet | None:
    """The set with the first content of its unread rows with which torch's own answer stays."""
    count = sum(int(unread.sum()) for unread in rows.values())
    least = min(torch.finfo(getattr(torch, base.layout.metas[index].dtype)).max for index in rows)
    for content in fills:
        tensors = base.tensors()
        if content[0] > least:
            continue
        for index, unread in rows.items():
            fill(tensors[index], unread, content)
        held = held_rows(base, name.format(counted(count, "unread row")), tensors, sources)
        if held is not None:
            return held
    return None


# ---- torch's trial


def held_rows(
    whole: InputSet, name: str, tensors: Sequence[Tensor], sources: tuple[int, ...]
) -> InputSet | None:
    """A set whose rows are those of another one; None if torch's answers to them are others."""
    layout = lay_out(tensors)
    given = whole.answer(tensors)
    real = [as_real(tensor) for tensor in given]
    assert whole.rows is not None
    rows = whole.rows
    numbers = tuple(index for index in rows.outputs if real[index].shape[rows.axis] == len(sources))
    if not numbers:
        return None
    trial = replace(rows, sources=sources, outputs=numbers)
    returned = len(given) - len(whole.mutated)
    metas = [dense_meta(tensor, index) for index, tensor in enumerate(given)]
    expected = _chosen(whole.expected, trial)
    outputs = tuple(
        _laid_out(output, given[output.index], metas[output.index], own=output.index < returned)
        for output in expected.outputs
    )
    arguments = tensors_of(whole.call, rebuild(layout.metas, layout.spans, whole.device, copy=False))
    expected = replace(expected, name=name, outputs=outputs, arguments=arguments)
    made = replace(
        whole, layout=layout, outputs=tuple(metas[:returned]), expected=expected, probe=NAME, rows=trial
    )
    own = own_rows(made, real)
    if not accepts(expected, own, Tolerance()):
        return None
    same = all(
        not bool(bits_differ(tensor, output.answer, trial.axis).any())
        for tensor, output in zip(own, outputs, strict=True)
    )
    answered = tuple(
        replace(output, answer=tensor.contiguous()) for tensor, output in zip(own, outputs, strict=True)
    )
    return replace(
        made, expected=replace(expected, outputs=answered), rows=replace(trial, torch_keeps_bits=same)
    )


def _of_all(whole: InputSet, axis: int, size: int) -> InputSet:
    """A set with all of its rows: those of outputs that hold values, since of equal ones any position may be right."""
    numbers = tuple(
        output.index
        for output in whole.expected.outputs
        if output.indices is None
        and len(output.shape) - output.complex >= max(1, -axis)
        and output.shape[axis] == size
    )
    count = len(whole.expected.outputs)
    rows = RowTrial(axis=axis, sources=tuple(range(size)), outputs=numbers, count=count)
    return replace(whole, rows=rows, expected=_chosen(whole.expected, rows))


def _laid_out(output: ExpectedOutput, given: Tensor, meta: TensorMeta, *, own: bool) -> ExpectedOutput:
    """An output with the strides that torch's answer to the set has."""
    stride = meta.stride if own else tuple(given.stride())
    pairs = [
        (*(2 * step for step in one), 1) if given.is_complex() else one for one in (stride, given.stride())
    ]
    return replace(output, stride=tuple(pairs[0]), own_stride=tuple(pairs[1]))


def _chosen(expected: ExpectedSet, trial: RowTrial) -> ExpectedSet:
    """What is expected of rows that are those of a set; at positions that are not compared stands any."""
    outputs = tuple(
        _chosen_rows(output, trial) for output in expected.outputs if output.index in trial.outputs
    )
    return replace(expected, outputs=outputs)


def _chosen_rows(output: ExpectedOutput, trial: RowTrial) -> ExpectedOutput:
    shape, axis = output.answer.shape, trial.axis
    if trial.sources == tuple(range(shape[axis])):
        return output
    chosen = torch.tensor([max(0, row) for row in trial.sources], device=output.answer.device)

    def of(tensor: Tensor) -> Tensor:
        return movable(tensor.reshape(shape)).index_select(axis, chosen).view(tensor.dtype)

    picked, scale, grid = of(output.answer), output.scale, output.grid
    if scale is not None:
        scale = replace(scale, reference=of(scale.reference).reshape(-1), unit=of(scale.unit).reshape(-1))
    if grid is not None:
        grid = grid.at(of(torch.arange(output.answer.numel(), device=chosen.device)).reshape(-1))
    return replace(
        output,
        answer=picked,
        scale=scale,
        doubtful=tuple(map(of, output.doubtful)),
        grid=grid,
        shape=tuple(picked.shape),
    )
