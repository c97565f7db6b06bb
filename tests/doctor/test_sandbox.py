"""Whether a generated kernel could be fenced in."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pytest_cgins.doctor import sandbox, tools
from pytest_cgins.run.sandbox.host import namespace_remedy

if TYPE_CHECKING:
    from conftest import FakeTool


def answered(monkeypatch: pytest.MonkeyPatch, answer: object) -> None:
    ran = tools.ProgramResult(status=0, output="something")
    monkeypatch.setattr(tools, "probe", lambda *_args, **_options: (answer, ran))


def test_parts(tool: FakeTool, monkeypatch: pytest.MonkeyPatch, proc: Callable[..., Path]) -> None:
    """A part without trouble is there, one with trouble is told with it, one that was not tried is unknown."""
    answered(monkeypatch, {"user_namespace": "", "network_namespace": "Operation not permitted"})
    found = {one.name: one for one in sandbox.isolation(proc=proc())}
    assert found["user namespace"].state == "ok"
    refused = found["network namespace"]
    assert (refused.state, refused.detail) == ("unusable", "Operation not permitted")
    assert "--cgins-sandbox=off" in refused.disables
    assert found["PID namespace"].state == "unknown"
    assert found["bubblewrap"].state == "missing"


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
    answered(monkeypatch, {"ways": ways})
    found = sandbox.isolation(proc=proc())[0]
    assert (found.name, found.state, found.version) == ("sandbox", state, version)
    assert detail in found.detail
    assert bool(found.detail) == bool(detail)


@pytest.mark.parametrize("answer", [None, {}, {"user_namespace": 3, "ways": {"namespaces": 3}}])
def test_probe_that_says_nothing(
    tool: FakeTool, monkeypatch: pytest.MonkeyPatch, proc: Callable[..., Path], answer: object
) -> None:
    """Then nothing is known."""
    answered(monkeypatch, answer)
    states = {one.state for one in sandbox.isolation(proc=proc()) if one.name != "bubblewrap"}
    assert states == {"unknown"}


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


def test_bubblewrap_is_tried(
    tool: FakeTool, monkeypatch: pytest.MonkeyPatch, proc: Callable[..., Path]
) -> None:
    """One that is installed and cannot unshare is of no use."""
    answered(monkeypatch, {})
    tool("bwrap", script="print('bubblewrap 0.8.0')\nsys.exit(0 if '--version' in sys.argv else 1)")
    (found,) = [one for one in sandbox.isolation(proc=proc()) if one.name == "bubblewrap"]
    assert (found.state, found.version) == ("unusable", "0.8.0")
    tool("bwrap", "bubblewrap 0.8.0\n")
    (found,) = [one for one in sandbox.isolation(proc=proc()) if one.name == "bubblewrap"]
    assert found.state == "ok"


@pytest.mark.skipif(sys.platform != "linux", reason="namespaces are Linux's")
def test_trials_run_here() -> None:
    """The script itself ends with one answer a part, and leaves this process where it was."""
    before = Path("/proc/self/ns/net").readlink()
    answer, ran = tools.probe("isolation", limit_s=60)
    ways = answer.pop("ways")
    assert set(ways) == set(sandbox.LACKS)
    assert set(answer) == set(sandbox.TRIALS), ran.output
    assert all(isinstance(trouble, str) for trouble in (*answer.values(), *ways.values())), json.dumps(answer)
    assert Path("/proc/self/ns/net").readlink() == before


@pytest.mark.skipif(sys.platform != "linux", reason="namespaces are Linux's")
def test_sandbox_works_where_its_parts_do() -> None:
    """A whole sandbox can be made if each of its parts can: else its own tests would be skipped for a mistake of ours."""
    answer, ran = tools.probe("isolation", limit_s=60)
    ways = answer.pop("ways")
    if any(trouble for part, trouble in answer.items() if part not in ("landlock", "mount_setattr")):
        pytest.skip(f"this host gives no sandbox: {answer}")
    assert ways["namespaces"] == "", ran.output
