"""Profiles: what the traces of a pack cost on one device with one torch version.

A pack is never changed; what depends on a device lies beside its manifest, in
`profiles/<device and torch>.json`, and is replaced when it is measured again. Reading trusts a profile no
more than a manifest. torch is not imported.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pytest_cgins.core import atomic, documents
from pytest_cgins.core.device import DeviceName
from pytest_cgins.core.document_base import Document
from pytest_cgins.core.errors import PackError
from pytest_cgins.core.trace import TracePack
from pytest_cgins.packs.store import PROFILES, PackReader, check_depth, first_complaint, read_file

PROFILE_VERSION = 1
MAX_PROFILE_BYTES = 16 * 2**20

_DAMAGED = "delete it, and run cgins profile again"
_SHARES_MAY_MISS = 1e-6
_HUGE = 2**63


@dataclass(frozen=True, slots=True, kw_only=True)
class AtenCall(Document):
    """What an op asks of torch's dispatcher."""

    name: str
    """Overload, e.g. `aten.addmm.default`."""
    count: int
    """Times in one call of the op."""
    view: bool
    """Whether it only makes a view, and computes nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceKernel(Document):
    """What an op launches on a GPU; copies and fills count as kernels."""

    name: str
    """As the driver knows it, demangled."""
    count: int
    """Launches in one call of the op."""
    ns_per_call: float
    """Time on the device of all these launches, in one call of the op."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceProfile(Document):
    """One trace, replayed."""

    trace: str
    """Its id."""
    op: str
    """Qualified name of its op."""
    signature: str
    """Its signature."""
    calls: int
    """How many calls of the recorded run it stands for."""
    aten: tuple[AtenCall, ...]
    """Calls of the dispatcher, in the order in which each is first made."""
    kernels: tuple[DeviceKernel, ...]
    """Kernels on the GPU, the longest first; empty on the CPU."""
    median_ns_per_call: float
    """Wall time on the CPU. On a GPU the time between the end of one call and the end of the next, calls
    being queued: the longer of what the host needs to launch and the device to run."""
    samples: int
    """Batches that the median is over."""
    other_ns_per_call: float | None = None
    """The median of another measurement, where it is more than twice as long: the device was busy, or not yet warm."""
    time_share: float
    """calls · median_ns_per_call over the sum of these in the pack."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PackProfile(Document):
    """What the traces of a pack cost on one device with one torch version."""

    version: int
    """Schema version, `PROFILE_VERSION`."""
    pack: str
    """Name of the pack."""
    device: DeviceName
    """Device type."""
    device_name: str
    """CPU or GPU model."""
    torch: str
    """torch version."""
    traces: tuple[TraceProfile, ...]
    """In the order of the pack; those that could not be replayed are missing."""


def file_name(profile: PackProfile) -> str:
    """Name of its file: one a device and torch version."""
    slug = re.sub(r"[^a-z0-9.]+", "-", f"{profile.device_name} torch {profile.torch}".lower())
    return f"{slug.strip('-.')}.json"


def files_of(folder: Path) -> list[Path]:
    """Files of all profiles of a pack, good or bad, by name."""
    path = folder / PROFILES
    if path.is_symlink():
        raise PackError(f"{path}: is a symbolic link", remedy="copy the profiles into the pack")
    return sorted(path.glob("*.json")) if path.is_dir() else []


def read_all(reader: PackReader) -> list[PackProfile]:
    """The profiles of a pack, by file name; [] if it was never profiled.

    Raises:
        PackError: if one is damaged, or is of other traces.
    """
    return [read(file, reader.pack) for file in files_of(reader.folder)]


def read(file: Path, pack: TracePack) -> PackProfile:
    """Read and validate one profile of a pack.

    Raises:
        PackError: naming file and field of the first thing that is wrong.
    """
    profile = parse(file)
    for problem in _problems(profile, pack):
        raise PackError(f"{file}: {problem}", remedy=_DAMAGED)
    return profile


def parse(file: Path) -> PackProfile:
    """Read one profile as its JSON Schema has it; whether it fits a pack is not looked at.

    Raises:
        PackError: naming file and field of the first thing that is wrong.
    """
    text = read_file(file, MAX_PROFILE_BYTES)
    check_depth(file, text)
    try:
        profile = documents.load(PackProfile, text)
    except ValueError as error:
        raise PackError(f"{file}: {first_complaint(error)}", remedy=_DAMAGED) from error
    if profile.version != PROFILE_VERSION:
        raise PackError(
            f"{file}: version: {profile.version}; this pytest-cgins reads version {PROFILE_VERSION}",
            remedy=_DAMAGED,
        )
    return profile


def write(folder: Path, profile: PackProfile) -> Path:
    """Put a profile into a pack's folder, in place of that of the same device and torch version."""
    files_of(folder)  # which refuses a symbolic link
    path = folder / PROFILES
    target = path / file_name(profile)
    atomic.write_text(target, documents.dump(profile, indent=1) + "\n")
    return target


def _problems(profile: PackProfile, pack: TracePack) -> Iterator[str]:
    """All that is wrong with a profile beyond its JSON Schema."""
    known = {trace.id: trace for trace in pack.traces}
    seen: set[str] = set()
    for index, measured in enumerate(profile.traces):
        field = f"traces[{index}]"
        trace = known.get(measured.trace)
        if trace is None or (trace.call.op, trace.signature) != (measured.op, measured.signature):
            yield f"{field}.trace: {measured.trace[:80]!r} is not a trace of this pack"
        if measured.trace in seen:
            yield f"{field}.trace: {measured.trace[:80]!r} is there twice"
        seen.add(measured.trace)
        yield from _numbers(field, measured)
    shares = sum(measured.time_share for measured in profile.traces)
    if profile.traces and not abs(shares - 1) <= _SHARES_MAY_MISS:
        yield f"traces: their time shares sum to {shares}, not 1"


def _numbers(field: str, measured: TraceProfile) -> Iterator[str]:
    positive: dict[str, float] = {
        "calls": measured.calls,
        "samples": measured.samples,
        "median_ns_per_call": measured.median_ns_per_call,
    }
    positive |= {f"aten[{number}].count": call.count for number, call in enumerate(measured.aten)}
    positive |= {f"kernels[{number}].count": kernel.count for number, kernel in enumerate(measured.kernels)}
    for name, value in positive.items():
        if not 0 < value < _HUGE:
            yield f"{field}.{name}: {str(value)[:80]} is not positive, or too large"
    if not 0 <= measured.time_share <= 1:
        yield f"{field}.time_share: {measured.time_share} is not a share"
    for number, kernel in enumerate(measured.kernels):
        if not (math.isfinite(kernel.ns_per_call) and kernel.ns_per_call >= 0):
            yield f"{field}.kernels[{number}].ns_per_call: {kernel.ns_per_call} is not a time"
