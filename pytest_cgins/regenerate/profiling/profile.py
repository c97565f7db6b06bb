"""One case under profilers: counters by ncu where they may be read, and what is to be had without them."""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from pathlib import Path

from pytest_cgins.core import documents
from pytest_cgins.core.case import Case, CompiledKernel
from pytest_cgins.core.errors import CginsError, InfrastructureError
from pytest_cgins.core.text import counted
from pytest_cgins.doctor.profiling import INSTALL_NCU
from pytest_cgins.gate.evaluate import Evaluator
from pytest_cgins.regenerate.profiling import disassembly, evidence_documents, metrics
from pytest_cgins.regenerate.profiling import ncu as tool
from pytest_cgins.regenerate.profiling.child import Child, ChildResult, StartedChild, fence_for
from pytest_cgins.regenerate.profiling.metrics import EXTRAS
from pytest_cgins.regenerate.profiling.ncu import Launch
from pytest_cgins.run.early_verdict import EndedError
from pytest_cgins.run.sandbox.sandbox import Sandbox

COUNTER = re.compile(r"(?!device__|profiler__)\w+__")
REPORT = "profile"
NO_NCU = f"counters: ncu is not installed → {INSTALL_NCU}"
NO_GPU = (
    "counters and timeline: the kernel runs on the CPU, where no counters are read; see the compiler's report here, and "
    "its times: cgins evidence bench"
)
NO_DEVICE = (
    "counters and timeline: there is no NVIDIA GPU here → run it where there is one; `cgins doctor` says why"
)


@dataclass(slots=True)
class _Findings:
    """What is known so far of one case."""

    kernels: tuple[evidence_documents.ProfiledKernel, ...] = ()
    timeline: tuple[evidence_documents.TimelineKernel, ...] = ()
    report: str = ""
    degraded: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    cubins: tuple[Path, ...] = ()


@dataclass(eq=False, repr=False)
class Profiler:
    """Profiles cases of one project."""

    evaluator: Evaluator
    """Of the project; it builds kernels and prepares their inputs."""
    folder: Path
    """Where reports of ncu are kept; made if need be."""
    _: KW_ONLY
    top: int = metrics.TOP
    """How many metrics an axis are told first."""
    program: tool.Ncu | None
    """The ncu that is used; None for none."""
    sandbox: Sandbox | None = None
    """Put around the process that runs the kernel, and around ncu."""
    say: Callable[[str], object] = lambda _: None
    """Takes a line of progress."""

    def __post_init__(self) -> None:
        self._sandbox = fence_for(self.evaluator.config, self.sandbox)

    def evidence(self, kernel: str, cases: Sequence[Case]) -> evidence_documents.ProfileEvidence:
        """The document of some cases of a kernel."""
        profiles = tuple(map(self.profile, cases))
        used = any(profile.kernels for profile in profiles)
        return evidence_documents.ProfileEvidence(
            version=evidence_documents.EVIDENCE_VERSION,
            kernel=kernel,
            top=self.top,
            ncu=self.program.version if self.program is not None and used else "",
            cases=profiles,
        )

    def profile(self, case: Case) -> evidence_documents.CaseProfile:
        """Everything that is to be had of one case. What fails is told in `degraded`, never raised."""
        self.say(case.name)
        device = case.device.partition(":")[0]
        if device not in self.evaluator.devices.described(warms=False):
            return self._without_device(case)
        try:
            with (
                tempfile.TemporaryDirectory(prefix="cgins-profile-") as folder,
                self.evaluator.made_ready(case) as ready,
            ):
                found = _Findings()
                if device == "cuda":
                    root = self.evaluator.config.root
                    child = Child(Path(folder), ready, import_root=root, sandbox=self._sandbox)
                    self._on_the_device(child, case, found)
                    found.cubins = child.cubins
                else:
                    found.degraded.append(NO_GPU)
                return self._profile(case, ready.compiled, found)
        except EndedError as end:
            return _nothing(case, f"{end.verdict.status.value}: {end.verdict.message}")
        except InfrastructureError as error:
            return _nothing(case, f"counters and timeline: {error.what} → {error.remedy}")

    def _on_the_device(self, child: Child, case: Case, found: _Findings) -> None:
        """Processes start together, and take turns on the device: what else runs there would be in the counters."""
        under_torch = child.begin("timeline")
        under_ncu = self._begin_counters(child, EXTRAS[0])
        self.say("under torch's profiler")
        self._timeline(under_torch.alone(self.evaluator.stage, case.device), found)
        self._counters(child, case, under_ncu, found)

    def _begin_counters(self, child: Child, extra: tuple[str, ...]) -> StartedChild | None:
        if self.program is None:
            return None
        return child.begin(
            "range", around=partial(self.program.around, report=child.folder / REPORT, extra=extra)
        )

    def _timeline(self, told: ChildResult, found: _Findings) -> None:
        found.notes += _notes(told)
        if told.trouble:
            found.degraded.append(f"timeline: the kernel does not run by itself: {told.trouble}")
            return
        rows = told.answer.get("timeline", [])
        try:
            found.timeline = documents.load_python(tuple[evidence_documents.TimelineKernel, ...], rows)
        except ValueError as error:
            found.degraded.append(f"timeline: it cannot be read: {str(error).partition(chr(10))[0]}")
        if not found.timeline:
            found.degraded.append(
                "timeline: torch's profiler saw nothing on the GPU: CUPTI may not look here"
            )

    def _counters(self, child: Child, case: Case, begun: StartedChild | None, found: _Findings) -> None:
        program = self.program
        if program is None or begun is None:
            found.degraded.append(NO_NCU)
            return
        for extra in EXTRAS:
            self.say(f"under ncu, {counted(len(extra), 'counter')} besides its sections'")
            told = begun.alone(self.evaluator.stage, case.device)
            written = (child.folder / REPORT).with_suffix(tool.SUFFIX)
            launches, trouble = program.read(written) if written.is_file() else ((), "")
            if launches or "ERR_NVGPUCTRPERM" in told.ran.output or extra == EXTRAS[-1]:
                break
            begun = self._begin_counters(child, EXTRAS[EXTRAS.index(extra) + 1]) or begun
        found.notes += [note for note in _notes(told) if note not in found.notes]
        if not launches:
            unread = trouble if told.ran.status == 0 else ""
            why = tool.refusal(told.ran.output) or unread or told.trouble or told.ran.last_line
            found.degraded.append(f"counters: {why}")
            return
        if extra != EXTRAS[0]:
            found.notes.append(
                f"ncu refused counters: asked for again with {len(extra)} besides its sections'"
            )
        found.kernels = profiled(launches)
        if lacking := metrics.missing(main_kernel(found.kernels).metrics):
            found.notes.append(f"ncu has no figure for {', '.join(lacking)}")
        found.report = f"{re.sub(r'[^A-Za-z0-9._-]+', '_', case.name)}{tool.SUFFIX}"
        self.folder.mkdir(parents=True, exist_ok=True)
        shutil.move(written, self.folder / found.report)

    def _profile(
        self, case: Case, compiled: CompiledKernel, found: _Findings
    ) -> evidence_documents.CaseProfile:
        functions, missing = _functions(compiled, found.cubins)
        return evidence_documents.CaseProfile(
            case=case.name,
            key=compiled.key,
            kernels=found.kernels,
            top=metrics.worst(main_kernel(found.kernels).metrics, self.top) if found.kernels else (),
            timeline=found.timeline,
            functions=functions,
            compiler=disassembly.build_lines(compiled),
            report=found.report,
            degraded=(*found.degraded, *missing),
            notes=tuple(found.notes),
        )

    def _without_device(self, case: Case) -> evidence_documents.CaseProfile:
        """The compiler's report alone."""
        try:
            compiled = self.evaluator.kernel_builds.kernel(case.kernel, case.implementation, "cuda")
        except CginsError as error:
            return _nothing(
                case, NO_DEVICE, f"machine code: it cannot be built here: {str(error).partition(chr(10))[0]}"
            )
        return self._profile(case, compiled, _Findings(degraded=[NO_DEVICE]))


def _functions(
    compiled: CompiledKernel, cubins: Sequence[Path]
) -> tuple[tuple[evidence_documents.CompiledFunction, ...], tuple[str, ...]]:
    if compiled.source.device == "cpu":
        return (), ()
    if compiled.source.contract != "python":
        return disassembly.functions(compiled)
    if not cubins:
        return (), ("machine code: the module compiles by itself, and left none where Triton does",)
    return disassembly.of_cubins(cubins)


def profiled(launches: Sequence[Launch]) -> tuple[evidence_documents.ProfiledKernel, ...]:
    """Launches with what is understood of their columns, each with its share of the time."""
    times = [metrics.duration_ns(launch.columns) for launch in launches]
    whole = sum(time for time in times if time is not None)
    known = whole > 0 and None not in times
    return tuple(
        evidence_documents.ProfiledKernel(
            name=one.name,
            grid=one.grid,
            block=one.block,
            ns=time,
            time_share=(time or 0.0) / whole if known else 1 / len(launches),
            metrics=metrics.understood(one.columns),
            raw={name: read.value for name, read in one.columns.items() if COUNTER.match(name)},
            suggested=tuple(one.suggested),
        )
        for one, time in zip(launches, times, strict=True)
    )


def main_kernel(kernels: Sequence[evidence_documents.ProfiledKernel]) -> evidence_documents.ProfiledKernel:
    """The launch that takes most of the time."""
    return max(kernels, key=lambda one: one.time_share)


def _notes(told: ChildResult) -> list[str]:
    notes = told.answer.get("notes", [])
    return [str(note)[:500] for note in notes] if isinstance(notes, list) else []


def _nothing(case: Case, *degraded: str) -> evidence_documents.CaseProfile:
    return evidence_documents.CaseProfile(
        case=case.name, key="", kernels=(), top=(), timeline=(), functions=(), degraded=degraded
    )
