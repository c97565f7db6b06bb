"""Python, torch, Triton and pytest's plugins."""

from __future__ import annotations

import importlib.metadata

import pytest

from pytest_cgins.doctor import python, tools
from pytest_cgins.doctor.findings import Finding

CPU = {"version": "2.13.0+cpu", "path": "/torch/__init__.py", "cuda": None, "devices": []}
DONE = tools.ProgramResult(status=0, output="")


@pytest.mark.parametrize(
    ("version", "cuda", "state", "detail"),
    [
        ("2.13.0+cpu", None, "ok", "built without CUDA"),
        ("2.6.0", "12.4", "ok", "built for CUDA 12.4"),
        ("2.5.1+cu121", "12.1", "too-old", "built for CUDA 12.1"),
    ],
)
def test_torch(version: str, cuda: str | None, state: str, detail: str) -> None:
    """2.6 or later, whatever its build."""
    found = python.torch({**CPU, "version": version, "cuda": cuda}, DONE)
    assert (found.state, found.version, found.detail) == (state, version, detail)
    assert found.required


def test_torch_that_does_not_import(monkeypatch: pytest.MonkeyPatch) -> None:
    """An installed one that fails is unusable with its error, an absent one missing, one that hangs unknown."""
    failed = tools.ProgramResult(status=1, output="Traceback …\nImportError: libcudart.so.12: cannot open\n")
    found = python.torch(None, failed)
    assert (found.state, found.detail) == (
        "unusable",
        "import torch: ImportError: libcudart.so.12: cannot open",
    )
    hung = tools.ProgramResult(status=None, output="", trouble="python did not end in time and was killed")
    assert python.torch(None, hung).state == "unknown"
    monkeypatch.setattr(python, "installed_version", lambda _: "")
    assert python.torch(None, failed).state == "missing"


@pytest.mark.parametrize(
    ("version", "state"), [("", "missing"), ("3.2", "ok"), ("3.1.9", "too-old"), ("unreadable", "unknown")]
)
def test_package_state(version: str, state: str) -> None:
    """By its version; one that cannot be read is unknown."""
    assert python.package_state(version, (3, 2)) == state


@pytest.mark.parametrize(
    ("answer", "status", "state"),
    [
        ({"right": True}, 0, "ok"),
        ({"right": False}, 0, "unusable"),
        (None, 1, "unusable"),
        (None, None, "unknown"),
    ],
)
def test_triton_interpreter(
    monkeypatch: pytest.MonkeyPatch, answer: object, status: int | None, state: str
) -> None:
    """It has to give the right answer."""
    ran = tools.ProgramResult(
        status=status, output="RuntimeError: no", trouble="" if status is not None else "late"
    )
    monkeypatch.setattr(tools, "probe", lambda *_args, **_options: (answer, ran))
    monkeypatch.setattr(python, "installed_version", lambda _: "3.6.0")
    triton, interpreter = python.triton()
    assert (triton.state, interpreter.state) == ("ok", state)


def test_without_triton_nothing_is_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both are missing."""
    monkeypatch.setattr(python, "installed_version", lambda _: "")
    monkeypatch.setattr(tools, "probe", None)
    assert [one.state for one in python.triton()] == ["missing", "missing"]


def installed() -> bool:
    """Whether pytest-cgins is a distribution here, and not just on PYTHONPATH."""
    return any(one.name == "pytest-cgins" for one in importlib.metadata.distributions())


def test_this_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where pytest-cgins is installed, pytest knows it and all that it needs is there; else neither is claimed."""
    monkeypatch.delenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", raising=False)
    plugins = {one.name: one for one in python.pytest_plugins()}
    assert {"pytest", "pytest-benchmark", "pytest-xdist"} < set(plugins)
    states = [plugins[name].state for name in ("pytest-cgins", "requirements")]
    assert states == (["ok", "ok"] if installed() else ["unusable", "unknown"])


def test_plugin_is_registered(monkeypatch: pytest.MonkeyPatch) -> None:
    """By its entry point, unless that is not there or pytest loads no plugins by itself."""

    def registered(*entries: str) -> Finding:
        found = [importlib.metadata.EntryPoint(name="cgins", value=one, group="pytest11") for one in entries]
        monkeypatch.setattr(python.importlib.metadata, "entry_points", lambda **_: found)
        return {one.name: one for one in python.pytest_plugins()}["pytest-cgins"]

    monkeypatch.delenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", raising=False)
    assert registered("xdist.plugin", "pytest_cgins.plugin").state == "ok"
    absent = registered("xdist.plugin")
    assert (absent.state, absent.detail) == ("unusable", "pytest does not know it as a plugin")
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    off = registered("pytest_cgins.plugin")
    assert (off.state, "-p pytest_cgins.plugin" in off.remedy) == ("unusable", True)


def test_requirements(monkeypatch: pytest.MonkeyPatch) -> None:
    """All there is ok; one that is absent is named; extras do not count; without metadata nothing is known."""
    monkeypatch.setattr(python.importlib.metadata, "requires", lambda _: ["pytest>=8.0", "packaging"])
    assert python.requirements().state == "ok"
    wanted = ["pytest>=8.0", "no-such-package-here>=1", 'other-missing; extra == "dev"']
    monkeypatch.setattr(python.importlib.metadata, "requires", lambda _: wanted)
    found = python.requirements()
    assert (found.state, found.detail) == ("missing", "not installed: no-such-package-here")
    monkeypatch.setattr(python.importlib.metadata, "requires", lambda _: None)
    assert python.requirements().state == "unknown"
