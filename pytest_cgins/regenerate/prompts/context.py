"""All that prompts are made from, and how it is gathered from a project."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pytest_cgins.building.builders import includes
from pytest_cgins.config import Config, Implementation, KernelEntry
from pytest_cgins.core import syntax
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
    """Headers and modules of the project that sources include, the nearest first, text by path."""
    headers: dict[Path, None] = {}
    for file in own:
        for header in _modules(file, root) if file.suffix == ".py" else _headers(file):
            if header not in own and header.resolve().is_relative_to(top.resolve()):
                headers.setdefault(header)
    return {relative(file, top): text_of(file, _MOST_CHARACTERS) for file in list(headers)[:_MOST_HEADERS]}


def _headers(file: Path) -> tuple[Path, ...]:
    try:
        return includes.scan(file, [file.parent]).files
    except SourceError:
        return ()


def _modules(file: Path, root: Path) -> tuple[Path, ...]:
    """Files of the project that a Python file imports, and those that they import."""
    modules: dict[Path, None] = {}
    todo = [file]
    while todo and len(modules) < _MOST_HEADERS:
        for name in _imported(text_of(todo.pop(0), _MOST_CHARACTERS)):
            base = root.joinpath(*name.split("."))
            module = next(
                (path for path in (base.with_suffix(".py"), base / "__init__.py") if path.is_file()), None
            )
            if module is not None and module not in modules and module != file:
                modules[module] = None
                todo.append(module)
    return tuple(modules)


def _imported(text: str) -> list[str]:
    tree = syntax.readable(text)
    names: list[str] = []
    for level, module, name in syntax.imports(tree) if tree is not None else ():
        if module and not level:
            names += [module, f"{module}.{name}"] if name else [module]
    return [name for name in names if all(part.isidentifier() for part in name.split("."))]


def relative(file: Path, top: Path) -> str:
    """A path as it stands in prompts; of one that is not in the project only the name."""
    for folder, path in ((top, file), (top.resolve(), file.resolve())):
        if path.is_relative_to(folder):
            return path.relative_to(folder).as_posix()
    return file.name
