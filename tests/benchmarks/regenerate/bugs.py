"""The bugs of `broken.yaml`, and how they get into a project."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import yaml

HERE = Path(__file__).parent
REPOSITORY = HERE.parents[2]
sys.path.insert(0, str(REPOSITORY))

from tests.planted.edits import edited  # noqa: E402


@dataclass(frozen=True, slots=True, kw_only=True)
class Bug:
    """What is wrong with one kernel."""

    id: str
    """Name of the bug."""
    device: str
    """`cpu` or `cuda`."""
    kernel: str
    """Name of the kernel."""
    implementation: str
    """Name of the implementation."""
    file: str
    """Its own source, from the project's top."""
    kind: str
    """In a word or two, for the table."""
    what: str
    """The cause, which no model is told."""
    edits: tuple[tuple[str, str], ...]
    """What is searched, once in the file, and what takes its place."""

    @property
    def target(self) -> str:
        """What a run of regeneration calls the implementation."""
        return f"{self.kernel}-{self.device}-{self.implementation}"

    @property
    def expression(self) -> str:
        """For pytest's `-k`: the implementation's cases, and no others."""
        implementation = self.implementation
        if not implementation.startswith(self.device):
            implementation = f"{self.device}-{implementation}"
        return f"{self.kernel}/{implementation}/"

    def plant(self, project: Path) -> None:
        """Make the edits.

        Raises:
            LookupError: the source is not what it was when the bug was written down.
        """
        place = project / self.file
        found = edited({self.file: place.read_text(encoding="utf-8")}, list(self.edits), self.id)
        place.write_text(found[self.file], encoding="utf-8")


def bugs(device: str) -> tuple[Bug, ...]:
    """Those of one device."""
    document = yaml.safe_load((HERE / "broken.yaml").read_text(encoding="utf-8"))
    found = [
        Bug(**{**entry, "edits": tuple((old, new) for old, new in entry["edits"])})
        for entry in document["bugs"]
    ]
    return tuple(bug for bug in found if bug.device == device)
