"""Keys of providers: there or not, never what they are."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pytest_cgins.doctor import services

if TYPE_CHECKING:
    from conftest import FakeTool


def test_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each preset with a key has a line, by the variable that requests read; an empty one is not set."""
    for names, _ in services.VARIABLES.values():
        for name in names:
            monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("GOOGLE_API_KEY", "hunter2")
    monkeypatch.setenv("OPENAI_API_KEY", "")
    found = {one.name: one for one in services.variables()}
    assert (found["gemini"].state, found["gemini"].detail) == ("ok", "GOOGLE_API_KEY is set")
    assert (found["openai"].state, found["openai"].detail) == ("missing", "OPENAI_API_KEY is not set")
    assert found["GitHub"].state == "missing"
    assert set(found) == {"openai", "gemini", "GitHub"}
    assert "hunter2" not in str(found)


def test_git(tool: FakeTool) -> None:
    """Its version, or that it is not there."""
    assert services.git().state == "missing"
    tool("git", "git version 2.39.5 (Apple Git-154)\n")
    assert (services.git().state, services.git().version) == ("ok", "2.39.5")
    tool("git", "xcode-select: error", status=1)
    assert services.git().state == "unknown"
