"""Functions that a project has marked."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], ModuleType]]:
    """Makes an importable module of the given source."""
    name = f"marked_{tmp_path.name}"
    monkeypatch.syspath_prepend(str(tmp_path))

    def module(source: str) -> ModuleType:
        (tmp_path / f"{name}.py").write_text(source)
        importlib.invalidate_caches()
        return importlib.import_module(name)

    yield module
    sys.modules.pop(name, None)
