"""Recording the backward of calls: their outputs are watched until autograd brings the gradients.

A watched call is kept alive by nothing here: hooks live on autograd's nodes, and what they hold are
numbers about arguments, never tensors. Of the calls of one form, the inputs of one are kept, and its
gradients are what goes with them; those of other calls count.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple
from weakref import ref

import torch

from pytest_cgins.core.errors import RecordError
from pytest_cgins.core.layout import lay_out
from pytest_cgins.core.trace import Argument, Context, OpCall, Storage, TensorMeta, Value, tensor_indices
from pytest_cgins.packs import backward, inputs
from pytest_cgins.packs.call import flatten
from pytest_cgins.packs.context import neutral
from pytest_cgins.packs.fingerprint import canonical, fingerprint
from pytest_cgins.packs.store import PackWriter, blobs_in
from pytest_cgins.recording.ledger import Ledger, Record
from pytest_cgins.recording.lengths import form_of

Slot = tuple[int, int]
"""(output of an autograd node, output tensor of the op)."""
Forms = tuple[Hashable | None, ...]
"""The form of the gradient of each output, None where none came."""
MOST_TAKEN = 16
"""Calls of one form whose inputs are taken, until gradients that belong to them have come."""


class Inputs(NamedTuple):
    """What is kept of the arguments of one call, as they were before it."""

    metas: tuple[TensorMeta, ...]
    """Its argument tensors."""
    storages: tuple[Storage, ...]
    """Their content."""


class Gradient(NamedTuple):
    """What is kept of a gradient."""

    meta: TensorMeta
    """Its form."""
    storage: Storage
    """Its content."""


@dataclass(slots=True, eq=False)
class Watched:
    """A form of call whose backward is recorded."""

    op: str
    call: OpCall
    """Of the forward."""
    inputs: Inputs
    """Of the first call."""
    context: Context
    """Context of the forward."""
    device: torch.device
    parameters: frozenset[int]
    """Tensors that belong to a module."""
    seed: int | None = None
    """Seed of the forward, if it draws random numbers."""
    gradients: dict[Hashable, Gradient] = field(default_factory=dict)
    """The forms in which gradients of other calls have come, by output and fingerprint."""
    seen: dict[Forms, Record | None] = field(default_factory=dict)
    """Records by the forms of all gradients; None beyond the limit."""
    mixed: set[Record] = field(default_factory=set)
    """Those whose gradients are not those of their inputs' call."""
    taken: list[tuple[ref[_Call], Inputs]] = field(default_factory=list)
    """Calls whose inputs are kept, while their gradients may come."""
    takes: int = 0
    """How many there have been."""
    settled: bool = False
    """Whether gradients have come to one of them."""


def nodes_of(arguments: object) -> list[object]:
    """Autograd nodes of the tensors in tuples, lists and dicts."""
    if isinstance(arguments, torch.Tensor):
        return [arguments.grad_fn] if arguments.grad_fn is not None else []
    if isinstance(arguments, dict):
        arguments = tuple(arguments.values())
    if isinstance(arguments, (tuple, list)):
        return [node for item in arguments for node in nodes_of(item)]
    return []


class GradientRecorder:
    """Makes records of backward ops."""

    def __init__(
        self,
        ledger: Ledger,
        writer: PackWriter,
        tier: inputs.Tier,
        *,
        wanted: Callable[[str], bool],
        refuse: Callable[[str, RecordError], None],
    ) -> None:
        """Take notes in `ledger` of the backward ops whose names are `wanted`; `refuse` gets what cannot be."""
        self._ledger = ledger
        self._writer = writer
        self._tier = tier
        self._wanted = wanted
        self._refuse = refuse
        # Autograd has a thread for each GPU.
        self._lock = threading.RLock()
        self._open = True

    def close(self) -> None:
        """Record nothing more; hooks that are left do nothing."""
        self._open = False

    def wants_inputs(self, watched: Watched) -> bool:
        """Whether to keep the inputs of the next call: until now, nothing belongs together.

        That is so if the calls whose inputs were kept are gone without a gradient, or if gradients have
        come in a form that they did not have.
        """
        if watched.taken:
            for call, taken in watched.taken:
                # Those of the first call stand in for those of others.
                if call() is None and taken is not watched.inputs:
                    self._ledger.release(blobs_in(taken.storages))
            watched.taken = [(call, taken) for call, taken in watched.taken if call() is not None]
        if watched.takes >= MOST_TAKEN or self._tier == "shapes":
            return False
        return bool(watched.mixed) or not (watched.settled or watched.taken)

    def name_for(self, call: OpCall, tensors: Sequence[torch.Tensor]) -> str:
        """Name of the backward of a call that is about to run; "" if none is wanted.

        Raises:
            RecordError: if an argument has a name that the backward needs.
        """
        if not torch.is_grad_enabled():
            return ""
        names = [
            argument.name
            for argument in call.arguments
            if any(tensors[index].requires_grad for index in tensor_indices(argument.value))
        ]
        name = backward.name_of(call.op, names)
        if not names or not self._wanted(name):
            return ""
        backward.check_names(call.op, [argument.name for argument in call.arguments])
        return name

    def follow(
        self, watched: Watched, result: object, before: Sequence[object], taken: Inputs | None = None
    ) -> None:
        """Watch the result of a call for its gradients.

        Args:
            watched: the form of the call.
            result: what it returned.
            before: autograd nodes of its arguments before it ran: an argument that is returned as it came
                gets gradients that are not the op's.
            taken: the inputs of this very call, if they were taken.
        """
        outputs = [result] if isinstance(result, torch.Tensor) else flatten(result)[1]
        nodes: dict[Any, list[Slot]] = {}
        for index, output in enumerate(outputs):
            node = output.grad_fn
            if node is not None and not any(node is other for other in before):
                nodes.setdefault(node, []).append((output.output_nr, index))
        call = _Call(self, watched, len(outputs), taken, alone=len(nodes) == 1)
        if taken is not None:
            self._ledger.refer(blobs_in(taken.storages))
            watched.taken.append((ref(call), taken))
            watched.takes += 1
        for watched_node, slots in nodes.items():
            watched_node.register_prehook(call.hook(slots))

    def _arrived(self, call: _Call, index: int, gradient: torch.Tensor) -> None:
        """Take down a gradient of one of a call's outputs."""
        watched = call.watched
        try:
            key = (index, fingerprint((gradient,)))
            if call.inputs is not None:
                call.own[index] = self._describe(call, index, gradient, self._tier)
            elif key not in watched.gradients:
                # Tier full has nothing of gradients whose inputs it has not: see `Ledger.leave_out_mixed`.
                tier = "shapes" if self._tier == "full" else self._tier
                watched.gradients[key] = self._describe(call, index, gradient, tier)
            call.keys[index] = key
        except RecordError as error:
            self._refuse(watched.op, error)

    def _describe(self, call: _Call, index: int, gradient: torch.Tensor, tier: inputs.Tier) -> Gradient:
        op, names = call.watched.op, {0: _name(index, len(call.keys))}
        with neutral():
            layout = lay_out([gradient], copy=False)
            (storage,) = inputs.describe(op, names, [gradient], layout, tier=tier, add=self._writer.add)
        self._ledger.refer(blobs_in([storage]))
        return Gradient(replace(layout.metas[0], requires_grad=False), storage)

    def _complete(self, call: _Call, keys: Forms, own: Mapping[int, Gradient]) -> None:
        """Count a backward whose gradients have all come, and keep them if the call's inputs are kept."""
        watched = call.watched
        watched.settled |= call.inputs is not None
        if keys not in watched.seen:
            made = self._record(call, keys, own)
            known = self._ledger.find(made.canonical)
            if known is None and self._ledger.admits(made.call.op, made.form):
                self._ledger.add(made)
                known = made
            if known is not None and known.mixed:
                watched.mixed.add(known)
            watched.seen[keys] = known
        known = watched.seen[keys]
        if known is None:
            self._ledger.dropped += 1
            return
        known.count += 1
        if known.mixed and call.inputs is not None:
            mended = self._record(call, keys, own)
            self._ledger.mend(known, mended.metas, mended.storages)
            watched.mixed.discard(known)

    def _record(self, call: _Call, keys: Forms, own: Mapping[int, Gradient]) -> Record:
        watched = call.watched
        kept = call.inputs or watched.inputs
        metas, storages, arguments = list(kept.metas), list(kept.storages), []
        for index, key in enumerate(keys):
            value = Value(kind="none")
            if key is not None:
                meta, storage = own[index] if index in own else watched.gradients[key]
                value = Value(kind="tensor", value=len(metas))
                metas.append(replace(meta, storage=len(storages)))
                storages.append(storage)
            arguments.append(Argument(name=_name(index, len(keys)), value=value, passed="keyword"))
        op = OpCall(op=watched.op, arguments=(*arguments, *watched.call.arguments))
        return Record(
            call=op,
            metas=tuple(metas),
            storages=tuple(storages),
            context=replace(watched.context, rng_seed=watched.seed),
            device=watched.device,
            canonical=canonical(op, tuple(metas), watched.context),
            form=form_of(op, metas, watched.context, watched.parameters),
            count=0,
            mixed=call.inputs is None and self._tier != "shapes",
        )

    def receive(self, call: _Call, slots: Sequence[Slot], gradients: Sequence[torch.Tensor | None]) -> None:
        """Take what autograd brings to one of its nodes."""
        if not self._open:
            return
        with self._lock:
            for place, index in slots:
                gradient = gradients[place]
                if gradient is not None:
                    self._arrived(call, index, gradient)
            if call.alone:
                self.finish(call)
            elif not call.waiting:
                call.waiting = True
                # An output that nothing is asked of never gets a gradient: the pass has to end first.
                torch.autograd.Variable._execution_engine.queue_callback(lambda: self.finish(call))

    def finish(self, call: _Call) -> None:
        """Take a call's gradients for complete; another pass over the same graph counts anew."""
        with self._lock:
            keys, own = tuple(call.keys), call.own
            call.keys, call.own, call.waiting = [None] * len(keys), {}, False
            if any(key is not None for key in keys):
                self._complete(call, keys, own)
            self._ledger.release(blobs_in([gradient.storage for gradient in own.values()]))


def why_left_out(record: Record) -> RecordError:
    """Why a backward has no place in tier full: its gradients belong to another call than its inputs."""
    forms = [
        f"{meta.dtype} {meta.shape} with strides {meta.stride}"
        for argument in record.call.arguments
        if backward.is_gradient(argument.name)
        for meta in (record.metas[index] for index in tensor_indices(argument.value))
    ]
    return RecordError(
        f"gradients {' and '.join(forms)} came only to calls whose inputs were not kept, which a second step under "
        "the same recording may fix, and tier recipe does not need",
        remedy="run another step under the same recording, or use tier='recipe' / --tier recipe",
    )


def _name(index: int, outputs: int) -> str:
    """What a backward calls the gradient of an output."""
    return backward.SINGLE if outputs == 1 else f"{backward.SEVERAL}.{index}"


class _Call:
    """One call whose gradients have not come yet."""

    __slots__ = ("__weakref__", "_recorder", "alone", "inputs", "keys", "own", "waiting", "watched")

    def __init__(
        self,
        recorder: GradientRecorder,
        watched: Watched,
        outputs: int,
        inputs: Inputs | None,
        *,
        alone: bool,
    ) -> None:
        self._recorder = recorder
        self.watched = watched
        self.inputs = inputs
        self.keys: list[Hashable | None] = [None] * outputs
        self.own: dict[int, Gradient] = {}
        self.alone = alone
        self.waiting = False

    def hook(self, slots: Sequence[Slot]) -> Callable[[Sequence[torch.Tensor | None]], None]:
        """What a node of autograd calls with the sums of the gradients of its outputs."""

        def hook(gradients: Sequence[torch.Tensor | None]) -> None:
            self._recorder.receive(self, slots, gradients)

        return hook
