"""Compilers as processes."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from pytest_cgins.building.compilers.process import run_stages


def test_compilers_get_no_secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A source that includes /proc/self/environ finds no token there; other variables are passed on."""
    monkeypatch.setenv("DEPLOY_TOKEN", "hush")
    monkeypatch.setenv("HARMLESS", "1")
    done = run_stages([[["env"]]], tmp_path, "k", time.monotonic() + 20, {"ADDED": "2"})
    lines = done.log.splitlines()
    assert done.status == 0
    assert {"HARMLESS=1", "ADDED=2", "LC_ALL=C"} <= set(lines)
    assert not any(line.startswith("DEPLOY_TOKEN") for line in lines)
