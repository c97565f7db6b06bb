"""Recording, `with pytest_cgins.record("traces/x", ops=[…]): model(x)`: what was asked for, and what happens while the model runs."""

from __future__ import annotations

import difflib
import logging
import warnings
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeGuard, get_args

import torch

from pytest_cgins.core.device import device_of
from pytest_cgins.core.errors import DiskError, RecordError
from pytest_cgins.core.layout import lay_out
from pytest_cgins.core.text import counted
from pytest_cgins.core.trace import Context, Storage, TracePack, walk
from pytest_cgins.packs import gold, inputs, recipe
from pytest_cgins.packs.backward import is_derived, name_of, parse
from pytest_cgins.packs.context import capture, neutral, settled_cudnn
from pytest_cgins.packs.fingerprint import canonical, fingerprint
from pytest_cgins.packs.inputs import Tier
from pytest_cgins.packs.ops import is_awaited, qualified_name, resolve
from pytest_cgins.packs.signature import call_of
from pytest_cgins.packs.store import PackWriter, blobs_in
from pytest_cgins.packs.validate import is_plain_name
from pytest_cgins.recording.dispatch import DispatchInterceptor, below_autograd, overloads
from pytest_cgins.recording.finish import Finisher
from pytest_cgins.recording.gradients import GradientRecorder, Inputs, Watched, nodes_of, why_left_out
from pytest_cgins.recording.intercept import Interceptor, TrainingFlags, marked
from pytest_cgins.recording.ledger import Ledger, Outcome, Record, Skipped
from pytest_cgins.recording.lengths import form_of
from pytest_cgins.recording.selection import default_ops, passed_over
from pytest_cgins.recording.side_effects import changed_tensors, rebound, tensor_hashes

logger = logging.getLogger(__name__)

Lengths = Literal["few", "all"]
Level = Literal["function", "dispatch"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What `record` was asked for, where each is explained."""

    tier: Tier
    name: str
    max_per_op: int | None
    backward: bool
    lengths: Lengths
    top_time: float | None
    level: Level


@dataclass(frozen=True, slots=True)
class _Known:
    """What has been decided about calls with one key."""

    record: Record | None
    """The record that counts them; None beyond the limit, or if only their backward was asked for."""
    watched: Watched | None
    """How their backward is recorded; None if it is not."""
    beyond: bool
    """Whether their signature is beyond the limit."""


@dataclass(frozen=True, slots=True)
class _New:
    """A call with a new key, before it runs."""

    known: _Known
    """What holds for it, and for later ones with its key."""
    tensors: list[torch.Tensor]
    """The argument tensors, by their indices."""
    canonical: str
    """Its signature."""
    device: torch.device
    """Where it runs."""
    storages: tuple[Storage, ...]
    """What was taken of its arguments, if anything was."""
    taken: Inputs | None
    """The same, if gradients are to go with it."""


class Recording:
    """What `record` gives: a context manager, and after it the pack that was written."""

    def __init__(self, path: Path, ops: Sequence[str] | None, options: Options, *, progress: bool) -> None:
        self.path = path
        self.options = options
        self.dropped = 0
        """Calls whose signature came after `max_per_op` others of the op."""
        self.outcome: Outcome | None = None
        """What was kept and left out, once the pack is in place."""
        self.pack: TracePack | None = None
        """The pack, once it is in place."""
        self._ops = None if ops is None else tuple(dict.fromkeys(ops))
        self._progress = progress
        self._seen: dict[object, _Known] = {}
        self._watched: dict[str, Watched] = {}
        self._skipped = Skipped()
        self._training = TrainingFlags()

    def __enter__(self) -> Recording:
        with ExitStack() as stack:
            self._writer = stack.enter_context(PackWriter(self.path))
            options = self.options
            self._ledger = Ledger(
                self._writer,
                max_per_op=options.max_per_op,
                share=options.top_time,
                fold=options.lengths == "few",
            )
            self._gradients = GradientRecorder(
                self._ledger, self._writer, options.tier, wanted=self._wants, refuse=self._refuse
            )
            self._interception = stack.enter_context(ExitStack())
            self._mode = self._intercept()
            self._wanted = frozenset[str]().union(*map(self._forms, self._ops or ()))
            self._interception.enter_context(settled_cudnn())
            self._interception.enter_context(torch.compiler.set_stance("force_eager"))
            self._interception.enter_context(self._training.watched())
            self._interception.enter_context(self._mode)
            self._interception.callback(self._gradients.close)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        with self._stack:
            self._interception.close()
            if error is None:
                self.pack = self._finish()

    def left_out(self) -> list[str]:
        """Sentences about what the limits on lengths, signatures and time have left out, and what nobody asked for."""
        said = []
        outcome, share = self.outcome, self.options.top_time
        if outcome is not None and share is not None:
            said.append(
                f"the traces cover {outcome.share:.1%} of the recorded ops' time; left out: "
                f"{counted(outcome.left_out_signatures, 'signature')} ({counted(outcome.left_out_calls, 'call')})"
            )
        lengths = (
            {one.lengths[0].sizes: one.lengths[0] for one in outcome.kept if one.lengths} if outcome else {}
        )
        if lengths:
            most = max(lengths.values(), key=lambda length: len(length.sizes))
            said.append(
                f"sizes that change from call to call, up to {len(most.sizes)} of them ({most.sizes[0]} … "
                f"{most.sizes[-1]}), are kept at four at most; --lengths all keeps all"
            )
        if self.dropped:
            said.append(
                f"{counted(self.dropped, 'call')} had signatures beyond --max-per-op and were left out"
            )
        if self._ops is None and self.options.level == "function":
            said += filter(None, [passed_over(self._mode.passed_by)])
        return said

    def _intercept(self) -> Interceptor | DispatchInterceptor:
        """The mode that sees the chosen ops."""
        all_ops = self._ops is None
        forwards = dict.fromkeys(parse(name)[0] if is_derived(name) else name for name in self._ops or ())
        awaited = set(filter(is_awaited, forwards))
        if self.options.level == "dispatch":
            chosen = [overload for name in forwards for overload in overloads(name).values()]
            return DispatchInterceptor(None if all_ops else chosen, self._run, awaited)
        named = self._interception.enter_context(marked([name for name in forwards if name not in awaited]))
        return Interceptor(default_ops() if all_ops else named, self._run, marked=all_ops, awaited=awaited)

    def _forms(self, name: str) -> frozenset[str]:
        """What traces of an op that was asked for may be called."""
        return frozenset(overloads(name) if self.options.level == "dispatch" else {_canonical_name(name)})

    # ---- while the model runs -------------------------------------------------------------------

    def _run(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run a chosen op, and take it down if its signature is new."""
        context = capture(self._training.current)
        if self.options.level == "dispatch":
            context = below_autograd(context)
        try:
            key = (func, context, fingerprint((args, kwargs)))
            known = self._seen.get(key)
            found = known if self._is_settled(known) else self._meet(func, args, kwargs, context)
        except RecordError as error:
            self._refuse(qualified_name(func), error)
            return func(*args, **kwargs)
        run = partial(func, *args, **kwargs)
        if isinstance(found, _New):
            try:
                result, recorded = self._first(found, run)
            finally:
                self._ledger.release(blobs_in(found.storages))
            if recorded:
                self._seen[key] = found.known
            return result
        return self._again(found, run, nodes_of((args, kwargs)) if found.watched is not None else ())

    def _is_settled(self, known: _Known | None) -> TypeGuard[_Known]:
        """Whether nothing is to be taken of the next call."""
        if known is None:
            return False
        return known.watched is None or not self._gradients.wants_inputs(known.watched)

    def _again(
        self, known: _Known, run: Callable[[], Any], nodes: Sequence[object], taken: Inputs | None = None
    ) -> Any:
        """Run an op as it has been run before; `nodes` are autograd's of its arguments, `taken` what was taken."""
        if known.record is not None:
            known.record.count += 1
        self._ledger.dropped += known.beyond
        result = self._timed(known.record, run)
        if known.watched is not None:
            self._gradients.follow(known.watched, result, nodes, taken)
        return result

    def _timed(self, made: Record | None, run: Callable[[], Any]) -> Any:
        """Run an op, and take its time if it is wanted."""
        if made is None or self.options.top_time is None:
            return run()
        return made.time.run(run, made.device)

    def _refuse(self, op: str, reason: RecordError, calls: int = 1) -> None:
        """Count calls that cannot be recorded, or raise if the user has asked for the op."""
        if isinstance(reason, DiskError):
            raise reason
        if self._ops is not None:
            raise RecordError(f"{op} cannot be recorded: {reason.what}", remedy=reason.remedy) from reason
        logger.debug("%s: left out: %s", op, reason.what)
        self._skipped.add(op, reason, calls)

    def _wants(self, op: str) -> bool:
        """Whether an op, or a backward, is to be recorded."""
        if op in self._wanted or self.options.level == "dispatch":  # which overloads, the mode knows
            return True
        if is_derived(op):
            return self.options.backward and self._wants(parse(op)[0])
        return self._ops is None

    def _meet(
        self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], context: Context
    ) -> _New:
        """Take down a call that has a new key, before it runs."""
        op = _importable_name(func)
        call, tensors = call_of(op, func, args, kwargs)
        with neutral():
            layout = lay_out(tensors, copy=False)
        text = canonical(call, layout.metas, context)
        devices = {tensor.device for tensor in tensors}
        device = next((place for place in devices if place.type != "cpu"), torch.device("cpu"))
        backward = self._gradients.name_for(call, tensors)
        record, watched = self._ledger.find(text), self._watched.get(text)
        parameters = frozenset(
            i for i, tensor in enumerate(tensors) if isinstance(tensor, torch.nn.Parameter)
        )
        form = form_of(call, layout.metas, context, parameters)
        wanted = self._wants(op)
        new = wanted and record is None and self._ledger.admits(op, form)
        take = bool(backward) and (watched is None or self._gradients.wants_inputs(watched))
        storages: tuple[Storage, ...] = ()
        if new or take:
            with neutral():
                storages = inputs.describe(
                    op, inputs.names_of(call), tensors, layout, tier=self.options.tier, add=self._writer.add
                )
            self._ledger.refer(blobs_in(storages))
            if new:
                record = Record(call, layout.metas, storages, context, device, text, form, count=0)
        taken = Inputs(layout.metas, storages) if take else None
        if taken is not None and watched is None:
            watched = Watched(backward, call, taken, context, device, parameters)
        known = _Known(record, watched if backward else None, beyond=wanted and record is None)
        return _New(known, tensors, text, device, storages, taken)

    def _first(self, new: _New, run: partial[Any]) -> tuple[Any, bool]:
        """Run an op, and keep its record unless the result proves unrecordable."""
        made, watched, tensors = new.known.record, new.known.watched, new.tensors
        nodes = nodes_of(tensors) if watched is not None else ()
        if self._ledger.find(new.canonical) is made and (watched is None or new.canonical in self._watched):
            return self._again(new.known, run, nodes, new.taken), True
        before = tensor_hashes(tensors) if self.options.tier == "full" else []
        random = device_of(str(new.device)).random_states()
        result = self._timed(made, run)
        drew = device_of(str(new.device)).random_states() != random or (
            made is not None
            and any(
                node.kind == "generator" for argument in made.call.arguments for node in walk(argument.value)
            )
        )
        seed = recipe.seed_of("rng", new.canonical) if drew else None
        if made is not None:
            try:
                made.rebound = rebound(made.call, tensors, run.func, run.args, run.keywords)
                self._add(made, result, tensors, before, seed)
            except RecordError as error:
                self._refuse(made.call.op, error)
                return result, False
        self._ledger.dropped += new.known.beyond
        if watched is not None:
            watched = self._watched.setdefault(new.canonical, watched)
            watched.seed = seed
            self._gradients.follow(watched, result, nodes, new.taken)
        return result, True

    def _add(
        self,
        made: Record,
        result: object,
        tensors: Sequence[torch.Tensor],
        before: Sequence[int],
        seed: int | None,
    ) -> None:
        """Count a record; one that is new gets what the call gave, or is given a seed for its gold."""
        if made is not self._ledger.find(made.canonical):
            if seed is not None:
                made.context = replace(made.context, rng_seed=seed)
            elif self.options.tier == "full":
                mutated = changed_tensors(made.call, tensors, before)
                made.gold = gold.describe(result, tensors, mutated, "full", self._writer.add)
            self._ledger.add(made)
            logger.debug("%s: a new signature, on %d input tensors", made.call.op, len(tensors))
        made.count += 1

    # ---- afterwards -----------------------------------------------------------------------------

    def _finish(self) -> TracePack:
        """Choose what is kept, make what gold is missing, and put the pack in place."""
        self._report_missing()
        if self.options.tier == "full":
            for record in self._ledger.leave_out_mixed():
                self._skipped.add(record.call.op, why_left_out(record), record.count)
        options = self.options
        finisher = Finisher(
            writer=self._writer,
            tier=options.tier,
            name=options.name,
            refuse=self._refuse,
            progress=self._progress,
        )
        if options.top_time is not None:
            finisher.time_again(self._ledger)
        self.outcome = self._ledger.outcome()
        self.dropped = self._ledger.dropped
        if options.top_time is None:
            self.dropped += self.outcome.left_out_calls
        traces = finisher.traces(self.outcome.kept)
        if not traces:
            raise self._skipped.error()
        pack = finisher.commit(traces)
        if self._skipped:
            warnings.warn(self._skipped.warning(), stacklevel=3)
        return pack

    def _report_missing(self) -> None:
        """Say which of the ops that were asked for have not been called."""
        met = {made.call.op for made in self._ledger}
        if not met and self._skipped:
            raise self._skipped.error()
        missing = [name for name in self._ops or () if not met & self._forms(name)]
        if met and not missing:
            return
        called = sorted({*(qualified_name(func) for func in self._mode.passed_by), *filter(is_derived, met)})
        near = [name for asked in missing for name in _nearest(asked, called)]
        hint = f"did you mean {', '.join(near)}?" if near else "run the model inside the with block"
        if not near and any(map(is_awaited, missing)):
            hint = "nothing that ran registers it"
        what = f"no call of {', '.join(missing) or 'a recordable op'} was seen"
        if not met:
            raise RecordError(what, remedy=hint)
        warnings.warn(f"{what}; {hint}", stacklevel=4)


def _canonical_name(name: str) -> str:
    """The name that traces of an op have, which may have several."""
    if is_derived(name):
        forward, names = parse(name)
        return name_of(_canonical_name(forward), names)
    return name if is_awaited(name) else qualified_name(resolve(name))


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


def _nearest(asked: str, called: Sequence[str]) -> list[str]:
    last = asked.rpartition(".")[2].strip("_")
    same = [name for name in called if name.rpartition(".")[2].strip("_") == last]
    return same or difflib.get_close_matches(asked, called, n=1)


def record(
    path: Path | str,
    ops: Sequence[str] | None = None,
    tier: Tier = "recipe",
    name: str | None = None,
    max_per_op: int | None = None,
    *,
    backward: bool = False,
    lengths: Lengths = "few",
    top_time: float | None = None,
    level: Level = "function",
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
        ops: qualified names, e.g. `torch.nn.functional.gelu`, `torch.Tensor.matmul`,
            `models.decoder.rms_norm` or `torch.nn.functional.linear@backward(input,weight)`; None for the
            ops that compute, and all marked functions and modules. A class of modules (`torch.nn.LayerNorm`,
            `models.blocks.GatedMLP`) is one op.
        tier: `shapes` keeps forms only; `recipe` seeded inputs with the recorded statistics, and gold for
            them; `full` all bytes.
        name: name of the pack, by default its folder's.
        max_per_op: how many signatures of one op are kept at most, 1 or more; the first ones are, and with
            `top_time` those that take longest.
        backward: also record the backward of every recorded op, as `OP@backward(…)` with the arguments that
            require grad, if the body runs it.
        lengths: `few` keeps at most four of four or more signatures that differ in one size alone, as the
            steps of a generation do; `all` keeps all.
        top_time: keep only the signatures that take longest and together this share of the recorded ops'
            time, within (0, 1].
        level: where calls are seen. `function` has what the model's code calls, and marked functions and
            modules; `dispatch` the ATen ops that this comes down to below autograd and autocast, such as
            `torch.ops.aten.addmm.default`, those of a backward included.
        progress: show progress on a terminal while traces are written and checked.

    Raises:
        DiskError: if the disk is full.
        PackError: at the start, if `path` is something else than a pack.
        RecordError: at the start, for a wrong option, or if `path` cannot be written; later, for a call of
            one of `ops` that cannot be recorded, or if nothing was recorded.
        ReplayError: if a trace does not give its own gold.
        TraceError: at the start, if an op of `ops` does not exist.
    """
    if tier not in get_args(Tier):
        raise RecordError(f"tier {tier!r} does not exist", remedy="use shapes, recipe or full")
    if lengths not in get_args(Lengths):
        raise RecordError(f"lengths {lengths!r} do not exist", remedy="use few or all")
    if max_per_op is not None and max_per_op < 1:
        raise RecordError(
            f"max_per_op is {max_per_op}: no signature would be kept",
            remedy="use 1 or more, or leave max_per_op= / --max-per-op out to keep all",
        )
    if top_time is not None and not 0 < top_time <= 1:
        raise RecordError(
            f"top_time is {top_time}, which is not a share of the time",
            remedy="use a number above 0 and up to 1, e.g. top_time=0.8 / --top-time 80%",
        )
    if level not in get_args(Level):
        raise RecordError(f"level {level!r} does not exist", remedy="use function or dispatch")
    if level == "dispatch" and backward:
        raise RecordError(
            "at level dispatch a backward is seen as the ATen ops that it runs, and has no name of its own",
            remedy="leave backward=True / --backward out, or record at level function",
        )
    options = Options(
        tier=tier,
        name=pack_name(Path(path), name),
        max_per_op=max_per_op,
        backward=backward,
        lengths=lengths,
        top_time=top_time,
        level=level,
    )
    return Recording(Path(path), ops, options, progress=progress)


def pack_name(path: Path, name: str | None) -> str:
    """What a pack is named: as asked, or as its folder; RecordError where none can be."""
    name = name or path.absolute().name
    if not is_plain_name(name):
        raise RecordError(
            f"the pack cannot be named {name!r}",
            remedy="begin with a letter or digit, and use letters, digits, _ . -; pass name= / --name",
        )
    return name
