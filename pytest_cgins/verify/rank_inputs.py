"""What is known of a trace before several ranks answer: each one's inputs, torch's answers, and those of common mistakes.

All ranks of the reference make them together: each runs the op as often, and in the same order, whatever the numbers are.
The recorded numbers are those of one process and go into no set; what was recorded as integers or masks stays, on all ranks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import permutations

import torch
from torch import Tensor

from pytest_cgins.core.bitwise import as_real
from pytest_cgins.core.layout import dtype_name
from pytest_cgins.core.text import counted
from pytest_cgins.core.trace import Trace
from pytest_cgins.core.verdict import Reason
from pytest_cgins.packs.call import relocate
from pytest_cgins.packs.ops import declared_of
from pytest_cgins.packs.recipe import BlobSource
from pytest_cgins.verify import inputs
from pytest_cgins.verify.input_sets import InputSet, InputSetBuilder
from pytest_cgins.verify.messages import PrepareOptions
from pytest_cgins.verify.prepare import Preparation, recorded_inputs, refused
from pytest_cgins.verify.rank_group import RankGroup
from pytest_cgins.verify.rank_mistakes import Mistake, RankedAnswers, gives, unlike_first
from pytest_cgins.verify.reference import REFUSALS
from pytest_cgins.verify.semantics import check_names, semantics_for

SETS = ("fresh", "second")
"""Two: what a call leaves for the next shows in the second."""
_MOST_NBYTES = 2**26
"""Of inputs whose mistakes are looked for."""
_MOST_PAIRED = 4
"""Ranks of which each is tried in each other's place."""


def prepare(  # noqa: PLR0917
    trace: Trace, source: BlobSource, device: str, seed: int, options: PrepareOptions, group: RankGroup
) -> Preparation:
    """Make this rank's sets of inputs; all ranks do so together.

    Raises:
        ReplayError: torch does not run the op on these inputs.
        Others: as `verify.prepare.prepare`.
    """
    if options.reference:
        trace = replace(trace, call=replace(trace.call, op=options.reference))
    call = relocate(trace.call, device)
    check_names(call, options.declared)
    declared = options.declared | declared_of(call.op)
    semantics = semantics_for(call, declared)
    recorded, legal = recorded_inputs(trace, source), trace.gold is not None
    alone = replace(trace, gold=None)
    builder = InputSetBuilder(
        alone, call, device, tf32=options.allow_tf32, mutable=semantics.mutated(call), declared=declared
    )
    shared = {index for index, name in semantics.names.items() if name in options.ranks.replicated}
    drawn = []
    for name in SETS:
        key = f"{seed}/{trace.id}/{name}"
        own = inputs.fresh(call, recorded, f"{key}/{group.rank}", declared, legal=legal)
        same = inputs.fresh(call, recorded, key, declared, legal=legal) if shared else own
        drawn.append([same[index] if index in shared else tensor for index, tensor in enumerate(own)])
    try:
        sets = [builder.make(name, tensors) for name, tensors in zip(SETS, drawn, strict=True)]
        ranked = _answers(sets, [_zeroed(drawn[0], shared), *drawn], group)
    except REFUSALS as error:
        raise refused(trace, device, error) from error
    notes = [
        f"{counted(group.count, 'rank')}, each with inputs of its own: the recorded gold is that of one process and not compared",
        *dict.fromkeys(note for one in sets if (note := one.expected.note)),
    ]
    return Preparation(
        trace=alone, sets=tuple(sets), notes=tuple(notes), builder=builder, at_origin=tuple,
        reference=options.reference, ranked=ranked,
    )  # fmt: skip


def _zeroed(tensors: Sequence[Tensor], shared: set[int]) -> list[Tensor]:
    """Zeros where this rank has numbers of its own."""
    return [
        tensor if index in shared or not tensor.is_floating_point() else torch.zeros_like(tensor)
        for index, tensor in enumerate(tensors)
    ]


def _answers(sets: Sequence[InputSet], drawn: Sequence[Sequence[Tensor]], group: RankGroup) -> RankedAnswers:
    """Answers of mistakes to each set; `drawn` has zeros, and the numbers of each set."""
    mistakes: dict[str, tuple[Mistake, ...]] = {}
    alike: dict[str, tuple[bool, ...]] = {}
    nothing, *numbers = drawn
    for number, one in enumerate(sets):
        name, right = one.expected.name, [output.answer for output in one.expected.outputs]
        of_ranks = [group.gather(output) for output in right]
        alike[name] = tuple(not unlike_first(everyone) for everyone in of_ranks)
        if one.nbytes <= _MOST_NBYTES:
            trial = _Trial(one, group, numbers[number], right)
            made = [*trial.of_numbers(numbers[number - 1], nothing), *trial.of_peers(of_ranks)]
            mistakes[name] = tuple(mistake for mistake in made if not gives(mistake, right))
    return RankedAnswers(group, mistakes, alike)


@dataclass(frozen=True, slots=True)
class _Trial:
    """What comes out of a set if something is mistaken. All ranks take part in each run."""

    one: InputSet
    group: RankGroup
    own: Sequence[Tensor]
    right: Sequence[Tensor]

    def of_numbers(self, before: Sequence[Tensor], nothing: Sequence[Tensor]) -> Iterator[Mistake]:
        """If some rank has other numbers than its own: those of the call before, none, or another rank's."""
        alone = self._mixed(nothing, mine=False)
        for mine, whose in ((False, "the other ranks'"), (True, "this rank's")):
            words = f"it is what comes out with {whose} numbers of the call before"
            yield Mistake(words, self._mixed(before, mine=mine), Reason.STALE_ANSWER)
        yield Mistake("the other ranks' part is missing", alone)
        yield Mistake("this rank's own part is missing", self._mixed(nothing, mine=True))
        if self.group.count <= _MOST_PAIRED:
            of_ranks = [_like(self.group.gather(tensor), tensor) for tensor in self.own]
            for taken, left_out in permutations(range(self.group.count), 2):
                theirs = [everyone[taken] for everyone in of_ranks]
                given = self._run(theirs if self.group.rank == left_out else self.own)
                yield Mistake(f"rank {taken}'s numbers are in the place of rank {left_out}'s", given)
        yield from self._added_otherwise(alone)

    def of_peers(self, of_ranks: Sequence[Sequence[Tensor]]) -> Iterator[Mistake]:
        """The right answers of other ranks, and answers whose parts come in another order of ranks."""
        theirs = [_like(everyone, tensor) for everyone, tensor in zip(of_ranks, self.right, strict=True)]
        for rank in range(self.group.count):
            if rank != self.group.rank and all(rank in everyone for everyone in theirs):
                yield Mistake(f"it is the answer of rank {rank}", [everyone[rank] for everyone in theirs])
        for turn in range(1, self.group.count):
            turned = [_turned(tensor, self.group.count, turn) for tensor in self.right]
            yield Mistake("its parts are in the places of other ranks'", turned)

    def _added_otherwise(self, alone: Sequence[Tensor]) -> Iterator[Mistake]:
        """Sums as means, and the other way round; greatest parts, and rounded ones, where the answer is the sum of all ranks' parts."""
        right, count = self.right, self.group.count
        if not all(tensor.is_floating_point() and tensor.element_size() > 1 for tensor in right):
            return  # torch does not add up numbers of eight bits
        many = [tensor * count for tensor in right]
        yield Mistake(f"it is {counted(count, 'time')} the answer: a mean became a sum", many)
        few = [tensor / count for tensor in right]
        yield Mistake(f"it is the answer over {count}: a sum became a mean", few)
        gathered = [self.group.gather(tensor) for tensor in alone]
        of_ranks = [_like(everyone, tensor) for everyone, tensor in zip(gathered, right, strict=True)]
        if not all(len(everyone) == count for everyone in of_ranks):
            return
        parts = [torch.stack([*everyone.values()]) for everyone in of_ranks]
        yield Mistake("it is the greatest of the ranks' parts, not their sum", [one.amax(0) for one in parts])
        yield Mistake("it is the least of the ranks' parts, not their sum", [one.amin(0) for one in parts])
        for dtype in (torch.bfloat16, torch.float16):
            words = f"parts were rounded to {dtype_name(dtype)} before they were added up"
            yield Mistake(words, [one.to(dtype).sum(0).to(one.dtype) for one in parts])

    def _mixed(self, instead: Sequence[Tensor], *, mine: bool) -> list[Tensor]:
        """What comes out here if this rank alone, or all others, have these numbers."""
        ranks = range(self.group.count)
        runs = [self._run(instead if (rank == self.group.rank) == mine else self.own) for rank in ranks]
        return runs[self.group.rank]

    def _run(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        return [as_real(tensor) for tensor in self.one.answer(tensors)]


def _turned(tensor: Tensor, count: int, turn: int) -> Tensor:
    size = tensor.shape[0] if tensor.ndim else 0
    return tensor.roll(turn * size // count, 0) if size and size % count == 0 else tensor


def _like(everyone: Sequence[Tensor], own: Tensor) -> dict[int, Tensor]:
    """The bytes of ranks as tensors like this one's, by rank; of those that have as many."""
    return {
        rank: theirs.view(own.dtype).reshape(own.shape).to(own.device)
        for rank, theirs in enumerate(everyone)
        if theirs.numel() == own.numel() * own.element_size()
    }
