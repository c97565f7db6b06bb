"""All that prompts are made from, and how it is gathered from a project."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pytest_cgins.building.builders import includes
from pytest_cgins.building.contracts.import_closure import ImportReader
from pytest_cgins.config import Config, Implementation, KernelEntry
from pytest_cgins.core.errors import SourceError
from pytest_cgins.core.session_report import Evaluation
from pytest_cgins.core.text import text_of
from pytest_cgins.core.trace import Trace
from pytest_cgins.packs.store import PackReader, open_pack
from pytest_cgins.recording.profile import PackProfile, TraceProfile, read_all
from pytest_cgins.regenerate.attempt import Advice, Attempt, Target
from pytest_cgins.regenerate.prompts.hardware import Hardware

_MOST_HEADERS = 64
_MOST_CHARACTERS = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """What a prompt is made from."""

    target: Target
    """What is to be regenerated."""
    config: Config
    """The project's cgins.yaml."""
    entry: KernelEntry
    """The kernel."""
    implementation: Implementation
    """The implementation; for `generate` one that is not in cgins.yaml yet, with the files to be written."""
    top: Path
    """Folder that paths in prompts and answers are relative to; it may lie above cgins.yaml."""
    sources: Mapping[str, str]
    """Own sources, text by path relative to `top`, main file first; "" for a file that is to be written."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """Headers and modules of the project that the sources include, read only."""
    packs: tuple[PackReader, ...] = ()
    """The trace packs."""
    profiles: tuple[PackProfile, ...] = ()
    """Of these packs, on any device."""
    hardware: Hardware
    """What the kernel runs on."""
    evaluations: tuple[Evaluation, ...] = ()
    """What the gate said of the sources; of the first prompt's."""
    attempts: tuple[Attempt, ...] = ()
    """What was tried before, in order."""
    advices: tuple[Advice, ...] = ()
    """What the helper said, in order."""
    candidate: Mapping[str, str] = field(default_factory=dict)
    """The last attempt's sources, like `sources`; empty if there is none that could be read. SEARCH/REPLACE edits
    of the answer are edits of these where they are given, else of `sources`."""
    runs: Path | None = None
    """Folder of the project's runs, whose accepted kernels serve as exemplars."""
    schema: str = ""
    """Schema line of a source that is not written yet, without its mark; see `schema_line.derive`."""

    @property
    def files(self) -> Mapping[str, str]:
        """The files that the answer changes: the last attempt's, else the incumbent's."""
        return self.candidate or self.sources

    @property
    def main(self) -> str:
        """Path of the main source, relative to `top`."""
        return next(iter(self.sources), "")

    @property
    def traces(self) -> tuple[tuple[PackReader, Trace], ...]:
        """Traces of the op, each with its pack, in the order of packs and manifests."""
        return tuple(
            (pack, trace)
            for pack in self.packs
            for trace in pack.pack.traces
            if trace.call.op == self.target.op
        )

    def profile_of(self, pack: str, trace: str) -> TraceProfile | None:
        """What a profile says of a trace, one of the kernel's device first; None if no profile has it."""
        found = [
            (profile.device != self.target.device, profile.device_name, profile.torch, timed)
            for profile in self.profiles
            for timed in profile.traces
            if profile.pack == pack and timed.trace == trace
        ]
        return min(found, key=lambda row: row[:3])[3] if found else None


def gather(
    target: Target,
    config: Config,
    entry: KernelEntry,
    implementation: Implementation,
    *,
    sources: Mapping[str, str],
    hardware: Hardware,
    evaluations: Sequence[Evaluation] = (),
    top: Path,
) -> Context:
    """A context from a project's files.

    Args:
        target: what is to be regenerated.
        config: the loaded file.
        entry: the kernel.
        implementation: one of it, or one that is to be written.
        sources: its own sources by path relative to `top`, main file first; "" for those not there.
        hardware: what it runs on.
        evaluations: what the gate said of the sources as they are.
        top: folder that paths are relative to.

    Raises:
        PackError: a trace pack or profile cannot be read.
    """
    packs = tuple(open_pack(folder) for folder in config.traces)
    return Context(
        target=target,
        config=config,
        entry=entry,
        implementation=implementation,
        top=top,
        sources=sources,
        headers=_included([top / path for path in sources], config.root, top),
        packs=packs,
        profiles=tuple(profile for pack in packs for profile in read_all(pack)),
        hardware=hardware,
        evaluations=tuple(evaluations),
    )


def _included(own: Sequence[Path], root: Path, top: Path) -> dict[str, str]:
    """Headers and modules of the project that sources include, those of a header the nearest first, text by path."""
    imported = ImportReader(root, (), alone=True).closure([file for file in own if file.suffix == ".py"], ())
    modules = sorted(file for file in imported if file.suffix == ".py")
    headers = (header for file in own if file.suffix != ".py" for header in _headers(file))
    found = [file for file in dict.fromkeys((*headers, *modules)) if file not in own and file.stat().st_size]
    inside = [file for file in found if file.resolve().is_relative_to(top.resolve())]
    return {relative(file, top): text_of(file, _MOST_CHARACTERS) for file in inside[:_MOST_HEADERS]}


def _headers(file: Path) -> tuple[Path, ...]:
    try:
        return includes.scan(file, [file.parent]).files
    except SourceError:
        return ()


def relative(file: Path, top: Path) -> str:
    """A path as it stands in prompts; of one that is not in the project only the name."""
    for folder, path in ((top, file), (top.resolve(), file.resolve())):
        if path.is_relative_to(folder):
            return path.relative_to(folder).as_posix()
    return file.name
