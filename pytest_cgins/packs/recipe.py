"""Inputs from numbers: storages that every host makes again, byte for byte.

The stream is SplitMix64, counter-based and three times as fast as numpy's Philox. It and everything after it is
integer arithmetic, or single IEEE operations on float32 that no library rounds differently; `torch.randn`,
which differs between instruction sets, has no part in it. No torch is imported here; where a process uses a GPU, that makes
the long ones (`gpu_stream`).
"""

from __future__ import annotations

import hashlib
import math
import os
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from statistics import NormalDist
from typing import Any, Literal, NamedTuple, Protocol, cast

import numpy as np
import numpy.typing as npt

from pytest_cgins.core.dtypes import EXPONENTS, INTEGERS, ITEMSIZE, LOWEST
from pytest_cgins.core.errors import PackError
from pytest_cgins.core.text import counted
from pytest_cgins.core.trace import Blob, Recipe, Statistics, Storage


class BlobSource(Protocol):
    """Where the bytes of blobs come from."""

    def read(self, blob: Blob) -> bytes:
        """The `nbytes` bytes of a blob."""
        ...


# Small enough for the second-level cache: five arrays of a chunk are in flight.
_CHUNK = 2**13
_PART = 2**20
"""Elements that a thread makes at a time: a multiple of the bits of a byte."""
_MOST_THREADS = 16
"""Each holds some 16 MiB, and between two loops of numpy they wait for each other."""
_MAX = 2**64 - 1
_GAMMA = np.uint64(0x9E3779B97F4A7C15)
_LOW_QUARTERS = np.uint64(0x0000FFFF0000FFFF)


class Mask(NamedTuple):
    """Where an additive mask stood in recorded scores, or True in a bool mask."""

    blob: Blob
    """One bit an element, least significant first."""
    value: Literal["-inf", "lowest"]
    """What stood there; of no meaning for a bool mask."""


def words(seed: int, count: int, start: int = 0) -> npt.NDArray[np.uint64]:
    """`count` words of SplitMix64 seeded with `seed`, from word `start` on.

    Word i is a mix of seed + (i + 1)·γ alone (Steele, Lea, Flood, "Fast splittable pseudorandom number
    generators", 2014), so every part of the stream can be made without the parts before it.
    """
    counter = np.arange(start + 1, start + count + 1, dtype=np.uint64)
    return _mix(counter * _GAMMA + np.uint64(seed & _MAX))


def standard_normal(seed: int, n: int) -> npt.NDArray[np.float32]:
    """`n` numbers, shape (n,), close to N(0, 1): number i is made of the words 2i and 2i + 1.

    Each is the sum of the eight 16-bit halves of its words, less their mean, over their standard deviation
    (Irwin–Hall): within ±4.9, an exact integer times one float32 constant.
    """
    stream = _gpu_stream(n)
    made = stream.elements(seed, n, 0.0, 1.0, -8.0, 8.0, "float32") if stream is not None else None
    if made is not None:
        return cast("npt.NDArray[np.float32]", made)
    numbers = np.empty(n, dtype=np.float32)

    def fill(part: slice) -> None:
        _fill_normal(seed, part.start, numbers[part])

    _by_parts(n, fill)
    return numbers


def _fill_normal(seed: int, first: int, numbers: npt.NDArray[np.float32]) -> None:
    """Write `standard_normal` from number `first` on."""
    even = np.arange(1, 2 * _CHUNK, 2, dtype=np.uint64) * _GAMMA
    for start in range(0, numbers.size, _CHUNK):
        chunk = numbers[start : start + _CHUNK]
        counter = even[: chunk.size] + np.uint64((seed + 2 * (first + start) * int(_GAMMA)) & _MAX)
        # Two 16-bit numbers are summed in each half of a 64-bit one: a quarter of the operations.
        sums = np.zeros(chunk.size, dtype=np.uint64)
        for word in (_mix(counter.copy()), _mix(counter + _GAMMA)):
            sums += word & _LOW_QUARTERS
            sums += (word >> np.uint64(16)) & _LOW_QUARTERS
        chunk[:] = ((sums >> np.uint64(32)) + (sums & np.uint64(2**32 - 1))).astype(np.int32) - 4 * 65535
    numbers *= np.float32(1.5**0.5 / 2**16)


def _gpu_stream(count: int) -> Any:
    """The module that makes many elements on a GPU, if this process uses one; else None.

    Threads of numpy take 40 ns for an element and core, which is most of a case whose tensors have a gigabyte.
    """
    torch = sys.modules.get("torch")
    if count < _PART or torch is None or not getattr(torch, "cuda", None) or not torch.cuda.is_initialized():
        return None
    from pytest_cgins.packs import gpu_stream

    return gpu_stream


def _by_parts(count: int, fill: Callable[[slice], None]) -> None:
    """Have all parts of so many elements filled by threads: numpy's loops run side by side."""
    parts = [slice(start, min(start + _PART, count)) for start in range(0, count, _PART)]
    threads = min(len(parts), len(os.sched_getaffinity(0)), _MOST_THREADS)
    if threads < 2:
        for part in parts:
            fill(part)
        return
    with ThreadPoolExecutor(threads) as pool:
        for _ in pool.map(fill, parts):
            pass


def _mix(z: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """SplitMix64's finalizer, in place."""
    z ^= z >> np.uint64(30)
    z *= np.uint64(0xBF58476D1CE4E5B9)
    z ^= z >> np.uint64(27)
    z *= np.uint64(0x94D049BB133111EB)
    z ^= z >> np.uint64(31)
    return z


def uniform_integers(seed: int, n: int, low: int, high: int, start: int = 0) -> npt.NDArray[np.int64]:
    """`n` integers of [low, high], shape (n,), as int64 (two's complement of a uint64 above 2⁶³)."""
    span = (high - low + 1) & 0xFFFF_FFFF_FFFF_FFFF
    raw = words(seed, n, start)
    if span:
        raw %= np.uint64(span)
    raw += np.uint64(low & 0xFFFF_FFFF_FFFF_FFFF)
    return raw.view(np.int64)


def positions(seed: int, count: int, numel: int) -> npt.NDArray[np.int64]:
    """Flat positions of sampled elements: one at random in each of `count` equal strata, sorted, distinct.

    All positions if there are no more than `count`; the first and the last element are always among them.
    """
    if numel <= count:
        return np.arange(numel, dtype=np.int64)
    edges = np.array([index * numel // count for index in range(count + 1)], dtype=np.int64)
    sizes = (edges[1:] - edges[:-1]).astype(np.uint64)
    chosen = edges[:-1] + (words(seed, count) % sizes).astype(np.int64)
    chosen[0], chosen[-1] = 0, numel - 1
    return chosen


def seed_of(*parts: object) -> int:
    """A 63-bit key that is the same wherever the parts' texts are."""
    digest = hashlib.sha256("\0".join(map(str, parts)).encode()).digest()
    return int.from_bytes(digest[:8], "little") >> 1


def fit(
    statistics: Statistics, dtype: str, seed: int, *, parameter: bool = False, mask: Mask | None = None
) -> Recipe:
    """The recipe whose output has the statistics of a recorded storage; its digest is left to `seal`.

    Args:
        statistics: of the recorded values.
        dtype: of the values; one of `GENERATED`.
        seed: key of its stream.
        parameter: whether the values are a module's parameters. Constant ones (bias 0, gamma 1, as models
            have before training) are spread around their value, since they hide kernels that ignore them.
        mask: where an additive mask stood, and the statistics are without these elements; of a bool mask, all of it.
    """
    recipe = _shape_of(statistics, dtype, seed, parameter=parameter)
    return recipe if mask is None else replace(recipe, masked=mask.blob, masked_value=mask.value)


def seal(storage: Storage, source: BlobSource) -> tuple[Storage, npt.NDArray[np.uint8]]:
    """A storage whose recipe has the digest of the bytes that it makes, and these bytes, shape (nbytes,)."""
    if storage.recipe is None:
        raise ValueError(f"a storage without a recipe cannot be generated: {storage}")
    recipe = storage.recipe
    content = _make(recipe, storage, None if recipe.masked is None else source.read(recipe.masked))
    recipe = replace(recipe, sha256=hashlib.sha256(content.data).hexdigest())
    return replace(storage, recipe=recipe), content


def generate(storage: Storage, source: BlobSource) -> npt.NDArray[np.uint8]:
    """The bytes of a storage with a recipe, shape (nbytes,).

    Raises:
        PackError: if this host made other bytes than the one that recorded, or has no memory for them.
    """
    try:
        sealed, content = seal(storage, source)
    except MemoryError as error:
        raise PackError(
            f"a recipe of {counted(storage.nbytes, 'byte')} of {storage.dtype} does not fit into this host's memory",
            remedy="free memory, or record smaller inputs",
        ) from error
    recipe, made = storage.recipe, sealed.recipe
    if recipe != made and recipe is not None and made is not None:
        raise PackError(
            f"a recipe ({recipe.distribution}, seed {recipe.seed}, {counted(storage.nbytes, 'byte')} of {storage.dtype}) "
            f"made bytes with sha256 {made.sha256[:16]}…, the recording host's had {recipe.sha256[:16]}…",
            remedy="record the pack again on this host, and report the numpy version: the stream must not differ",
        )
    return content


def _shape_of(statistics: Statistics, dtype: str, seed: int, *, parameter: bool) -> Recipe:
    mean, std = statistics.mean, statistics.std
    low, high = statistics.minimum, statistics.maximum
    if dtype == "bool":
        return Recipe(distribution="bernoulli", seed=seed, mean=mean, sha256="")
    if dtype == EXPONENTS:
        codes = [min(max(round(math.log2(extreme)) + 127, 0), 254) for extreme in (low, high)]
        return Recipe(distribution="integer", seed=seed, low=codes[0], high=codes[1], sha256="")
    if dtype in INTEGERS:
        # fp64 rounds the extremes of 64-bit integers up, out of the range.
        high = min(high, 2.0**64 - 2048 if dtype == "uint64" else 2.0**63 - 1024)
        return Recipe(distribution="integer", seed=seed, low=low, high=high, sha256="")
    if low == high:
        if not parameter:
            return Recipe(distribution="constant", seed=seed, mean=mean, low=mean, high=mean, sha256="")
        spread = 0.25 * abs(mean) if mean else 0.5
        low, high = mean - 2 * spread, mean + 2 * spread
        return Recipe(distribution="normal", seed=seed, mean=mean, std=spread, low=low, high=high, sha256="")
    zeros = statistics.zero / max(1, statistics.finite)
    if low == 0.0 and 0.1 < zeros < 0.99:
        # With X ~ N(m, s): P(X ≤ 0) = zeros and E max(0, X) = m·Φ(m/s) + s·φ(m/s) = the recorded mean.
        normal = NormalDist()
        ratio = -normal.inv_cdf(zeros)
        std = mean / (ratio * normal.cdf(ratio) + normal.pdf(ratio))
        return Recipe(
            distribution="half_normal", seed=seed, mean=ratio * std, std=std, low=low, high=high, sha256=""
        )
    return Recipe(distribution="normal", seed=seed, mean=mean, std=std, low=low, high=high, sha256="")


def _make(recipe: Recipe, storage: Storage, mask: bytes | None) -> npt.NDArray[np.uint8]:
    """Bytes of the storage; what is left of the last whole element stays zero."""
    dtype = {"complex64": "float32", "complex128": "float64"}.get(storage.dtype, storage.dtype)
    count = storage.nbytes // ITEMSIZE[dtype]
    content = np.zeros(storage.nbytes, dtype=np.uint8)
    bits = None if mask is None else np.frombuffer(mask, dtype=np.uint8)
    made = _elements(recipe, dtype, count, bits).view(np.uint8)
    content[: made.size] = made
    return content


def _elements(
    recipe: Recipe, dtype: str, count: int, mask: npt.NDArray[np.uint8] | None
) -> np.ndarray[Any, Any]:
    if recipe.distribution == "integer":
        integers = np.dtype("uint8" if dtype == EXPONENTS else dtype).newbyteorder("<")
        narrowed: np.ndarray[Any, Any] = np.empty(count, dtype=integers)
        # In parts: 64-bit words of all of them would be eight times what the storage claims.
        for start in range(0, count, _CHUNK):
            part = narrowed[start : start + _CHUNK]
            part[:] = uniform_integers(
                recipe.seed, part.size, int(recipe.low), int(recipe.high), start
            ).astype(part.dtype)
        return narrowed
    if recipe.distribution == "bernoulli" and mask is not None:
        return np.unpackbits(mask, count=count, bitorder="little")
    if recipe.distribution == "bernoulli":
        threshold = np.uint64(int(recipe.mean * 2**53))
        drawn: np.ndarray[Any, Any] = np.empty(count, dtype=np.bool_)
        for start in range(0, count, _CHUNK):
            part = drawn[start : start + _CHUNK]
            part[:] = (words(recipe.seed, part.size, start) >> np.uint64(11)) < threshold
        return drawn.view(np.uint8)
    low = 0.0 if recipe.distribution == "half_normal" else recipe.low
    stream = _gpu_stream(count) if recipe.distribution != "constant" and mask is None else None
    if stream is not None:
        by_gpu = stream.elements(recipe.seed, count, recipe.mean, recipe.std, low, recipe.high, dtype)
        if by_gpu is not None:
            return cast("np.ndarray[Any, Any]", by_gpu)
    made: np.ndarray[Any, Any] = np.empty(count, dtype=_cast(np.zeros(0, dtype=np.float32), dtype).dtype)

    def fill(part: slice) -> None:
        values = np.full(part.stop - part.start, recipe.mean, dtype=np.float32)
        if recipe.distribution != "constant":
            _fill_normal(recipe.seed, part.start, values)
            values *= np.float32(recipe.std)
            values += np.float32(recipe.mean)
            np.clip(values, np.float32(low), np.float32(recipe.high), out=values)
        if mask is not None:
            value = -np.inf if recipe.masked_value == "-inf" else LOWEST[dtype]
            bits = mask[part.start // 8 : -(-part.stop // 8)]
            values[np.unpackbits(bits, count=values.size, bitorder="little").view(np.bool_)] = np.float32(
                value
            )
        made[part] = _cast(values, dtype)

    _by_parts(count, fill)
    return made


def _cast(values: npt.NDArray[np.float32], dtype: str) -> np.ndarray[Any, Any]:
    """Round to nearest even into a floating-point dtype, little endian."""
    if dtype == "bfloat16":
        bits = values.view(np.uint32)
        bits = bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
        upper: np.ndarray[Any, Any] = (bits >> np.uint32(16)).astype("<u2")
        return upper
    if dtype in _MANTISSA:
        return _to_float8(values, _MANTISSA[dtype])
    rounded: np.ndarray[Any, Any] = values.astype(np.dtype(dtype).newbyteorder("<"))
    return rounded


_MANTISSA = {"float8_e4m3fn": 3, "float8_e5m2": 2}
"""Bits of mantissa of float8."""


def _to_float8(values: npt.NDArray[np.float32], mantissa: int) -> npt.NDArray[np.uint8]:
    """Codes of the nearest numbers, ties to the even one; what is too large becomes the greatest number."""
    codes = np.arange(0x7F if mantissa == 3 else 0x7C, dtype=np.float64)
    exponent, fraction = np.divmod(codes, 2**mantissa)
    bias = 2 ** (6 - mantissa) - 1
    grid = np.where(exponent > 0, 1 + fraction / 2**mantissa, 2 * fraction / 2**mantissa) * 2.0 ** (
        exponent - bias
    )
    middles = ((grid[1:] + grid[:-1]) / 2).astype(np.float32)
    below = np.searchsorted(middles, np.abs(values), side="left")
    tied = np.abs(values) == np.append(middles, np.float32(np.inf))[below]
    signs = np.signbit(values).astype(np.uint8) << np.uint8(7)
    rounded: npt.NDArray[np.uint8] = (below + (tied & (below % 2 == 1))).astype(np.uint8) | signs
    return rounded
