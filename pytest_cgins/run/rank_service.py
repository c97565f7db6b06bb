"""The service of one of several processes that call a kernel together: verifies and times it in step with the others.

Each request is made of all ranks at once. What they do is the same on all, call for call, since a collective that one rank
makes alone hangs: so most probes of a single process are not here, which run a kernel as often as its own answers suggest.
A rank that fails answers at once; the others wait for it, and the parent ends them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from pytest_cgins.building.loading.exceptions import kind_of, told
from pytest_cgins.building.loading.imports import import_from
from pytest_cgins.core import documents
from pytest_cgins.core.buffers import Buffer
from pytest_cgins.core.device import device_of
from pytest_cgins.core.errors import ProtocolError
from pytest_cgins.core.measurement import ArmName
from pytest_cgins.core.tensors import Kept, pack
from pytest_cgins.packs.call import bound
from pytest_cgins.packs.context import restore
from pytest_cgins.packs.ops import trust
from pytest_cgins.run.kernels import KernelCache, make_ready
from pytest_cgins.run.worker import describe
from pytest_cgins.timing.block import LETTER_ARMS
from pytest_cgins.timing.cpu_timer import HostTimer
from pytest_cgins.verify.messages import (
    DeviantAnswer,
    EmptyMessage,
    JoinRanks,
    KernelAnswers,
    KernelRequest,
    RaisedError,
    RunKernel,
    RunLate,
    SetAnswer,
    serves,
)
from pytest_cgins.verify.probe_support.process_watch import Watch
from pytest_cgins.verify.probe_support.set_trial import SetTrial
from pytest_cgins.verify.probe_support.timed_copy import Content, Rotating, TimedCopy
from pytest_cgins.verify.probes import ranks
from pytest_cgins.verify.rank_group import RankGroup
from pytest_cgins.verify.timing_messages import (
    FinishedTiming,
    Opened,
    OpenTiming,
    Ready,
    RepeatCalls,
    RunBlocks,
    TimedAnswer,
    TimedBlock,
    TimedBlocks,
)

_SHOWN = 300


class RankService:
    """One rank of a kernel."""

    def __init__(self) -> None:
        self.fatal = False
        self._kernels = KernelCache()
        self._trials: dict[SetTrial, tuple[str, tuple[int, ...]]] = {}
        """Sets that were run, and what was written beside outputs and into inputs then."""
        self._opened: _Opened | None = None

    @serves(Ready)
    def ready(self, request: Ready) -> EmptyMessage:
        """Have the context of a GPU made."""
        make_ready(request.device)
        return EmptyMessage()

    @serves(JoinRanks)
    def join(self, request: JoinRanks) -> EmptyMessage:
        """Find the other ranks."""
        self._group = RankGroup(request)
        return EmptyMessage()

    @serves(RunKernel)
    def run(self, request: RunKernel, buffers: list[Buffer]) -> tuple[KernelAnswers, list[Buffer]]:
        """Run the kernel on each set, in step, and keep the answers for `run_late`; gives the set that it failed on, if any."""
        _begin(request)
        name, phase = request.sets[0].name, "load"
        try:
            watch = Watch(frozenset(request.probes), request)
            with watch.loading():
                kernel = self._kernels.load(request.kernel)
            watch.guard(kernel)
            for inputs, buffer in zip(request.sets, buffers, strict=True):
                name, phase = inputs.name, "bind"
                kept = Buffer.adopt(os.dup(buffer.fileno()))  # a request's own are closed
                trial = SetTrial(kernel, inputs, kept, request.device, watch)
                phase = "run"
                self._group.barrier()
                trial.first()
                device_of(request.device).synchronize()
                self._trials[trial] = trial.overrun(), tuple(trial.inputs_changed())
        except BaseException as error:  # noqa: BLE001 - code under test may raise anything, also at import
            raised = documents.load_python(RaisedError, {**describe(error), "phase": phase})
            header, packed = pack([])
            return KernelAnswers(sets=(SetAnswer(name=name, tensors=header, error=raised),)), [packed]
        return KernelAnswers(sets=()), []

    @serves(RunLate)
    def run_late(self, request: RunLate) -> tuple[KernelAnswers, list[Buffer]]:
        """Run it again on the same sets, see `verify.probes.ranks`; gives the first answers, and what deviates from them."""
        found = ranks.deviations([*self._trials], self._group, request.calls)
        packed = [pack(trial.answer) for trial in self._trials]
        sets = tuple(
            SetAnswer(
                name=trial.name,
                tensors=header,
                devices=tuple(str(tensor.device) for tensor in trial.answer),
                inputs_changed=changed,
                overrun=overrun or trial.overrun(),
                unlike=tuple(trial.unlike),
            )
            for (trial, (overrun, changed)), (header, _) in zip(self._trials.items(), packed, strict=True)
        )
        deviating = [pack(one.tensors) for one in found]
        deviations = tuple(
            DeviantAnswer(probe=one.probe, name=one.name, tensors=header, error=one.error, about=one.about)
            for one, (header, _) in zip(found, deviating, strict=True)
        )
        buffers = [content for _, content in (*packed, *deviating)]
        return KernelAnswers(sets=sets, deviations=deviations), buffers

    @serves(OpenTiming)
    def open(self, request: OpenTiming, buffers: list[Buffer]) -> Opened:
        """Make the arms ready."""
        _begin(request)
        self._opened = _Opened(request, buffers, self._kernels, self._group)
        return self._opened.made_ready

    @serves(RunBlocks)
    def blocks(self, request: RunBlocks) -> TimedBlocks:
        """Run blocks; times are those of the slowest rank."""
        return TimedBlocks(tuple(self._measurement().blocks(request.orders)))

    @serves(RepeatCalls)
    def repeat(self, request: RepeatCalls) -> EmptyMessage:
        """Call an arm so many times."""
        opened = self._measurement()
        with opened.around():
            opened.timer.repeat(request.arm, request.calls)
        return EmptyMessage()

    @serves(EmptyMessage)
    def look(self) -> EmptyMessage:
        """Nothing: an answer is looked at in the end."""
        return EmptyMessage()

    @serves(EmptyMessage)
    def finish(self) -> tuple[FinishedTiming, list[Buffer]]:
        """One more call of the kernel, on the set's own numbers."""
        opened = self._measurement()
        with opened.around():
            header, packed = pack(opened.copy.once_more())
        answer = TimedAnswer(name=opened.copy.name, when="after", tensors=header)
        return FinishedTiming(answers=(answer,), observed={}), [packed]

    def _measurement(self) -> _Opened:
        if self._opened is None:
            raise ProtocolError("no measurement is open")
        return self._opened


def _begin(request: KernelRequest) -> None:
    """Have the op and its modules found, and torch make its tensors on this rank's device."""
    device_of(request.device).make_current()
    import_from(request.import_root)
    for op in {request.kernel.source.op, *(inputs.call.op for inputs in request.sets)}:
        trust(op)


class _RankTimer(HostTimer):
    """Loops that all ranks begin together, and that last as long as on the slowest."""

    def __init__(self, group: RankGroup, arms: Any, **options: Any) -> None:
        self._group = group
        super().__init__(arms, **options)

    def _loop(self, arm: ArmName, calls: int) -> int:
        self._fence()
        self._group.barrier()
        return self._group.greatest(super()._loop(arm, calls))


class _Opened:
    """The arms of a case on this rank. Their tensors stay in the cache, as those of a collective's neighbours do."""

    def __init__(
        self, request: OpenTiming, buffers: Sequence[Buffer], kernels: KernelCache, group: RankGroup
    ) -> None:
        inputs, device = request.sets[0], device_of(request.device)
        self.around = partial(restore, inputs.context, request.device, repeatable=False)
        """What each call is made in."""
        kernel = kernels.load(request.kernel)
        content = Content(inputs, Kept(inputs.tensors, buffers[0], request.device))
        refused: dict[ArmName, str] = {}
        with self.around():
            self.copy = TimedCopy(kernel, content, request.device)
            arms: dict[ArmName, Any] = {"kernel": Rotating([self.copy.bare])}
            if request.torch:
                arms["torch"] = Rotating([bound(content.call, content.kept.unpack())])
            if request.base is not None:
                wrong = ""
                try:
                    arms["base"] = Rotating([self.copy.bind_beside(kernels.load(request.base))])
                except Exception as error:  # noqa: BLE001 - not the kernel's doing, whatever it is
                    wrong = f"it cannot be loaded: {kind_of(error)}: {told(error)[:_SHOWN]}"
                if group.greatest(bool(wrong)):  # an arm that is not there on one rank is on none
                    arms.pop("base", None)
                    refused["base"] = wrong or "it cannot be loaded on another rank"
            if request.compile:
                refused["compile"] = "torch.compile is not timed on several ranks"
            self.timer = _RankTimer(
                group,
                arms,
                copies=1,
                limit_s=request.limit_s,
                longer=request.longer,
                fence=device.synchronize if device.is_accelerator else None,
            )
        self.made_ready = Opened(
            arms=tuple(self.timer.calls),
            method=self.timer.method,
            calls=dict(self.timer.calls),
            batch_seconds=dict(self.timer.batch_seconds),
            host_ns_per_call={},
            cold=False,
            refused=refused,
        )

    def blocks(self, orders: Sequence[str]) -> Iterator[TimedBlock]:
        """Blocks of these orders."""
        arms = [[LETTER_ARMS[letter] for letter in order] for order in orders]
        with self.around():
            for order, times in zip(orders, self.timer.blocks(arms), strict=True):
                yield TimedBlock(
                    order=order, ns_per_call=tuple(times), mean_ns_per_call=tuple(self.timer.means)
                )
