"""The cases of a `cgins.yaml`: every implementation with every trace of its op."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from operator import itemgetter
from pathlib import Path
from typing import Any

from pytest_cgins.building.contracts.source import find_target
from pytest_cgins.config import Config, Implementation, KernelEntry, specialize
from pytest_cgins.core.case import OPERATOR_CHECKS, Case
from pytest_cgins.core.device import device_of
from pytest_cgins.core.errors import ConfigError, SourceError
from pytest_cgins.core.text import counted, nearest
from pytest_cgins.core.trace import OPERATORS, Trace, TracePack
from pytest_cgins.packs.store import open_pack

_Recorded = tuple[int, Path, str, Trace]
"""A trace with its place among all, and the folder and name of its pack."""


def _opened(folder: Path) -> TracePack:
    return open_pack(folder).pack


def cases_of(
    config: Config, *, device: str = "auto", read: Callable[[Path], TracePack] = _opened
) -> tuple[Case, ...]:
    """All cases, kernel by kernel in the order of the file, of one device or `auto`; by default the blobs of packs must be there.

    Raises:
        PackError: a trace pack cannot be read.
        ConfigError: a kernel replaces an op of which no pack has a trace.
    """
    packs = [(path, read(path)) for path in config.traces]
    _require_distinct_names(config, packs)
    by_op: defaultdict[str, list[_Recorded]] = defaultdict(list)
    places = itertools.count()
    for path, pack in packs:
        for trace in pack.traces:
            by_op[trace.call.op].append((next(places), path, pack.name, trace))
    recorded = sorted(by_op)
    cases: list[Case] = []
    for kernel in config.kernels:
        _require_reference(config, kernel)
        # Operators alone stand for others: a scan of all names for each kernel would take minutes for thousands.
        ops = recorded if kernel.op.startswith(OPERATORS) else [kernel.op]
        own = sorted(
            (record for op in ops if op in by_op and is_call_of(op, kernel.op) for record in by_op[op]),
            key=itemgetter(0),
        )
        if not own:
            raise ConfigError(
                f'{config.file}:{kernel.line}: kernel "{kernel.name}" replaces {kernel.op}, of which there is no '
                f"record in {counted(len(packs), 'trace pack')}",
                remedy=_how_to_have_traces(kernel.op, recorded),
            )
        for implementation in kernel.implementations:
            _require_calls(config, kernel, implementation, [trace for *_, trace in own])
            if device in ("auto", implementation.device):
                cases += [_case(kernel, implementation, path, name, trace) for _, path, name, trace in own]
    return tuple(cases)


def operator_checks(config: Config, case: Case) -> Iterator[Case]:
    """What `--cgins-opcheck` looks at besides, where the kernel of a case is a torch operator."""
    device = device_of(case.device.partition(":")[0])
    kernel, implementation = config.implementations[case.kernel, case.implementation, device.name]
    if not implementation.is_operator or kernel.ranks.count > 1:
        return
    for check in OPERATOR_CHECKS:
        applies = {
            # The interpreter runs the kernels of a `triton_op` on real memory alone.
            **dict.fromkeys(("fake", "aot", "compile"), not implementation.interpret),
            "autograd": any(meta.requires_grad for meta in case.tensors),
            "graph": device.is_cuda,
        }
        if applies.get(check, True):
            yield replace(case, check=check)


def is_call_of(recorded: str, op: str) -> bool:
    """Whether a recorded op is the one that a kernel replaces: overloads are recorded by their own names.

    `torch.ops.ns.name` stands for all its overloads, and is `torch.ops.ns.name.default` where it was called so.
    """
    if recorded == op:
        return True
    if not op.startswith(OPERATORS):
        return False
    named, called = op.split("."), recorded.split(".")
    return called[:4] == named[:4] and (len(named) == 4 or (len(called) == 4 and named[4:] == ["default"]))


def _require_reference(config: Config, kernel: KernelEntry) -> None:
    """Raise ConfigError for a reference that is not there, as far as it can be told without importing it."""
    if not kernel.reference:
        return
    module, _, function = kernel.reference.partition(":")
    try:
        find_target(module, function, config.root)
    except SourceError as error:
        raise ConfigError(
            f'{config.file}:{kernel.line}: reference "{kernel.reference}" of kernel "{kernel.name}": {error.what}',
            remedy=error.remedy,
        ) from error


def _require_calls(
    config: Config, kernel: KernelEntry, implementation: Implementation, traces: Sequence[Trace]
) -> None:
    """Refuse a build for sizes that no recorded call has: it would be shipped unchecked."""
    it = implementation.specialized
    if it is None:
        return
    missing = specialize.unmet(it, [(trace.call, trace.tensors) for trace in traces])
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
