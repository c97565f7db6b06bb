"""Which cases a command is about."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from pytest_cgins.config import Config, Implementation, KernelEntry, select
from pytest_cgins.core.case import Case
from pytest_cgins.core.errors import ConfigError
from pytest_cgins.core.text import nearest
from pytest_cgins.packs.store import read_manifest
from pytest_cgins.regenerate.prompts import calls

Chosen = tuple[KernelEntry, tuple[Implementation, ...]]


def label(implementation: str, device: str) -> str:
    """An implementation as case names have it: `cuda-triton`."""
    kind = device.partition(":")[0]
    return implementation if implementation.startswith(kind) else f"{kind}-{implementation}"


def chosen(config: Config, wanted: str, device: str | None) -> Chosen:
    """The kernel that `NAME` or `NAME/IMPLEMENTATION` says, and its implementations.

    Args:
        config: the file.
        wanted: an implementation is named as in cgins.yaml, or as in the names of cases.
        device: `cpu` or `cuda` leaves the other's out.

    Raises:
        ConfigError: there is none such.
    """
    name, _, implementation = wanted.partition("/")
    entry = select(config, [name])[0]
    fitting = tuple(
        one
        for one in entry.implementations
        if device in (None, one.device) and implementation in ("", one.name, label(one.name, one.device))
    )
    if not fitting:
        known = [label(one.name, one.device) for one in entry.implementations]
        on = f" for {device}" if device else ""
        raise ConfigError(
            f'{config.file}: kernel "{name}" has no implementation "{implementation or "any"}"{on}',
            remedy=nearest(implementation, [*known, *(one.name for one in entry.implementations)])
            or f"its implementations are {', '.join(known)}",
        )
    return entry, fitting


def cases_of(cases: Iterable[Case], found: Chosen, text: str) -> list[Case]:
    """The cases of what was chosen whose names have a text in them.

    Raises:
        ConfigError: there is none.
    """
    entry, implementations = found
    own = {(entry.name, implementation.name, implementation.device) for implementation in implementations}
    all_of = [case for case in cases if case.key in own]
    fitting = [case for case in all_of if text in case.name]
    if not fitting:
        names = ", ".join(case.name for case in all_of[:5])
        raise ConfigError(
            f'no case of {entry.name} has "{text}" in its name', remedy=f"its cases are {names or 'none'} …"
        )
    return fitting


def heaviest(cases: Sequence[Case]) -> list[Case]:
    """Of each implementation the case with the most bytes of arguments: the last one to be idle."""
    found: dict[tuple[str, str], tuple[float, Case]] = {}
    sizes: dict[str, dict[str, int]] = {}
    for case in cases:
        if case.pack_path not in sizes:
            traces = read_manifest(Path(case.pack_path)).traces
            sizes[case.pack_path] = {trace.id: calls.nbytes(trace) for trace in traces}
        nbytes = sizes[case.pack_path].get(case.trace_id, 0)
        key = case.implementation, case.device
        if key not in found or nbytes > found[key][0]:
            found[key] = nbytes, case
    return [case for _, case in found.values()]
