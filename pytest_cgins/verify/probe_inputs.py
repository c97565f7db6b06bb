"""The sets of inputs that probes ask for, beside those that decide whether a kernel is right."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Container
from pathlib import Path

from pytest_cgins.core.errors import ReferenceStopped
from pytest_cgins.core.failure_kinds import stops_device
from pytest_cgins.core.text import first_line
from pytest_cgins.packs import backward, call, forward
from pytest_cgins.verify.forgery_check import blind_to
from pytest_cgins.verify.input_sets import InputSet
from pytest_cgins.verify.probes import (
    arguments,
    invariance,
    large_indices,
    layouts,
    second_precision,
    sizes,
    special_values,
)
from pytest_cgins.verify.size_search import ProbedCall

Maker = Callable[[ProbedCall, str], tuple[list[InputSet], str]]
"""Takes a call and the key of a draw; gives sets, or none and why."""


STOPPED = "torch's own code stops the device on them, as an assertion there does, or ends the process"
"""Why there are no inputs of some kind."""


def make(
    probed_call: ProbedCall, wanted: Container[str], *, stopping: Container[str] = ()
) -> tuple[list[InputSet], dict[str, str], list[str]]:
    """The sets of all probes that are switched on, why others have none, by their names, and which sets tell nothing.

    Raises:
        ReferenceStopped: the inputs of a probe that is not in `stopping` end this process's use of the device.
    """
    makers: dict[str, Maker] = {
        module.NAME: module.sets
        for module in (sizes, invariance, arguments, layouts, special_values, second_precision, large_indices)
    }
    sets: list[InputSet] = []
    missing: dict[str, str] = {}
    notes: list[str] = []
    for name, maker in makers.items():
        if name in wanted and name in stopping:
            missing[name] = f"no inputs of its: {STOPPED}"
        elif name in wanted:
            new_sets, why, blind = _telling(name, maker, probed_call)
            sets += new_sets
            notes += blind
            if why:
                missing[name] = why
    return sets, missing, notes


def _why_none(error: Exception) -> str:
    """What torch said as it ran the op; what was raised elsewhere is a defect of ours, and told as that."""
    said = first_line(error)
    frames = [frame.f_code for frame, _ in traceback.walk_tb(error.__traceback__)]
    if any(code.co_filename in (call.__file__, backward.__file__, forward.__file__) for code in frames):
        return f"torch refuses the inputs ({said})"
    place = f"{Path(frames[-1].co_filename).name}, {frames[-1].co_name}"
    return f"its inputs could not be made, which is a defect of pytest-cgins: {type(error).__name__}: {said} ({place})"


def _telling(name: str, maker: Maker, probed_call: ProbedCall) -> tuple[list[InputSet], str, list[str]]:
    """The sets of a probe, or why there are none; those that tell nothing are drawn once more, and named if that is no help."""
    kept: dict[str, tuple[InputSet, str]] = {}
    for draw in (probed_call.key, f"{probed_call.key}/again"):
        try:
            input_sets, why = maker(probed_call, draw)
        except Exception as error:
            if stops_device(error):
                raise ReferenceStopped(name) from error
            input_sets, why = [], _why_none(error)
        if not input_sets and not kept:
            return [], why, []
        for input_set in input_sets:
            # Of special values only the places are looked at, and of rows how they change.
            blind = (
                ""
                if name in (special_values.NAME, invariance.NAME, large_indices.NAME)
                else blind_to(input_set.expected)
            )
            if not blind or input_set.expected.name not in kept:
                kept[input_set.expected.name] = (input_set, blind)
        if not any(blind for _, blind in kept.values()):
            break
    # Without the sets' names, which differ from case to case, a summary counts them together.
    told = [blind for _, blind in kept.values() if blind]
    notes = [
        f"probe {name}: on some inputs {blind}, so these inputs prove nothing"
        for blind in dict.fromkeys(told)
    ]
    return [input_set for input_set, _ in kept.values()], "", notes
