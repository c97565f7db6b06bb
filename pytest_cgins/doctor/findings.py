"""What the doctor finds out, as documents."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pytest_cgins.core.document_base import Document

DOCTOR_VERSION = 1

State = Literal["ok", "missing", "too-old", "unusable", "unknown"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding(Document):
    """One thing that was looked for."""

    group: str
    """Heading under which it is shown."""
    name: str
    """What it is, e.g. `nvcc`."""
    state: State
    """`unusable`: it is there, but does not work as it is (no permission, the wrong companion). `unknown`: it
    could not be found out."""
    version: str = ""
    """Its version, or another short word for which one it is; "" where there is none."""
    where: str = ""
    """Path; "" where there is none."""
    detail: str = ""
    """What else was seen, one line."""
    disables: str = ""
    """What cannot be done without it."""
    remedy: str = ""
    """How to get or mend it."""
    required: bool = False
    """Whether nothing works without it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorReport(Document):
    """Everything that `cgins doctor` found."""

    version: int
    """Of this document: 1."""
    cgins: str
    """Version of pytest-cgins."""
    platform: str
    """System, its release and the machine."""
    probed: bool
    """Whether `--probe` ran real kernels."""
    findings: tuple[Finding, ...]
    """In the order in which they are shown."""

    @property
    def unmet(self) -> list[str]:
        """Names of what is required and not as it must be; what could not be found out does not count."""
        return [one.name for one in self.findings if one.required and one.state not in ("ok", "unknown")]

    @property
    def exit_status(self) -> int:
        """1 if something is unmet, else 0."""
        return int(bool(self.unmet))
