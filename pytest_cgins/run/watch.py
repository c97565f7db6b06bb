"""Looks after a worker while its answer is awaited: memory, output, processes."""

from __future__ import annotations

import time
from collections.abc import Callable

from pytest_cgins.core.text import counted
from pytest_cgins.core.verdict import Reason
from pytest_cgins.run.limits import Limits, available_bytes
from pytest_cgins.run.output import Output
from pytest_cgins.run.process_tree import ProcessTree, Usage

_LOOK_S = 0.2
_FLOOR_BYTES = 256 * 2**20
_MUCH_BYTES = 2**30


class Exceeded(Exception):
    """A worker took more than it may."""

    def __init__(self, reason: Reason, what: str, remedy: str) -> None:
        super().__init__(what)
        self.reason = reason
        self.remedy = remedy


class Watch:
    """What `Channel` calls while it waits."""

    def __init__(
        self, tree: ProcessTree, output: Output, limits: Limits, is_running: Callable[[], bool]
    ) -> None:
        self._tree = tree
        self._output = output
        self._limits = limits
        self._is_running = is_running
        self._next_look = 0.0

    def __call__(self) -> bool:
        """Whether the worker lives.

        Raises:
            Exceeded: it has to be killed.
        """
        limit = self._limits.output_bytes
        if self._output.nbytes > limit:
            raise Exceeded(
                Reason.OUTPUT_FLOOD,
                f"printed more than {_size(limit)}",
                "look for a print in a loop; the end of its output is below",
            )
        now = time.monotonic()
        if now >= self._next_look:
            self._next_look = now + _LOOK_S
            self._judge(self._tree.look())
        return self._is_running()

    def _judge(self, usage: Usage) -> None:
        limits = self._limits
        if usage.processes > limits.processes or usage.threads > limits.threads:
            raise Exceeded(
                Reason.PROCESS_FLOOD,
                f"had {counted(usage.processes, 'process', 'processes')} with {counted(usage.threads, 'thread')} below it; {limits.processes} and "
                f"{limits.threads} are the limits",
                "look for a fork or a thread in a loop: a kernel needs neither",
            )
        # Forks share most of their pages, so that the sum is a bound only.
        if (
            usage.memory_bytes > limits.memory_bytes
            and (held := self._tree.memory_bytes()) > limits.memory_bytes
        ):
            raise Exceeded(
                Reason.OUT_OF_MEMORY,
                f"held {_size(held)} of the host's memory; {_size(limits.memory_bytes)} is the limit",
                "look for an allocation that grows, or raise CGINS_WORKER_MEMORY",
            )
        if (
            usage.memory_bytes > _MUCH_BYTES
            and (left := available_bytes()) < _FLOOR_BYTES
            and (held := self._tree.memory_bytes()) > _MUCH_BYTES
        ):
            raise Exceeded(
                Reason.OUT_OF_MEMORY,
                f"held {_size(held)} of the host's memory when only {_size(left)} were left",
                "look for an allocation that grows, or use fewer processes at once",
            )


def _size(nbytes: int) -> str:
    """`1.5 GiB`, `64 MiB`."""
    return f"{nbytes / 2**30:.1f} GiB" if nbytes >= 2**30 else f"{nbytes / 2**20:.0f} MiB"
