"""Scripts in the workflows, run as the runner runs them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.action.hub import Hub
from tests.action.local_runner import obeyed

PYTEST = """#!/bin/sh
printf '%s\\n' "$@" >"$SEEN/words"
env >"$SEEN/env"
exit "$CODE"
"""


@pytest.fixture
def hub(tmp_path: Path) -> Hub:
    """A machine whose virtual environment has a Python that tells what it was given."""
    hub = Hub(tmp_path)
    python = tmp_path / "temp/venv/bin/python"
    python.parent.mkdir(parents=True)
    python.write_text(PYTEST)
    python.chmod(0o755)
    return hub


def regenerate(hub: Hub, **env: str) -> tuple[int, str, dict[str, str]]:
    """Exit code and log of the step, and the environment of the gate."""
    told = {
        "DEVICE": "cpu",
        "FOLDER": ".",
        "LLM": "",
        "MODEL": "",
        "WHAT": "slow",
        "LLM_KEY": "the key",
        "CODE": "0",
    }
    told |= {
        "KEY_VARIABLE": "OPENAI_API_KEY",
        "RUNNER_TEMP": str(hub.folder / "temp"),
        "SEEN": str(hub.folder),
    }
    done = hub.step("regenerate.yml", "Regenerate", **told | env)
    seen = hub.folder / "env"
    lines = seen.read_text().splitlines() if seen.exists() else []
    return done.returncode, done.stdout, dict(line.partition("=")[::2] for line in lines)


@pytest.mark.parametrize("variable", ["OPENAI_API_KEY", "GOOGLE_API_KEY", "OUR_KEY"])
def test_key_is_in_the_variable_that_was_named(hub: Hub, variable: str) -> None:
    """And in no other."""
    code, _, seen = regenerate(hub, KEY_VARIABLE=variable)
    assert code == 0
    assert [name for name, value in seen.items() if value == "the key"] == [variable]


def test_without_a_key_no_variable_is_set(hub: Hub) -> None:
    """A provider without a key, or a server that asks for none."""
    _, _, seen = regenerate(hub, LLM_KEY="")
    assert seen.keys().isdisjoint({"OPENAI_API_KEY", "LLM_KEY"})


@pytest.mark.parametrize("variable", ["", "a b", "A=B", "$(id)", "lower"])
def test_variable_that_is_none_is_refused(hub: Hub, variable: str) -> None:
    """Nothing is asked then."""
    code, log, seen = regenerate(hub, KEY_VARIABLE=variable)
    assert code == 2
    assert obeyed(log) == ["::error::key-variable: give the name of a variable, in capitals"]
    assert not seen


@pytest.mark.parametrize(("gate", "step"), [("0", 0), ("1", 0), ("6", 6), ("7", 7)])
def test_a_gate_that_fails_is_no_failure_of_the_step(hub: Hub, gate: str, step: int) -> None:
    """It is why regeneration runs; every other end is."""
    assert regenerate(hub, CODE=gate)[0] == step


def test_journal_is_where_it_can_be_resumed(hub: Hub) -> None:
    """In the folder where `cgins runs resume` looks by itself: a journal names cgins.yaml by the way from there."""
    regenerate(hub)
    assert "--cgins-runs=.cgins/runs" in (hub.folder / "words").read_text().splitlines()


@pytest.mark.parametrize(("name", "code"), [("h200", 0), ("a/b", 1), ("", 1), ("a b", 1), ("-a", 1)])
def test_name_of_a_history_is_checked(hub: Hub, name: str, code: int) -> None:
    """What would not stand in a key and in artifacts' names ends the job before anything is restored."""
    assert hub.step("nightly.yml", "Check the name", NAME=name).returncode == code
