"""What the reference worker must know of a case: its kernel's entry in cgins.yaml, and what the run asks for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pytest_cgins.config import Config, KernelEntry
from pytest_cgins.core.case import Case
from pytest_cgins.run import kernel_timing
from pytest_cgins.verify.messages import CaseRequest
from pytest_cgins.verify.probes.registry import switched_on


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceRequests:
    """Makes the requests of a run to the reference worker."""

    config: Config
    """The loaded file."""
    seed: int
    """Seed of the fresh inputs."""
    level: str
    """Level of the probes."""
    sanitize: tuple[str, ...]
    """Tools that CUDA kernels are run under."""
    import_root: Path
    """Folder that the trusted worker imports ops from."""
    timing: bool
    """Whether right kernels are timed."""
    smallest: Callable[[Case], str] = lambda case: case.name
    """Name of the smallest case of a case's implementation, device and dtype."""

    def for_case(self, case: Case) -> CaseRequest:
        """The request that prepares and judges a case."""
        kernel = self.entry(case)
        return CaseRequest(
            case=case,
            tolerance=kernel.tolerance,
            seed=self.seed,
            import_root=str(self.import_root),
            probes=self.probes(case),
            exceptions=kernel.exceptions,
            repeatability=kernel.repeatability,
            claims=kernel.claims,
            semantics=kernel.semantics,
            allow_tf32=kernel.allow_tf32,
            interpreted=self.is_interpreted(case),
            reference=kernel.reference and kernel.judged_by,
            gold_alone=not kernel.judged_by,
            large_case="" if (smallest := self.smallest(case)) == case.name else smallest,
            untimed=kernel_timing.UNTIMED if self.is_timed(case) else kernel_timing.NO_TIMING,
        )

    def is_timed(self, case: Case) -> bool:
        """Whether the kernel is timed once it is right: without a reference there is nothing to time it beside."""
        return self.timing and bool(self.entry(case).judged_by)

    def entry(self, case: Case) -> KernelEntry:
        """The case's kernel in cgins.yaml."""
        return next(entry for entry in self.config.kernels if entry.name == case.kernel)

    def probes(self, case: Case) -> tuple[str, ...]:
        """The probes that are switched on for a case; none for a check of its operator."""
        if case.check:
            return ()
        excused = [exception.probe for exception in self.entry(case).exceptions]
        if self.is_interpreted(case):
            # Triton's interpreter itself keeps some memory of every call.
            excused.append("memory_leak")
        return switched_on(self.level, excused, sanitize=self.sanitize)

    def is_interpreted(self, case: Case) -> bool:
        """Whether the kernel runs in Triton's interpreter."""
        implementations = self.entry(case).implementations
        return any(made.interpret for made in implementations if made.name == case.implementation)
