"""What all failing cases of a kernel have in common, and none of its passing ones has."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from pytest_cgins.core.call_text import memory_format, value_words
from pytest_cgins.core.case import Case
from pytest_cgins.core.session_report import Evaluation, SessionReport
from pytest_cgins.core.text import counted
from pytest_cgins.core.trace import Argument, TensorMeta
from pytest_cgins.core.verdict import Status
from pytest_cgins.report import summary

_WRONG = (Status.INCORRECT, Status.SUSPECT, Status.RUNTIME_ERROR, Status.TIMEOUT)
_SLOW = (Status.SLOWER, Status.BELOW_FLOOR)
_BLOCKS = (64, 32, 16, 8, 4, 2)
_SHOWN = 3
"""Traits that are told; few cases are told apart by many things."""
_SCALARS = ("bool", "int", "float", "str", "dtype", "tuple", "list", "size")


@dataclass(frozen=True, slots=True, kw_only=True)
class CommonTraits:
    """Of the failing cases of one implementation, which is named as in `summary.by_implementation`."""

    kernel: str
    implementation: str
    device: str
    text: str
    """`all 6 wrong cases, and none of 12 that pass: input is channels_last`."""
    cases: frozenset[str]
    """Labels of the failing cases."""


def common_traits(report: SessionReport) -> tuple[CommonTraits, ...]:
    """What can be said, by kernel; nothing of a single failing case, or where no case passes."""
    common = []
    for (kernel, implementation, device), members in summary.by_implementation(report.evaluations).items():
        passing = [member for member in members if summary.outcome(member, strict=report.strict) == "pass"]
        for kind, statuses in (("wrong", _WRONG), ("slow", _SLOW)):
            failing = [
                member for member in members if member.verdict.status in statuses and member not in passing
            ]
            # A time that the noise left open tells no slow cases from fast ones; the answer was right.
            told_apart = [
                member
                for member in passing
                if kind == "wrong" or member.verdict.status is not Status.INCONCLUSIVE
            ]
            if traits := _traits(failing, told_apart):
                others = counted(len(told_apart), "that passes", "that pass")
                text = f"all {len(failing)} {kind} cases, and none of {others}: {'; '.join(traits[:_SHOWN])}"
                labels = frozenset(evaluation.label for evaluation in failing)
                common.append(
                    CommonTraits(
                        kernel=kernel, implementation=implementation, device=device, text=text, cases=labels
                    )
                )
    return tuple(common)


def traits_of_case(common: Iterable[CommonTraits], evaluation: Evaluation, *, several: bool) -> str:
    """What a failing case has in common with the others of its kernel; "" where nothing is known."""
    key = summary.implementation_of(evaluation, several=several)
    return next(
        (
            traits.text
            for traits in common
            if (traits.kernel, traits.implementation, traits.device) == key
            and evaluation.label in traits.cases
        ),
        "",
    )


def _traits(failing: list[Evaluation], passing: list[Evaluation]) -> list[str]:
    cases = [one.case for one in (*failing, *passing)]
    if len(failing) < 2 or not passing or any(case.call is None for case in cases):
        return []
    shared = [_traits_of(one.case) for one in failing]
    others = set().union(*(_traits_of(one.case) for one in passing))
    told = [trait for trait in shared[0] if all(trait in one for one in shared) and trait not in others]
    told += _larger([one.case for one in failing], [one.case for one in passing])
    # Of several traits of one thing the first says most.
    by_subject = {trait.split(" ")[0].partition("=")[0]: trait for trait in reversed(told)}
    return [trait for trait in told if trait in by_subject.values()]


def _traits_of(case: Case) -> dict[str, None]:
    """In the order in which they tell most; of sizes that are no multiple the largest block first."""
    assert case.call is not None
    traits = [f"dtype {case.dtype}"]
    blocks: list[str] = []
    for argument in case.call.arguments:
        meta = _meta(argument, case)
        traits += _of_argument(argument, meta, case.dtype)
        blocks += _of_sizes(argument.name, meta) if meta is not None else []
    traits.append(f"recorded in {case.pack}")
    return dict.fromkeys([*traits, *blocks])


def _of_argument(argument: Argument, meta: TensorMeta | None, dtype: str) -> Iterator[str]:
    name, value = argument.name, argument.value
    if meta is not None:
        yield f"{name} is {memory_format(meta)}"
        if memory_format(meta) != "contiguous":
            yield f"{name} is not contiguous"
        if meta.offset:
            yield f"{name} begins at an offset in its storage"
        if not meta.numel:
            yield f"{name} is empty"
        if meta.dtype != dtype:
            yield f"{name} is {meta.dtype}"
        yield f"{name} has {counted(len(meta.shape), 'dimension')}"
        yield f"{name} is given"
    elif value.kind == "none":
        yield f"{name}=None"
    elif value.kind in _SCALARS and len(value.items) <= 4:
        yield f"{name}={value_words(value)}"


def _of_sizes(name: str, meta: TensorMeta) -> Iterator[str]:
    for dim in reversed(range(len(meta.shape))):
        where = f"{name}.shape[{'-1' if dim == len(meta.shape) - 1 else dim}]"
        size = meta.shape[dim]
        yield from (f"{where} is not a multiple of {block}" for block in _BLOCKS if size % block)
        yield from (f"{where} is a multiple of {block}" for block in _BLOCKS if size % block == 0 and size)
        yield f"{where} is {size}"


def _larger(failing: list[Case], passing: list[Case]) -> Iterator[str]:
    """Sizes that are all above, or all below, those that pass."""
    sizes = [_sizes(case) for case in (*failing, *passing)]
    for where in [name for name in sizes[0] if all(name in siz for siz in sizes)]:
        bad, good = ([one[where] for one in part] for part in (sizes[: len(failing)], sizes[len(failing) :]))
        if min(bad) > max(good):
            yield f"{where} is {min(bad):,} or more (those that pass: {max(good):,} or less)"
        elif max(bad) < min(good):
            yield f"{where} is {max(bad):,} or less (those that pass: {min(good):,} or more)"


def _sizes(case: Case) -> dict[str, int]:
    """Sizes that every call has: those of the last dimension, and the number of elements."""
    assert case.call is not None
    sizes = {}
    for argument in case.call.arguments:
        if (meta := _meta(argument, case)) is not None:
            sizes[f"{argument.name}.numel()"] = meta.numel
            if meta.shape:
                sizes[f"{argument.name}.shape[-1]"] = meta.shape[-1]
    return sizes


def _meta(argument: Argument, case: Case) -> TensorMeta | None:
    return case.tensors[int(argument.value.value or 0)] if argument.value.kind == "tensor" else None
