from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest
import torch

from pytest_cgins.core.trace import TracePack
from pytest_cgins.recording.record import record


@pytest.fixture
def recorded(tmp_path: Path) -> Callable[..., TracePack]:
    """Record one body under tmp_path/"pack", and give the pack back."""

    def run(body: Callable[[], object], **options: object) -> TracePack:
        with record(tmp_path / "pack", **options) as recording:
            body()
        assert recording.pack is not None
        return recording.pack

    return run


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], ModuleType]]:
    """Make an importable module of the given source."""
    folder = tmp_path / "project"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    made: list[str] = []

    def module(source: str) -> ModuleType:
        name = f"project_{tmp_path.name.replace('-', '_')}_{len(made)}"
        (folder / f"{name}.py").write_text(source)
        importlib.invalidate_caches()
        made.append(name)
        return importlib.import_module(name)

    yield module
    for name in made:
        sys.modules.pop(name, None)


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)
