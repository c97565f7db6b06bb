"""What became of methods that were tried: three classes, remembered over rounds and runs in a file of the project.

`effective`: machine code shows it, and taking it out is proven to be slower. `ineffective`: machine code shows it, and no
such proof. `implementation-failed`: machine code does not have it. What machine code cannot tell is `unknown`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from pytest_cgins.core.document_base import Document
from pytest_cgins.regenerate.methods.definition import Family, Language
from pytest_cgins.regenerate.methods.sass_signature import Shown

METHODS_VERSION: Literal[1] = 1
MOST_TRIED = 5000
"""The oldest go first."""

MethodClass = Literal["effective", "ineffective", "implementation-failed", "unknown"]
"""What became of a method."""
NOT_AGAIN: tuple[MethodClass, ...] = ("ineffective", "implementation-failed")


def classify(shown: Shown, proven: bool | None) -> MethodClass:
    """The class of a method.

    Args:
        shown: what machine code says.
        proven: whether the kernel without it is proven to be slower, or wrong; None without an ablation, which counts
            as not proven.
    """
    if shown == "absent":
        return "implementation-failed"
    if shown == "unknown":
        return "unknown"
    return "effective" if proven else "ineffective"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried(Document):
    """One method in one round, and what became of it."""

    kernel: str
    """Name of the kernel."""
    device_name: str
    """What it ran on: `NVIDIA H200`."""
    language: Language
    """What it was written in."""
    method: str
    """Its id."""
    result: MethodClass
    """What became of it."""
    shown: Shown
    """What machine code said."""
    proven: bool | None
    """Whether the kernel without it is proven to be slower or wrong; None without an ablation."""
    slowdown_without: float | None = None
    """Time without it over time with it; None where it was not timed."""
    families: tuple[Family, ...] = ()
    """Kinds of workload of the kernel's op."""
    run: str
    """The run's id."""
    round: int
    """Which of its rounds, 1-based."""
    note: str = ""
    """For people."""

    @property
    def place(self) -> tuple[str, str, str, str]:
        """What a later result replaces in queries."""
        return self.kernel, self.device_name, self.language, self.method


@dataclass(frozen=True, slots=True, kw_only=True)
class MethodMemory(Document):
    """All that is remembered, the oldest first."""

    schema_version: Literal[1] = METHODS_VERSION
    """Of this file."""
    tried: tuple[Tried, ...] = ()
    """As it was told."""

    def with_more(self, tried: Iterable[Tried]) -> MethodMemory:
        """With more results; those of a round that is told again, as by a resumed run, take the place of the old ones."""
        kept = {(*one.place, one.run, one.round): one for one in self.tried}
        for one in tried:
            key = (*one.place, one.run, one.round)
            kept.pop(key, None)
            kept[key] = one
        return MethodMemory(tried=tuple(kept.values())[-MOST_TRIED:])

    def latest(self, *place: str) -> dict[str, Tried]:
        """The last result of each method for a kernel, on a device and in a language, which are given in this order."""
        return {one.method: one for one in self.tried if one.place[:3] == place}

    def not_again(self, *place: str) -> dict[str, Tried]:
        """Methods that are not to be repeated there, with the result that says so."""
        return {name: one for name, one in self.latest(*place).items() if one.result in NOT_AGAIN}

    def worked(self, *, families: tuple[Family, ...], language: Language) -> dict[str, Tried]:
        """Methods that were effective for such workloads in a language, on any device, each by its largest gain."""
        found: dict[str, Tried] = {}
        for one in self.tried:
            if one.result == "effective" and one.language == language and set(one.families) & set(families):
                best = found.get(one.method)
                if best is None or (one.slowdown_without or 0) > (best.slowdown_without or 0):
                    found[one.method] = one
        return found
