"""The kernels of a `cgins.yaml`, loaded into this process to be put into a model."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing

from pytest_cgins.building.build_queue import BuildQueue
from pytest_cgins.building.contracts.source import find
from pytest_cgins.building.loading.callable import LoadedKernel, load
from pytest_cgins.config import Config, Implementation, KernelEntry
from pytest_cgins.core.errors import CginsError, ConfigError
from pytest_cgins.packs.backward import resolve
from pytest_cgins.packs.ops import qualified_name, trust
from pytest_cgins.regenerate.profiling import selection


def chosen_implementations(
    config: Config, wanted: Sequence[str], device: str
) -> list[tuple[KernelEntry, Implementation]]:
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
        found = [
            (entry, here)
            for entry in config.kernels
            if (here := tuple(one for one in entry.implementations if one.device == device))
        ]
    ops: dict[str, tuple[KernelEntry, Implementation]] = {}
    for entry, implementations in found:
        if "@" not in entry.op:  # nothing runs a backward here
            ops.setdefault(entry.op, (entry, implementations[0]))
    if not ops:
        raise ConfigError(
            f"{config.file} has no kernel of a forward op for {device}",
            remedy="name another --device or --kernel",
        )
    return list(ops.values())


def load_kernels(
    config: Config, chosen: Sequence[tuple[KernelEntry, Implementation]], *, all_of_them: bool
) -> tuple[dict[str, tuple[LoadedKernel, str]], list[str]]:
    """Kernels with their labels by their ops, built and loaded into this process; and why some are left out.

    Raises:
        CginsError: one cannot be built or loaded, and `all_of_them` are wanted.
    """
    found: dict[str, tuple[LoadedKernel, str]] = {}
    left_out: list[str] = []

    def leave_out(label: str, error: CginsError) -> None:
        if all_of_them:
            raise error
        left_out.append(f"{label} is left out: {error.what.partition(chr(10))[0]}")

    with closing(BuildQueue()) as ahead:
        sources = {}
        for entry, one in chosen:
            label = f"{entry.name}/{one.name}"
            try:
                trust(entry.op)
                sources[label] = (qualified_name(resolve(entry.op)), find(config, entry, one))
            except CginsError as error:
                leave_out(label, error)
        ahead.add([source for _, source in sources.values()])
        for label, (op, source) in sources.items():
            try:
                found[op] = load(ahead.result(source)), label
            except CginsError as error:
                leave_out(label, error)
    return found, left_out
