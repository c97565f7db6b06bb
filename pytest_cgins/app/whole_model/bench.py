"""A model timed with kernels, with those they are compared with, and without, in turns.

On a GPU each is captured in a CUDA graph, so that what Python does for a swap takes no part of the time. On a CPU it does:
tens of microseconds a call.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from functools import partial
from typing import Any

import torch

from pytest_cgins.app.whole_model.document import Difference
from pytest_cgins.app.whole_model.swap import Swap, Tally
from pytest_cgins.app.whole_model.workload import Workload, run_of
from pytest_cgins.config import TimingGate
from pytest_cgins.core.bitwise import readable
from pytest_cgins.core.errors import CginsError, ConfigError
from pytest_cgins.core.measurement import ArmName, Measurement
from pytest_cgins.core.text import counted
from pytest_cgins.packs.call import flatten
from pytest_cgins.packs.ops import qualified_name
from pytest_cgins.recording.intercept import Handler, Interceptor, marked
from pytest_cgins.recording.profiler import Counting
from pytest_cgins.timing import lock
from pytest_cgins.timing.affinity import narrowed
from pytest_cgins.timing.block import LETTER_ARMS, Block
from pytest_cgins.timing.block_sampler import BlockSampler, Prepared
from pytest_cgins.timing.clock_watch import ClockWatch
from pytest_cgins.timing.devices import timed_device
from pytest_cgins.timing.sequential import Rule

BATCH_LIMIT_S = 2.0
"""Bounds one batch of both arms together, as far as one run does not take longer."""
OTHER_NUMBERS = 1 + 2**-4
"""What weights and inputs are multiplied by, so that an answer to the old ones is seen."""
MOST_DIFFERENT = 4e-3
"""Relative root mean square by which a replay may differ from a run: libraries may sum up in another order."""
OP_RUNS = 5
"""Runs in which each op is timed."""
HEAD_START_CYCLES = 100_000_000
"""Some 60 ms of a GPU, in which the host launches what it can."""
PLAIN_RUNS = 10
PART = 1 << 24
"""Elements that are compared at a time: the logits of a long prompt are billions."""
ON_HOST = "what Python does for each swapped call is part of the time: tens of microseconds"


class Arms:
    """One model: as it is, and with kernels in it.

    Args:
        workload: the model.
        swaps: kernels by arm: those of `kernel`, and those of `base` that they are compared with.
        ops: qualified names of what they replace.
        device: `cpu` or `cuda:0`.
    """

    def __init__(
        self, workload: Workload, swaps: Mapping[ArmName, Swap], ops: Sequence[str], device: str
    ) -> None:
        self._run = workload.run
        self._tensors = workload.tensors
        self._swaps = swaps
        self._ops = ops
        self._device = timed_device(device)
        self._in_graphs = False
        self._chosen: dict[str, Callable[..., object]] = {}
        self._arms: dict[ArmName, Callable[[int], object]] = {
            "kernel": lambda _: self.swapped(),
            "torch": self.plain,
        }
        if "base" in swaps:
            self._arms["base"] = lambda _: self.swapped("base")

    @contextmanager
    def ready(self) -> Iterator[None]:
        """Have the calls of all ops be seen, where a swap is on.

        Raises:
            TraceError: an op of a kernel is not there.
        """
        with ExitStack() as stack:
            self._chosen = dict(zip(self._ops, stack.enter_context(marked(self._ops)), strict=True))
            stack.enter_context(torch.compiler.set_stance("force_eager"))
            stack.enter_context(torch.no_grad())
            stack.enter_context(self._device.current())
            yield

    def plain(self, _: int = 0) -> object:
        """A run without kernels."""
        return self._run()

    def swapped(self, arm: ArmName = "kernel", ops: Collection[str] = ()) -> object:
        """A run with them, or with those of some ops alone."""
        swap = self._swaps[arm]
        with self._mode(swap, ops or swap.tallies):
            return self._run()

    def _mode(self, handler: Handler, ops: Collection[str]) -> Interceptor:
        return Interceptor([self._chosen[op] for op in ops], handler, marked=False)

    def learn(self) -> dict[str, Tally]:
        """Run once for each arm, so that kernels know what their ops give.

        Returns:
            What became of the calls of each op in a run with kernels after that.

        Raises:
            ConfigError: no call goes to a kernel.
        """
        for arm, swap in self._swaps.items():
            swap.learning = True
            self.swapped(arm)
            swap.learning = False
            swap.reset()
            self.swapped(arm)
        swap = self._swaps["kernel"]
        tallies = swap.tallies
        swap.reset()
        if not any(tally.swapped for tally in tallies.values()):
            reasons = [f"{op}: {why}" for op, tally in tallies.items() for why in tally.left]
            raise ConfigError(
                "no call of the model goes to a kernel",
                remedy="; ".join(reasons[:5]) or f"the model calls none of {', '.join(self._ops)}",
            )
        return tallies

    def op_ns(self, arm: ArmName) -> dict[str, float]:
        """What each op takes in a run, over all its calls: with the arm's kernels, or torch's own; after `timed`."""
        handler: Handler = self._swaps.get(arm, lambda func, args, kwargs: func(*args, **kwargs))
        ops = self._swaps.get(arm, self._swaps["kernel"]).tallies
        device = self._device
        marks: list[tuple[str, object, object]] = []

        def timed(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            begin = device.mark()
            result = handler(func, args, kwargs)
            marks.append((qualified_name(func), begin, device.mark()))
            return result

        def once(_: int = 0) -> None:
            marks.clear()
            with self._mode(timed, ops):
                self._run()

        run = self._without_launching(arm, once)
        runs: list[dict[str, float]] = []
        for _ in range(OP_RUNS):
            run()
            device.synchronize()
            sums = dict.fromkeys(ops, 0.0)
            for op, begin, end in marks:
                sums[op] += device.seconds_between(begin, end)
            runs.append(sums)
        return {op: 1e9 * statistics.median(run[op] for run in runs) for op in ops}

    def _without_launching(self, arm: ArmName, once: Callable[[int], None]) -> Callable[[], object]:
        """Runs whose marks hold little of what the host needs to launch calls: a CUDA graph, if the arms are timed in graphs.

        On a GPU a long kernel runs before any other, behind which the host launches what it can.
        """
        if self._in_graphs:
            from pytest_cgins.timing import cuda_timer

            # torch marks time within a graph from 2.8 on.
            with suppress(cuda_timer.CaptureError), untold():
                return cuda_timer.capture(arm, once, 1, 1).replay

        def behind() -> None:
            if self._device.is_cuda:
                torch.cuda._sleep(HEAD_START_CYCLES)  # type: ignore[no-untyped-call]
            once(0)

        return behind

    def mean_of_ten_ns(self, arm: ArmName) -> float:
        """Time of a run, by the plain protocol: eleven runs, of which the first is discarded."""
        run = self._arms[arm]
        seconds = []
        for _ in range(1 + PLAIN_RUNS):
            begin = self._device.mark()
            run(0)
            seconds.append(self._device.seconds_between(begin, self._device.mark()))
        return 1e9 * statistics.mean(seconds[1:])

    def compile(self, model: torch.nn.Module, inputs: object) -> None:
        """Have torch.compile's model be an arm as well; it is compiled here."""
        run = run_of(torch.compile(model), inputs).run

        def compiled(_: int = 0) -> object:
            with torch.compiler.set_stance("default"):
                return run()

        compiled()
        self._arms["compile"] = compiled

    def locked(self, *, timing: bool) -> AbstractContextManager[None]:
        """Hold the device, alone or with others that time nothing.

        Raises:
            InfrastructureError: it was not to be had.
        """
        hold = lock.timing if timing else lock.verifying
        return hold(self._device.lock_key(), wait_s=lock.WAIT_S)

    def timed(self, gate: TimingGate, *, tests: int, seed: int) -> Measurement:
        """Time all arms in turns, until the sequential tests have ended: against the base, and against torch."""
        arms = self._arms
        with ExitStack() as stack:
            stack.enter_context(untold())
            if not self._device.is_accelerator:
                stack.enter_context(narrowed(torch.get_num_threads()))
            timer, notes = self._device.make_timer(
                arms, copies=1, limit_s=BATCH_LIMIT_S, require_replays=self._require_replays
            )
            self._in_graphs = timer.method == "cuda-graph"
            prepared = Prepared(
                arms=tuple(timer.calls),
                method=timer.method,
                calls=timer.calls,
                batch_seconds=timer.batch_seconds,
                host_ns_per_call={},
                cold=False,
                notes=notes if self._in_graphs else (*notes, ON_HOST),
            )
            rule = Rule.of_gate(gate, tests)
            sampler = BlockSampler(
                prepared,
                seed=seed,
                base=rule if "base" in arms else None,
                floor=(rule, gate.floor_vs_torch or 1.0),
                warm_wanted=True,
            )
            watch = ClockWatch(self._device.clocks())

            def take(orders: Sequence[str]) -> list[Block]:
                letters = [[LETTER_ARMS[letter] for letter in order] for order in orders]
                taken = ((tuple(times), watch.read()) for times in timer.blocks(letters))
                return [
                    Block(order=order, ns_per_call=times, sm_mhz=reading.sm_mhz, throttled=reading.throttled)
                    for order, (times, reading) in zip(orders, taken, strict=True)
                ]

            sampler.run(take)
        return sampler.measurement()

    def _require_replays(self) -> None:
        """Hold a CUDA graph of the model with each set of kernels against a run of it, on other numbers.

        Raises:
            CaptureError: they differ: a kernel works on another stream, or on the host, or the model does other work
                while it is captured; or nobody knows.
        """
        from pytest_cgins.timing import cuda_timer

        for arm, once in self._arms.items():
            if arm == "compile":  # has a graph of its own, into which no mode looks
                continue
            in_run, in_capture = Counting(), Counting()
            _within(in_run, once, 0)
            # The mode is on for the arm alone: making a graph calls operators, too, for the states of generators.
            cuda_timer.capture(arm, partial(_within, in_capture, once), 1, 1)
            told = other_work(in_run.calls, in_capture.calls)
            if told:
                raise cuda_timer.CaptureError(
                    f"in a CUDA graph the {arm} arm does other work than in a run: it calls {told}"
                )
        if self._tensors is None:
            raise cuda_timer.CaptureError("what the model's answer depends on is not known")
        if any(0 in one.stride() and one.numel() > 1 for one in self._tensors):
            raise cuda_timer.CaptureError(
                "an input of the model is expanded, so that its numbers cannot be changed"
            )
        for arm in self._swaps:
            if not changes_with(self._tensors, partial(self.swapped, arm), self._replay(arm)):
                raise cuda_timer.CaptureError(
                    "replaying the swapped model's CUDA graph does not do what running it does (a kernel launches on another "
                    "stream than the current one, or works on the host)"
                )

    def _replay(self, arm: ArmName) -> Callable[[], object]:
        """A CUDA graph of a run with the arm's kernels: replays it, and gives its answer."""
        from pytest_cgins.timing import cuda_timer

        captured: list[object] = []
        graph = cuda_timer.capture(arm, lambda _: captured.append(self.swapped(arm)), 1, 1)

        def replay() -> object:
            graph.replay()
            self._device.synchronize()
            return captured[0]

        return replay


def _within(mode: Counting, run: Callable[[int], object], index: int) -> None:
    with mode:
        run(index)


def changes_with(
    tensors: Sequence[torch.Tensor], run: Callable[[], object], replay: Callable[[], object]
) -> bool:
    """Whether a replay on other numbers gives what a run on them gives; the tensors hold their own again afterwards.

    Args:
        tensors: all numbers that the answers depend on.
        run: gives the answer to them.
        replay: the same, by repeating what was captured.
    """
    kept = [tensor.detach().clone() for tensor in tensors]
    try:
        for one in tensors:
            one.data.copy_(readable(one.data) * OTHER_NUMBERS)
        replayed = replay()
        found = difference(run(), replayed)
    finally:
        for one, own in zip(tensors, kept, strict=True):
            one.data.copy_(own)
    return found is not None and found.relative_rms <= MOST_DIFFERENT


def difference(expected: object, found: object) -> Difference | None:
    """How far two results lie from each other; None where they are not made of tensors of one form."""
    try:
        tree, wanted = flatten(expected)
        other_tree, got_tensors = flatten(found)
    except CginsError:
        return None
    if tree != other_tree:
        return None
    squares = scale = worst = 0.0
    elements, finite = 0, True
    for want, got in zip(wanted, got_tensors, strict=True):
        if want.shape != got.shape or want.dtype != got.dtype:
            return None
        pairs = (torch.split(tensor.detach().reshape(-1), PART) for tensor in (want, got))
        for part in zip(*pairs, strict=True):
            wide = torch.complex128 if want.is_complex() else torch.float64
            one, other = (tensor.to(wide) for tensor in part)
            usual = torch.isfinite(one)
            finite &= bool(torch.isfinite(other[usual]).all())
            both = usual & torch.isfinite(other)
            gap = (one[both] - other[both]).abs()
            squares += float(gap.square().sum())
            scale += float(one[both].abs().square().sum())
            worst = max(worst, float(gap.max()) if gap.numel() else 0.0)
        elements += want.numel()
    relative = math.sqrt(squares / scale) if scale else math.inf if squares else 0.0
    return Difference(relative_rms=relative, worst=worst, elements=elements, finite=finite)


# A model inside a CUDA graph must do what it does outside, or a graph's time is of another program: transformers builds
# attention masks while a graph is captured, which a run leaves out where they are empty. With them BERT's and ViT's layers
# took two to three times as long on an H200.
_SHOWN = 3


@contextmanager
def untold() -> Iterator[None]:
    """Python code that asks torch whether a graph is being captured hears that none is."""
    places: tuple[Any, ...] = (torch.cuda, torch.cuda.graphs)
    own = torch.cuda.is_current_stream_capturing

    def none() -> bool:
        return False

    try:
        for place in places:
            place.is_current_stream_capturing = none
        yield
    finally:
        for place in places:
            place.is_current_stream_capturing = own


def other_work(in_run: Mapping[Any, int], in_capture: Mapping[Any, int]) -> str:
    """How the operators that a capture calls differ from a run's, the most frequent first; "" if they do not.

    Args:
        in_run: how often each is called outside of a capture.
        in_capture: how often inside.
    """
    more = Counter(in_capture) - Counter(in_run)
    fewer = Counter(in_run) - Counter(in_capture)
    told = [f"{number} × {name} more" for name, number in more.most_common(_SHOWN)]
    told += [f"{number} × {name} fewer" for name, number in fewer.most_common(_SHOWN)]
    rest = len(more) + len(fewer) - len(told)
    return ", ".join(told) + (f", and {counted(rest, 'other')}" if rest else "")
