"""Probe `content_cache`: a kernel takes no less time on numbers that it has seen before.

After the measurement, calls are timed in pairs: one on numbers that the kernel never saw, one on the numbers that it was timed
on. Both are written into the same tensors in the same way just before, and which of a pair comes first changes from pair to pair.
Short calls are timed eight in a row, as they were in the measurement. In some rounds both calls follow calls on the timed numbers,
in others they follow calls on unseen numbers.

A kernel that caches results by the content of its inputs must compute the answer to unseen numbers, and only looks up the other.
The probe trips if the call on unseen numbers was slower in each of at least 14 pairs, with a median of 1.8 times the time (3 times
after calls on the timed numbers) and 5 µs more. A first round ends once further pairs could not prove that. A loaded host reverses
some pairs. So if most pairs of a round were slower, further rounds follow, until honest calls, either of which is the slower one
as often as the other, would give such a count once in 16,384 times.

Unseen numbers are the timed ones in another order, so signs, exponents, denormals and the op's domain stay the same. In large
tensors about 65,536 evenly spread elements change. Integers, indices and integer masks stay, so the probe does not apply to calls
without floating-point inputs. It misses a cache whose key is made of elements that do not change.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from pytest_cgins.building.loading.exceptions import kind_of
from pytest_cgins.building.loading.returned import address
from pytest_cgins.core.bitwise import memory_of
from pytest_cgins.core.device import Device
from pytest_cgins.core.text import counted
from pytest_cgins.timing.cpu_timer import forget_branches
from pytest_cgins.verify.probe_support.idle_pairs import evidence

NAME = "content_cache"
PAIRS = 7
LEAST_PAIRS = 3
MOST_ROUNDS = 10
BUDGET_S = 0.1
"""For a round; the least pairs are made in any case."""
TOGETHER = 8
"""Calls, each on tensors of its own, that are timed as one: what is kept may be used in the middle of a row alone."""
TOGETHER_NS = 1e6
"""Most time that these calls take, with the writing of their numbers."""
IN_A_ROW_S = 2.5e-3
"""Time of the calls on the timed numbers before a timed call, but at least two calls and at most forty."""
OTHERS = 8
"""Calls on unseen numbers before it otherwise, unless they are slow: a processor learns the branches of a small sort."""
SLOW_NS = 2e7
PLACES = 65536
RATIO = 1.8
RATIO_IN_A_ROW = 3.0
"""Branches that were just learned make short honest calls up to 2.5 times as fast, by 0.1 ms at most."""
DIFFERENCE_NS = 5000.0
LEARNED_NS = 2e5
MOST_TURNED = 2 / 7
"""Largest share of pairs in which the unseen numbers were not slower, to take another round."""
CERTAIN = 2**14
"""Odds from which the probe trips, as of 14 pairs in a row, which are two rounds of fast calls."""

Pair = tuple[float, float]
"""Nanoseconds on unseen and on seen content."""

_INTEGERS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
"""Integer dtypes by size in bytes: bits are reordered, whatever the type."""

_copy = torch.Tensor.copy_
_roll = torch.roll
_equal = torch.equal


class _Raised(Exception):
    """The kernel did: an op may ask for more of its inputs than we know."""


class Contents:
    """The floating-point numbers of a call's tensors, and any number of other orders of them."""

    def __init__(self, tensors: Sequence[torch.Tensor]) -> None:
        self._random = random.SystemRandom()  # another run on the same numbers must not see the same orders
        self._places = [flat[:: -(-flat.numel() // PLACES)] for flat in map(_flat, _owners(tensors))]
        self._places = [place for place in self._places if not _equal(place, _roll(place, 1))]
        self._kept = [place.clone() for place in self._places]
        # Copies that are alike stay so: a processor learns the branches of the second on those of the first.
        alike = [next(n for n, one in enumerate(self._kept) if _alike(one, kept)) for kept in self._kept]
        self._turns = [2 * number + 1 for number in alike]
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
        for place, kept, turn in zip(self._places, self._kept, self._turns, strict=True):
            _copy(place, _roll(kept, number * turn))
            if number:
                # Sums and other marks that do not know the order change, too: another number, never the one that is there.
                count = place.numel()
                there = number * (1 - turn) % count
                others = (index % count for index in (number + 1, number + 2))
                place[number % count] = kept[next(other for other in others if other != there)]


def observe(
    copies: Sequence[tuple[Callable[[], object], Sequence[torch.Tensor]]], device: Device
) -> dict[str, Any]:
    """Time pairs of calls on unseen and on seen content; the tensors hold their own content again afterwards.

    Args:
        copies: calls, each with its tensors; at least one.
        device: that they run on.

    Returns:
        What `judge` takes: `rounds`, each with `in_a_row`, whether the timed content was called on right before, and
        `pairs` (ns on unseen, ns on timed content); or `not_run`, why not.
    """
    contents = Contents(copies[0][1])
    if not contents.can_change:
        return {"not_run": "the call has no floating-point inputs whose order could be changed"}
    try:
        taken = _written_and_called(_one_by_one(copies[:1]), contents, device)
        copies = copies[: max(1, min(TOGETHER, int(TOGETHER_NS / taken)))]
        contents = Contents([tensor for _, tensors in copies for tensor in tensors])
        call = _one_by_one(copies)
        return {"rounds": [one for row in (True, False) for one in _rounds(call, contents, device, row)]}
    except _Raised as raised:
        return {"not_run": f"the kernel raised {raised} on its inputs' numbers in another order"}
    finally:
        contents.write(0)


def _one_by_one(copies: Sequence[tuple[Callable[[], object], object]]) -> Callable[[], None]:
    def run() -> None:
        try:
            for call, _ in copies:
                call()
        except Exception as error:
            raise _Raised(kind_of(error)) from error

    return run


def judge(facts: dict[str, Any]) -> str:
    """What is wrong; "" if nothing is."""
    for row in (True, False):
        rounds = [
            [(float(new), float(old)) for new, old in one["pairs"]]
            for one in facts.get("rounds", ())
            if bool(one["in_a_row"]) is row
        ]
        if rounds and _is_kept(rounds, row):
            pairs = [pair for one in rounds for pair in one]
            unseen, seen = (statistics.median(times) / 1000 for times in zip(*pairs, strict=True))
            return (
                f"calls on numbers that the kernel had not seen took {unseen:,.1f} µs, on those that it was timed on "
                f"{seen:,.1f} µs (medians of {counted(len(pairs), 'pair')}): results are kept by their inputs' content"
            )
    return ""


def _rounds(
    call: Callable[[], object], contents: Contents, device: Device, row: bool
) -> Iterator[dict[str, Any]]:
    """Rounds until it is certain; one where nothing is slower."""
    rounds: list[list[Pair]] = []
    while not rounds or (
        len(rounds) < MOST_ROUNDS and _may_be_kept(rounds, row) and not _is_kept(rounds, row)
    ):
        rounds.append(_round(call, contents, device, row, is_first=not rounds))
        yield {"in_a_row": row, "pairs": rounds[-1]}


def _round(
    call: Callable[[], object], contents: Contents, device: Device, row: bool, *, is_first: bool
) -> list[Pair]:
    pairs: list[Pair] = []
    taken = _written_and_called(call, contents, device)  # also wakes threads
    in_a_row = max(2, min(40, int(1e9 * IN_A_ROW_S / taken)))
    others = 0 if taken > SLOW_NS else OTHERS if taken < LEARNED_NS else OTHERS // 2

    def timed(number: int) -> int:
        # The same before both of a pair: on a loaded host it counts how long a process has run without a pause.
        for before in [0] * in_a_row if row else [0, *(contents.choose() for _ in range(others))]:
            contents.write(before)
            call()
        return _time(call, contents, number, device)

    end = time.monotonic() + BUDGET_S
    while len(pairs) < PAIRS and (len(pairs) < LEAST_PAIRS or time.monotonic() < end):
        if is_first and _is_cleared(pairs):
            break
        first = timed(contents.choose()) if len(pairs) % 2 else None
        seen = timed(0)
        pairs.append((timed(contents.choose()) if first is None else first, seen))
    return pairs


def _written_and_called(call: Callable[[], object], contents: Contents, device: Device) -> int:
    """Nanoseconds of a call, with what it takes to write its content."""
    start = time.perf_counter_ns()
    contents.write(0)
    return time.perf_counter_ns() - start + _time(call, contents, 0, device)


def _time(call: Callable[[], object], contents: Contents, number: int, device: Device) -> int:
    """Nanoseconds of one call, with the wait for a GPU, right after its content was written."""
    contents.write(number)
    forget_branches()
    wait = device.synchronize
    wait()
    start = time.perf_counter_ns()
    call()
    wait()
    return time.perf_counter_ns() - start


def _alike(one: torch.Tensor, other: torch.Tensor) -> bool:
    return one is other or (one.dtype == other.dtype and one.shape == other.shape and _equal(one, other))


def _is_kept(rounds: Sequence[Sequence[Pair]], row: bool) -> bool:
    """Whether unseen content is slower beyond doubt."""
    if len(rounds) < 2 or not _may_be_kept(rounds, row):
        return False
    slower = sum(unseen > seen for one in rounds for unseen, seen in one)
    pairs = sum(map(len, rounds))
    return (slower == pairs >= 2 * PAIRS) or evidence(slower, pairs - slower) >= CERTAIN


def _may_be_kept(rounds: Sequence[Sequence[Pair]], row: bool) -> bool:
    """Whether unseen content is slower by much, and mostly."""
    pairs = [pair for one in rounds for pair in one]
    ratio = statistics.median(unseen / max(seen, 1) for unseen, seen in pairs)
    difference = statistics.median(unseen - seen for unseen, seen in pairs)
    return (
        min(map(len, rounds)) >= LEAST_PAIRS
        and sum(unseen <= seen for unseen, seen in pairs) <= MOST_TURNED * len(pairs)
        and ratio >= (RATIO_IN_A_ROW if row and difference < LEARNED_NS else RATIO)
        and difference >= DIFFERENCE_NS
    )


def _is_cleared(pairs: Sequence[Pair]) -> bool:
    """Whether a first round can no longer end with unseen content slower by much, and mostly, whatever pairs follow."""
    alike = sum(unseen < RATIO * max(seen, 1) for unseen, seen in pairs)
    close = sum(unseen - seen < DIFFERENCE_NS for unseen, seen in pairs)
    turned = sum(unseen <= seen for unseen, seen in pairs)
    return max(alike, close) > PAIRS // 2 or turned > MOST_TURNED * PAIRS


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
