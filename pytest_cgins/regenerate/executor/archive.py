"""A project and a target's copy of it as two archives, and a `ProjectCopy` made of them on a node.

Of the project they have what a copy has, and its packs: the files that builds and imports read. What else lies in the project,
such as keys, does not travel.
"""

from __future__ import annotations

import io
import os
import tarfile
from dataclasses import dataclass, replace
from pathlib import Path

from pytest_cgins import config as configuration
from pytest_cgins.config import Config
from pytest_cgins.regenerate.executor.messages import TargetOnNode
from pytest_cgins.regenerate.new_kernel import reloaded
from pytest_cgins.regenerate.project_copy import ProjectCopy


@dataclass(frozen=True, slots=True)
class Archives:
    """What travels to a node once."""

    project: bytes
    """Files and packs; the same for all targets of a run."""
    copy: bytes
    """The target's repository: base, incumbent."""


def of_project(copy: ProjectCopy, traces: tuple[Path, ...]) -> bytes:
    """The project's files, and its packs as `packs/NUMBER/NAME`."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for path in copy.listed():
            tar.add(copy.project / path, f"project/{path}", recursive=False)
        for number, pack in enumerate(traces):
            tar.add(os.path.realpath(pack), f"packs/{number}/{pack.name}")
    return packed.getvalue()


def of_copy(copy: ProjectCopy) -> bytes:
    """The repository of a copy, before a candidate lay in it."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        tar.add(copy.top / ".git", ".git")
    return packed.getvalue()


def unpack(archive: bytes, folder: Path) -> None:
    """Write the files of an archive below a folder; it is the driver's, and still may not write elsewhere."""
    folder.mkdir(parents=True)
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        tar.extractall(folder, filter="data")


def project_on_node(spec: TargetOnNode, unpacked: Path) -> Config:
    """The project's file where `of_project` was unpacked, with the packs that lie there."""
    file = unpacked / "project" / spec.config
    config = configuration.load(file, require_traces=False, require_sources=False)
    packs = tuple(unpacked / "packs" / str(n) / Path(pack).name for n, pack in enumerate(spec.traces))
    return replace(reloaded(config, spec.overlay), traces=packs)


def copy_on_node(
    spec: TargetOnNode, config: Config, archive: bytes, project: Path, folder: Path
) -> ProjectCopy:
    """The target's copy, as the driver has it."""
    unpack(archive, folder)
    return ProjectCopy.restored(
        config, spec.target.key, folder, project=project, files=spec.files, overlay=spec.overlay,
        base_commit=spec.base_commit,
    )  # fmt: skip
