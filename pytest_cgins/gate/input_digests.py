"""What an evaluation stands for, by digest, and whether that is still what lies on disk."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict
from functools import lru_cache
from pathlib import Path
from typing import Any

from pytest_cgins import __version__
from pytest_cgins import config as configuration
from pytest_cgins.building import build
from pytest_cgins.building.cache.headers import file_digest
from pytest_cgins.building.contracts import source
from pytest_cgins.config import Config, Implementation, KernelEntry
from pytest_cgins.core.case import Case, CompiledKernel
from pytest_cgins.core.errors import CginsError
from pytest_cgins.core.session_report import Evaluation, Tested

Entry = tuple[KernelEntry, Implementation]


def tested(config: Config, case: Case, compiled: CompiledKernel, *, seed: int) -> Tested:
    """What is about to be tested."""
    return Tested(
        sources=compiled.source.digest,
        build=compiled.key,
        library=compiled.sha256,
        trace=case.trace_id,
        pack=_pack_digest(case.pack_path),
        config=_settings_digest(config.root, *config.implementations[case.key]),
        cgins=__version__,
        seed=seed,
    )


def stale(file: Path, evaluations: Iterable[Evaluation]) -> tuple[str, ...]:
    """What changed since it was tested: one line a kernel implementation or trace pack, by the `cgins.yaml`, which is read anew."""
    told: dict[str, None] = {}
    first: dict[tuple[str, str, str], Evaluation] = {}
    for evaluation in evaluations:
        if evaluation.tested is None:
            continue
        first.setdefault(evaluation.case.key, evaluation)
        if _pack_digest(evaluation.case.pack_path) != evaluation.tested.pack:
            told[f"trace pack {evaluation.case.pack}: its manifest.json changed"] = None
    if first:
        told |= dict.fromkeys(_changed_kernels(file, first))
    return tuple(told)


def _changed_kernels(file: Path, first: dict[tuple[str, str, str], Evaluation]) -> Iterable[str]:
    try:
        config = configuration.load(file, require_traces=False, require_sources=False)
    except CginsError as error:
        yield f"{file.name} can no longer be read: {error.what}"
        return
    entries = config.implementations
    for key, evaluation in first.items():
        what = _change(config, entries.get(key), evaluation.tested)
        if what:
            yield f"kernel {key[0]}/{key[1]} ({key[2]}): {what}"


def _change(config: Config, entry: Entry | None, was: Tested | None) -> str:
    """How a kernel differs from what was tested; "" if it does not."""
    assert was is not None
    if entry is None:
        return f"it is no longer in {config.file.name}"
    if _settings_digest(config.root, *entry) != was.config:
        return f"its entry in {config.file.name} changed"
    try:
        found = source.find(config, *entry)
        if found.digest != was.sources:
            return f"its sources changed ({', '.join(Path(name).name for name in found.files)})"
        headers = build.changed_headers(found, was.build)
    except CginsError as error:
        return f"its sources can no longer be read: {error.what}"
    return f"what it includes changed ({', '.join(Path(name).name for name in headers)})" if headers else ""


def _settings_digest(root: Path, kernel: KernelEntry, implementation: Implementation) -> str:
    """sha256 over the settings; those of a project that moved are the same."""
    settings = {**asdict(kernel), "implementations": asdict(implementation)}
    text = json.dumps(_without_lines(settings), sort_keys=True, default=str)
    return hashlib.sha256(text.replace(f"{root}/", "").encode(errors="surrogateescape")).hexdigest()


def _without_lines(value: Any) -> Any:
    """Settings without where in the file they stand: a comment above them changes nothing."""
    if isinstance(value, dict):
        return {name: _without_lines(one) for name, one in value.items() if name != "line"}
    return [_without_lines(one) for one in value] if isinstance(value, list | tuple) else value


def _pack_digest(folder: str) -> str:
    manifest = Path(folder) / "manifest.json"
    try:
        found = manifest.stat()
    except OSError:
        return ""
    return _digest(str(manifest), found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino)


@lru_cache(maxsize=64)
def _digest(manifest: str, *_state: int) -> str:
    """A manifest may have megabytes, and all cases of a pack ask for it."""
    return file_digest(manifest) or ""
