"""What a recording does after the model has run: gold, replay, and the pack in its place."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Literal

import torch

from pytest_cgins.core.console import tracked
from pytest_cgins.core.errors import RecordError, ReplayError
from pytest_cgins.core.layout import rebuild
from pytest_cgins.core.trace import TRACE_PACK_VERSION, Storage, Trace, TracePack
from pytest_cgins.packs import gold, recipe, replay
from pytest_cgins.packs.backward import is_derived
from pytest_cgins.packs.call import bound
from pytest_cgins.packs.context import neutral, origin_of, restore
from pytest_cgins.packs.fingerprint import readable
from pytest_cgins.packs.inputs import Tier
from pytest_cgins.packs.store import PackReader, PackWriter, seal
from pytest_cgins.recording.ledger import Kept, Ledger, Record
from pytest_cgins.recording.side_effects import changed_tensors, tensor_hashes

_TIMED_CALLS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Finisher:
    """Turns records into a pack."""

    writer: PackWriter
    tier: Tier
    name: str
    refuse: Callable[[str, RecordError, int], None]
    """Gets op, reason and number of the calls that cannot be recorded."""
    progress: bool

    def time_again(self, ledger: Ledger) -> None:
        """Measure, on what is kept of their inputs, what the calls have not told.

        That is backward ops, which autograd ran unseen, and ops that ran once: the only call of a convolution pays for
        cuDNN's plan, fifty times what it takes.
        """
        unknown = [record for record in ledger if record.time.is_unsettled and not record.folded]
        for record in tracked(unknown, "Timing once more", shown=self.progress):
            if not is_derived(record.call.op):
                # What does not run on such inputs keeps the time of its call; if it is kept itself, `traces` says why.
                with suppress(Exception):
                    self._timed(record)
                continue
            with _explained(record.call.op):
                self._timed(record)

    def _timed(self, record: Record) -> None:
        tensors = self._inputs(record)[1]
        with restore(record.context, str(record.device)):
            run = bound(record.call, tensors)
            for _ in range(_TIMED_CALLS):
                record.time.run(run, record.device)

    def traces(self, kept: Sequence[Kept]) -> list[Trace]:
        """The traces of records, with gold, ordered by op and signature."""
        ordered = sorted(kept, key=lambda one: one.record.canonical)
        signatures = _signatures([one.record for one in ordered])
        traces = []
        for one, signature in tracked(
            list(zip(ordered, signatures, strict=True)), "Taking gold", shown=self.progress
        ):
            try:
                traces.append(self._trace(one, signature))
            except RecordError as error:
                self.refuse(one.record.call.op, error, one.count)
        return sorted(traces, key=lambda trace: (trace.call.op, trace.signature))

    def commit(self, traces: Sequence[Trace]) -> TracePack:
        """Replay every trace from what was written, and put the pack in place.

        Raises:
            ReplayError: if a trace does not give its own gold.
        """
        pack = TracePack(version=TRACE_PACK_VERSION, name=self.name, tier=self.tier, traces=tuple(traces))
        if self.tier != "shapes":
            reader = self.writer.preview(pack)
            checked = [
                replace(trace, replay=_replayed(trace, reader))
                for trace in tracked(reader.pack.traces, "Replaying", shown=self.progress)
            ]
            pack = replace(pack, traces=tuple(checked))
        return self.writer.commit(pack).pack

    def _trace(self, one: Kept, signature: str) -> Trace:
        record = one.record
        trace = Trace(
            id="",
            signature=signature,
            call=record.call,
            tensors=record.metas,
            storages=record.storages,
            context=record.context,
            gold=record.gold,
            replay="unchecked",
            count=one.count,
            origin=origin_of(record.device),
            lengths=one.lengths,
            rebound=record.rebound,
        )
        if self.tier != "shapes" and trace.gold is None:
            trace = self._with_gold(trace, record, self.tier)
        return seal(trace)

    def _with_gold(self, trace: Trace, record: Record, tier: Literal["recipe", "full"]) -> Trace:
        """Run the op on the inputs that a replay will make."""
        storages, tensors = self._inputs(record)
        trace = replace(trace, storages=storages)
        before = tensor_hashes(tensors)
        with _explained(f"{trace.call.op} {trace.signature}"):
            result = replay.run(trace, tensors)
            answer = gold.describe(
                result, tensors, changed_tensors(trace.call, tensors, before), tier, self.writer.add
            )
        return replace(trace, gold=answer)

    def _inputs(self, record: Record) -> tuple[tuple[Storage, ...], list[torch.Tensor]]:
        """Storages whose recipes are sealed, and the tensors on them; zeros in tier `shapes`."""
        storages, spans = [], []
        for kept in record.storages:
            storage = kept
            if kept.recipe is not None:
                storage, content = recipe.seal(kept, self.writer)
                spans.append(torch.from_numpy(content))
            elif self.tier == "shapes":
                spans.append(torch.zeros(kept.nbytes, dtype=torch.uint8, device="cpu"))
            else:
                spans.append(replay.load_blob(kept, self.writer))
            storages.append(storage)
        with neutral():
            return tuple(storages), rebuild(record.metas, spans, record.device)


@contextmanager
def _explained(what: str) -> Iterator[None]:
    """Turn what an op raises on inputs that it accepted in another form into an error that names it."""
    try:
        yield
    except RecordError:
        raise
    except Exception as error:
        raise ReplayError(
            f"{what} cannot be run on inputs with the recorded statistics: {type(error).__name__}: {error}",
            remedy="record it with tier='full', or leave it out through ops=[…]",
        ) from error


def _signatures(records: Sequence[Record]) -> list[str]:
    """Readable signatures, their digests as long as uniqueness needs."""
    for digits in (4, 8, 16, 64):
        signatures = [readable(made.canonical, made.metas, digits) for made in records]
        if len(set(signatures)) == len(signatures):
            break
    return signatures


def _replayed(trace: Trace, reader: PackReader) -> Literal["bitwise", "derived"]:
    """How the self-check of a trace went.

    Raises:
        ReplayError: if it does not reproduce its gold.
    """
    outcome = replay.check(trace, reader)
    if outcome == "derived" and not replay.is_nondeterministic(trace, reader):
        # Attention that splits its keys among blocks does so on GPUs.
        warnings.warn(
            f"{trace.call.op} {trace.signature} gives other last bits each time, and torch does not say so; it is recorded, "
            "and held to them approximately → if it draws on hidden state, leave it out through ops=[…]",
            stacklevel=2,
        )
    return outcome
