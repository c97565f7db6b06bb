"""The service of one of several processes that call a kernel together: verifies and times it in step with the others.

Each request is made of all ranks at once. What they do is the same on all, call for call, since a collective that one rank
makes alone hangs: so most probes of a single process are not here, which run a kernel as often as its own answers suggest.
A rank that fails answers at once; the others wait for it, and the parent ends them.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Literal

from pytest_cgins.building.loading.exceptions import kind_of, told
from pytest_cgins.core.buffers import Buffer
from pytest_cgins.core.device import device_of
from pytest_cgins.core.measurement import ArmName
from pytest_cgins.core.tensors import Kept, pack
from pytest_cgins.packs.call import bound
from pytest_cgins.packs.context import restore
from pytest_cgins.run.kernels import KernelCache, begin
from pytest_cgins.run.timing_service import Answer, Measurement, TimingService, packed_answer
from pytest_cgins.run.verification_service import (
    Answered,
    all_answers,
    deviant_answer,
    failure,
    raised_error,
    set_answer,
)
from pytest_cgins.timing.block import LETTER_ARMS
from pytest_cgins.timing.cpu_timer import HostTimer
from pytest_cgins.timing.devices import timed_device
from pytest_cgins.verify.messages import (
    EmptyMessage,
    Facts,
    JoinRanks,
    KernelAnswers,
    RunKernel,
    serves,
)
from pytest_cgins.verify.probe_support.process_watch import Watch
from pytest_cgins.verify.probe_support.set_trial import Sent, SetTrial
from pytest_cgins.verify.probe_support.timed_copy import Content, Rotating, TimedCopy
from pytest_cgins.verify.probes import ranks
from pytest_cgins.verify.probes.after_timing import ObservedAnswer
from pytest_cgins.verify.rank_group import RankGroup
from pytest_cgins.verify.timing_messages import Opened, OpenTiming, TimedBlock

_SHOWN = 300


class RankService(TimingService):
    """One rank of a kernel."""

    def __init__(self) -> None:
        super().__init__()
        self._trials: dict[SetTrial, Answered] = {}
        """Sets that were run, and the first answers."""

    @serves(JoinRanks)
    def join(self, request: JoinRanks) -> EmptyMessage:
        """Find the other ranks."""
        self._group = RankGroup(request)
        return EmptyMessage()

    @serves(RunKernel)
    def run(self, request: RunKernel, buffers: list[Buffer]) -> tuple[KernelAnswers, list[Buffer]]:
        """Run the kernel on each set, in step, and keep the answers for `run_late`; gives the set that it failed on, if any."""
        begin(request)
        self._comes_late = ranks.NAME in request.probes
        name: str = request.sets[0].name
        phase: Literal["load", "bind", "run"] = "load"
        try:
            watch = Watch(frozenset(request.probes), request)
            with watch.loading():
                kernel = self._kernels.load(request.kernel)
            watch.guard(kernel)
            for inputs, buffer in zip(request.sets, buffers, strict=True):
                name, phase = inputs.name, "bind"
                kept = Buffer.adopt(os.dup(buffer.fileno()))  # a request's own are closed
                sent = Sent(inputs, kept, request.device)
                trial = SetTrial(kernel, inputs, sent, request.device, watch)
                phase = "run"
                self._group.barrier()
                trial.first()
                self._trials[trial] = set_answer(name, trial, pack(trial.answer))
        except BaseException as error:  # noqa: BLE001 - code under test may raise anything, also at import
            return all_answers([failure(name, raised_error(error, request.device, phase))], [], {})
        return KernelAnswers(sets=()), []

    @serves(EmptyMessage)
    def run_late(self) -> tuple[KernelAnswers, list[Buffer]]:
        """Run it again on the same sets, see `verify.probes.ranks`; gives the first answers, and what deviates from them."""
        found = ranks.deviations([*self._trials], self._group) if self._comes_late else []
        answers = [
            (replace(answer, overrun=answer.overrun or trial.overrun(), unlike=tuple(trial.unlike)), packed)
            for trial, (answer, packed) in self._trials.items()
        ]
        return all_answers(answers, [*map(deviant_answer, found)], {})

    def _measurement_of(self, request: OpenTiming, buffers: list[Buffer]) -> Measurement:
        return _Opened(request, buffers, self._kernels, self._group)


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
        self.device, self.spent = timed_device(request.device), False
        self._around = partial(restore, inputs.context, request.device, repeatable=False)
        kernel = kernels.load(request.kernel)
        content = Content(inputs, Kept(inputs.tensors, buffers[0], request.device))
        refused: dict[ArmName, str] = {}
        with self._around():
            self._copy = TimedCopy(kernel, content, request.device)
            arms: dict[ArmName, Any] = {"kernel": Rotating([self._copy.bare])}
            if request.torch:
                arms["torch"] = Rotating([bound(content.call, content.kept.unpack())])
            if request.base is not None:
                wrong = ""
                try:
                    arms["base"] = Rotating([self._copy.bind_beside(kernels.load(request.base))])
                except Exception as error:  # noqa: BLE001 - not the kernel's doing, whatever it is
                    wrong = f"it cannot be loaded: {kind_of(error)}: {told(error)[:_SHOWN]}"
                if group.greatest(bool(wrong)):  # an arm that is not there on one rank is on none
                    arms.pop("base", None)
                    refused["base"] = wrong or "it cannot be loaded on another rank"
            if request.compile:
                refused["compile"] = "torch.compile is not timed on several ranks"
            fence = device.synchronize if device.is_accelerator else None
            self._timer = _RankTimer(
                group, arms, copies=1, limit_s=request.limit_s, longer=request.longer, fence=fence
            )
        self.made_ready = Opened(
            arms=tuple(self._timer.calls),
            method=self._timer.method,
            calls=dict(self._timer.calls),
            batch_seconds=dict(self._timer.batch_seconds),
            host_ns_per_call={},
            cold=False,
            refused=refused,
        )

    def blocks(self, orders: Sequence[str]) -> list[TimedBlock]:
        """Times are those of the slowest rank."""
        arms = [[LETTER_ARMS[letter] for letter in order] for order in orders]
        with self._around():
            return [
                TimedBlock(order=order, ns_per_call=tuple(times), mean_ns_per_call=tuple(self._timer.means))
                for order, times in zip(orders, self._timer.blocks(arms), strict=True)
            ]

    def repeat(self, arm: ArmName, calls: int) -> None:
        """See `TimingService.repeat`."""
        with self._around():
            self._timer.repeat(arm, calls)

    def look(self) -> None:
        """Nothing: an answer is looked at in the end."""

    def finished(self) -> tuple[list[Answer], Facts]:
        """One more call of the kernel, on the set's own numbers."""
        with self._around():
            return [packed_answer(ObservedAnswer(self._copy.name, "after", self._copy.once_more()))], {}

    def close(self) -> None:
        """Nothing was set."""
