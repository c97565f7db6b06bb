"""Recording: `with pytest_cgins.record("traces/x", ops=[…]): model(x)`."""

from __future__ import annotations

import difflib
import warnings
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, TypeVar, get_args

import torch
import xxhash

from pytest_cgins.errors import RecordError, ReplayError
from pytest_cgins.model import (
    TRACE_PACK_VERSION,
    Argument,
    Context,
    Gold,
    OpCall,
    Storage,
    TensorMeta,
    Trace,
    TracePack,
)
from pytest_cgins.trace import gold, inputs, recipe, replay
from pytest_cgins.trace.context import capture, neutral
from pytest_cgins.trace.fingerprint import canonical, fingerprint, readable
from pytest_cgins.trace.inputs import Tier
from pytest_cgins.trace.intercept import Interceptor, TrainingFlags, marked
from pytest_cgins.trace.layout import lay_out, rebuild
from pytest_cgins.trace.ops import qualified_name, resolve
from pytest_cgins.trace.origin import origin_of
from pytest_cgins.trace.selection import default_ops
from pytest_cgins.trace.signature import bind
from pytest_cgins.trace.skipped import Skipped
from pytest_cgins.trace.store import PackReader, PackWriter, seal
from pytest_cgins.trace.validate import is_plain_name
from pytest_cgins.trace.values import encode, has_generator

ItemT = TypeVar("ItemT")


def record(
    path: Path | str,
    ops: Sequence[str] | None = None,
    tier: Tier = "recipe",
    name: str | None = None,
    max_per_op: int | None = None,
    *,
    progress: bool = False,
) -> Recording:
    """Record the calls of ops while the body runs, and write them as a trace pack.

    One trace is kept a signature: op, argument structure, dtypes, shapes, strides, plain values, context.
    Compiled models run eagerly meanwhile. At the end every trace is replayed from what was written, and
    only then is the pack put in place; an error or Ctrl-C leaves what was there before.

    Without `ops`, calls that cannot be recorded run as ever and are left out; one warning at the end
    says which, how many, and why.

    Args:
        path: folder of the pack; a pack that is there is replaced.
        ops: qualified names, e.g. `torch.nn.functional.gelu`, `torch.Tensor.matmul` or
            `models.decoder.rms_norm`; None for the ops that compute, and all marked functions.
        tier: `shapes` keeps forms only; `recipe` seeded inputs with the recorded statistics, and gold for
            them; `full` all bytes.
        name: name of the pack, by default its folder's.
        max_per_op: how many signatures of one op are kept at most, 1 or more; the first ones are.
        progress: show progress on a terminal while traces are written and checked.

    Raises:
        PackError: at the start, if `path` is something else than a pack.
        RecordError: at the start, for a wrong option, or if `path` cannot be written; later, for a call of
            one of `ops` that cannot be recorded, or if nothing was recorded.
        ReplayError: if a trace does not give its own gold.
        TraceError: at the start, if an op of `ops` does not exist.
    """
    if tier not in get_args(Tier):
        raise RecordError(f"tier {tier!r} does not exist", remedy="use shapes, recipe or full")
    if max_per_op is not None and max_per_op < 1:
        raise RecordError(
            f"max_per_op is {max_per_op}: no signature would be kept",
            remedy="use 1 or more, or leave max_per_op= / --max-per-op out to keep all",
        )
    name = name or Path(path).absolute().name
    if not is_plain_name(name):
        raise RecordError(
            f"the pack cannot be named {name!r}",
            remedy="begin with a letter or digit, and use letters, digits, _ . -; pass name= / --name",
        )
    return Recording(Path(path), ops, tier, name, max_per_op, progress=progress)


@dataclass(slots=True)
class _Record:
    """One signature while the model runs."""

    call: OpCall
    metas: tuple[TensorMeta, ...]
    storages: tuple[Storage, ...]
    context: Context
    device: torch.device
    canonical: str
    gold: Gold | None = None
    count: int = 1


@dataclass(frozen=True, slots=True)
class _New:
    """A signature that has not been met before, ready for its first run."""

    record: _Record
    tensors: list[torch.Tensor]
    """The argument tensors, by their indices in the call."""


class Recording:
    """What `record` gives: a context manager, and after it the pack that was written."""

    def __init__(
        self,
        path: Path,
        ops: Sequence[str] | None,
        tier: Tier,
        name: str,
        max_per_op: int | None,
        *,
        progress: bool,
    ) -> None:
        self.path = path
        self.tier = tier
        self.name = name
        self.dropped = 0
        """Calls whose signature came after `max_per_op` others of the op."""
        self.pack: TracePack | None = None
        """The pack, once it is in place."""
        self._ops = None if ops is None else tuple(ops)
        self._limit = max_per_op
        self._progress = progress
        self._seen: dict[object, _Record | None] = {}
        self._records: dict[str, _Record] = {}
        self._kept: dict[str, int] = {}
        self._skipped = Skipped()
        self._training = TrainingFlags()

    def __enter__(self) -> Recording:
        with ExitStack() as stack:
            self._writer = stack.enter_context(PackWriter(self.path))
            self._interception = stack.enter_context(ExitStack())
            chosen = self._interception.enter_context(marked(self._ops or ()))
            everything = self._ops is None
            self._mode = Interceptor(default_ops() if everything else chosen, self._run, marked=everything)
            self._interception.enter_context(torch.compiler.set_stance("force_eager"))
            self._interception.enter_context(self._training.watched())
            self._interception.enter_context(self._mode)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._stack:
            self._interception.close()
            if error is None:
                self.pack = self._finish()

    # ---- while the model runs -------------------------------------------------------------------

    def _run(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run a chosen op, and take it down if its signature is new."""
        context = capture(self._training.current)
        try:
            key = (func, context, fingerprint((args, kwargs)))
            known = self._seen[key] if key in self._seen else self._meet(func, args, kwargs, context)
        except RecordError as error:
            self._refuse(qualified_name(func), error)
            return func(*args, **kwargs)
        if isinstance(known, _New):
            result, made = self._first(known, func, args, kwargs)
            if made is not None:
                self._seen[key] = made
            return result
        self._seen[key] = known
        if known is None:
            self.dropped += 1
        else:
            known.count += 1
        return func(*args, **kwargs)

    def _refuse(self, op: str, reason: RecordError, calls: int = 1) -> None:
        """Count calls that cannot be recorded, or raise if the user has asked for the op."""
        if self._ops is not None:
            raise RecordError(f"{op} cannot be recorded: {reason.what}", remedy=reason.remedy) from reason
        self._skipped.add(op, reason, calls)

    def _meet(
        self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], context: Context
    ) -> _Record | _New | None:
        """The record of a call that has a new key: None beyond the limit, known if its signature is."""
        op = _importable_name(func)
        tensors: list[torch.Tensor] = []
        call = OpCall(
            op=op,
            arguments=tuple(
                Argument(name=name, value=encode(value, tensors), passed=passed)
                for name, value, passed in bind(func, args, kwargs)
            ),
        )
        with neutral():
            layout = lay_out(tensors, copy=False)
        text = canonical(call, layout.metas, context)
        if text in self._records:
            return self._records[text]
        if self._limit is not None and self._kept.get(op, 0) >= self._limit:
            return None
        with neutral():
            storages = inputs.describe(call, tensors, layout, self.tier, self._writer.add)
        devices = {tensor.device for tensor in tensors}
        device = next((found for found in devices if found.type != "cpu"), torch.device("cpu"))
        return _New(_Record(call, layout.metas, storages, context, device, text), tensors)

    def _first(
        self, new: _New, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Any, _Record | None]:
        """Run an op, and keep its record unless the result proves unrecordable."""
        made, tensors = new.record, new.tensors
        before = _hashes(tensors) if self.tier == "full" else []
        random = _random_states(made.device)
        result = func(*args, **kwargs)
        drew = _random_states(made.device) != random or any(
            has_generator(argument.value) for argument in made.call.arguments
        )
        if drew:
            made.context = replace(made.context, rng_seed=recipe.seed_of("rng", made.canonical))
        elif self.tier == "full":
            try:
                made.gold = gold.describe(
                    result, tensors, _changed(tensors, before), "full", self._writer.add
                )
            except RecordError as error:
                self._refuse(made.call.op, error)
                return result, None
        self._records[made.canonical] = made
        self._kept[made.call.op] = self._kept.get(made.call.op, 0) + 1
        return result, made

    # ---- afterwards -----------------------------------------------------------------------------

    def _finish(self) -> TracePack:
        """Make what gold is missing, replay every trace from disk, and put the pack in place."""
        self._report_missing()
        records = sorted(self._records.values(), key=lambda made: made.canonical)
        signatures = _signatures(records)
        traces = []
        for made, signature in self._track(zip(records, signatures, strict=True), "Taking gold"):
            try:
                traces.append(self._trace(made, signature))
            except RecordError as error:
                self._refuse(made.call.op, error, made.count)
        if not traces:
            raise self._skipped.error()
        traces.sort(key=lambda trace: (trace.call.op, trace.signature))
        pack = TracePack(version=TRACE_PACK_VERSION, name=self.name, tier=self.tier, traces=tuple(traces))
        if self.tier != "shapes":
            reader = self._writer.preview(pack)
            checked = [
                replace(trace, replay=_replayed(trace, reader))
                for trace in self._track(reader.pack.traces, "Replaying")
            ]
            pack = replace(pack, traces=tuple(checked))
        if self._skipped:
            warnings.warn(self._skipped.warning(), stacklevel=3)
        return self._writer.commit(pack).pack

    def _trace(self, made: _Record, signature: str) -> Trace:
        trace = Trace(
            id="",
            signature=signature,
            call=made.call,
            tensors=made.metas,
            storages=made.storages,
            context=made.context,
            gold=made.gold,
            replay="unchecked",
            count=made.count,
            origin=origin_of(made.device),
        )
        if self.tier != "shapes" and trace.gold is None:
            trace = self._with_gold(trace, made.device, self.tier)
        return seal(trace)

    def _with_gold(self, trace: Trace, device: torch.device, tier: Literal["recipe", "full"]) -> Trace:
        """Make the inputs from what is kept of them, and run the op on them."""
        storages, spans = [], []
        for kept in trace.storages:
            if kept.recipe is None:
                storages.append(kept)
                spans.append(replay.load_blob(kept, self._writer))
            else:
                storage, content = recipe.seal(kept, self._writer)
                storages.append(storage)
                spans.append(torch.from_numpy(content))
        trace = replace(trace, storages=tuple(storages))
        with neutral():
            tensors = rebuild(trace.tensors, spans, device)
        before = _hashes(tensors)
        try:
            result = replay.run(trace, tensors)
            answer = gold.describe(result, tensors, _changed(tensors, before), tier, self._writer.add)
        except RecordError:
            raise
        except Exception as error:
            raise ReplayError(
                f"{trace.call.op} {trace.signature} cannot be run on inputs with the recorded statistics: "
                f"{type(error).__name__}: {error}",
                remedy="record it with tier='full', or leave it out through ops=[…]",
            ) from error
        return replace(trace, gold=answer)

    def _report_missing(self) -> None:
        """Say which of the ops that were asked for have not been called."""
        met = {made.call.op for made in self._records.values()}
        if not met and self._skipped:
            raise self._skipped.error()
        missing = [name for name in self._ops or () if not met & {name, qualified_name(resolve(name))}]
        if met and not missing:
            return
        called = sorted({qualified_name(func) for func in self._mode.passed_by})
        near = [name for asked in missing for name in _nearest(asked, called)]
        hint = (
            f"did you mean {', '.join(near)}?" if near else "check that the model runs inside the with block"
        )
        what = f"no call of {', '.join(missing) or 'a recordable op'} was seen"
        if not met:
            raise RecordError(what, remedy=hint)
        warnings.warn(f"{what}; {hint}", stacklevel=4)

    def _track(self, items: Iterable[ItemT], what: str) -> Iterable[ItemT]:
        """The items, with a progress bar on a terminal if one is wanted."""
        if not self._progress:
            return items
        from rich.console import Console
        from rich.progress import track

        console = Console(stderr=True)
        return track(
            items,
            what,
            total=len(self._records),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )


def _importable_name(func: Callable[..., Any]) -> str:
    op = qualified_name(func)
    if op.startswith("__main__."):
        raise RecordError(
            "it is defined in the script that runs, and a trace finds its op by importing it",
            remedy="move the function into a module of its own, and import it from there",
        )
    if resolve(op) != func:
        raise RecordError(
            f"importing {op} gives another function", remedy="give the marked function a name of its own"
        )
    return op


def _signatures(records: Sequence[_Record]) -> list[str]:
    """Readable signatures, their digests as long as uniqueness needs."""
    for digits in (4, 8, 16, 64):
        signatures = [readable(made.canonical, made.metas, digits) for made in records]
        if len(set(signatures)) == len(signatures):
            break
    return signatures


def _replayed(trace: Trace, reader: PackReader) -> Literal["bitwise", "derived"]:
    """How the self-check of a trace went.

    Raises:
        ReplayError: if it did not reproduce its gold, bit for bit unless torch calls it nondeterministic.
    """
    outcome = replay.check(trace, reader)
    if outcome == "derived" and not replay.is_nondeterministic(trace, reader):
        raise ReplayError(
            f"{trace.call.op} {trace.signature} gives its own gold only approximately on the recording device",
            remedy="it draws on hidden state, or races; leave it out through ops=[…]",
        )
    return outcome


def _nearest(asked: str, called: Sequence[str]) -> list[str]:
    last = asked.rpartition(".")[2].strip("_")
    same = [name for name in called if name.rpartition(".")[2].strip("_") == last]
    return same or difflib.get_close_matches(asked, called, n=1)


def _hashes(tensors: Sequence[torch.Tensor]) -> list[int]:
    return [xxhash.xxh3_128_intdigest(gold.to_bytes(tensor)) for tensor in tensors]


def _changed(tensors: Sequence[torch.Tensor], before: Sequence[int]) -> list[int]:
    """Indices of tensors whose values are others than before."""
    return [index for index, now in enumerate(_hashes(tensors)) if now != before[index]]


def _random_states(device: torch.device) -> list[bytes]:
    """States of the default generators that an op on the device may draw from."""
    states = [torch.get_rng_state()]
    if device.type == "cuda":
        states.append(torch.cuda.get_rng_state(device))
    return [state.numpy().tobytes() for state in states]
