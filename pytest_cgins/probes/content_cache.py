"""Probe `content_cache`: a kernel takes no less time on numbers that it has seen before.

After the measurement, calls on numbers that it never saw alternate with calls on the same numbers again, all
written into the same tensors in the same way just before the call; which of a pair comes first changes from pair
to pair. A kernel that keeps results by their inputs' content must compute the first and looks the second up: it
trips if the first was slower, by 1.8 times and 5 µs in the middle, in every pair of two rounds. A loaded host turns
some pairs round: where most of a round's were slower, further rounds follow, until so many were that honest
calls, of which either is the slower one as often as the other, come to it once in 16,384 times (`signs`).

New numbers are the old ones at other places, so that signs, exponents, denormals and the domain of the op stay as
they are; of large tensors only some 65,536 places change, evenly spread. Integers, indices and masks of integers
stay, so calls without floating-point inputs are not looked at.

A cache that starts at the third sighting is not seen, nor one that is keyed by places that do not change.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

from pytest_cgins.kernels.exceptions import kind_of
from pytest_cgins.kernels.returned import address
from pytest_cgins.probes.bits import memory_of
from pytest_cgins.probes.signs import evidence
from pytest_cgins.text import counted

NAME = "content_cache"
PAIRS = 7
LEAST_PAIRS = 3
MOST_ROUNDS = 10
BUDGET_S = 0.1
"""For a round; the least pairs are made in any case."""
PLACES = 65536
RATIO = 1.8
DIFFERENCE_NS = 5000.0
MOST_TURNED = 2 / 7
"""Of all pairs, those whose first sighting was not slower, to go on."""
CERTAIN = 2**14
"""As for all pairs of two rounds."""

Pair = tuple[float, float]
"""Nanoseconds on unseen and on seen content."""

_INTEGERS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
"""By size in bytes: other orders are of bits, whatever the type."""

_copy = torch.Tensor.copy_
_roll = torch.roll
_equal = torch.equal


class Contents:
    """The floating-point numbers of a call's tensors, and any number of other orders of them.

    Args:
        tensors: the tensors of a call, some of which may share memory.
        seed: decides the orders.
    """

    def __init__(self, tensors: Sequence[torch.Tensor], seed: int) -> None:
        self._random = random.Random(seed)  # noqa: S311
        self._places = [flat[:: -(-flat.numel() // PLACES)] for flat in map(_flat, _owners(tensors))]
        self._places = [place for place in self._places if not _equal(place, _roll(place, 1))]
        self._kept = [place.clone() for place in self._places]
        self._used = {0}

    @property
    def can_change(self) -> bool:
        """Whether there is anything that another order makes different."""
        return any(kept.numel() > 4 * PAIRS for kept in self._kept)

    def choose(self) -> int:
        """The number of an order that was not chosen before."""
        longest = max(kept.numel() for kept in self._kept)
        number = self._random.randrange(1, longest)
        while number in self._used and len(self._used) < longest:
            number = self._random.randrange(1, longest)
        self._used.add(number)
        return number

    def write(self, number: int) -> None:
        """Put the numbers in one of the orders; 0 is the first one."""
        for place, kept in zip(self._places, self._kept, strict=True):
            _copy(place, _roll(kept, number))
            if number:
                # Sums and other marks that do not know the order change, too.
                place[number % place.numel()] = kept[(number + 1) % place.numel()]


def observe(
    call: Callable[[], object], tensors: Sequence[torch.Tensor], device: str, seed: int
) -> dict[str, Any]:
    """Time pairs of calls on unseen and on seen content; the tensors hold their own content again afterwards.

    Returns:
        What `judge` takes: `rounds`, lists of pairs (ns on unseen, ns on seen content), or `not_run`, why not.
    """
    contents = Contents(tensors, seed)
    if not contents.can_change:
        return {"not_run": "the call has no floating-point inputs whose order could be changed"}
    try:
        rounds: list[list[tuple[int, int]]] = []
        while not rounds or (len(rounds) < MOST_ROUNDS and _may_be_kept(rounds) and not _is_kept(rounds)):
            rounds.append(_round(call, contents, device))
    except Exception as error:  # noqa: BLE001 - an op may ask for more of its inputs than we know
        why = f"the kernel raised {kind_of(error)} on its inputs' numbers in another order"
        return {"not_run": why}
    finally:
        contents.write(0)
    return {"rounds": rounds}


def judge(facts: dict[str, Any]) -> str:
    """What is wrong; "" if nothing is."""
    rounds = [[(float(new), float(old)) for new, old in one] for one in facts.get("rounds", ())]
    if not _is_kept(rounds):
        return ""
    pairs = [pair for one in rounds for pair in one]
    unseen, seen = (statistics.median(times) / 1000 for times in zip(*pairs, strict=True))
    return (
        f"calls on numbers that the kernel had not seen took {unseen:,.1f} µs, on the same numbers again "
        f"{seen:,.1f} µs (medians of {counted(len(pairs), 'pair')}): results are kept by their inputs' content"
    )


def _round(call: Callable[[], object], contents: Contents, device: str) -> list[tuple[int, int]]:
    pairs: list[tuple[int, int]] = []
    old = contents.choose()
    _time(call, contents, old, device)  # wakes threads and warms what sleeps between rounds
    end = time.monotonic() + BUDGET_S
    while len(pairs) < PAIRS and (len(pairs) < LEAST_PAIRS or time.monotonic() < end):
        new = contents.choose()
        if len(pairs) % 2:
            unseen = _time(call, contents, new, device)
            seen = _time(call, contents, new, device)
        else:
            seen = _time(call, contents, old, device)
            unseen = _time(call, contents, new, device)
        pairs.append((unseen, seen))
        old = new
    return pairs


def _time(call: Callable[[], object], contents: Contents, number: int, device: str) -> int:
    """Nanoseconds of one call, with the wait for a GPU, right after its content was written."""
    contents.write(number)
    wait = torch.cuda.synchronize if device.startswith("cuda") else _nothing
    wait()
    start = time.perf_counter_ns()
    call()
    wait()
    return time.perf_counter_ns() - start


def _nothing() -> None:
    pass


def _is_kept(rounds: Sequence[Sequence[Pair]]) -> bool:
    """Whether unseen content is slower beyond doubt."""
    if len(rounds) < 2 or not _may_be_kept(rounds):
        return False
    slower = sum(unseen > seen for one in rounds for unseen, seen in one)
    pairs = sum(map(len, rounds))
    return (len(rounds) == 2 and slower == pairs) or evidence(slower, pairs - slower) >= CERTAIN


def _may_be_kept(rounds: Sequence[Sequence[Pair]]) -> bool:
    """Whether unseen content is slower by much, and mostly."""
    pairs = [pair for one in rounds for pair in one]
    return (
        min(map(len, rounds)) >= LEAST_PAIRS
        and sum(unseen <= seen for unseen, seen in pairs) <= MOST_TURNED * len(pairs)
        and statistics.median(unseen / max(seen, 1) for unseen, seen in pairs) >= RATIO
        and statistics.median(unseen - seen for unseen, seen in pairs) >= DIFFERENCE_NS
    )


def _owners(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """One tensor a storage, of those storages that hold floating-point numbers of one type alone."""
    groups: dict[int, list[torch.Tensor]] = {}
    for tensor in tensors:
        if tensor.numel():
            groups.setdefault(address(tensor), []).append(tensor)
    return [
        group[0]
        for group in groups.values()
        if (group[0].is_floating_point() or group[0].is_complex())
        and len({tensor.dtype for tensor in group}) == 1
    ]


def _flat(tensor: torch.Tensor) -> torch.Tensor:
    """The bits of all elements of the storage in a row, gaps included, as integers."""
    dtype = _INTEGERS[min(8, tensor.element_size())]
    octets = memory_of(tensor)
    return octets[: octets.numel() // dtype.itemsize * dtype.itemsize].view(dtype)
