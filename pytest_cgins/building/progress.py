"""How far the builds of a run are, in numbers and in one line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

from pytest_cgins.core.text import counted


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Builds of a run at one moment; kernels that need no build are not in it."""

    cached: int = 0
    """Taken from the cache."""
    built: int = 0
    """Built in this run."""
    failed: int = 0
    """Refused by their compiler, or without one."""
    waiting: int = 0
    """Not looked up or not built yet, or being built by another process."""
    running: tuple[tuple[str, float], ...] = ()
    """Those under way: `kernel/implementation` and the seconds since it began, longest first."""
    seconds: float = 0.0
    """Wall time from the begin of the first build to the end of the last one that has ended."""
    compile_seconds: float = 0.0
    """Sum of the wall times of the single builds."""

    @property
    def total(self) -> int:
        """All kernels."""
        return self.cached + self.built + self.failed + self.waiting + len(self.running)

    @property
    def compiled(self) -> int:
        """Those whose build was begun in this run and has ended."""
        return self.built + self.failed

    @property
    def done(self) -> bool:
        """Whether there is nothing left to wait for."""
        return not (self.waiting or self.running)

    def line(self, width: int) -> str:
        """The line of a terminal while builds run, at most `width` characters."""
        ready = self.cached + self.compiled
        text = f"cgins: {ready} of {_kernels(self.total)} ready"
        for shown, (name, seconds) in enumerate(self.running):
            longer = f"{text}{',' if shown else ', building'} {name} {seconds:.0f} s"
            if len(longer) > width - len(", 99 more"):
                left = len(self.running) - shown
                text += f", {left} more" if shown else f", building {left}"
                break
            text = longer
        return text[:width]

    def numbers(self) -> dict[str, float]:
        """What another process needs to tell of it: fields by name, without those of `running`."""
        return {field.name: getattr(self, field.name) for field in fields(self) if field.name != "running"}

    def summary(self) -> str:
        """One line after the builds; "" if nothing was built."""
        if not self.compiled:
            return ""
        parts = [f"{self.cached} from the cache"] if self.cached else []
        time = f"in {self.seconds:.1f} s ({self.compile_seconds:.1f} s of compiling)"
        parts += [f"{self.built} built {time}"] if self.built else []
        parts += [f"{self.failed} failed"] if self.failed else []
        parts += [f"{self.waiting + len(self.running)} not built"] if not self.done else []
        return f"cgins: {_kernels(self.total)}: {', '.join(parts)}"


def joined(parts: Sequence[Progress]) -> Progress:
    """The builds of processes that had the same kernels to build, each of them built once."""
    total = max((part.total for part in parts), default=0)
    built = sum(part.built for part in parts)
    failed = max((part.failed for part in parts), default=0)
    return Progress(
        cached=max(0, total - built - failed),
        built=built,
        failed=failed,
        seconds=max((part.seconds for part in parts), default=0.0),
        compile_seconds=sum(part.compile_seconds for part in parts),
    )


def _kernels(number: int) -> str:
    return counted(number, "kernel")
