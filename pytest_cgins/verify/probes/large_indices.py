"""Probe `large_indices`: offsets beyond 2^31 and 2^32, and more rows than 65,535, are answered as small ones are.

The rows of a small call are repeated until there are more than 65,535 of them, and until the largest tensor has more than 2^31
elements; then they lie so far apart that the last one begins beyond 2^32 elements. What is right for a row in the small call
is right for it there. Each large call has a process of its own, since it may die; what is wrong in the small call, or in one
whose rows lie a little apart, says nothing of overflows.

A kernel may refuse a large call with an error. Calls that take too long, or more memory than there is, are told and not made.
Ops whose rows depend on each other are left out. `run.large_call` makes the calls.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from pytest_cgins.core.device import device_of
from pytest_cgins.core.dtypes import ITEMSIZE, extent
from pytest_cgins.core.failure_kinds import cause_of
from pytest_cgins.core.trace import TensorMeta
from pytest_cgins.core.verdict import Check, Reason
from pytest_cgins.verify.input_sets import InputSet
from pytest_cgins.verify.messages import LargeTrial, RaisedError
from pytest_cgins.verify.probes.invariance import Batch, batch_of, held_rows
from pytest_cgins.verify.probes.registry import WORTH_BYTES
from pytest_cgins.verify.size_search import FEW_ROWS, ProbedCall

NAME = "large_indices"
ROWS = tuple(3 << power for power in range(9, -1, -1))
"""Rows of the small call: the first that fits. Three divides no power of two, so whoever goes 2^31 or 2^32 too far meets another row."""
MOST_BYTES, MOST_BYTES_OF_GPU = 16 << 20, 256 << 20
"""Arguments and outputs of the small call."""
MOST_BYTES_OF_ROWS, MOST_BYTES_OF_ROWS_OF_GPU = 1 << 19, 1 << 23
"""Its rows."""
GRID_ROWS = 65_535
"""Most blocks along y and z of a CUDA grid."""
MANY_ELEMENTS = 1 << 28
"""Where so many rows have more elements, others are tried that are as narrow as torch allows."""
PAGE_ELEMENTS = 4096
"""Rows that lie apart begin on pages."""
_LIMITS = {f"2^{power} {unit}": (1 << power, unit) for unit in ("elements", "bytes") for power in (31, 32)}
_REMEDY = "count rows, elements and bytes in 64 bits (int64_t, .to(tl.int64)), or return an error for what 32 bits cannot count"


def sets(probed_call: ProbedCall, key: str) -> tuple[list[InputSet], str]:
    """The small calls, each before the large ones that are made of it; or none and why."""
    if probed_call.builder.random:
        return [], "the op's outputs are random"
    on_gpu = device_of(probed_call.builder.device).is_accelerator
    batch, small, why = _small_call(probed_call, key, on_gpu=on_gpu, as_wide=True)
    if batch is None or small is None:
        return [], why
    made: list[InputSet] = []
    if not (batch.as_recorded or probed_call.interpreted):
        is_wide = _widest(batch, small) * GRID_ROWS > MANY_ELEMENTS
        narrow, few, _ = (
            _small_call(probed_call, key, on_gpu=on_gpu, as_wide=False) if is_wide else (batch, small, "")
        )
        if narrow is not None and few is not None:
            made += _more_rows(narrow, few)
        if on_gpu or probed_call.reference_set.nbytes >= WORTH_BYTES:
            made += _more_elements(batch, small, on_gpu=on_gpu)
    made += _apart(batch, small, on_gpu=on_gpu)
    by_name = {input_set.expected.name: input_set for input_set in made}
    return [*by_name.values()], "" if made else "the number of rows must not change"


def _small_call(
    probed_call: ProbedCall, key: str, *, on_gpu: bool, as_wide: bool
) -> tuple[Batch | None, InputSet | None, str]:
    """The call whose rows large ones are made of; or none and why."""
    most, of_rows = (
        (MOST_BYTES_OF_GPU, MOST_BYTES_OF_ROWS_OF_GPU) if on_gpu else (MOST_BYTES, MOST_BYTES_OF_ROWS)
    )
    sizes = [size for size in ROWS if size <= FEW_ROWS or not probed_call.interpreted]
    batch, why = batch_of(probed_call, f"{key}/{NAME}", sizes, most, most_of_rows=of_rows, as_wide=as_wide)
    if batch is None:
        return None, None, why
    small = batch.all_rows(NAME, axes=(0, -1))
    if small.mutated or small.expected.arrangement is not None:
        return None, None, "the op changes its arguments, or several answers are right as a whole"
    if any(0 < meta.stride[0] < _row_extent(meta) for meta in _batched(batch, small)):
        return None, None, "the rows of an argument do not lie one after the other"
    twice = (*range(batch.size), *range(batch.size))
    if held_rows(small, "twice", batch.part(twice), twice, batch.device) is None:
        return (
            None,
            None,
            "torch's own rows depend on each other, or no output has a row for each of the inputs",
        )
    return batch, small, ""


def _batched(batch: Batch, small: InputSet) -> list[TensorMeta]:
    return [small.layout.metas[index] for index in batch.batched]


def _widest(batch: Batch, small: InputSet) -> int:
    """Elements of the widest row."""
    tensors = (*_batched(batch, small), *small.outputs)
    return max(max(meta.stride[0], meta.numel // batch.size) for meta in tensors if meta.shape)


def _more_rows(batch: Batch, small: InputSet) -> Iterator[InputSet]:
    """The small call, and the one with more rows than a grid's y has blocks."""
    rows = batch.size * -(-(GRID_ROWS + 2) // batch.size)
    yield small
    yield _large(batch, small, f"{rows:,} rows, beyond {GRID_ROWS:,}", (rows,), base=small.expected.name)


def _more_elements(batch: Batch, small: InputSet, *, on_gpu: bool) -> Iterator[InputSet]:
    """The small call, and the one with more than 2^31 elements."""
    limits = (1 << 32, 1 << 31) if on_gpu else (1 << 31,)
    copies = [limit // _widest(batch, small) // batch.size + 2 for limit in limits]
    yield small
    rows = tuple(batch.size * count for count in copies)
    yield _large(batch, small, "more than 2^31 elements", rows, base=small.expected.name)


def _apart(batch: Batch, small: InputSet, *, on_gpu: bool) -> Iterator[InputSet]:
    """The call whose rows lie a little apart, and the one in which they lie far apart."""
    metas = _batched(batch, small)
    if all(len(meta.shape) < 2 for meta in metas):
        return
    near = 64 * (max(map(_row_extent, metas)) // 64 + 2)
    far = [
        PAGE_ELEMENTS * (limit // (batch.size - 1) // PAGE_ELEMENTS + 2)
        for limit in ((1 << 32, 1 << 31) if on_gpu else (1 << 32,))
    ]
    if far[-1] > near:
        name = f"rows {near} elements apart"
        yield _large(batch, small, name, (near,), apart=True)
        yield _large(batch, small, "rows apart beyond 2^31 elements", tuple(far), apart=True, base=name)


def _large(
    batch: Batch, small: InputSet, name: str, sizes: tuple[int, ...], *, apart: bool = False, base: str = ""
) -> InputSet:
    assert small.rows is not None
    rows = replace(small.rows, base=base)
    large = LargeTrial(
        batched=tuple(batch.batched), axis=rows.axis, rows=batch.size, apart=apart, sizes=sizes
    )
    return replace(small, expected=replace(small.expected, name=name), rows=rows, large=large)


def _row_extent(meta: TensorMeta) -> int:
    return extent(meta.shape[1:], meta.stride[1:])


# ---- judging


@dataclass(frozen=True, slots=True, kw_only=True)
class LargeAnswer:
    """What a kernel gave for one set."""

    inputs: InputSet
    """The set."""
    error: RaisedError | None
    """What it raised instead, or died of."""
    failed: Check | None
    """The first check that it fails."""
    got: Sequence[Tensor]
    """Its outputs: of all copies of a row the one that is farthest from the small call's."""
    places: Tensor | None
    """Size of the large call, and then where each of these rows was in it."""

    @property
    def right(self) -> bool:
        """Whether there is nothing to say of it."""
        return self.error is None and self.failed is None


def judge(answers: Sequence[LargeAnswer]) -> tuple[list[str], list[str]]:
    """What is wrong in large calls alone, and what else is to be told."""
    by_name = {answer.inputs.expected.name: answer for answer in answers}
    wrong: list[str] = []
    told: list[str] = []
    for answer in answers:
        name, rows = answer.inputs.expected.name, answer.inputs.rows
        if answer.right or rows is None:
            continue
        if rows.base and not by_name[rows.base].right:
            continue  # which is told of the small call
        if answer.error is not None and not (rows.base and _crashed(answer.error)):
            told.append(f"{name} ({answer.error.message.partition(chr(10))[0]})")
        elif not rows.base:
            told.append(f"{name} and what is beyond (the kernel is wrong there)")
        else:
            words = answer.error.message.partition("\n")[0] if answer.error else _first_wrong(answer)
            wrong.append(f"with {name} {words}; with {rows.base} it is right\n→ {_REMEDY}")
    return wrong, told


def _crashed(error: RaisedError) -> bool:
    """Whether it read or wrote where nothing may be; a killed process may have been one without memory."""
    cause = cause_of(error.kind, error.message)
    died = error.phase == "died" and error.kind == Reason.CRASHED.value and "SIGKILL" not in error.message
    return died or cause is Reason.ILLEGAL_ADDRESS or error.kind == Reason.ILLEGAL_ADDRESS.value


def _first_wrong(answer: LargeAnswer) -> str:
    """The first row that is about as wrong as the worst, and the limit that lies before it."""
    check, rows = answer.failed, answer.inputs.rows
    assert check is not None
    assert rows is not None
    number = check.worst.output if check.worst else -1
    expected = next((each for each in answer.inputs.expected.outputs if each.index == number), None)
    if check.worst is None or expected is None or answer.places is None:
        return f"the answer is wrong: {check.message}"
    got = answer.got[answer.inputs.expected.outputs.index(expected)]
    gaps = (got.to(torch.float64) - expected.answer.to(torch.float64)).abs().nan_to_num(nan=torch.inf)
    gaps = gaps.movedim(rows.axis, 0).reshape(len(rows.sources), -1).amax(-1)
    size, *places = answer.places.tolist()
    index = list(check.worst.index)
    wrong = (gaps >= gaps[index[rows.axis]] / 2).nonzero().flatten().tolist()
    row = min(places[each] for each in wrong)
    index[rows.axis] = places[index[rows.axis]]
    limits = _limits_before(answer.inputs, size, row)
    beyond = f", beyond {limits[-1]}" if limits else ""
    if not limits and (limits := _limits_before(answer.inputs, size, size - 1)):
        beyond = f" in a call beyond {limits[-1]}"
    return (
        f"output {number} is wrong from row {row:,} on{beyond}: "
        f"{check.worst.got} instead of {check.worst.expected} at {tuple(index)}"
    )


def _limits_before(inputs: InputSet, size: int, row: int) -> list[str]:
    """The limits that the end of a row is beyond, the nearest last."""
    large = inputs.large
    assert large is not None
    names = {
        int(argument.value.value or 0): argument.name
        for argument in inputs.call.arguments
        if argument.value.kind == "tensor"
    }
    tensors = [
        (names.get(index, f"tensor {index}"), inputs.layout.metas[index], large.apart)
        for index in large.batched
    ]
    tensors += [(f"output {index}", meta, False) for index, meta in enumerate(inputs.outputs)]
    crossed = [] if large.apart or row < GRID_ROWS else [(GRID_ROWS, "elements", f"{GRID_ROWS:,} rows")]
    for name, meta, apart in tensors:
        step = size if apart and len(meta.shape) > 1 else max((*meta.stride[:1], meta.numel // large.rows, 1))
        for words, (limit, unit) in _LIMITS.items():
            first = limit // (step * (ITEMSIZE[meta.dtype] if unit == "bytes" else 1))
            if first <= row:
                crossed.append((first, unit, f"{words} of {name}"))
    return [words for _, _, words in sorted(crossed)]


def places(tensors: Sequence[Tensor], count: int) -> Tensor | None:
    """Where rows were, as a worker tells it behind so many outputs; None if it does not."""
    if len(tensors) != count + 1 or tensors[-1].dtype != torch.int64 or tensors[-1].ndim != 1:
        return None
    return tensors[-1]
