"""The recorded calls of an op, for somebody who must write it: each distinct one once, the rest counted.

What is in recorded inputs is told as far as it matters: ranges, zeros, masks, indices. Recipes say it of
themselves; blobs are read if they are small. No torch is needed for that.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pytest_cgins.core.errors import CginsError
from pytest_cgins.core.trace import Recipe, Storage, Trace, tensor_indices
from pytest_cgins.packs.store import PackReader
from pytest_cgins.recording.profile import TraceProfile
from pytest_cgins.regenerate.prompts import blocks, calls
from pytest_cgins.regenerate.prompts.context import Context

if TYPE_CHECKING:
    import numpy as np

MOST_CASES = 12
_MOST_RANKS = 8
_MOST_CALLS = 400
_LARGEST_BLOB = 4 << 20
_MOST_TENSORS = 10


@dataclass(slots=True)
class Group:
    """Calls that differ in their dtype at most."""

    varying: str
    """What it passes and gives, without what is the same in all calls."""
    facts: tuple[str, ...]
    """About memory and context."""
    dtypes: dict[str, None]
    """Data types, as met."""
    traces: list[tuple[PackReader, Trace]]
    """Its traces."""
    count: int = 0
    """Calls in the recorded runs."""
    failing: dict[str, None] = field(default_factory=dict)
    """Data types in which the gate fails it."""
    time_share: float = 0.0
    """Of the packs' time, by their profiles; 0 without."""


def recorded_calls(context: Context) -> dict[str, object] | None:
    """What `templates/calls.md` says of them; None if there are none."""
    traces = [trace for _, trace in context.traces]
    if not traces:
        return None
    common = _common(traces)
    groups = _ordered(_groups(context, context.traces, common))
    return {
        "count": sum(trace.count for trace in traces),
        "common": [f"{blocks.one_line(name, 60)}={value}" for name, value in common.items()],
        "facts": groups[0].facts if len({group.facts for group in groups}) == 1 else (),
        "shown": groups[:MOST_CASES],
        "more": _more(groups[MOST_CASES:]),
        "lengths": sorted({size for trace in traces for length in trace.lengths for size in length.sizes}),
        "contents": _values(context.traces, groups[0].traces),
        "profiles": _profiles(context, groups),
    }


def call_numbers(context: Context) -> dict[tuple[str, str], int]:
    """Number in the prompt's list of calls, by pack and trace; those that are left out there have none."""
    groups = _ordered(_groups(context, context.traces, _common([trace for _, trace in context.traces])))
    return {
        (pack.pack.name, trace.id): number
        for number, group in enumerate(groups[:MOST_CASES], 1)
        for pack, trace in group.traces
    }


def _common(traces: Sequence[Trace]) -> dict[str, str]:
    """Plain arguments that have one value in all calls."""
    if not traces:
        return {}
    seen: dict[str, set[str]] = {}
    for trace in traces:
        for argument in calls.arguments(trace):
            seen.setdefault(argument.name, set()).add(calls.plain(argument.value, trace.tensors))
    everywhere = {
        name
        for name in seen
        if all(any(argument.name == name for argument in trace.call.arguments) for trace in traces)
    }
    first = traces[0]
    return {
        argument.name: calls.plain(argument.value, first.tensors)
        for argument in calls.arguments(first)
        if argument.name in everywhere
        and not argument.name.startswith("_")
        and len(seen[argument.name]) == 1
        and not tensor_indices(argument.value)
    }


def _groups(
    context: Context, traces: Iterable[tuple[PackReader, Trace]], common: dict[str, str]
) -> list[Group]:
    failing = {
        (evaluation.case.pack, evaluation.case.trace_id)
        for evaluation in context.evaluations
        if evaluation.verdict.status.outcome == "fail"
    }
    groups: dict[tuple[str, tuple[str, ...]], Group] = {}
    for pack, trace in traces:
        varying, facts = _written(trace, common), tuple(calls.facts(trace))
        group = groups.setdefault((varying, facts), Group(varying, facts, {}, []))
        group.dtypes.setdefault(trace.dtype)
        group.traces.append((pack, trace))
        group.count += trace.count
        if (pack.pack.name, trace.id) in failing:
            group.failing.setdefault(trace.dtype)
        profile = context.profile_of(pack.pack.name, trace.id)
        group.time_share += profile.time_share if profile else 0.0
    return list(groups.values())


def _written(trace: Trace, common: dict[str, str]) -> str:
    stand_in = trace.dtype if trace.dtype not in ("none", "int64", "bool") else ""
    passed = [
        f"{blocks.one_line(argument.name, 60)}={calls.plain(argument.value, trace.tensors, stand_in)}"
        for argument in calls.arguments(trace)
        if argument.name not in common and not argument.name.startswith("_")
    ]
    return blocks.one_line(f"{', '.join(passed)} → {calls.outputs(trace, stand_in)}", _MOST_CALLS)


def _ordered(groups: list[Group]) -> list[Group]:
    """Failing ones first, then by share of time, calls and size."""

    def weight(group: Group) -> tuple[bool, float, int, int, str]:
        largest = max(calls.nbytes(trace) for _, trace in group.traces)
        return (not group.failing, -group.time_share, -group.count, -largest, group.varying)

    return sorted(groups, key=weight)


def _more(groups: Sequence[Group]) -> dict[str, object] | None:
    """How many more there are, and between which sizes their first tensors lie."""
    if not groups:
        return None
    traces = [trace for group in groups for _, trace in group.traces]
    by_rank: dict[int, list[tuple[int, ...]]] = {}
    for trace in traces:
        if trace.tensors:
            by_rank.setdefault(len(trace.tensors[0].shape), []).append(trace.tensors[0].shape)
    return {
        "groups": len(groups),
        "count": sum(group.count for group in groups),
        "dtypes": sorted({calls.SHORT.get(trace.dtype, trace.dtype) for trace in traces}),
        "first_tensors": [
            [
                f"{min(sizes)}…{max(sizes)}" if min(sizes) != max(sizes) else str(min(sizes))
                for sizes in zip(*shapes, strict=True)
            ]
            for _, shapes in sorted(by_rank.items())[:_MOST_RANKS]
        ],
    }


def _profiles(context: Context, groups: Sequence[Group]) -> list[tuple[int, str, TraceProfile]]:
    """Number, element type and profile of the calls that take the most time."""
    profiled = (
        [(trace.dtype, context.profile_of(pack.pack.name, trace.id)) for pack, trace in group.traces]
        for group in groups[:3]
    )
    firsts = (next(((dtype, it) for dtype, it in group if it is not None), None) for group in profiled)
    return [(number, *first) for number, first in enumerate(firsts, 1) if first is not None]


def _values(
    every: Sequence[tuple[PackReader, Trace]], first: Sequence[tuple[PackReader, Trace]]
) -> list[str]:
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
            text = _of_storage(pack, trace.storages[meta.storage])
            if text:
                lines[kind] = f"{kind}: {text}"
    return list(lines.values())


def _of_storage(pack: PackReader, storage: Storage) -> str:
    if storage.recipe is not None:
        return _of_recipe(storage.recipe)
    if storage.blob is None or not storage.nbytes or storage.nbytes > _LARGEST_BLOB:
        return ""
    try:
        return _of_values(_array(pack.read(storage.blob), storage.dtype))
    except (CginsError, ValueError, TypeError, ImportError):
        return ""


def _of_recipe(recipe: Recipe) -> str:
    """Distribution in words, without its seed."""
    words = {
        "normal": (
            f"drawn as normal with the recorded mean {recipe.mean:.4g} and std {recipe.std:.4g}, clipped to "
            f"[{recipe.low:.4g}, {recipe.high:.4g}]"
        ),
        "half_normal": f"drawn as max(0, normal of mean {recipe.mean:.4g}, std {recipe.std:.4g}): many exact zeros",
        "integer": f"whole numbers in [{recipe.low:.4g}, {recipe.high:.4g}]",
        "bernoulli": f"True in {recipe.mean:.1%}",
        "constant": f"{recipe.mean:.4g} everywhere",
    }
    text = words[recipe.distribution]
    if recipe.masked is not None and recipe.distribution != "bernoulli":
        value = "-inf" if recipe.masked_value == "-inf" else "the dtype's least number"
        text += f"; a mask has put {value} in places"
    return text


def _of_values(array: np.ndarray[Any, Any]) -> str:
    """Range, zeros and what is not finite."""
    import numpy as np

    if array.size == 0:
        return ""
    if array.dtype == np.bool_:
        return f"True in {array.mean():.1%}"
    if not np.issubdtype(array.dtype, np.floating):
        return f"whole numbers in [{array.min()}, {array.max()}]"
    finite = array[np.isfinite(array)].astype(np.float64)
    text = (
        f"in [{finite.min():.4g}, {finite.max():.4g}], std {finite.std():.3g}"
        if finite.size
        else "nothing finite"
    )
    zeros = float((array == 0).mean())
    if zeros > 0.01:
        text += f", {zeros:.1%} exact zeros"
    if np.isneginf(array).any():
        text += f", -inf in {np.isneginf(array).mean():.1%} (a mask)"
    if np.isnan(array).any():
        text += f", NaN in {np.isnan(array).mean():.1%}"
    return text


def _array(content: bytes, dtype: str) -> np.ndarray[Any, Any]:
    """Bytes as numbers; what numpy has no type for raises TypeError, but for bfloat16."""
    import numpy as np

    if dtype == "bfloat16":
        wide = np.frombuffer(content, dtype=np.uint16).astype(np.uint32) << 16
        return wide.view(np.float32)
    return np.frombuffer(content, dtype=np.dtype("bool" if dtype == "bool" else dtype))
