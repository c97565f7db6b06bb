"""The service that times a kernel against its base revision and torch, after it has passed verification elsewhere.

A measurement is some kinds of requests after `ready`: `open` makes the arms ready, `blocks` runs blocks of batches,
as many and as often as the caller wants, `repeat` calls an arm for a caller that times it from outside, and `finish` has
the probes look. Who calls decides when enough is known: it is not in the process that the kernel shares.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any, Protocol

import torch

from pytest_cgins.building.loading.callable import LoadedKernel
from pytest_cgins.building.loading.exceptions import kind_of, told
from pytest_cgins.building.loading.returned import address
from pytest_cgins.core.bitwise import all_same, snapshot
from pytest_cgins.core.buffers import Buffer
from pytest_cgins.core.case import CompiledKernel
from pytest_cgins.core.device import device_of, give_back_unused
from pytest_cgins.core.errors import ProtocolError
from pytest_cgins.core.measurement import ArmName, TunedConfig
from pytest_cgins.core.tensors import Kept, pack
from pytest_cgins.core.text import counted
from pytest_cgins.packs.backward import is_derived, whole
from pytest_cgins.packs.call import bound
from pytest_cgins.packs.context import restore
from pytest_cgins.packs.ops import resolve
from pytest_cgins.run import graph_replay
from pytest_cgins.run.kernels import KernelCache, begin, make_ready
from pytest_cgins.timing.affinity import narrowed
from pytest_cgins.timing.block import LETTER_ARMS
from pytest_cgins.timing.clock_watch import ClockWatch
from pytest_cgins.timing.devices import TimedDevice, timed_device
from pytest_cgins.timing.rotation import Rotation, plan
from pytest_cgins.timing.timer import TWINS, Arms
from pytest_cgins.verify.messages import EmptyMessage, Facts, serves
from pytest_cgins.verify.probe_support import memory, process_settings
from pytest_cgins.verify.probe_support.process_watch import Watch
from pytest_cgins.verify.probe_support.rerun import attempt
from pytest_cgins.verify.probe_support.timed_copy import Content, Rotating, TimedCopy, exchange
from pytest_cgins.verify.probes import (
    after_timing,
    content_cache,
    integrity,
    l2_carve_out,
    on_stream,
    recompiles,
    snooping,
)
from pytest_cgins.verify.probes.after_timing import ObservedAnswer
from pytest_cgins.verify.probes.autotuner import Autotuners
from pytest_cgins.verify.probes.l2_carve_out import CarveOut
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
_compilations = recompiles.Compilations()

Answer = tuple[TimedAnswer, Buffer]


class Measurement(Protocol):
    """One case whose arms are ready; methods are as of `TimingService`."""

    device: TimedDevice
    made_ready: Opened
    spent: bool
    """Whether its process can time nothing more."""

    def blocks(self, orders: Sequence[str]) -> list[TimedBlock]: ...  # noqa: D102
    def repeat(self, arm: ArmName, calls: int) -> None: ...  # noqa: D102
    def look(self) -> None: ...  # noqa: D102
    def finished(self) -> tuple[list[Answer], Facts]: ...  # noqa: D102
    def close(self) -> None: ...  # noqa: D102


class TimingService:
    """Times kernels, in a process that never verified one."""

    def __init__(self) -> None:
        self.fatal = False
        self._kernels = KernelCache()
        self._opened: Measurement | None = None

    @serves(Ready)
    def ready(self, request: Ready) -> EmptyMessage:
        """Have everything imported, and the context of a GPU made."""
        make_ready(request.device)
        return EmptyMessage()

    @serves(OpenTiming)
    def open(self, request: OpenTiming, buffers: list[Buffer]) -> Opened:
        """Make the arms of a case ready to be timed; `buffers` are one a set."""
        sets, device = request.sets, request.device
        if not sets or len(buffers) != len(sets):
            raise ProtocolError(f"{counted(len(sets), 'set')} came with {counted(len(buffers), 'buffer')}")
        self._close()
        begin(request)
        with self._fatal_if_raised(device):
            self._opened = self._measurement_of(request, buffers)
            return self._opened.made_ready

    def _measurement_of(self, request: OpenTiming, buffers: list[Buffer]) -> Measurement:
        return _Opened(request, buffers, self._kernels)

    def rest(self) -> None:
        """Between blocks memory is not given back: calls would wait for it."""
        if self._opened is None:
            give_back_unused()

    @serves(RunBlocks)
    def blocks(self, request: RunBlocks) -> TimedBlocks:
        """Run blocks, on a GPU with its clock."""
        with self._measurement() as opened:
            return TimedBlocks(tuple(opened.blocks(request.orders)))

    @serves(RepeatCalls)
    def repeat(self, request: RepeatCalls) -> EmptyMessage:
        """Call an arm so many times, for whoever times it from outside."""
        with self._measurement() as opened:
            opened.repeat(request.arm, request.calls)
        return EmptyMessage()

    @serves(EmptyMessage)
    def look(self) -> EmptyMessage:
        """Look at the answers of the kernel's last calls, after which no other arm was called."""
        with self._measurement() as opened:
            opened.look()
        return EmptyMessage()

    @serves(EmptyMessage)
    def finish(self) -> tuple[FinishedTiming, list[Buffer]]:
        """Have the kernel run on exchanged numbers, and the probes look; gives one buffer an answer."""
        with self._measurement() as opened:
            answers, observed = opened.finished()
        # A capture that failed leaves torch's allocator waiting for its end, and later ones would fail too.
        self.fatal = opened.spent
        self._close()
        told = FinishedTiming(answers=tuple(answer for answer, _ in answers), observed=observed)
        return told, [buffer for _, buffer in answers]

    @contextmanager
    def _measurement(self) -> Iterator[Measurement]:
        if self._opened is None:
            raise ProtocolError("no measurement is open")
        with self._fatal_if_raised(self._opened.device.case_name):
            yield self._opened

    def _close(self) -> None:
        opened, self._opened = self._opened, None
        if opened is not None:
            opened.close()

    @contextmanager
    def _fatal_if_raised(self, device: str) -> Iterator[None]:
        try:
            yield
        except BaseException:
            self._close()
            self.fatal = device_of(device).is_accelerator  # its context may be lost
            raise


class _Opened:
    """One case whose arms are ready."""

    def __init__(self, request: OpenTiming, buffers: list[Buffer], kernels: KernelCache) -> None:
        self.device = timed_device(request.device)
        self.spent = False
        self._probes = frozenset(request.probes)
        self._context = request.sets[0].context
        self._refused: dict[ArmName, str] = {}
        self._replayed: ObservedAnswer | None = None
        namespace = request.base.source.namespace if request.base is not None else None
        self._namespace = namespace.name if namespace else ""
        """Where the modules of the base are imported; "" if it has none."""
        self._compiles = request.compile
        self._runs_forward = request.kernel.source.runs_forward
        self._is_direct = request.kernel.source.contract in on_stream.DIRECT
        self._carve_out = CarveOut(request.device, on=l2_carve_out.NAME in self._probes)
        launch_ns = self.device.launch_ns()  # before a kernel is loaded
        # Before the watch begins: what the base does as it is loaded is no doing of the kernel.
        base = self._base(request.base, kernels)
        # A recorded context may have torch import Triton, which has to know before whether it interprets.
        self._watch = Watch(self._probes & {integrity.NAME, snooping.NAME}, request)
        self._ended = False
        try:
            with self._watch.loading():
                kernel = kernels.load(request.kernel)
            _compilations.listen()
            self._carve_out.loaded()
            with self._around():
                contents = [
                    Content(inputs, Kept(inputs.tensors, buffer, self.device.case_name))
                    for inputs, buffer in zip(request.sets, buffers, strict=True)
                ]
                rotation = _plan_rotation(contents, request)
                turns = [contents[index % len(contents)] for index in range(rotation.copies)]
                self._copies = [TimedCopy(kernel, content, request.device) for content in turns]
                self._kernel = Rotating([copy.bare for copy in self._copies])
                arms = self._arms(turns, base, request)
                # Not before the op's own module was imported, whose settings are no doing of the kernel.
                with self._watch.timing():
                    self._held = self._hold(self._copies[0])
                    self._carve_out.settle(self._copies[0].once_more)
                    peak_nbytes = self._peak()
                    self._copies[0].take(self._copies[0].content)
                    tuned, base_tuned, tuning_notes = self._tune(request.tuned)
                    # Before anything is captured: results of calls outside of the graphs would take their place.
                    host_ns = self._host_times(arms, rotation.copies)
                    self._timer, notes = self.device.make_timer(
                        arms,
                        copies=rotation.copies,
                        limit_s=request.limit_s,
                        longer=request.longer,
                        fenced=request.fenced,
                        require_replays=lambda: self._require_replays(arms, contents),
                    )
            self.made_ready = Opened(
                arms=tuple(self._timer.calls),
                method=self._timer.method,
                calls=dict(self._timer.calls),
                batch_seconds=dict(self._timer.batch_seconds),
                host_ns_per_call=host_ns,
                launch_ns=launch_ns,
                cold=rotation.is_cold(self._timer.distinct_calls),
                notes=(*notes, *tuning_notes),
                refused=self._refused,
                tuned=tuned,
                base_tuned=base_tuned,
                jit=_compilations.counted("" if self._namespace else None),
                base_jit=_compilations.counted(self._namespace) if self._namespace else None,
                peak_nbytes=peak_nbytes,
            )
            self._compiled = _compilations.mark()
            self._repeats = after_timing.Repeats()
            self._looked = time.monotonic()
            self._clock = ClockWatch(self.device.clocks())
        except BaseException:
            self.close()
            raise

    def blocks(self, orders: Sequence[str]) -> list[TimedBlock]:
        """See `TimingService.blocks`."""
        arms = [[LETTER_ARMS[letter] for letter in order] for order in orders]
        blocks: list[TimedBlock] = []
        with self._around(), self._watch.timing() as put_back:
            for order, times in zip(orders, self._timer.blocks(arms, put_back), strict=True):
                reading = self._clock.read()
                blocks.append(
                    TimedBlock(
                        order=order,
                        ns_per_call=tuple(times),
                        mean_ns_per_call=tuple(self._timer.means),
                        sm_mhz=reading.sm_mhz,
                        throttled=reading.throttled,
                    )
                )
                # A GPU already runs the block after one that is given.
                if self._timer.method != "cuda-graph" or len(blocks) == len(orders):
                    self._look_at_answers()
        return blocks

    def _peak(self) -> int | None:
        """What a call takes of torch's allocator, after those before it have grown its caches."""
        if not self.device.is_accelerator:
            return None
        begun = memory.begin_peak(self.device.case_name)
        self._copies[0].once_more()
        most = memory.peak(self.device.case_name)
        return None if begun is None or most is None else max(0, most - begun)

    def repeat(self, arm: ArmName, calls: int) -> None:
        """See `TimingService.repeat`."""
        with self._around(), self._watch.timing():
            self._timer.repeat(arm, calls)

    def look(self) -> None:
        """See `TimingService.look`."""
        with self._around(), self._watch.timing():
            self._look_at_answers()

    def _look_at_answers(self) -> None:
        """Hold what timed calls have left against earlier answers, where the base has not written over it."""
        elapsed = time.monotonic() - self._looked
        if after_timing.NAME in self._probes:
            self._leave()
            own = [copy for copy, by in zip(self._copies, self._timer.left_by, strict=True) if by == "kernel"]
            self._repeats.look(own, max(after_timing.LEAST_S, after_timing.SHARE * elapsed))
        self._looked = time.monotonic()

    def _leave(self) -> None:
        for copy, left in zip(self._copies, self._kernel.results, strict=True):
            copy.left = left

    def finished(self) -> tuple[list[Answer], Facts]:
        """See `TimingService.finish`: answers of the last timed calls and of one call afterwards; what probes saw."""
        captured = self._timer.method == "cuda-graph"
        with self._around(), self._watch.timing():
            exchange(
                self._copies,
                self._kernel.results,
                captured=captured,
                distinct_calls=self._timer.distinct_calls,
            )
            for _ in self._timer.blocks([("kernel",)] * self._timer.batches_per_turn):
                pass
            self.device.synchronize()
            answers, observed = self._probed()
            self._carve_out.called(lambda: attempt(self._copies[0].once_more))
        self._ended = True
        self._carve_out.clear()
        if recompiles.NAME in self._probes:
            observed[recompiles.NAME] = _compilations.since(
                self._compiled, besides=self._namespace, graphs=not self._compiles
            )
        observed |= self._watch.observed()  # also puts back what the kernel replaced
        observed[l2_carve_out.NAME] = self._carve_out.facts()
        self.spent = self._watch.spent or self._timer.method == "fenced-loop"
        return answers, observed

    def close(self) -> None:
        """Give back what was set, if nobody has."""
        if not self._ended:
            self._ended = True
            self._carve_out.clear()
            self._watch.observed()

    @contextmanager
    def _around(self) -> Iterator[None]:
        with ExitStack() as stack:
            if not self.device.is_accelerator:
                stack.enter_context(narrowed(torch.get_num_threads()))
            stack.enter_context(restore(self._context, self.device.case_name, repeatable=False))
            yield

    def _arms(
        self, turns: Sequence[Content], base: LoadedKernel | None, request: OpenTiming
    ) -> dict[ArmName, Callable[[int], object]]:
        arms: dict[ArmName, Callable[[int], object]] = {"kernel": self._kernel}
        if request.torch:
            arms["torch"] = self._torch_arm(turns)
        if base is not None:
            self._add("base", arms, lambda: Rotating([copy.bind_beside(base) for copy in self._copies]))
        if request.compile:
            self._add("compile", arms, lambda: self._compile_arm(turns))
        return arms

    def _tune(
        self, given: Sequence[TunedConfig]
    ) -> tuple[tuple[TunedConfig, ...], tuple[TunedConfig, ...], tuple[str, ...]]:
        """Have autotuners choose before anything is timed, kernel and base alike, or as in another process; their choices, and notes."""
        tuners = Autotuners()
        tuners.give(given)
        if not self._namespace:
            return tuners.chosen(), (), ()
        tuned = tuners.chosen("")
        notes = tuners.give(tuned, self._namespace)
        return tuned, tuners.chosen(self._namespace), notes

    def _hold(self, copy: TimedCopy) -> list[tuple[ObservedAnswer, list[torch.Tensor]]]:
        """Two answers in memory of the kernel's own, whose tensors stay its user's, and what they are now.

        Who hands out the same memory in turn has calls on other numbers write to one of two that follow on each other.
        """
        if self._is_direct or copy.mutates or after_timing.NAME not in self._probes:
            return []
        answers = [copy.once_more() for _ in range(2)]
        inputs = {*map(address, copy.inputs)}
        return [
            (ObservedAnswer(copy.name, "held", answer), [*map(snapshot, answer)])
            for answer in answers
            if inputs.isdisjoint(map(address, answer))
        ]

    def _require_replays(self, arms: Arms, contents: Sequence[Content]) -> None:
        """Hold graphs of what is not torch's own against calls, on another set's numbers where there is one."""
        from pytest_cgins.timing.cuda_timer import CaptureError

        first = self._copies[0]
        other = next((content for content in contents if content is not first.content), first.content)
        for name in TWINS:
            arm = arms.get(name)
            if not isinstance(arm, Rotating):
                continue
            try:
                graph_replay.require(name, arm, first, other)
            except CaptureError as error:
                # Who is told the stream may be captured on it, unless a number on the host is an input.
                on_gpu = all(tensor.is_cuda for tensor in first.inputs)
                if name == "kernel" and self._is_direct and on_gpu and not first.mutates and error.replayed:
                    self._replayed = ObservedAnswer(other.name, "captured", error.replayed)
                raise

    def _base(self, compiled: CompiledKernel | None, kernels: KernelCache) -> LoadedKernel | None:
        """The kernel at the base revision; None if there is none, or it cannot be loaded here."""
        if compiled is None:
            return None
        before = process_settings.read()
        try:
            return kernels.load(compiled)
        except Exception as error:  # noqa: BLE001 - not the kernel's doing, whatever it is
            self._refused["base"] = f"it cannot be loaded: {_short(error)}"
            return None
        finally:
            process_settings.put_back(before)

    def _add(
        self,
        name: ArmName,
        arms: dict[ArmName, Callable[[int], object]],
        make: Callable[[], Callable[[int], object]],
    ) -> None:
        """Add an arm if it runs, and leaves settings as they are: while it is timed, nobody knows whose change it is."""
        before = process_settings.read()
        try:
            arm = make()
            arm(0)
            self.device.synchronize()
        except Exception as error:  # noqa: BLE001 - not the kernel's doing, whatever it is
            self._refused[name] = f"it does not run on these inputs: {_short(error)}"
        else:
            arms[name] = arm
        finally:
            changes = process_settings.put_back(before)
        if changes and name == "base" and arms.pop(name, None) is not None:
            self._refused[name] = f"it changes settings that others are timed with: {changes[0]}"

    def _torch_arm(self, turns: Sequence[Content]) -> Rotating:
        if self._runs_forward:
            return Rotating([whole(content.call, content.kept.unpack()) for content in turns])
        derived = is_derived(turns[0].call.op)
        with self.device.capture_stream() if derived else nullcontext():
            return Rotating([bound(content.call, content.kept.unpack()) for content in turns])

    def _compile_arm(self, turns: Sequence[Content]) -> Rotating:
        op = turns[0].call.op
        if is_derived(op):
            raise ValueError("torch.compile takes no backward by itself")
        compiled: Any = torch.compile(resolve(op), dynamic=False)
        return Rotating([bound(content.call, content.kept.unpack(), instead=compiled) for content in turns])

    def _host_times(self, arms: Arms, copies: int) -> dict[ArmName, float]:
        told = ((name, self.device.host_ns_per_call(arm, copies)) for name, arm in arms.items())
        return {name: ns for name, ns in told if ns is not None}

    def _probed(self) -> tuple[list[Answer], Facts]:
        answers: list[Answer] = []
        observed: Facts = {}
        self._leave()
        if after_timing.NAME in self._probes:
            answers += map(packed_answer, self._repeats.given())
            answers += map(packed_answer, after_timing.last(self._copies))
            answers += map(packed_answer, after_timing.going_on(self._copies))
            answers += [
                packed_answer(given) for given, before in self._held if not all_same(given.tensors, before)
            ]
            answers += map(packed_answer, [self._replayed] if self._replayed is not None else [])
        if content_cache.NAME in self._probes:
            calls = [(copy.run, copy.inputs) for copy in self._copies]
            observed[content_cache.NAME] = content_cache.observe(calls, self.device)
        if after_timing.NAME in self._probes:
            answers += map(packed_answer, after_timing.after(self._copies))
        return answers, observed


def _short(error: BaseException) -> str:
    text = told(error).strip().partition("\n")[0][:_SHOWN]
    return f"{kind_of(error)}: {text}" if text else kind_of(error)


def packed_answer(given: ObservedAnswer) -> Answer:
    """What is told of an answer, and its buffer."""
    header, packed = pack(given.tensors)
    return TimedAnswer(name=given.name, when=given.when, tensors=header, error=given.error), packed


def _plan_rotation(contents: Sequence[Content], request: OpenTiming) -> Rotation:
    device = timed_device(request.device)
    outputs = sum(meta.nbytes for meta in contents[0].outputs)
    return plan(
        sum(request.sets[0].tensors["spans"]) + outputs,
        device.last_level_cache_nbytes(),
        memory_bytes=device.free_nbytes() // 2 // (2 + request.compile),  # the base runs on the kernel's
        contents=len(contents),
        cold=request.cache != "warm",
    )
