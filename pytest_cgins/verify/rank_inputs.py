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

from pytest_cgins.core.layout import dtype_name, lay_out, rebuild
from pytest_cgins.core.text import counted
from pytest_cgins.core.trace import Trace
from pytest_cgins.core.verdict import Reason
from pytest_cgins.packs.call import relocate
from pytest_cgins.packs.ops import declared_of
from pytest_cgins.packs.recipe import BlobSource
from pytest_cgins.packs.replay import load_inputs
from pytest_cgins.verify import inputs
from pytest_cgins.verify.expected import as_real
from pytest_cgins.verify.input_sets import REFUSALS, InputSet, InputSetBuilder
from pytest_cgins.verify.messages import PrepareOptions
from pytest_cgins.verify.prepare import Preparation, refused
from pytest_cgins.verify.rank_group import RankGroup
from pytest_cgins.verify.rank_mistakes import Mistake, RankedAnswers, gives
from pytest_cgins.verify.reference import answer
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

    Args:
        trace: of a call in one process.
        source: of its blobs.
        device: `cpu` or `cuda:0`.
        seed: of the session.
        options: what the kernel's entry asks for.
        group: of the reference.

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
    legal = trace.gold is not None
    blank = [torch.zeros(storage.nbytes, dtype=torch.uint8) for storage in trace.storages]
    recorded = load_inputs(trace, source, "cpu") if legal else rebuild(trace.tensors, blank, "cpu")
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
        ranked = _answers(sets, [_zeroed(drawn[0], shared), *drawn], group, device)
    except REFUSALS as error:
        raise refused(trace, device, error) from error
    notes = [
        f"{counted(group.count, 'rank')}, each with inputs of its own: the recorded gold is that of one process and not compared",
        *dict.fromkeys(note for one in sets if (note := one.expected.note)),
    ]
    return Preparation(
        trace=alone, sets=tuple(sets), notes=tuple(notes), builder=builder, semantics=semantics,
        at_origin=tuple, reference=options.reference, ranked=ranked,
    )  # fmt: skip


def _zeroed(tensors: Sequence[Tensor], shared: set[int]) -> list[Tensor]:
    """Zeros where this rank has numbers of its own."""
    return [
        tensor if index in shared or not tensor.is_floating_point() else torch.zeros_like(tensor)
        for index, tensor in enumerate(tensors)
    ]


def _answers(
    sets: Sequence[InputSet], drawn: Sequence[Sequence[Tensor]], group: RankGroup, device: str
) -> RankedAnswers:
    """Answers of mistakes to each set; `drawn` has zeros, and the numbers of each set."""
    mistakes: dict[str, tuple[Mistake, ...]] = {}
    alike: dict[str, tuple[bool, ...]] = {}
    for number, one in enumerate(sets):
        name, right = one.expected.name, [output.answer for output in one.expected.outputs]
        gathered = [group.gather(output) for output in right]
        alike[name] = tuple(
            all(torch.equal(other, everyone[0]) for other in everyone) for everyone in gathered
        )
        if one.nbytes > _MOST_NBYTES:
            continue
        trial = _Trial(one, group, device, drawn[1 + number])
        before, nothing = drawn[1:][number - 1], drawn[0]
        alone = trial.mixed(nothing, mine=False)
        made = [
            Mistake(
                f"it is what comes out with {whose} numbers of the call before",
                trial.mixed(before, mine=mine),
                Reason.STALE_ANSWER,
            )
            for mine, whose in ((False, "the other ranks'"), (True, "this rank's"))
        ]
        made += [
            Mistake("the other ranks' part is missing", alone),
            Mistake("this rank's own part is missing", trial.mixed(nothing, mine=True)),
            *_of_peers(right, gathered, group),
            *trial.taken_twice(),
            *_added_otherwise(right, alone, group),
        ]
        mistakes[name] = tuple(mistake for mistake in made if not gives(mistake, right))
    return RankedAnswers(group, mistakes, alike)


@dataclass(frozen=True, slots=True)
class _Trial:
    """Runs of the op in which some rank has other numbers than its own. All ranks take part in each."""

    one: InputSet
    group: RankGroup
    device: str
    own: Sequence[Tensor]

    def mixed(self, instead: Sequence[Tensor], *, mine: bool) -> list[Tensor]:
        """What comes out here if this rank alone, or all others, have these numbers."""
        ranks = range(self.group.count)
        runs = [self._run(instead if (rank == self.group.rank) == mine else self.own) for rank in ranks]
        return runs[self.group.rank]

    def taken_twice(self) -> Iterator[Mistake]:
        """What comes out if a rank's numbers are taken in another's place."""
        if self.group.count > _MOST_PAIRED:
            return
        of_ranks = [self.group.gather(tensor) for tensor in self.own]
        for taken, left_out in permutations(range(self.group.count), 2):
            theirs = [_like(everyone[taken], own) for everyone, own in zip(of_ranks, self.own, strict=True)]
            given = self._run(theirs if self.group.rank == left_out else self.own)
            yield Mistake(f"rank {taken}'s numbers are in the place of rank {left_out}'s", given)

    def _run(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        one = self.one
        given = answer(one.call, lay_out(tensors), one.context, self.device, mutated=one.mutated)
        return [as_real(tensor) for tensor in given]


def _of_peers(
    right: Sequence[Tensor], gathered: Sequence[Sequence[Tensor]], group: RankGroup
) -> Iterator[Mistake]:
    """The right answers of other ranks, and answers whose parts come in another order of ranks."""
    for rank in range(group.count):
        theirs = [everyone[rank] for everyone in gathered]
        if rank != group.rank and all(map(_fits, theirs, right)):
            yield Mistake(f"it is the answer of rank {rank}", [*map(_like, theirs, right)])
    for turn in range(1, group.count):
        turned = [_turned(tensor, group.count, turn) for tensor in right]
        yield Mistake("its parts are in the places of other ranks'", turned)


def _turned(tensor: Tensor, count: int, turn: int) -> Tensor:
    size = tensor.shape[0] if tensor.ndim else 0
    return tensor.roll(turn * size // count, 0) if size and size % count == 0 else tensor


def _fits(theirs: Tensor, right: Tensor) -> bool:
    return theirs.numel() == right.numel() * right.element_size()


def _like(theirs: Tensor, right: Tensor) -> Tensor:
    return theirs.view(right.dtype).reshape(right.shape).to(right.device)


def _added_otherwise(right: Sequence[Tensor], alone: Sequence[Tensor], group: RankGroup) -> Iterator[Mistake]:
    """Sums as means, and the other way round; greatest parts, and rounded ones, where the answer is the sum of all ranks' parts."""
    count = group.count
    if not all(tensor.is_floating_point() and tensor.element_size() > 1 for tensor in right):
        return  # torch does not add up numbers of eight bits
    yield Mistake(
        f"it is {group.count} times the answer: a mean became a sum", [tensor * count for tensor in right]
    )
    yield Mistake(f"it is the answer over {count}: a sum became a mean", [tensor / count for tensor in right])
    gathered = [group.gather(tensor) for tensor in alone]
    if not all(
        _fits(part, tensor) for everyone, tensor in zip(gathered, right, strict=True) for part in everyone
    ):
        return
    parts = [
        torch.stack([_like(part, tensor) for part in everyone])
        for everyone, tensor in zip(gathered, right, strict=True)
    ]
    yield Mistake("it is the greatest of the ranks' parts, not their sum", [one.amax(0) for one in parts])
    yield Mistake("it is the least of the ranks' parts, not their sum", [one.amin(0) for one in parts])
    for dtype in (torch.bfloat16, torch.float16):
        words = f"parts were rounded to {dtype_name(dtype)} before they were added up"
        yield Mistake(words, [one.to(dtype).sum(0).to(one.dtype) for one in parts])
