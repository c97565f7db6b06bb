"""Recording the backward of calls: their outputs are watched until autograd brings the gradients.

A watched call is kept alive by nothing here: hooks live on autograd's nodes, and what they hold are
numbers about arguments, never tensors.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from pytest_cgins.errors import RecordError
from pytest_cgins.model import Argument, Context, OpCall, Storage, TensorMeta, Value
from pytest_cgins.trace import backward, inputs
from pytest_cgins.trace.call import flatten
from pytest_cgins.trace.context import neutral
from pytest_cgins.trace.fingerprint import canonical, fingerprint
from pytest_cgins.trace.layout import lay_out
from pytest_cgins.trace.ledger import Ledger, Record, blobs_of
from pytest_cgins.trace.lengths import form_of
from pytest_cgins.trace.store import PackWriter
from pytest_cgins.trace.values import tensor_indices

Slot = tuple[int, int]
"""(output of an autograd node, output tensor of the op)."""


@dataclass(slots=True, eq=False)
class Watched:
    """A form of call whose backward is recorded, as it was before its first run."""

    op: str
    """Name of the backward."""
    call: OpCall
    """Of the forward."""
    metas: tuple[TensorMeta, ...]
    """Its argument tensors."""
    storages: tuple[Storage, ...]
    """What is kept of their content."""
    context: Context
    """Context of the forward."""
    device: torch.device
    """Where it ran."""
    parameters: frozenset[int]
    """Tensors that belong to a module."""
    seed: int | None = None
    """Seed of the forward, if it draws random numbers."""
    gradients: dict[Hashable, tuple[TensorMeta, Storage]] = field(default_factory=dict)
    """The forms in which gradients have come, by output and fingerprint."""
    seen: dict[tuple[Hashable, ...], Record | None] = field(default_factory=dict)
    """Records by the forms of all gradients; None beyond the limit."""


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
    """Makes records of backwards."""

    def __init__(
        self,
        ledger: Ledger,
        writer: PackWriter,
        tier: inputs.Tier,
        *,
        wanted: Callable[[str], bool],
        refuse: Callable[[str, RecordError], None],
    ) -> None:
        """Take notes in `ledger` of the backwards whose names are `wanted`; `refuse` gets what cannot be."""
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

    def follow(self, watched: Watched, result: object, before: Sequence[object]) -> None:
        """Watch the result of a call for its gradients.

        Args:
            watched: the form of the call.
            result: what it returned.
            before: autograd nodes of its arguments before it ran: an argument that is returned as it came
                gets gradients that are not the op's.
        """
        outputs = [result] if isinstance(result, torch.Tensor) else flatten(result)[1]
        nodes: dict[Any, list[Slot]] = {}
        for index, output in enumerate(outputs):
            node = output.grad_fn
            if node is not None and not any(node is other for other in before):
                nodes.setdefault(node, []).append((output.output_nr, index))
        call = _Call(self, watched, len(outputs), alone=len(nodes) == 1)
        for node, slots in nodes.items():
            node.register_prehook(call.hook(slots))

    def arrived(self, watched: Watched, index: int, outputs: int, gradient: torch.Tensor) -> Hashable | None:
        """Take down a gradient; gives its form, None if it cannot be recorded."""
        try:
            key = (index, fingerprint((gradient,)))
            if key not in watched.gradients:
                name = backward.SINGLE if outputs == 1 else f"{backward.SEVERAL}.{index}"
                with neutral():
                    layout = lay_out([gradient], copy=False)
                    storages = inputs.describe(
                        watched.op, {0: name}, [gradient], layout, tier=self._tier, add=self._writer.add
                    )
                self._ledger.refer(blobs_of(storages))
                watched.gradients[key] = replace(layout.metas[0], requires_grad=False), storages[0]
        except RecordError as error:
            self._refuse(watched.op, error)
            return None
        return key

    def complete(self, watched: Watched, keys: tuple[Hashable | None, ...]) -> None:
        """Count a backward whose gradients have all come; `keys` has one an output, None where none came."""
        if keys in watched.seen:
            known = watched.seen[keys]
            if known is not None:
                known.count += 1
            else:
                self._ledger.dropped += 1
            return
        made = self._record(watched, keys)
        known = self._ledger.find(made.canonical)
        if known is not None:
            known.count += 1
        elif self._ledger.admits(made.call.op, made.form):
            self._ledger.add(made)
            known = made
        else:
            self._ledger.dropped += 1
        watched.seen[keys] = known

    def _record(self, watched: Watched, keys: tuple[Hashable | None, ...]) -> Record:
        metas, storages, arguments = list(watched.metas), list(watched.storages), []
        for index, key in enumerate(keys):
            value = Value(kind="none")
            if key is not None:
                meta, storage = watched.gradients[key]
                value = Value(kind="tensor", value=len(metas))
                metas.append(replace(meta, storage=len(storages)))
                storages.append(storage)
            name = backward.SINGLE if len(keys) == 1 else f"{backward.SEVERAL}.{index}"
            arguments.append(Argument(name=name, value=value, passed="keyword"))
        call = OpCall(op=watched.op, arguments=(*arguments, *watched.call.arguments))
        return Record(
            call=call,
            metas=tuple(metas),
            storages=tuple(storages),
            context=replace(watched.context, rng_seed=watched.seed),
            device=watched.device,
            canonical=canonical(call, tuple(metas), watched.context),
            form=form_of(call, metas, watched.context, watched.parameters),
        )

    def receive(self, call: _Call, slots: Sequence[Slot], gradients: Sequence[torch.Tensor | None]) -> None:
        """Take what autograd brings to one of its nodes."""
        if not self._open:
            return
        with self._lock:
            for place, index in slots:
                gradient = gradients[place]
                if gradient is not None:
                    call.keys[index] = self.arrived(call.watched, index, len(call.keys), gradient)
            if call.alone:
                self.finish(call)
            elif not call.waiting:
                call.waiting = True
                # An output that nothing is asked of never gets a gradient: the pass has to end first.
                torch.autograd.Variable._execution_engine.queue_callback(lambda: self.finish(call))

    def finish(self, call: _Call) -> None:
        """Take a call's gradients for complete; another pass over the same graph counts anew."""
        with self._lock:
            keys, call.keys, call.waiting = tuple(call.keys), [None] * len(call.keys), False
            if any(key is not None for key in keys):
                self.complete(call.watched, keys)


class _Call:
    """One call whose gradients have not come yet."""

    __slots__ = ("_recorder", "alone", "keys", "waiting", "watched")

    def __init__(self, recorder: GradientRecorder, watched: Watched, outputs: int, *, alone: bool) -> None:
        self._recorder = recorder
        self.watched = watched
        self.keys: list[Hashable | None] = [None] * outputs
        self.alone = alone
        self.waiting = False

    def hook(self, slots: Sequence[Slot]) -> Callable[[Sequence[torch.Tensor | None]], None]:
        """What a node of autograd calls with the sums of the gradients of its outputs."""

        def hook(gradients: Sequence[torch.Tensor | None]) -> None:
            self._recorder.receive(self, slots, gradients)

        return hook
