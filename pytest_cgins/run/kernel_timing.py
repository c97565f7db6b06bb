"""What is sent to be timed, and what comes back: free of torch, as all of pytest's own process."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from pytest_cgins.core.buffers import Buffer
from pytest_cgins.core.case import Case
from pytest_cgins.core.text import counted
from pytest_cgins.timing.block import Block
from pytest_cgins.verify.messages import PackedInputs, read
from pytest_cgins.verify.timing_messages import FinishedTiming, TimedBlocks

NO_TIMING = "kernels are not timed: --cgins-no-timing"
UNTIMED = "the kernel was not timed"
_TIMED_ON = ("recorded", "fresh")


def seed_for(seed: int, case: Case) -> int:
    """A seed for the timing worker, from which nobody finds that of the run."""
    made = hashlib.sha256(f"timing/{seed}/{case.name}".encode()).digest()
    return int.from_bytes(made[:7], "big")


def timeable(pairs: Sequence[tuple[PackedInputs, Buffer]]) -> list[tuple[PackedInputs, Buffer]]:
    """The sets of inputs that a kernel is timed on: the first, and a fresh one that differs in its numbers alone."""
    first, *others = pairs
    return [
        first,
        *(pair for pair in others if pair[0].name in _TIMED_ON and _as_timed(pair[0]) == _as_timed(first[0])),
    ]


def request_sets(sets: Iterable[PackedInputs]) -> tuple[PackedInputs, ...]:
    """The sets for the timing worker, with numbers for names, which reveal nothing."""
    return tuple(_as_timed(inputs, str(index)) for index, inputs in enumerate(sets))


def _as_timed(inputs: PackedInputs, name: str = "") -> PackedInputs:
    """Without what is there for verification."""
    return replace(inputs, name=name, probe="", once=False, op_calls={})


def read_blocks(result: Any, orders: Sequence[str]) -> list[Block]:
    """The blocks that a worker has run.

    Raises:
        ValueError: they are not those that were asked for.
    """
    blocks = [block.checked() for block in read(TimedBlocks, result).blocks]
    if [block.order for block in blocks] != list(orders):
        raise ValueError(f"{counted(len(blocks), 'block')} came for {len(orders)}, or in other orders")
    return blocks


def read_finished(result: Any, names: Sequence[str]) -> FinishedTiming:
    """What the worker tells at the end, with the real names of its sets.

    Raises:
        ValueError: it is not what our own service would tell.
    """
    finished = read(FinishedTiming, result)
    real = {str(index): name for index, name in enumerate(names)}
    if not {answer.name for answer in finished.answers} <= real.keys():
        raise ValueError("an answer is to a set that was not sent")
    return replace(
        finished, answers=tuple(replace(answer, name=real[answer.name]) for answer in finished.answers)
    )
