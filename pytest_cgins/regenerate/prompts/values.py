"""What is in recorded inputs, as far as it matters to who writes the kernel: ranges, zeros, masks, indices.

Recipes say it of themselves. Blobs are read where they are small; no torch is needed for that.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pytest_cgins.core.errors import CginsError
from pytest_cgins.core.model import Recipe, Storage, Trace
from pytest_cgins.packs.store import PackReader
from pytest_cgins.regenerate.prompts import calls

if TYPE_CHECKING:
    import numpy as np

_LARGEST_BLOB = 4 << 20
_MOST_TENSORS = 10


def described(every: Sequence[tuple[PackReader, Trace]], first: Sequence[tuple[PackReader, Trace]]) -> str:
    """A line for each argument tensor of one call, and for masks and indices wherever they come first.

    Args:
        every: all traces of the op.
        first: those of the call that is looked at.
    """
    lines: dict[str, str] = {}
    for pack, trace in (*first[:1], *every):
        for index, name in calls.names_of_tensors(trace).items():
            meta = trace.tensors[index]
            kind = f"{name} {'' if 'float' in meta.dtype else meta.dtype}".strip()
            if kind in lines or len(lines) >= _MOST_TENSORS:
                continue
            said = _said(pack, trace.storages[meta.storage])
            if said:
                lines[kind] = f"{kind}: {said}"
    return "\n".join(lines.values())


def _said(pack: PackReader, storage: Storage) -> str:
    if storage.recipe is not None:
        return of_recipe(storage.recipe)
    if storage.blob is None or not storage.nbytes or storage.nbytes > _LARGEST_BLOB:
        return ""
    try:
        return of_values(_array(pack.read(storage.blob), storage.dtype))
    except (CginsError, ValueError, TypeError, ImportError):
        return ""


def of_recipe(recipe: Recipe) -> str:
    """Distribution in words, without its seed."""
    words = {
        "normal": (
            f"normal, mean {recipe.mean:.4g}, std {recipe.std:.4g}, within [{recipe.low:.4g}, "
            f"{recipe.high:.4g}]"
        ),
        "half_normal": f"max(0, normal of mean {recipe.mean:.4g}, std {recipe.std:.4g}): many exact zeros",
        "integer": f"whole numbers in [{recipe.low:.4g}, {recipe.high:.4g}]",
        "bernoulli": f"0 or 1, 1 with probability {recipe.mean:.4g}",
        "constant": f"{recipe.mean:.4g} everywhere",
    }
    said = words[recipe.distribution]
    if recipe.masked is not None:
        what = "-inf" if recipe.masked_value == "-inf" else "the dtype's least number"
        said += f"; a mask has put {what} (True in a bool mask) in places"
    return said


def of_values(array: np.ndarray[Any, Any]) -> str:
    """Range, zeros and what is not finite."""
    import numpy as np

    if array.size == 0:
        return ""
    if array.dtype == np.bool_:
        return f"True in {array.mean():.1%}"
    if not np.issubdtype(array.dtype, np.floating):
        return f"whole numbers in [{array.min()}, {array.max()}]"
    finite = array[np.isfinite(array)].astype(np.float64)
    said = (
        f"in [{finite.min():.4g}, {finite.max():.4g}], std {finite.std():.3g}"
        if finite.size
        else "nothing finite"
    )
    zeros = float((array == 0).mean())
    if zeros > 0.01:
        said += f", {zeros:.1%} exact zeros"
    if np.isneginf(array).any():
        said += f", -inf in {np.isneginf(array).mean():.1%} (a mask)"
    if np.isnan(array).any():
        said += f", NaN in {np.isnan(array).mean():.1%}"
    return said


def _array(content: bytes, dtype: str) -> np.ndarray[Any, Any]:
    """Bytes as numbers; what numpy has no type for raises TypeError, but for bfloat16."""
    import numpy as np

    if dtype == "bfloat16":
        wide = np.frombuffer(content, dtype=np.uint16).astype(np.uint32) << 16
        return wide.view(np.float32)
    return np.frombuffer(content, dtype=np.dtype("bool" if dtype == "bool" else dtype))
