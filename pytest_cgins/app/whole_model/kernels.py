"""The kernels of a `cgins.yaml`, loaded into this process to be put into a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass

from pytest_cgins.app.whole_model.document import Base
from pytest_cgins.building.build_queue import BuildQueue
from pytest_cgins.building.contracts.source import find
from pytest_cgins.building.loading.callable import LoadedKernel, load
from pytest_cgins.building.revision.base_kernels import BaseKernels
from pytest_cgins.config import Config, Implementation, KernelEntry
from pytest_cgins.core.case import CompiledKernel
from pytest_cgins.core.errors import CginsError, ConfigError
from pytest_cgins.packs.backward import resolve
from pytest_cgins.packs.ops import qualified_name, trust
from pytest_cgins.regenerate.profiling import selection


@dataclass(frozen=True, slots=True)
class Loaded:
    """A kernel that is here."""

    kernel: LoadedKernel
    """It."""
    label: str
    """`NAME/IMPLEMENTATION`."""
    name: tuple[str, str, str]
    """Kernel, implementation and device type."""
    compiled: CompiledKernel
    """Its build."""


def _chosen(config: Config, wanted: Sequence[str], device: str) -> list[tuple[KernelEntry, Implementation]]:
    """An implementation a kernel; of an op that several kernels replace, the first one's.

    Args:
        config: the loaded file.
        wanted: `NAME` or `NAME/IMPLEMENTATION`; all kernels if there are none.
        device: type of the device.

    Raises:
        ConfigError: there is no such kernel, or none of a forward op for the device.
    """
    if wanted:
        found = [selection.chosen(config, name, device) for name in wanted]
    else:
        found = [(entry, (one,)) for entry, one in config.implementations.values() if one.device == device]
    ops: dict[str, tuple[KernelEntry, Implementation]] = {}
    for entry, (first, *_) in found:
        if "@" not in entry.op:  # nothing runs a backward here
            ops.setdefault(entry.op, (entry, first))
    if not ops:
        raise ConfigError(
            f"{config.file} has no kernel of a forward op for {device}",
            remedy="name another --device or --kernel",
        )
    return list(ops.values())


def load_kernels(config: Config, wanted: Sequence[str], device: str) -> tuple[dict[str, Loaded], list[str]]:
    """Kernels by their ops, built and loaded into this process; and why some are left out.

    Arguments are those of `_chosen`.

    Raises:
        ConfigError: see there.
        CginsError: one that is named cannot be built or loaded.
    """
    found: dict[str, Loaded] = {}
    left_out: list[str] = []

    def leave_out(label: str, error: CginsError) -> None:
        if wanted:
            raise error
        left_out.append(f"{label} is left out: {error.what.partition(chr(10))[0]}")

    with closing(BuildQueue()) as ahead:
        sources = []
        for entry, one in _chosen(config, wanted, device):
            name = entry.name, one.name, one.device
            try:
                trust(entry.op)
                sources.append((name, qualified_name(resolve(entry.op)), find(config, entry, one)))
            except CginsError as error:
                leave_out(f"{entry.name}/{one.name}", error)
        ahead.add([source for *_, source in sources])
        for name, op, source in sources:
            label = "/".join(name[:2])
            try:
                compiled = ahead.result(source)
                found[op] = Loaded(load(compiled), label, name, compiled)
            except CginsError as error:
                leave_out(label, error)
    return found, left_out


def at_base(bases: BaseKernels, kernels: Mapping[str, Loaded]) -> tuple[dict[str, LoadedKernel], Base]:
    """The same kernels at the base revision, by their ops, and how they differ; {} where nothing is to be compared.

    Ops of kernels that are new are left to torch.

    Args:
        bases: the revision's, closed by their owner when the model is no longer run.
        kernels: the working tree's.

    Raises:
        InfrastructureError: a tool for their builds is missing.
    """
    found: dict[str, LoadedKernel] = {}
    states, notes = set(), []
    for op, one in kernels.items():
        base = bases.of(*one.name, one.compiled)
        states.add("refused" if base.state == "apart" else base.state)
        if base.state == "unchanged":
            found[op] = one.kernel
        elif base.compiled is not None:
            try:
                found[op] = load(base.compiled)
            except CginsError as error:
                states.add("refused")
                notes.append(f"{one.label}: {error.what}")
        elif base.note:
            notes.append(f"{one.label}: {base.note}")
    for state in ("refused", "none", "changed", "new", "unchanged"):
        if state in states:
            compared = state in ("changed", "new") and bool(found)
            made = Base(state=state, label=bases.label, commit=bases.commit, note="; ".join(notes))
            return (found if compared else {}), made
    return {}, Base(state="none")
