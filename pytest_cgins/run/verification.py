"""The service that runs kernels on given inputs. It knows neither gold nor torch's answers."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch

from pytest_cgins.building.loading.callable import LoadedKernel
from pytest_cgins.building.loading.imports import import_from
from pytest_cgins.building.loading.launcher import put_nothing_around
from pytest_cgins.core import documents
from pytest_cgins.core.buffers import Buffer
from pytest_cgins.core.dtypes import ITEMSIZE
from pytest_cgins.core.errors import ProtocolError
from pytest_cgins.core.model import TensorMeta
from pytest_cgins.core.tensors import pack
from pytest_cgins.core.text import counted
from pytest_cgins.packs.ops import trust
from pytest_cgins.run.kernels import (
    KernelCache,
    is_lost,
    make_ready,
    stream_of_its_own,
    use_device,
    wait_for_device,
)
from pytest_cgins.run.trial import SetTrial
from pytest_cgins.run.worker import become_ordinary, describe
from pytest_cgins.verify.probes import fresh_memory, late_work, memory_leak, memory_use, on_stream, repeat
from pytest_cgins.verify.probes.late_work import Threads
from pytest_cgins.verify.probes.memory_leak import Leak
from pytest_cgins.verify.probes.memory_use import Meter
from pytest_cgins.verify.probes.trial import Deviation
from pytest_cgins.verify.probes.watch import Watch

_Answer = tuple[dict[str, Any], Buffer]


class VerificationService:
    """Runs a kernel on sets of inputs and hands its outputs back, bit by bit as they lie."""

    def __init__(self, settings: dict[str, Any]) -> None:
        del settings
        self.fatal = False
        self._kernels = KernelCache()
        self._around: Callable[[], AbstractContextManager[object]] = nullcontext
        """What a kernel is loaded and first run in."""

    def ready(self, params: dict[str, Any], buffers: list[Buffer]) -> tuple[dict[str, Any], list[Buffer]]:
        """Have the context of a GPU made."""
        return make_ready(params, buffers)

    def run(self, params: dict[str, Any], buffers: list[Buffer]) -> tuple[dict[str, Any], list[Buffer]]:
        """Run a kernel on each set, and again in the ways that probes want.

        Args:
            params: `kernel` (CompiledKernel), `device` (`cpu`, `cuda:0`), and `sets`, each with `name`,
                `call` (OpCall), `tensors` (as of `tensors.pack`), `outputs` (TensorMetas that a launcher's
                outputs are allocated by), `context` (Context) and, if any, `mutated` (indices of the tensors
                that the op itself changes) and `once` (true: probes do not run it again). `probes` names the
                probes that are switched on, by default none. With `ordinary` nothing is around outputs, and no module of
                ours is to be found: the process is as a program's own, and no good for other requests.
            buffers: one a set.

        Returns:
            `{"sets": […], "deviations": […], "observed": {…}}` and one buffer a set and a deviation.

            A set has `name`; `tensors`, the outputs and after them the mutated inputs; `devices`, one a tensor;
            `inputs_changed`, indices of tensors that the kernel changed though the op does not; `overrun`, what
            was written outside of outputs, or ""; `unlike`, see `verify.probes.plain_outputs`; and `error`, None or
            `phase`, `kind`, `message`, `remedy`, `trace`. The phase is `load`, `bind` (arguments are matched; no
            code of the kernel runs but a launcher's `_workspace`) or `run`: what a kernel raises as it runs
            cannot pass for a refusal of ours. With an error there are no tensors. Whatever the kernel raises
            stays in its set, and the sets after it are run, unless the GPU was lost.

            A deviation has `probe`, `name`, `tensors`, `error`, None or `kind` and `message`, and `reused`
            (see `verify.probes.trial.Deviation`): an answer that is not the one in `sets`. `observed` has what probes saw, by
            their names.
        """
        if params.get("ordinary"):
            become_ordinary()
            put_nothing_around()
            self._around = _unnamed
        sets, device = params["sets"], params["device"]
        if len(sets) != len(buffers):
            raise ProtocolError(f"{counted(len(sets), 'set')} came with {counted(len(buffers), 'buffer')}")
        watch = Watch(frozenset(params.get("probes", ())), params)
        try:
            use_device(device)
            import_from(params.get("import_root", ""))
            trust(params["kernel"]["source"]["op"])
            with nullcontext() if self._kernels.has(params["kernel"]) else watch.loading():
                kernel = self._kernels.load(params["kernel"], around=self._around)
            watch.guard(kernel)
        except BaseException as error:  # noqa: BLE001 - code under test may raise anything at import
            failed = [_failed(one["name"], "load", describe(error)) for one in sets]
            seen = watch.observed()
            self.fatal = self.fatal or watch.spent
            return self._result(failed, [], seen)
        # All are bound before the first runs: a kernel that runs cannot change how the others are bound.
        meter = Meter(device, on=memory_use.NAME in params.get("probes", ()))
        bound = [
            _bind(kernel, one, buffer, device, watch=watch, meter=meter)
            for one, buffer in zip(sets, buffers, strict=True)
        ]
        threads = Threads()
        stream = stream_of_its_own if _is_direct(params) else nullcontext
        answers = [
            self._first(one, trial, stream(device), meter) for one, trial in zip(sets, bound, strict=True)
        ]
        meter.all_ran()
        # What else was overwritten nobody knows: the next kernel gets another process.
        self.fatal = self.fatal or any(answer.get("overrun") for answer, _ in answers)
        ran_well = [
            (trial, answer)
            for one, trial, (answer, _) in zip(sets, bound, answers, strict=True)
            if isinstance(trial, SetTrial) and not answer["error"] and not one.get("once")
        ]
        ran = [trial for trial in bound if isinstance(trial, SetTrial)]
        deviations, observed = (
            ([], _not_run(_AGAIN)) if self.fatal else self._again(ran, ran_well, params, threads, meter)
        )
        if memory_use.NAME in params.get("probes", ()):
            observed[memory_use.NAME] = meter.facts()
        seen = {**watch.observed(), **observed}
        self.fatal = self.fatal or watch.spent
        return self._result(answers, deviations, seen)

    def _first(
        self,
        one: dict[str, Any],
        trial: SetTrial | Exception,
        stream: AbstractContextManager[object],
        meter: Meter,
    ) -> _Answer:
        name: str = one["name"]
        if isinstance(trial, Exception):
            return _failed(name, "bind", describe(trial))
        if self.fatal:
            return _failed(name, "run", _NOT_RUN)
        device = trial.device
        try:
            with stream:
                with meter.call("first", name, 0 if one.get("once") else _moved_nbytes(one)), self._around():
                    trial.first()
                header, packed = pack(trial.answer)
            wait_for_device(device)
            overrun, changed = trial.overrun(), trial.inputs_changed()
        except BaseException as error:  # noqa: BLE001 - SystemExit from a kernel is its error, not ours
            self.fatal = is_lost(device)
            return _failed(name, "run", describe(error))
        answer = {
            "name": name,
            "tensors": header,
            "devices": [str(tensor.device) for tensor in trial.answer],
            "inputs_changed": changed,
            "overrun": overrun,
            "unlike": trial.unlike,
            "error": None,
        }
        return answer, packed

    def _again(
        self,
        ran: Sequence[SetTrial],
        ran_well: Sequence[tuple[SetTrial, dict[str, Any]]],
        params: dict[str, Any],
        threads: Threads,
        meter: Meter,
    ) -> tuple[list[_Answer], dict[str, Any]]:
        """Run the kernel again as the probes want; what deviates from its first answers, and facts by probe.

        What later runs write where they should not is put down in the answers.
        """
        trials = [trial for trial, _ in ran_well]
        probes, device = params.get("probes", ()), params["device"]
        found: list[_Answer] = []  # packed at once: the kernel may return the same memory on every run
        facts: dict[str, Any] = {}
        try:
            if late_work.NAME in probes and trials:
                threads.settle(device)
                late = list(late_work.deviations(trials, ran))
                found += map(_deviation, late)
                if device == "cpu" and not all(one.reused for one in late):
                    # Its threads write to memory that further runs would give to others.
                    self.fatal = True
                    return found, _not_run(_AGAIN[1:])
            if memory_leak.NAME in probes and trials:
                moved = max(map(_moved_nbytes, params["sets"]))
                leak = Leak(trials[0], lambda: meter.call("later", trials[0].name, moved))
                found += map(_deviation, leak.deviations())
                facts[memory_leak.NAME] = leak.facts
            if repeat.NAME in probes:
                found += map(_deviation, repeat.deviations(trials))
            if {memory_leak.NAME, repeat.NAME} & set(probes) and not is_lost(device):
                for trial, answer in ran_well:
                    answer["overrun"] = answer["overrun"] or trial.overrun()
                    answer["inputs_changed"] = answer["inputs_changed"] or trial.inputs_changed()
                    self.fatal = self.fatal or bool(answer["overrun"])
            if fresh_memory.NAME in probes and self.fatal:
                facts |= _not_run([fresh_memory.NAME])
            elif fresh_memory.NAME in probes:
                found += map(_deviation, fresh_memory.deviations(trials))
            if on_stream.NAME in probes and trials and device.startswith("cuda") and not self.fatal:
                direct = _is_direct(params)
                facts[on_stream.NAME] = on_stream.observe(trials[0], direct=direct)
                self.fatal = direct and not on_stream.usable(trials[0])  # it was captured
            return found, facts
        finally:
            self.fatal = self.fatal or is_lost(device)

    def _result(
        self, answers: Sequence[_Answer], deviations: Sequence[_Answer], observed: dict[str, Any]
    ) -> tuple[dict[str, Any], list[Buffer]]:
        result = {
            "sets": [answer for answer, _ in answers],
            "deviations": [answer for answer, _ in deviations],
            "observed": observed,
        }
        return result, [buffer for _, buffer in (*answers, *deviations)]


_AGAIN = (late_work.NAME, memory_leak.NAME, repeat.NAME, fresh_memory.NAME, on_stream.NAME)
_NOT_RUN = {
    "kind": "NotRun",
    "message": "not run: an earlier set of inputs had broken the process",
    "remedy": "see that set's error first",
    "trace": "",
}


@contextmanager
def _unnamed() -> Iterator[None]:
    """Meanwhile a kernel that looks for our modules among those that are imported finds none."""
    ours = {
        name: sys.modules.pop(name) for name in [*sys.modules] if name.partition(".")[0] == "pytest_cgins"
    }
    try:
        yield
    finally:
        sys.modules.update(ours)


def _is_direct(params: dict[str, Any]) -> bool:
    """Whether the kernel is told its stream; others may count on the default one, as torch's users do."""
    return params["kernel"]["source"]["contract"] in on_stream.DIRECT


def _not_run(probes: Sequence[str]) -> dict[str, Any]:
    """Facts of probes that run a kernel again, where it must not be."""
    why = "the kernel wrote outside of its memory, or still does, or broke its process: it was not run again"
    return {name: {"not_run": why} for name in probes}


def _bind(
    kernel: LoadedKernel, one: dict[str, Any], buffer: Buffer, device: str, *, watch: Watch, meter: Meter
) -> SetTrial | Exception:
    try:
        with meter.call("bind", one["name"], 0 if one.get("once") else _moved_nbytes(one)):
            return SetTrial(kernel, one, buffer, device, watch)
    except Exception as error:  # noqa: BLE001 - becomes the set's error
        return error


def _moved_nbytes(one: dict[str, Any]) -> int:
    """Bytes of a set's inputs and outputs."""
    metas = [documents.load_python(TensorMeta, meta) for meta in one["outputs"]]
    return int(sum(one["tensors"]["spans"])) + sum(meta.numel * ITEMSIZE[meta.dtype] for meta in metas)


def _deviation(one: Deviation) -> _Answer:
    tensors: Sequence[torch.Tensor] = one.tensors
    header, packed = pack(tensors)
    answer = {
        "probe": one.probe,
        "name": one.name,
        "tensors": header,
        "error": one.error,
        "reused": one.reused,
    }
    return answer, packed


def _failed(name: str, phase: str, error: dict[str, Any]) -> _Answer:
    header, packed = pack([])
    answer = {
        "name": name,
        "tensors": header,
        "devices": [],
        "inputs_changed": [],
        "overrun": "",
        "unlike": [],
        "error": {**error, "phase": phase},
    }
    return answer, packed
