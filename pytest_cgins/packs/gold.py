"""Taking down what an op gave, and getting it back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import torch

from pytest_cgins.core.dtypes import SAMPLES
from pytest_cgins.core.errors import RecordError
from pytest_cgins.core.layout import metas_of, overlap
from pytest_cgins.core.trace import Blob, Gold, GoldTensor, TensorMeta, Trace
from pytest_cgins.packs.call import flatten
from pytest_cgins.packs.context import neutral
from pytest_cgins.packs.recipe import BlobSource, positions, seed_of
from pytest_cgins.packs.statistics import summarize


@dataclass(frozen=True, slots=True)
class GoldValues:
    """Recorded elements of one output, or of one mutated input."""

    recorded: GoldTensor
    """What the manifest says of it."""
    positions: torch.Tensor
    """int64, (n,): flat row-major positions, ascending; all of them in tier `full`."""
    values: torch.Tensor
    """(n,) of the tensor's dtype, on the CPU."""


def describe(
    result: object,
    inputs: Sequence[torch.Tensor],
    mutated: Sequence[int],
    tier: Literal["recipe", "full"],
    add: Callable[[memoryview], Blob],
) -> Gold:
    """Take down a result right after the call, by value, and the inputs that the call changed, by their indices.

    Raises:
        RecordError: if the result holds something that a trace cannot, or has no tensor at all.
    """
    tree, outputs = flatten(result)
    if not outputs and not mutated:
        raise RecordError(
            f"the op returned {type(result).__name__} without a tensor, and changed no argument",
            remedy="take it out of ops=[…]: there is nothing to compare a kernel with",
        )
    kept = [*outputs, *(inputs[index] for index in mutated)]
    with neutral():
        metas = metas_of(kept)
        tensors = tuple(_take(tensor, meta, tier, add) for tensor, meta in zip(kept, metas, strict=True))
        aliases = tuple(
            (gold, source)
            for gold, output in enumerate(outputs)
            for source, tensor in enumerate(inputs)
            if overlap(output, tensor)
        )
    pairs = tuple((source, len(outputs) + number) for number, source in enumerate(mutated))
    return Gold(outputs=tree, tensors=tensors, mutated=pairs, aliases=aliases)


def load_gold(trace: Trace, source: BlobSource) -> list[GoldValues]:
    """Recorded elements of each gold tensor, in the order of `packs.gold.tensors`; [] in tier `shapes`."""
    loaded = []
    for tensor in trace.gold.tensors if trace.gold is not None else ():
        blob = tensor.blob or tensor.sample_blob
        content = source.read(blob) if blob is not None else b""
        values = torch.frombuffer(bytearray(content), dtype=torch.uint8) if content else torch.empty(0)
        dtype = getattr(torch, tensor.meta.dtype)
        values = values.view(dtype) if content else values.to(dtype)
        loaded.append(GoldValues(tensor, sampled_positions(tensor), values))
    return loaded


def sampled_positions(tensor: GoldTensor) -> torch.Tensor:
    """Flat positions of the elements that were kept, int64, ascending."""
    numel = tensor.meta.numel
    count = numel if tensor.blob is not None else tensor.sample_count
    return torch.from_numpy(positions(tensor.sample_seed, count, numel))


def to_bytes(tensor: torch.Tensor) -> memoryview:
    """Elements in row-major order, as bytes on the CPU."""
    flat = tensor.detach().resolve_conj().resolve_neg().contiguous().reshape(-1)
    return flat.cpu().view(torch.uint8).numpy().data


def _take(tensor: torch.Tensor, meta: TensorMeta, tier: str, add: Callable[[memoryview], Blob]) -> GoldTensor:
    statistics = summarize(tensor)
    if tier == "full":
        return GoldTensor(meta=meta, statistics=statistics, blob=add(to_bytes(tensor)))
    seed = seed_of("sample", meta.dtype, meta.shape)
    count = min(SAMPLES, meta.numel)
    chosen = torch.from_numpy(positions(seed, count, meta.numel)).to(tensor.device)
    sample = tensor.detach().reshape(-1)[chosen]
    return GoldTensor(
        meta=meta,
        statistics=statistics,
        sample_blob=add(to_bytes(sample)),
        sample_seed=seed,
        sample_count=count,
    )
