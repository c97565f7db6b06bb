"""How many copies of a call's tensors it takes so that none is found in the last-level cache."""

from __future__ import annotations

from dataclasses import dataclass

from pytest_cgins.timing.timer import MOST_SEGMENTS

MOST_COPIES = 256
"""About as many launches as a CUDA graph of 300 µs holds of the shortest kernels."""
LEAST_PLACES = 16
"""Copies of tensors that stay in the cache: where they lie makes a difference, over which is averaged."""
REUSE_FACTOR = 2
"""The bytes touched between two uses of a copy, in cache sizes."""


@dataclass(frozen=True, slots=True)
class Rotation:
    """Copies of the tensors that successive calls take in turn."""

    copies: int
    """At least 1."""
    bytes_per_call: int
    """Inputs and outputs of one call."""
    cache_bytes: int
    """Last-level cache of the device; 0 if unknown."""

    def is_cold(self, distinct_calls: int) -> bool:
        """Whether `distinct_calls` calls between two uses of a copy push it out of the cache."""
        touched = min(distinct_calls, self.copies) * self.bytes_per_call
        return self.cache_bytes > 0 and touched > REUSE_FACTOR * self.cache_bytes


def plan(
    bytes_per_call: int, cache_bytes: int, *, memory_bytes: int, contents: int = 1, cold: bool = True
) -> Rotation:
    """Choose the fewest copies that outrun the cache; if that takes too many, a few in different places.

    Args:
        bytes_per_call: inputs and outputs of one call.
        cache_bytes: last-level cache; 0 if unknown.
        memory_bytes: how much the copies may take together; a single one may take more.
        contents: sets of inputs that the copies are to hold in turn.
        cold: whether the copies are to outrun the cache.
    """
    fewest = contents if contents * bytes_per_call <= memory_bytes else 1
    if bytes_per_call <= 0:
        return Rotation(fewest, bytes_per_call, cache_bytes)
    if LEAST_PLACES * bytes_per_call <= min(memory_bytes, cache_bytes // REUSE_FACTOR):
        fewest = max(fewest, LEAST_PLACES)
    if cache_bytes <= 0 or not cold:
        return Rotation(fewest, bytes_per_call, 0)
    copies = max(fewest, REUSE_FACTOR * cache_bytes // bytes_per_call + 1)
    if copies > MOST_SEGMENTS:
        copies = -(-copies // MOST_SEGMENTS) * MOST_SEGMENTS  # so that segments can be equally long
    if copies > MOST_COPIES or copies * bytes_per_call > memory_bytes:
        copies = fewest
    return Rotation(copies, bytes_per_call, cache_bytes)
