"""The pull requests, with REST answered by an emulator of GitHub that others wrote."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from pytest_cgins.cli import main
from pytest_cgins.model import Evaluation
from tests.action.github_parsers import Unavailable
from tests.github import emulator
from tests.github.conftest import BRANCH, CONFIG, FIXED, SOURCE, Place, commit, git
from tests.github.emulator import Front
from tests.github.twin import Twin


class Emulated(Place):
    """A place in front of an emulator."""

    @property
    def front(self) -> Front:
        return cast(Front, self.twin)


@pytest.fixture
def emulated(
    tmp_path: Path,
    template: Path,
    monkeypatch: pytest.MonkeyPatch,
    make_evaluation: Callable[..., Evaluation],
) -> Iterator[Emulated]:
    bare, clone, other = tmp_path / "bare.git", tmp_path / "clone", tmp_path / "other"
    shutil.copytree(template, bare)
    git(tmp_path, "clone", "--quiet", "bare.git", "clone")
    shutil.copytree(clone, other)
    for variable in ("GITHUB_API_URL", "GITHUB_GRAPHQL_URL", "GH_TOKEN"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("GITHUB_TOKEN", emulator.BOT)
    monkeypatch.chdir(clone)
    real = time.sleep
    monkeypatch.setattr("time.sleep", lambda seconds: real(min(seconds, 0.01)))
    with emulator.serve(bare) as front:
        git(clone, "remote", "set-url", "origin", front.remote)
        person = front.remote.replace("://", f"://x-access-token:{emulator.PERSON}@")
        git(other, "remote", "set-url", "origin", person)
        yield Emulated(bare, clone, other, cast(Twin, front), tmp_path / "proposals", make_evaluation)
        for one in sorted(front.deviations):
            print("DEV", one)
        print(front.violations)


def test_x(emulated: Emulated, capsys) -> None:
    folder = emulated.propose()
    print(emulated.open(folder))
    print(emulated.open(folder))
    print(emulated.front.answered("POST"), emulated.front.emulated.branches())
    print(
        emulated.open(
            emulated.propose(
                {SOURCE: "int scale() { return 3; }\n"}, name="two", run_id="run-2", message="other words"
            )
        )
    )
    commit(emulated.other, {"README.md": "words"})
    print(main(["pull-request", "status"]))
    print(
        emulated.open(
            emulated.propose(
                {SOURCE: "int scale() { return 3; }\n"}, name="two", run_id="run-2", message="other words"
            )
        )
    )
    commit(emulated.other, {SOURCE: "words"})
    print(
        emulated.open(
            emulated.propose(
                {SOURCE: "int scale() { return 3; }\n"}, name="two", run_id="run-2", message="other words"
            )
        )
    )
    print(main(["pull-request", "status", "--mark"]))
    print(main(["pull-request", "close", "1"]))


def test_y(emulated: Emulated, capsys, monkeypatch) -> None:
    monkeypatch.setenv("GITHUB_TOKEN", emulator.PERSON)
    folder = emulated.propose()
    print(emulated.open(folder))
    commit(emulated.other, {SOURCE: FIXED})
    print(emulated.open(folder))
    print(emulated.front.answered("POST"), emulated.front.emulated.branches())


def test_z(emulated: Emulated, capsys, monkeypatch) -> None:
    monkeypatch.setenv("CGINS_APP_PRIVATE_KEY", emulated.front.emulated.keys["4711"])
    folder = emulated.propose()
    print(emulated.open(folder, "--app", "4711"))
    print(emulated.front.answered("GET"), emulated.front.emulated.branches())
