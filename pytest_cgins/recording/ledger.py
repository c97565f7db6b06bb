"""The signatures that a recording has met: how often, what is kept of each, and which become traces; what was left out."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, field

import torch

from pytest_cgins.core.errors import RecordError
from pytest_cgins.core.text import counted
from pytest_cgins.core.trace import Blob, Context, Gold, Length, OpCall, Storage, TensorMeta
from pytest_cgins.packs.store import PackWriter, blobs_in
from pytest_cgins.recording import lengths
from pytest_cgins.recording.lengths import Form, Key
from pytest_cgins.recording.top_time import Candidate, OpTime, select

KEPT_WHILE_RUNNING = 8
"""Sizes of a family that keep their content until the end; more are chosen from than are needed."""
FIRST_LOOK = 16
"""Records that differ in sizes alone before the first look for a family among them."""
BEYOND_LIMIT = 40
"""Records of one form beyond `max_per_op`: they may prove to be one family."""


@dataclass(slots=True, eq=False)
class Record:
    """One signature while the model runs."""

    call: OpCall
    metas: tuple[TensorMeta, ...]
    """Its argument tensors."""
    storages: tuple[Storage, ...]
    """What is kept of their content."""
    context: Context
    device: torch.device
    canonical: str
    """What makes it a signature of its own."""
    form: Form
    """The same, with sizes apart."""
    gold: Gold | None = None
    """What it gave, if that is known already."""
    count: int = 1
    """Calls so far."""
    time: OpTime = field(default_factory=OpTime)
    """What they took, if it is measured."""
    number: int = 0
    """Its place among the signatures of the recording."""
    folded: bool = False
    """Whether its content was given up, since other sizes of its family stand for it."""
    rebound: tuple[str, ...] = ()
    """Arguments and state that the call set anew."""
    mixed: bool = False
    """Whether the gradients of a backward are those of another call than its inputs."""

    def blobs(self) -> Iterator[Blob]:
        """What it refers to in the pack."""
        return blobs_in(self.storages, self.gold)


@dataclass(frozen=True, slots=True)
class Kept:
    """A record that becomes a trace."""

    record: Record
    """The record, with its content."""
    count: int
    """Calls that it stands for."""
    lengths: tuple[Length, ...] = ()
    """The size that it stands for with others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a recording keeps, and what it leaves out."""

    kept: list[Kept]
    """In the order in which they were met."""
    left_out_signatures: int
    """Beyond the limit or the share of time; those that others of their family stand for are not among them."""
    left_out_calls: int
    """Their calls."""
    share: float
    """Of the ops' time that the kept ones cover, if time was measured."""


@dataclass(slots=True)
class _Bucket:
    """Records that differ in sizes alone."""

    live: list[Record] = field(default_factory=list)
    folded: dict[Key, list[Record]] = field(default_factory=lambda: defaultdict(list))
    next_look: int = FIRST_LOOK


@dataclass(frozen=True, slots=True)
class _Unit:
    """A record of its own, or a family."""

    members: list[Record]
    sizes: list[int]
    """One a member; [0] for a record of its own."""
    chosen: list[Record]
    """Members that can become traces, the most telling first."""
    places: tuple[int, ...] = ()

    def kept(self, count: int) -> list[Kept]:
        """The first `count` of the chosen, which share the calls of all."""
        chosen = self.chosen[:count]
        if not self.places:
            return [Kept(record, record.count) for record in chosen]
        size_of = {id(record): size for record, size in zip(self.members, self.sizes, strict=True)}
        kept_sizes = [size_of[id(record)] for record in chosen]
        calls: Counter[int] = Counter()
        for record, size in zip(self.members, self.sizes, strict=True):
            calls[lengths.nearest(size, kept_sizes)] += record.count
        return [
            Kept(record, calls[size], (self._length(record, size),))
            for record, size in zip(chosen, kept_sizes, strict=True)
        ]

    def seconds(self) -> float:
        """Of all calls; backward ops whose content was dropped could not be timed, and take what the others do."""
        timed = [record for record in self.members if record.time]
        seconds = sum(record.time.seconds(record.count) for record in timed)
        calls = sum(record.count for record in timed)
        return seconds * sum(record.count for record in self.members) / calls if calls else 0.0

    def _length(self, record: Record, size: int) -> Length:
        places = (record.form.places[place] for place in self.places)
        return Length(
            size=size,
            sizes=tuple(sorted(set(self.sizes))),
            calls=sum(member.count for member in self.members),
            axes=tuple(place for place in places if place is not None),
        )


class Ledger:
    """All signatures of a recording, by their canonical text."""

    def __init__(
        self, writer: PackWriter, *, max_per_op: int | None, share: float | None, fold: bool
    ) -> None:
        """Take notes; the limit and the share are those of `record`, `fold` is its `lengths`."""
        self._writer = writer
        self._limit = max_per_op
        self._share = share
        self._fold = fold
        self._records: dict[str, Record] = {}
        self._per_op: Counter[str] = Counter()
        self._buckets: dict[Hashable, _Bucket] = {}
        self._references: Counter[Blob] = Counter()
        self.dropped = 0
        """Calls whose signature was beyond the limit when it came."""

    def __len__(self) -> int:
        return len(self._records)

    def __iter__(self) -> Iterator[Record]:
        return iter(self._records.values())

    def find(self, canonical: str) -> Record | None:
        """The record of a signature, if there is one."""
        return self._records.get(canonical)

    def admits(self, op: str, form: Form) -> bool:
        """Whether a signature that has not been met is to be recorded."""
        # By time, nobody knows yet which are the longest.
        if self._limit is None or self._share is not None or self._per_op[op] < self._limit:
            return True
        bucket = self._buckets.get(form.fixed)
        return self._fold and bucket is not None and len(bucket.live) < BEYOND_LIMIT

    def add(self, record: Record) -> None:
        """Note a signature that was not met before."""
        record.number = len(self._records)
        self._records[record.canonical] = record
        self._per_op[record.call.op] += 1
        self.refer(record.blobs())
        if self._fold:
            bucket = self._buckets.setdefault(record.form.fixed, _Bucket())
            bucket.live.append(record)
            if len(bucket.live) >= bucket.next_look:
                self._thin(bucket)

    def refer(self, blobs: Iterable[Blob]) -> None:
        """Keep blobs although no record has them."""
        self._references.update(blobs)

    def release(self, blobs: Iterable[Blob]) -> None:
        """Take back `refer`; blobs that nothing has any more are removed."""
        for blob in blobs:
            self._references[blob] -= 1
            if not self._references[blob]:
                self._writer.discard(blob)
                del self._references[blob]

    def mend(self, record: Record, metas: tuple[TensorMeta, ...], storages: tuple[Storage, ...]) -> None:
        """Give a mixed record content that belongs together."""
        record.mixed = False
        if record.folded:
            return
        # What stays must not be removed in between.
        self.refer(blobs_in(storages))
        self.release(blobs_in(record.storages))
        record.metas, record.storages = metas, storages

    def leave_out_mixed(self) -> list[Record]:
        """Remove the mixed records; those whose content was given up need none, and stay."""
        mixed = [record for record in self if record.mixed and not record.folded]
        for record in mixed:
            del self._records[record.canonical]
            self._per_op[record.call.op] -= 1
            self.release(record.blobs())
            if self._fold:
                self._buckets[record.form.fixed].live.remove(record)
        return mixed

    def _thin(self, bucket: _Bucket) -> None:
        """Give up the content of sizes that will not be chosen: a long generation has thousands."""
        fixed = bucket.live[0].form.fixed
        for family in lengths.families(
            [r.form for r in bucket.live], [(fixed, key) for key in bucket.folded]
        ):
            keep = lengths.thin(family.sizes, KEPT_WHILE_RUNNING)
            for index, size in zip(family.members, family.sizes, strict=True):
                if size not in keep:
                    bucket.folded[family.places, family.rest].append(bucket.live[index])
                    self._give_up(bucket.live[index])
        bucket.live = [record for record in bucket.live if not record.folded]
        bucket.next_look = 2 * len(bucket.live) + FIRST_LOOK

    def _give_up(self, record: Record) -> None:
        record.folded = True
        self._per_op[record.call.op] -= 1
        self.release(record.blobs())
        record.storages, record.gold = (), None

    def outcome(self) -> Outcome:
        """What is to become traces."""
        units = self._units()
        candidates = [Candidate(unit.members[0].call.op, unit.seconds(), len(unit.chosen)) for unit in units]
        chosen = select(candidates, share=self._share, max_per_op=self._limit)
        left_out = [unit for unit, traces in zip(units, chosen.traces, strict=True) if not traces]
        return Outcome(
            kept=[
                kept
                for unit, traces in zip(units, chosen.traces, strict=True)
                for kept in (unit.kept(traces) if traces else ())
            ],
            left_out_signatures=sum(len(unit.members) for unit in left_out),
            left_out_calls=sum(record.count for unit in left_out for record in unit.members),
            share=chosen.share,
        )

    def _units(self) -> list[_Unit]:
        """Families and single records, in the order in which their first members were met."""
        live = [record for record in self._records.values() if not record.folded]
        first = [(fixed, key) for fixed, bucket in self._buckets.items() for key in bucket.folded]
        units: dict[int, _Unit] = {}
        single = {id(record): record for record in live}
        for family in lengths.families([record.form for record in live], first) if self._fold else ():
            members = [live[index] for index in family.members]
            folded = self._buckets[members[0].form.fixed].folded[family.places, family.rest]
            by_size = dict(zip(family.sizes, members, strict=True))
            chosen = [by_size[size] for size in lengths.representatives(family.sizes)]
            sizes = [*family.sizes, *(record.form.sizes[family.places[0]] for record in folded)]
            everyone = [*members, *folded]
            units[min(record.number for record in everyone)] = _Unit(everyone, sizes, chosen, family.places)
            for record in members:
                del single[id(record)]
        units |= {record.number: _Unit([record], [0], [record]) for record in single.values()}
        return [units[number] for number in sorted(units)]


class Skipped:
    """How many calls were left out, by op and reason."""

    def __init__(self) -> None:
        self._calls: Counter[tuple[str, str]] = Counter()
        self._remedies: dict[str, None] = {}

    def __bool__(self) -> bool:
        return bool(self._calls)

    def add(self, op: str, reason: RecordError, calls: int = 1) -> None:
        """Count calls of an op that were left out for one reason."""
        self._calls[op, reason.what] += calls
        self._remedies[reason.remedy] = None

    def warning(self) -> str:
        """`calls were left out that cannot be recorded: torch.matmul, 2 calls: a tensor with …`."""
        left_out = "; ".join(
            f"{op}, {counted(calls, 'call')}: {reason}" for (op, reason), calls in self._calls.items()
        )
        return f"calls were left out that cannot be recorded: {left_out}"

    def error(self) -> RecordError:
        """What to raise when nothing else was recorded."""
        what = "; ".join(
            f"{op} cannot be recorded, in {counted(calls, 'call')}: {reason}"
            for (op, reason), calls in self._calls.items()
        )
        return RecordError(
            f"{what}; no other call of a recordable op was seen", remedy="; ".join(self._remedies)
        )
