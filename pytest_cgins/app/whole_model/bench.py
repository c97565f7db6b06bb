"""A model timed with kernels and without, in turns.

On a GPU each is captured in a CUDA graph, so that what Python does for a swap takes no part of the time. On a CPU it does:
tens of microseconds a call.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

import torch

from pytest_cgins.app.whole_model.document import Difference
from pytest_cgins.app.whole_model.swap import Swap, Tally
from pytest_cgins.app.whole_model.workload import Workload
from pytest_cgins.config import TimingGate
from pytest_cgins.core.errors import CginsError, ConfigError
from pytest_cgins.core.measurement import Measurement
from pytest_cgins.packs.call import flatten
from pytest_cgins.recording.intercept import Interceptor, marked
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
ON_HOST = "what Python does for each swapped call is part of the time: tens of microseconds"


class Pair:
    """One model, with kernels and without.

    Args:
        workload: the model.
        swap: the kernels.
        ops: qualified names of what they replace.
        device: `cpu` or `cuda:0`.
    """

    def __init__(self, workload: Workload, swap: Swap, ops: Sequence[str], device: str) -> None:
        self._run = workload.run
        self._tensors = workload.tensors
        self._swap = swap
        self._ops = ops
        self._device = timed_device(device)
        self._modes: Callable[[], Interceptor] | None = None

    @contextmanager
    def ready(self) -> Iterator[None]:
        """Have the calls of all ops be seen, where a swap is on.

        Raises:
            TraceError: an op of a kernel is not there.
        """
        with ExitStack() as stack:
            chosen = stack.enter_context(marked(self._ops))
            stack.enter_context(torch.compiler.set_stance("force_eager"))
            stack.enter_context(torch.no_grad())
            stack.enter_context(self._device.current())
            self._modes = lambda: Interceptor(chosen, self._swap, marked=False)
            yield

    def plain(self, _: int = 0) -> object:
        """A run without kernels."""
        return self._run()

    def swapped(self, _: int = 0) -> object:
        """A run with them."""
        assert self._modes is not None
        with self._modes():
            return self._run()

    def compared(self) -> tuple[dict[str, Tally], Difference | None]:
        """Learn the calls, run once with kernels, and compare: what became of calls, and of outputs.

        Raises:
            ConfigError: no call went to a kernel.
        """
        self._swap.learning = True
        expected = self.swapped()
        self._swap.learning = False
        self._swap.reset()
        found = self.swapped()
        tallies = self._swap.tallies
        self._swap.reset()  # timed runs are counted elsewhere
        if not any(tally.swapped for tally in tallies.values()):
            reasons = [f"{op}: {why}" for op, tally in tallies.items() for why in tally.left]
            raise ConfigError(
                "no call of the model goes to a kernel",
                remedy="; ".join(reasons[:5]) or f"the model calls none of {', '.join(self._ops)}",
            )
        return tallies, difference(expected, found)

    def timed(self, gate: TimingGate, *, seed: int) -> Measurement:
        """Time both in turns, until the sequential test has ended.

        Raises:
            InfrastructureError: the device was not to be had.
        """
        with ExitStack() as stack:
            if not self._device.is_accelerator:
                stack.enter_context(narrowed(torch.get_num_threads()))
            stack.enter_context(lock.timing(self._device.lock_key(), wait_s=lock.WAIT_S))
            timer, notes = self._device.make_timer(
                {"kernel": self.swapped, "torch": self.plain},
                copies=1,
                limit_s=BATCH_LIMIT_S,
                require_replays=self._require_replays,
            )
            prepared = Prepared(
                arms=("kernel", "torch"),
                method=timer.method,
                calls=timer.calls,
                batch_seconds=timer.batch_seconds,
                host_ns_per_call={},
                cold=False,
                notes=notes if timer.method == "cuda-graph" else (*notes, ON_HOST),
            )
            rule = Rule(
                tolerate=gate.tolerate, catch=gate.catch, alpha=gate.alpha, beta=gate.beta, tests=1,
                most_blocks=gate.max_blocks,
            )  # fmt: skip
            sampler = BlockSampler(prepared, seed=seed, floor=(rule, 1.0), warm_wanted=True)
            watch = ClockWatch(self._device.clocks())

            def take(orders: Sequence[str]) -> list[Block]:
                arms = [[LETTER_ARMS[letter] for letter in order] for order in orders]
                blocks = []
                for order, times in zip(orders, timer.blocks(arms), strict=True):
                    reading = watch.read()
                    blocks.append(
                        Block(
                            order=order, ns_per_call=tuple(times), sm_mhz=reading.sm_mhz, throttled=tuple(reading.reasons)
                        )
                    )  # fmt: skip
                return blocks

            sampler.run(take)
        return sampler.measurement()

    def _require_replays(self) -> None:
        """Hold a CUDA graph of the swapped model against a run of it, on other numbers.

        Raises:
            CaptureError: they differ: a kernel works on another stream, or on the host; or nobody knows.
        """
        from pytest_cgins.timing import cuda_timer

        if self._tensors is None:
            raise cuda_timer.CaptureError("what the model's answer depends on is not known")
        captured: list[object] = []
        graph = cuda_timer.capture("kernel", lambda _: captured.append(self.swapped()), 1, 1)

        def replay() -> object:
            graph.replay()
            self._device.synchronize()
            return captured[0]

        if not changes_with(self._tensors, self.swapped, replay):
            raise cuda_timer.CaptureError(
                "replaying the swapped model's CUDA graph does not do what running it does (a kernel launches on another "
                "stream than the current one, or works on the host)"
            )


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
            one.data.mul_(OTHER_NUMBERS)
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
        one, other = (tensor.detach().to("cpu", torch.complex128).reshape(-1) for tensor in (want, got))
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
