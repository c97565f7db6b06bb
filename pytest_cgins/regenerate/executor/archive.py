"""A target as it travels to a node: what is asked for there, the target's repository, and the run's packs as archives.

The repository has the files that builds and imports read. What else lies in the project, such as keys, does not travel.
"""

from __future__ import annotations

import io
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_cgins.core import atomic
from pytest_cgins.core.verdict import Status
from pytest_cgins.regenerate.attempt import Target


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetOnNode:
    """What a node needs to know of a target."""

    target: Target
    """What is regenerated."""
    top: str
    """The project's top folder on the driver."""
    config: str
    """Its cgins.yaml, relative to `top`."""
    traces: tuple[str, ...]
    """Its packs, on the driver."""
    packs: Any
    """The same as an archive, or Ray's reference to one: NUMBER/NAME."""
    repository: Any
    """The target's copy before a candidate lay in it, likewise: base, incumbent."""
    base_commit: str
    """The project's base revision; "" where it has none."""
    before: dict[str, Status]
    """As of `CandidateGate`."""
    seed: int
    """As of `TrialSettings`, like those that follow."""
    timing: bool
    compile: bool
    timeout_s: float


def packed(places: Mapping[str, Path]) -> bytes:
    """Files and folders, by their paths in the archive."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        for name, place in places.items():
            tar.add(place, name)
    return archive.getvalue()


def unpack(archive: bytes, folder: Path) -> None:
    """Write the files of an archive below a folder; it is the driver's, and still may not write elsewhere."""
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar, atomic.replaced_folder(folder) as made:
        tar.extractall(made, filter="data")
