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
from pytest_cgins.core.text import counted
from pytest_cgins.core.trace import TensorMeta
from pytest_cgins.core.verdict import Check, Reason
from pytest_cgins.verify.input_sets import NARROW, InputSet, RowTrial
from pytest_cgins.verify.messages import LargeTrial, RaisedError
from pytest_cgins.verify.probes.invariance import Batch, batch_of, held_rows
from pytest_cgins.verify.probes.registry import WORTH_BYTES
from pytest_cgins.verify.size_search import FEW_ROWS, ProbedCall

NAME = "large_indices"
ROWS = tuple(3 << power for power in range(9, -1, -1))
"""Rows of the small call: the first that fits. Three divides no power of two, so whoever goes 2^31 or 2^32 too far meets another row."""
MOST = {False: (16 << 20, 1 << 19), True: (256 << 20, 1 << 23)}
"""Bytes of the small call and of its rows, on a CPU and on a GPU."""
LIMITS = (1 << 31, 1 << 32)
GRID_ROWS = 65_535
"""Most blocks along y and z of a CUDA grid."""
MANY_ELEMENTS = 1 << 28
"""Where so many rows have more elements, others are tried that are as narrow as torch allows."""
PAGE_ELEMENTS = 4096
"""Rows that lie apart begin on pages."""
MOST_TABLE_ROWS = 8192
"""Of an argument whose rows are not the call's: each is mapped by itself."""
_REMEDY = (
    "count rows, elements and bytes in 64 bits (int64_t, .to(tl.int64)), or return an error for what 32 bits cannot count; "
    'where no caller ever has so many, say so in its entry in cgins.yaml: probes: {large_indices: {off: "…"}}'
)


def sets(probed_call: ProbedCall, key: str) -> tuple[list[InputSet], str]:
    """The small calls, each before the large ones that are made of it; or none and why."""
    if probed_call.builder.random:
        return [], "the op's outputs are random"
    on_gpu = device_of(probed_call.builder.device).is_accelerator
    wide = _small_call(probed_call, key, on_gpu=on_gpu, as_wide=True)
    if isinstance(wide, str):
        return [], wide
    made: list[InputSet] = []
    if not (wide.batch.as_recorded or probed_call.interpreted):
        is_narrow = wide.row_elements * GRID_ROWS <= MANY_ELEMENTS
        many = wide if is_narrow else _small_call(probed_call, key, on_gpu=on_gpu, as_wide=False)
        if not isinstance(many, str):
            rows = many.batch.size * -(-(GRID_ROWS + 2) // many.batch.size)
            made += [many.inputs, many.large(f"more than {GRID_ROWS:,} rows", (rows,))]
        if on_gpu or probed_call.reference_set.nbytes >= WORTH_BYTES:
            size = wide.batch.size
            limits = LIMITS[::-1] if on_gpu else LIMITS[:1]
            copies = [limit // wide.row_elements // size + 2 for limit in limits]
            sizes = tuple(size * count for count in copies)
            made += [wide.inputs, wide.large("more than 2^31 elements", sizes)]
    made += wide.apart(on_gpu=on_gpu)
    by_name = {input_set.expected.name: input_set for input_set in made}
    return [*by_name.values()], "" if made else "the number of rows must not change"


@dataclass(frozen=True, slots=True)
class _SmallCall:
    """The call whose rows large ones are made of."""

    batch: Batch
    inputs: InputSet

    @property
    def steps(self) -> dict[str, tuple[int, int]]:
        """Elements from one row to the next, and bytes of one, of the tensors that have rows, by their names."""
        names = {
            argument.value.value: argument.name
            for argument in self.inputs.call.arguments
            if argument.value.kind == "tensor"
        }
        metas = self.inputs.layout.metas
        steps: dict[str, tuple[int, int]] = {}
        for index in self.batch.batched:
            name, meta = names.get(index, f"tensor {index}"), metas[index]
            steps[name] = max(1, meta.stride[0]), ITEMSIZE[meta.dtype]
        for index, meta in enumerate(self.inputs.outputs):
            steps[f"output {index}"] = max(1, meta.numel // self.batch.size), ITEMSIZE[meta.dtype]
        return steps

    @property
    def row_elements(self) -> int:
        """Elements of the widest row."""
        return max(step for step, _ in self.steps.values())

    def large(
        self, name: str, sizes: tuple[int, ...], *, apart: tuple[int, ...] = (), base: str | None = None
    ) -> InputSet:
        """A large call of its rows, or with those of some arguments apart, which is right as the base is."""
        assert self.inputs.rows is not None
        rows = replace(self.inputs.rows, base=self.inputs.expected.name if base is None else base)
        units: dict[str, int] = {}
        for tensor, (step, itemsize) in self.steps.items():
            if not (apart and tensor.startswith("output ")):
                elements = 1 if apart else step
                units |= {f"elements of {tensor}": elements, f"bytes of {tensor}": elements * itemsize}
        trial = LargeTrial(
            batched=apart or tuple(self.batch.batched),
            axis=rows.axis,
            rows=self.batch.size,
            apart=bool(apart),
            sizes=sizes,
            units=units,
        )
        return replace(self.inputs.named(name, NAME), rows=rows, large=trial)

    def apart(self, *, on_gpu: bool) -> Iterator[InputSet]:
        """The call whose rows lie a little apart, and the one in which they lie far apart."""
        everywhere = (*self.batch.batched, *self._tables())
        # Tables of integers are small, and kernels may want them dense.
        everywhere = tuple(filter(self._holds_numbers, everywhere)) or everywhere
        metas = [self.inputs.layout.metas[index] for index in everywhere]
        near = 64 * (max(map(_row_extent, metas)) // 64 + 2)
        limits = LIMITS[::-1] if on_gpu else LIMITS[1:]
        far = [PAGE_ELEMENTS * (limit // (self.batch.size - 1) // PAGE_ELEMENTS + 2) for limit in limits]
        if far[-1] > near and any(len(meta.shape) > 1 for meta in metas):
            name = f"rows {counted(near, 'element')} apart"
            yield self.large(name, (near,), apart=everywhere, base="")
            yield self.large("rows apart beyond 2^31 elements", tuple(far), apart=everywhere, base=name)

    def _holds_numbers(self, index: int) -> bool:
        dtype = self.inputs.layout.metas[index].dtype
        return "float" in dtype or "complex" in dtype or dtype in NARROW

    def _tables(self) -> list[int]:
        """Arguments of numbers whose rows are not the call's: tables, weights of experts, pages of a cache."""
        storages = [meta.storage for meta in self.inputs.layout.metas]
        return [
            index
            for index, meta in enumerate(self.inputs.layout.metas)
            if index not in self.batch.batched
            and self._holds_numbers(index)
            and len(meta.shape) > 1
            and 1 < meta.shape[0] <= MOST_TABLE_ROWS
            and meta.stride[0] >= _row_extent(meta)
            and storages.count(meta.storage) == 1
        ]


def _small_call(probed_call: ProbedCall, key: str, *, on_gpu: bool, as_wide: bool) -> _SmallCall | str:
    """The call whose rows large ones are made of; or why there is none."""
    most, most_of_rows = MOST[on_gpu]
    sizes = [size for size in ROWS if size <= FEW_ROWS or not probed_call.interpreted]
    key = f"{key}/{NAME}"
    batch, why = batch_of(probed_call, key, sizes, most, most_of_rows=most_of_rows, as_wide=as_wide)
    if batch is None:
        return why
    small = batch.all_rows(NAME, axes=(0, -1))
    if small.mutated or small.expected.arrangement is not None:
        return "the op changes its arguments, or several answers are right as a whole"
    metas = [small.layout.metas[index] for index in batch.batched]
    if any(0 < meta.stride[0] < _row_extent(meta) for meta in metas):
        return "the rows of an argument do not lie one after the other"
    twice = (*range(batch.size), *range(batch.size))
    held = held_rows(small, "twice", batch.part(twice), twice)
    if held is None:
        return "torch's own rows depend on each other, or no output has a row for each of the inputs"
    if not all(
        _grows(before.shape, after.shape, small.rows, batch.size)
        for before, after in zip(small.outputs, held.outputs, strict=True)
    ):
        return "an output has its rows along another dimension than the others"
    return _SmallCall(batch, small)


def _grows(before: Sequence[int], after: Sequence[int], rows: RowTrial | None, size: int) -> bool:
    """Whether an output of twice the rows is twice as long along their axis if it has them there, and else as it was."""
    assert rows is not None
    if len(before) != len(after):
        return False
    grown = [
        dim - len(before) * (rows.axis < 0)
        for dim, (a, b) in enumerate(zip(before, after, strict=True))
        if a != b
    ]
    has_rows = len(before) >= max(1, -rows.axis) and before[rows.axis] == size
    return grown == [rows.axis] * has_rows


def _row_extent(meta: TensorMeta) -> int:
    return extent(meta.shape[1:], meta.stride[1:])


# ---- judging


@dataclass(frozen=True, slots=True, kw_only=True)
class LargeAnswer:
    """What a kernel gave for one set."""

    inputs: InputSet
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
    check, rows, large = answer.failed, answer.inputs.rows, answer.inputs.large
    assert check and rows and large  # noqa: PT018 - a large answer is wrong
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
    before = [(GRID_ROWS, "elements", f"{GRID_ROWS:,} rows")] * (not large.apart)
    before += [
        (limit // (unit * (size if large.apart else 1)), words, f"2^{limit.bit_length() - 1} {words}")
        for limit in LIMITS
        for words, unit in large.units.items()
    ]
    crossed = [limit for limit in before if limit[0] <= row]
    beyond = f", beyond {max(crossed)[2]}" if crossed else ""
    if not crossed and (of_call := [limit for limit in before if limit[0] < size * (not large.apart)]):
        beyond = f" in a call beyond {max(of_call)[2]}"
    return (
        f"output {number} is wrong from row {row:,} on{beyond}: "
        f"{check.worst.got} instead of {check.worst.expected} at {tuple(index)}"
    )
