"""What the reference worker must know of a case: its kernel's entry in cgins.yaml, and what the run asks for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pytest_cgins.config import Config, KernelEntry
from pytest_cgins.core.case import Case
from pytest_cgins.run import kernel_timing
from pytest_cgins.verify.messages import CaseRequest
from pytest_cgins.verify.probes.registry import WORTH_BYTES, switched_on


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceRequests:
    """Makes the requests of a run to the reference worker."""

    config: Config
    seed: int
    level: str
    sanitize: tuple[str, ...]
    import_root: Path
    """Folder that the trusted worker imports ops from."""
    timing: bool
    cases: Callable[[], Sequence[Case]] = tuple
    """All cases of the file, among which are those of the requests."""
    _entries: dict[str, KernelEntry] = field(default_factory=dict)
    _smallest: dict[tuple[str, str, str, str], str] = field(default_factory=dict)
    """Which case makes the large calls, by implementation, device and dtype."""

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
            declared=kernel.semantics,
            allow_tf32=kernel.allow_tf32,
            interpreted=self.is_interpreted(case),
            reference=kernel.reference and kernel.judged_by,
            gold_alone=not kernel.judged_by,
            ranks=kernel.ranks,
            large_case=self.large_case(case),
            untimed=kernel_timing.UNTIMED if self.is_timed(case) else kernel_timing.NO_TIMING,
        )

    def large_case(self, case: Case) -> str:
        """The case that makes the large calls of `large_indices` instead, the smallest that is worth it; "" for this one."""
        if not self._smallest:
            for each in sorted(self.cases(), key=_worth_large_calls):
                self._smallest.setdefault(_kind_of(each), each.name)
        smallest = self._smallest.get(_kind_of(case), case.name)
        return "" if smallest == case.name else smallest

    def is_timed(self, case: Case) -> bool:
        """Whether the kernel is timed once it is right: without a reference there is nothing to time it beside."""
        return self.timing and bool(self.entry(case).judged_by)

    def entry(self, case: Case) -> KernelEntry:
        """The case's kernel in cgins.yaml."""
        if not self._entries:
            self._entries.update((entry.name, entry) for entry in self.config.kernels)
        return self._entries[case.kernel]

    def probes(self, case: Case) -> tuple[str, ...]:
        """The probes that are switched on for a case; none for a check of its operator."""
        if case.check:
            return ()
        excused = [exception.probe for exception in self.entry(case).exceptions]
        if self.is_interpreted(case):
            # Triton's interpreter itself keeps some memory of every call.
            excused.append("memory_leak")
        ranked = self.entry(case).ranks.count > 1
        return switched_on(self.level, excused, sanitize=self.sanitize, ranked=ranked)

    def is_interpreted(self, case: Case) -> bool:
        """Whether the kernel runs in Triton's interpreter."""
        implementations = self.entry(case).implementations
        return any(made.interpret for made in implementations if made.name == case.implementation)


def _kind_of(case: Case) -> tuple[str, str, str, str]:
    return case.kernel, case.implementation, case.device, case.dtype


def _worth_large_calls(case: Case) -> tuple[bool, int]:
    """Sorts the case first that makes the large calls of `large_indices`."""
    nbytes = sum(meta.nbytes for meta in case.tensors)
    return nbytes < WORTH_BYTES, nbytes
