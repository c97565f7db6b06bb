"""What must hold of a manifest beyond its JSON Schema, checked before anything is allocated.

All arithmetic is on Python's unbounded integers: no product of sizes can wrap around.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Literal, NamedTuple

from pytest_cgins.core.device import DEVICES
from pytest_cgins.core.dtypes import (
    EXPONENTS,
    GENERATED,
    INTEGERS,
    ITEMSIZE,
    LOWEST,
    MAX_BYTES,
    SAMPLES,
    extent,
)
from pytest_cgins.core.text import counted
from pytest_cgins.core.trace import (
    Argument,
    Context,
    Gold,
    GoldTensor,
    Recipe,
    Storage,
    TensorMeta,
    Trace,
    TracePack,
    Value,
)

MAX_DIMENSIONS = 64
MAX_TEXT = 1024

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_OP = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+(@backward\([A-Za-z_][\w.]*(,[A-Za-z_][\w.]*)*\))?", re.ASCII)
_HEX = re.compile(r"[0-9a-f]+")
_DEVICE = re.compile(r"[a-z]+(:[0-9]{1,3})?")
_FLOATS = frozenset(name for name in ITEMSIZE if "float" in name)
CONSTANTS: dict[Literal["dtype", "memory_format", "layout"], frozenset[str]] = {
    "dtype": frozenset(ITEMSIZE),
    "memory_format": frozenset({"contiguous_format", "channels_last", "channels_last_3d", "preserve_format"}),
    "layout": frozenset({"strided"}),
}
"""What leaves of these kinds may be, without `torch.`."""


class Problem(NamedTuple):
    """Something that a pack may not hold."""

    field: str
    """Path from the manifest's root: `traces[3].tensors[1].stride`."""
    what: str
    """What is wrong, with the value."""


def is_plain_name(text: str) -> bool:
    """Whether a pack, or a signature, may have this name: it is part of test ids and of file names."""
    return _NAME.fullmatch(text) is not None and len(text) <= MAX_TEXT


def problems(pack: TracePack) -> Iterator[Problem]:
    """All that is wrong with a manifest, in the order of its fields."""
    if not is_plain_name(pack.name):
        yield Problem("name", f"{pack.name[:80]!r} is not a plain name")
    ids: set[str] = set()
    names: set[tuple[str, str]] = set()
    for index, trace in enumerate(pack.traces):
        field = f"traces[{index}]"
        if trace.id in ids:
            yield Problem(f"{field}.id", f"{trace.id} is there twice")
        if (trace.call.op, trace.signature) in names:
            yield Problem(f"{field}.signature", f"{trace.signature} is there twice for {trace.call.op}")
        ids.add(trace.id)
        names.add((trace.call.op, trace.signature))
        yield from _trace(field, trace, pack.tier)


def _trace(field: str, trace: Trace, tier: str) -> Iterator[Problem]:
    if not is_plain_name(trace.signature):
        yield Problem(f"{field}.signature", f"{trace.signature[:80]!r} is not a plain name")
    if not _OP.fullmatch(trace.call.op) or len(trace.call.op) > MAX_TEXT:
        yield Problem(f"{field}.call.op", f"{trace.call.op[:80]!r} is not a qualified name")
    if not 1 <= trace.count < 2**63:
        yield Problem(f"{field}.count", f"{str(trace.count)[:80]} is not positive, or too large")
    if not _DEVICE.fullmatch(trace.origin.device):
        yield Problem(f"{field}.origin.device", f"{trace.origin.device[:80]!r} is not a device")
    for number, argument in enumerate(trace.call.arguments):
        yield from _argument(f"{field}.call.arguments[{number}]", argument, len(trace.tensors))
    for number, storage in enumerate(trace.storages):
        yield from _storage(f"{field}.storages[{number}]", storage, tier)
    for number, meta in enumerate(trace.tensors):
        yield from _input(f"{field}.tensors[{number}]", meta, trace.storages)
    yield from _reached(field, trace)
    yield from _lengths(f"{field}.lengths", trace)
    yield from _rebound(f"{field}.rebound", trace.rebound)
    yield from _context(f"{field}.context", trace.context)
    if (trace.gold is None) != (tier == "shapes"):
        yield Problem(f"{field}.gold", f"a pack of tier {tier} must {'not ' * (tier == 'shapes')}have gold")
    if trace.gold is not None:
        yield from _gold(f"{field}.gold", trace.gold, len(trace.tensors), tier)


def _reached(field: str, trace: Trace) -> Iterator[Problem]:
    """Each storage ends where the last of its tensors does."""
    reached = [-1] * len(trace.storages)
    for meta in trace.tensors:
        if meta.storage < len(reached):
            reached[meta.storage] = max(reached[meta.storage], _reach(meta))
    for number, (storage, reach) in enumerate(zip(trace.storages, reached, strict=True)):
        if reach != storage.nbytes:
            what = f"{storage.nbytes}, but its tensors reach byte {max(0, reach)}"
            yield Problem(f"{field}.storages[{number}].nbytes", what)


def _argument(field: str, argument: Argument, tensors: int) -> Iterator[Problem]:
    if not argument.name or len(argument.name) > MAX_TEXT:
        yield Problem(f"{field}.name", f"{argument.name[:80]!r} is not a parameter name")
    if (argument.passed == "state") != argument.name.startswith("self."):
        yield Problem(f"{field}.passed", f"{argument.passed!r} for {argument.name[:80]!r}")
    yield from _value(f"{field}.value", argument.value, tensors)


def _value(field: str, value: Value, tensors: int) -> Iterator[Problem]:
    leaf = value.value
    if value.kind == "tensor" and not 0 <= int(leaf or 0) < tensors:
        yield Problem(f"{field}.value", f"tensor {leaf} is not among the {counted(tensors, 'tensor')}")
    if value.kind == "int" and not -(2**63) <= int(leaf or 0) < 2**64:
        yield Problem(f"{field}.value", "an integer of more than 64 bits")
    if value.kind == "float" and not _is_hex_float(str(leaf)):
        yield Problem(f"{field}.value", f"{str(leaf)[:80]!r} is not a hexadecimal float")
    if value.kind == "complex" and [_is_hex_float(part) for part in str(leaf).split(" ")] != [True, True]:
        yield Problem(f"{field}.value", f"{str(leaf)[:80]!r} is not two hexadecimal floats")
    known = next((names for kind, names in CONSTANTS.items() if kind == value.kind), None)
    if known is not None and str(leaf) not in known:
        yield Problem(f"{field}.value", f"{str(leaf)[:80]!r} is not a known {value.kind}")
    if value.kind in ("op", "adapted") and not (_OP.fullmatch(str(leaf)) and len(str(leaf)) <= MAX_TEXT):
        yield Problem(f"{field}.value", f"{str(leaf)[:80]!r} is not a qualified name")
    if value.kind == "device" and not _DEVICE.fullmatch(str(leaf)):
        yield Problem(f"{field}.value", f"{str(leaf)[:80]!r} is not a device")
    if value.kind == "size" and any(item.kind != "int" for item in value.items):
        yield Problem(f"{field}.items", "a size holds integers only")
    for number, item in enumerate(value.items):
        yield from _value(f"{field}.items[{number}]", item, tensors)


def _is_hex_float(text: str) -> bool:
    try:
        float.fromhex(text)
    except (ValueError, OverflowError):
        return False
    return True


def _storage(field: str, storage: Storage, tier: str) -> Iterator[Problem]:
    if not 0 <= storage.nbytes <= MAX_BYTES:
        yield Problem(f"{field}.nbytes", f"{storage.nbytes} is not within 0 … {MAX_BYTES}")
    if storage.dtype not in ITEMSIZE:
        yield Problem(f"{field}.dtype", f"{storage.dtype[:80]!r} is not a known dtype")
        return
    source = storage.blob or storage.recipe
    if storage.nbytes and (source is None) != (tier == "shapes"):
        yield Problem(field, f"in tier {tier} a storage has {'neither' if source else 'a'} blob or recipe")
    if tier == "full" and storage.recipe is not None:
        yield Problem(f"{field}.recipe", "tier full keeps bytes, not recipes")
    if storage.blob is not None and storage.blob.nbytes != storage.nbytes:
        yield Problem(f"{field}.blob.nbytes", f"{storage.blob.nbytes} differs from nbytes {storage.nbytes}")
    if storage.recipe is not None:
        yield from _recipe(f"{field}.recipe", storage.recipe, storage)


def _recipe(field: str, recipe: Recipe, storage: Storage) -> Iterator[Problem]:
    dtype = storage.dtype
    numbers = {name: getattr(recipe, name) for name in ("mean", "std", "low", "high")}
    for name, number in numbers.items():
        if not math.isfinite(number):
            yield Problem(f"{field}.{name}", f"{number} is not finite")
            return
    if not 0 <= recipe.seed < 2**64:
        yield Problem(f"{field}.seed", f"{recipe.seed} is not within 64 bits")
    if dtype not in GENERATED or (recipe.distribution == "integer") != (
        dtype in INTEGERS or dtype == EXPONENTS
    ):
        yield Problem(f"{field}.distribution", f"{recipe.distribution} does not make {dtype}")
    if (recipe.distribution == "bernoulli") != (dtype == "bool"):
        yield Problem(f"{field}.distribution", f"{recipe.distribution} does not make {dtype}")
    if recipe.distribution == "bernoulli" and not 0 <= recipe.mean <= 1:
        yield Problem(f"{field}.mean", f"{recipe.mean} is not a probability")
    if recipe.low > recipe.high or recipe.std < 0:
        yield Problem(f"{field}.low", f"low {recipe.low}, high {recipe.high}, std {recipe.std} contradict")
    if recipe.distribution == "integer" and not -(2**63) <= recipe.low <= recipe.high < 2**64:
        yield Problem(f"{field}.high", f"{recipe.low} … {recipe.high} is not within 64 bits")
    if recipe.masked is not None:
        elements = storage.nbytes // ITEMSIZE[dtype]
        if dtype not in {*LOWEST, "bool"} or recipe.masked.nbytes != (elements + 7) // 8:
            yield Problem(
                f"{field}.masked",
                f"{counted(recipe.masked.nbytes, 'byte is', 'bytes are')} not a bit an element of {dtype}",
            )
    if len(recipe.sha256) != 64 or not _HEX.fullmatch(recipe.sha256):
        yield Problem(f"{field}.sha256", f"{recipe.sha256[:80]!r} is not a sha256 in lower-case hex")


def _meta(field: str, meta: TensorMeta) -> Iterator[Problem]:
    if meta.dtype not in ITEMSIZE:
        yield Problem(f"{field}.dtype", f"{meta.dtype[:80]!r} is not a known dtype")
        return
    if len(meta.shape) > MAX_DIMENSIONS:
        yield Problem(
            f"{field}.shape", f"{counted(len(meta.shape), 'dimension')}; at most {MAX_DIMENSIONS} are allowed"
        )
        return
    reach = max(_reach(meta), meta.offset * ITEMSIZE[meta.dtype])
    size = meta.numel * ITEMSIZE[meta.dtype]
    if any(number > MAX_BYTES for number in (*meta.shape, *meta.stride)) or max(reach, size) > MAX_BYTES:
        yield Problem(f"{field}.shape", f"more than {MAX_BYTES} bytes")


def _reach(meta: TensorMeta) -> int:
    """One past the last byte of the storage that the tensor reaches."""
    elements = extent(meta.shape, meta.stride)
    return (meta.offset + elements) * ITEMSIZE.get(meta.dtype, 1) if elements else 0


def _input(field: str, meta: TensorMeta, storages: tuple[Storage, ...]) -> Iterator[Problem]:
    found = list(_meta(field, meta))
    yield from found
    if meta.storage >= len(storages):
        yield Problem(
            f"{field}.storage", f"storage {meta.storage} is not among the {counted(len(storages), 'storage')}"
        )
    elif not found:
        reach = _reach(meta)
        nbytes = storages[meta.storage].nbytes
        if reach > nbytes:
            yield Problem(
                f"{field}.stride",
                f"shape {meta.shape}, stride {meta.stride}, offset {meta.offset} reach byte {reach} "
                f"of a storage of {counted(nbytes, 'byte')}",
            )


def _lengths(field: str, trace: Trace) -> Iterator[Problem]:
    for index, length in enumerate(trace.lengths):
        if not 1 <= length.calls < 2**63:
            yield Problem(
                f"{field}[{index}].calls", f"{str(length.calls)[:80]} is not positive, or too large"
            )
        for number, (tensor, dim) in enumerate(length.axes):
            shape = trace.tensors[tensor].shape if 0 <= tensor < len(trace.tensors) else ()
            if not 0 <= dim < len(shape) or shape[dim] != length.size:
                what = f"tensor {tensor} has no size {length.size} at {dim}"
                yield Problem(f"{field}[{index}].axes[{number}]", what)


def _rebound(field: str, names: tuple[str, ...]) -> Iterator[Problem]:
    for number, name in enumerate(names):
        if not name or len(name) > MAX_TEXT:
            yield Problem(f"{field}[{number}]", f"{name[:80]!r} is not a name")


def _context(field: str, context: Context) -> Iterator[Problem]:
    if context.default_dtype not in _FLOATS:
        yield Problem(
            f"{field}.default_dtype", f"{context.default_dtype[:80]!r} is not a floating-point dtype"
        )
    if context.float32_matmul_precision not in ("highest", "high", "medium"):
        yield Problem(f"{field}.float32_matmul_precision", "not highest, high or medium")
    if context.rng_seed is not None and not 0 <= context.rng_seed < 2**63:
        yield Problem(f"{field}.rng_seed", f"{context.rng_seed} is not within 63 bits")
    for number, state in enumerate(context.autocast):
        if state.device_type not in DEVICES or state.dtype not in _FLOATS:
            yield Problem(f"{field}.autocast[{number}]", "not a device type and a floating-point dtype")


def _gold(field: str, gold: Gold, inputs: int, tier: str) -> Iterator[Problem]:
    count = len(gold.tensors)
    yield from _value(f"{field}.outputs", gold.outputs, count)
    for number, tensor in enumerate(gold.tensors):
        yield from _gold_tensor(f"{field}.tensors[{number}]", tensor, count, tier)
    for number, (source, target) in enumerate(gold.mutated):
        if not (0 <= source < inputs and 0 <= target < count):
            yield Problem(f"{field}.mutated[{number}]", f"({source}, {target}) is out of range")
    for number, (source, target) in enumerate(gold.aliases):
        if not (0 <= source < count and 0 <= target < inputs):
            yield Problem(f"{field}.aliases[{number}]", f"({source}, {target}) is out of range")


def _gold_tensor(field: str, tensor: GoldTensor, count: int, tier: str) -> Iterator[Problem]:
    found = list(_meta(f"{field}.meta", tensor.meta))
    yield from found
    if tensor.meta.storage >= count:
        yield Problem(f"{field}.meta.storage", f"{tensor.meta.storage} is not below {count}")
    statistics = tensor.statistics
    numbers = (statistics.mean, statistics.std, statistics.minimum, statistics.maximum)
    if not all(math.isfinite(number) for number in numbers):
        yield Problem(f"{field}.statistics", f"{numbers} are not all finite")
    if found:
        return
    numel, itemsize = tensor.meta.numel, ITEMSIZE[tensor.meta.dtype]
    components = 2 * numel if tensor.meta.dtype.startswith("complex") else numel
    if statistics.numel != components or not 0 <= statistics.finite <= components:
        yield Problem(f"{field}.statistics.numel", f"{statistics.numel} for shape {tensor.meta.shape}")
    if tier == "full":
        kept, blob, name = numel, tensor.blob, "blob"
    else:
        kept, blob, name = tensor.sample_count, tensor.sample_blob, "sample_blob"
        if not min(SAMPLES, numel) <= kept <= numel:
            yield Problem(
                f"{field}.sample_count", f"{kept} of {counted(numel, 'element')}; {SAMPLES} are needed"
            )
        if not 0 <= tensor.sample_seed < 2**64:
            yield Problem(f"{field}.sample_seed", f"{tensor.sample_seed} is not within 64 bits")
    if blob is None or blob.nbytes != kept * itemsize:
        yield Problem(
            f"{field}.{name}", f"{counted(kept, 'element')} of {counted(itemsize, 'byte')} do not fill it"
        )
