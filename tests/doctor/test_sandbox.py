"""Whether a generated kernel could be fenced in."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pytest_cgins.doctor import sandbox
from pytest_cgins.run.sandbox import landlock
from pytest_cgins.run.sandbox.host import namespace_remedy
from pytest_cgins.run.sandbox.sandbox import ways

if TYPE_CHECKING:
    from conftest import FakeTool

PARTS = Path(__file__).parents[1] / "run" / "sandbox" / "host_parts.py"


def tried(monkeypatch: pytest.MonkeyPatch, **ways: str) -> None:
    monkeypatch.setattr(sandbox, "ways", lambda: ways)


@pytest.mark.parametrize(
    ("ways", "state", "version", "detail"),
    [
        ({"bubblewrap": "", "namespaces": ""}, "ok", "bubblewrap", "without the kernel's own limits"),
        ({"bubblewrap": "not installed", "namespaces": ""}, "ok", "namespaces", ""),
        (
            {"bubblewrap": "not installed", "namespaces": "unshare: no"},
            "unusable",
            "",
            "namespaces: unshare: no",
        ),
    ],
)
def test_the_way_that_is_used(
    tool: FakeTool,
    monkeypatch: pytest.MonkeyPatch,
    proc: Callable[..., Path],
    ways: dict[str, str],
    state: str,
    version: str,
    detail: str,
) -> None:
    """The first way that works, with what it lacks; without one, what was in the way of each."""
    tried(monkeypatch, **ways)
    monkeypatch.setattr(landlock, "version", lambda: 2)
    found = sandbox.isolation(proc=proc())[0]
    assert (found.name, found.state, found.version) == ("sandbox", state, version)
    assert detail in found.detail
    assert bool(found.detail) == bool(detail)


def test_landlock_is_missed(
    tool: FakeTool, monkeypatch: pytest.MonkeyPatch, proc: Callable[..., Path]
) -> None:
    """A sandbox without the second fence is one, and says what it lacks."""
    tried(monkeypatch, bubblewrap="not installed", namespaces="")
    monkeypatch.setattr(landlock, "version", lambda: 1)
    found = sandbox.isolation(proc=proc())[0]
    assert (found.state, found.version) == ("ok", "namespaces")
    assert "without Landlock" in found.detail


@pytest.mark.parametrize(
    ("setting", "value", "remedy"),
    [
        (
            "sys__kernel__apparmor_restrict_unprivileged_userns",
            "1\n",
            "apparmor_restrict_unprivileged_userns=0",
        ),
        ("sys__kernel__unprivileged_userns_clone", "0\n", "unprivileged_userns_clone=1"),
        ("sys__user__max_user_namespaces", "0\n", "max_user_namespaces=15000"),
        ("sys__user__max_user_namespaces", "96365\n", "--security-opt"),
    ],
)
def test_remedy_names_the_setting(proc: Callable[..., Path], setting: str, value: str, remedy: str) -> None:
    """Of the settings that forbid namespaces the one that does so here is named."""
    assert remedy in namespace_remedy(proc(**{setting: value}))


def test_bubblewrap(tool: FakeTool, monkeypatch: pytest.MonkeyPatch, proc: Callable[..., Path]) -> None:
    """One that is installed and cannot make a sandbox is of no use; one that is not there can be installed."""
    tried(monkeypatch, bubblewrap="bwrap: no permissions", namespaces="")
    found = sandbox.isolation(proc=proc())[1]
    assert (found.name, found.state, found.detail) == ("bubblewrap", "missing", "")
    assert found.remedy == "apt install bubblewrap"
    tool("bwrap")
    found = sandbox.isolation(proc=proc())[1]
    assert (found.state, found.detail) == ("unusable", "bwrap: no permissions")
    tried(monkeypatch, bubblewrap="", namespaces="")
    assert sandbox.isolation(proc=proc())[1].state == "ok"


def test_sandbox_works_where_its_parts_do() -> None:
    """A whole sandbox can be made if each of its parts can: else its own tests would be skipped for a mistake of ours."""
    ran = subprocess.run([sys.executable, PARTS], capture_output=True, text=True, check=True)
    parts = json.loads(ran.stdout)
    if any(parts.values()):
        pytest.skip(f"this host gives no sandbox: {parts}")
    assert ways()["namespaces"] == ""
