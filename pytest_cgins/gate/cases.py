"""The cases of a `cgins.yaml`: every implementation with every trace of its op."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from pytest_cgins.config import Config, Implementation, KernelEntry, specialize
from pytest_cgins.core.case import Case
from pytest_cgins.core.device import device_of
from pytest_cgins.core.errors import ConfigError
from pytest_cgins.core.text import counted, nearest
from pytest_cgins.core.trace import TracePack
from pytest_cgins.packs.store import open_pack


def _opened(folder: Path) -> TracePack:
    return open_pack(folder).pack


def cases_of(
    config: Config, *, device: str = "auto", read: Callable[[Path], TracePack] = _opened
) -> tuple[Case, ...]:
    """All cases, kernel by kernel in the order of the file.

    Args:
        config: the loaded file.
        device: `cpu` or `cuda` leaves the other's cases out.
        read: gives the pack in a folder; by default its blobs must be there as well.

    Raises:
        PackError: a trace pack cannot be read.
        ConfigError: a kernel replaces an op of which no pack has a trace.
    """
    packs = [(path, read(path)) for path in config.traces]
    _require_distinct_names(config, packs)
    recorded = sorted({trace.call.op for _, pack in packs for trace in pack.traces})
    cases: list[Case] = []
    for kernel in config.kernels:
        if kernel.op not in recorded:
            raise ConfigError(
                f'{config.file}:{kernel.line}: kernel "{kernel.name}" replaces {kernel.op}, of which there is no '
                f"record in {counted(len(packs), 'trace pack')}",
                remedy=_how_to_have_traces(kernel.op, recorded),
            )
        for implementation in kernel.implementations:
            _require_calls(config, kernel, implementation, [pack for _, pack in packs])
            if device in ("auto", implementation.device):
                cases += [
                    _case(kernel, implementation, path, pack.name, trace)
                    for path, pack in packs
                    for trace in pack.traces
                    if trace.call.op == kernel.op
                ]
    return tuple(cases)


def _require_calls(
    config: Config, kernel: KernelEntry, implementation: Implementation, packs: list[TracePack]
) -> None:
    """Refuse a build for sizes that no recorded call has: it would be shipped unchecked."""
    it = implementation.specialized
    if it is None:
        return
    calls = [
        (trace.call, trace.tensors) for pack in packs for trace in pack.traces if trace.call.op == kernel.op
    ]
    missing = specialize.unmet(it, calls)
    if missing:
        shown = ", ".join(f"{name} {value}" for name, value in it.named(missing[0]).items())
        raise ConfigError(
            f"{config.file}:{implementation.line}: specialize of {kernel.name}/{implementation.name} has a build for "
            f"{shown}, which no recorded call of {kernel.op} takes: nothing would check it",
            remedy="remove that build, or record a call of these sizes",
        )


def _require_distinct_names(config: Config, packs: list[tuple[Path, TracePack]]) -> None:
    folders: dict[str, Path] = {}
    for path, pack in packs:
        if pack.name in folders:
            raise ConfigError(
                f"{config.file}: the trace packs {folders[pack.name]} and {path} are both named "
                f"{pack.name!r}, so their cases would have the same names",
                remedy="leave one out, or record one of them again under another name (--name)",
            )
        folders[pack.name] = path


_ALIASES = {"dsmm": "mm", "spmm": "mm", "hsmm": "hspmm", "saddmm": "sspaddmm"}
"""Functions that torch has under a second last word as well, and the word that packs have."""


def _how_to_have_traces(op: str, recorded: list[str]) -> str:
    """The remedy for an op of which nothing is recorded.

    torch has many functions in two places, as `torch.relu_` and `torch.nn.functional.relu_`; packs have one of
    the names. Which names are one function only torch knows: recorded ones of the same last word are offered.
    """
    same = [known for known in recorded if _last_word(known) == _last_word(op)]
    if same:
        return f"write op: {' or op: '.join(same)}, which is recorded: torch has functions under two names"
    words = {_last_word(known)[0]: known for known in recorded}
    guess = nearest(_last_word(op)[0], words)
    return (
        f"{guess + ' If not, ' if guess else ''}record it: cgins record SCRIPT.py --out traces/NAME --ops {op}; "
        f"recorded are {', '.join(recorded) or 'none'}"
    )


def _last_word(op: str) -> tuple[str, str]:
    """Last word of an op's name, and of which of its arguments it is the backward."""
    forward, _, backward = op.partition("@")
    word = forward.rpartition(".")[2]
    return _ALIASES.get(word, word), backward


def _case(kernel: KernelEntry, implementation: Implementation, path: Path, pack: str, trace: Any) -> Case:
    return Case(
        kernel=kernel.name,
        implementation=implementation.name,
        device=device_of(implementation.device).case_name,
        op=kernel.op,
        pack=pack,
        pack_path=str(path),
        trace_id=trace.id,
        signature=trace.signature,
        dtype=trace.dtype,
        call=trace.call,
        tensors=trace.tensors,
    )
