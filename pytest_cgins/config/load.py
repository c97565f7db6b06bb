"""Reading and checking `cgins.yaml`."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from pytest_cgins.config import timing_gate
from pytest_cgins.config.document import Section, Value, read
from pytest_cgins.config.implementation import Implementation
from pytest_cgins.config.kernel import KernelEntry, kernel
from pytest_cgins.config.llm import LlmSettings, llm_settings
from pytest_cgins.config.model import ModelEntry, model
from pytest_cgins.config.pull_request import PullRequestSettings, pull_request_settings
from pytest_cgins.core.errors import ConfigError
from pytest_cgins.core.text import nearest, why_unnameable

CONFIG_VERSION = 1
TOP_KEYS = ("version", "traces", "gate", "kernels", "models", "llm", "pull_request")


@dataclass(frozen=True, kw_only=True)
class Config:
    """A whole cgins.yaml."""

    file: Path
    """Absolute path of the file."""
    traces: tuple[Path, ...]
    """Absolute paths of the trace packs' folders."""
    kernels: tuple[KernelEntry, ...]
    """In the order of the file."""
    whole_models: tuple[ModelEntry, ...] = ()
    """Whole models that are run with them."""
    baseline: str = ""
    """`gate.baseline`: what `--cgins-baseline` is where it is not given; "" for that option's own default."""
    llm: LlmSettings | None = None
    """Who is asked for kernels; None where the file does not say."""
    pull_request: PullRequestSettings = field(default_factory=PullRequestSettings)
    """What pull requests of proposals are given."""

    @property
    def root(self) -> Path:
        """Folder of the file: relative paths start here, and Python targets and ops are imported from it."""
        return self.file.parent

    @cached_property
    def implementations(self) -> dict[tuple[str, str, str], tuple[KernelEntry, Implementation]]:
        """Each implementation with its kernel, by the kernel's name, its own name, and the device type."""
        return {
            (entry.name, implementation.name, implementation.device): (entry, implementation)
            for entry in self.kernels
            for implementation in entry.implementations
        }


def load(
    path: Path, *, require_traces: bool = True, require_sources: bool = True, content: bytes | None = None
) -> Config:
    """Read a `cgins.yaml`, or the content that is given in its place.

    Raises:
        ConfigError: anything in it is unknown, missing, twice there or of the wrong type; the message leads
            with file and line and ends with the nearest right word.
    """
    file = Path(os.path.abspath(path))  # noqa: PTH100 - resolve() would follow a symlinked file away
    if wrong := why_unnameable(file):
        raise ConfigError(wrong[0], remedy=wrong[1])
    top = read(file, alone=not require_sources, content=content)
    top.refuse_unknown(TOP_KEYS)
    _check_version(top)
    traces = top.get("traces")
    gate, baseline = timing_gate.of_file(top.get("gate"))
    models = top.get("models")
    kernels = top.require("kernels", remedy="add kernels: {NAME: {op: …, source: …}}").mapping("kernels")
    return Config(
        file=file,
        traces=_traces(traces, require_traces) if traces else (),
        kernels=tuple(kernel(kernels[name], gate) for name in kernels),
        whole_models=tuple(model(each, gate) for each in models.mapping("models").values()) if models else (),
        baseline=baseline,
        llm=llm_settings(top["llm"]) if "llm" in top else None,
        pull_request=pull_request_settings(top.get("pull_request")),
    )


def load_without_traces(config: Path) -> Config:
    """Read the file without looking for trace packs; a missing source is an error of its kernel alone.

    Raises:
        ConfigError: it is wrong.
    """
    return load(config, require_traces=False, require_sources=False)


def select(config: Config, names: list[str]) -> list[KernelEntry]:
    """The named kernels, or all.

    Raises:
        ConfigError: there is no kernel of a name.
    """
    known = {kernel.name: kernel for kernel in config.kernels}
    for name in names:
        if name not in known:
            raise ConfigError(
                f'{config.file}: no kernel "{name}"',
                remedy=nearest(name, known) or f"its kernels are {', '.join(known)}",
            )
    return [known[name] for name in names] or list(config.kernels)


def _check_version(top: Section) -> None:
    value = top.require("version", remedy=f"add version: {CONFIG_VERSION}")
    version = value.integer()
    if version > CONFIG_VERSION:
        value.fail(
            f"version {version} is newer than this pytest-cgins, which knows version {CONFIG_VERSION}",
            remedy="upgrade pytest-cgins",
        )
    if version < 1:
        value.fail(f"there is no version {version}", remedy=f"write version: {CONFIG_VERSION}")


def _traces(value: Value, required: bool) -> tuple[Path, ...]:
    return value.distinct(
        lambda item: item.path(kind="folder") if required else Path(item.section.file.parent, item.text())
    )
