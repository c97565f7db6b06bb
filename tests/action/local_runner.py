"""Runs the action step by step as GitHub's runner would: its expressions by GitHub's parsers, its scripts by bash.

`run:` steps get the runner's files (GITHUB_OUTPUT, GITHUB_ENV, GITHUB_PATH, GITHUB_STEP_SUMMARY, GITHUB_STATE,
GITHUB_EVENT_PATH) and what they write there is read. `uses:` steps are played by `Services`: a cache and a store of
artifacts in folders. What the runner does with lines of the log is done as well: commands are taken from lines that
begin with `::`, except between `::stop-commands::TOKEN` and `::TOKEN::`.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from tests.action import events
from tests.action.events import Event
from tests.action.github_parsers import Parsers, State
from tests.forked_python import at_start, gate_python

ROOT = Path(__file__).parents[2]
ACTION = ROOT / "action"
STEP_KEYS = {"name", "id", "if", "shell", "env", "run", "uses", "with"}
"""What a step may say; anything else this runner would not do."""


@dataclass
class Job:
    """What a run of the action left."""

    code: int = 0
    """Exit code of the first step that failed, 0 if none did."""
    outputs: dict[str, str] = field(default_factory=dict)
    """The action's outputs."""
    summary: str = ""
    """All of GITHUB_STEP_SUMMARY."""
    log: str = ""
    """What the steps printed."""
    commands: list[str] = field(default_factory=list)
    """Lines of the log that the runner would obey."""
    ran: list[str] = field(default_factory=list)
    """Names of the `run:` steps that ran."""
    used: dict[str, dict[str, str]] = field(default_factory=dict)
    """`with:` of the `uses:` steps that ran, by step name."""
    environment: str = ""
    """All of GITHUB_ENV and GITHUB_PATH."""
    tokens: set[str] = field(default_factory=set)
    """Names of the steps whose own environment had the job's token."""


@dataclass
class Services:
    """GitHub's side of `uses:` steps."""

    folder: Path
    """Where caches and artifacts lie."""

    def play(self, action: str, given: Mapping[str, str]) -> tuple[int, dict[str, str]]:
        """Exit code and outputs of an action of GitHub's."""
        name = action.partition("@")[0]
        players = {
            "actions/cache/restore": self._restore,
            "actions/cache/save": self._save,
            "actions/upload-artifact": self._upload,
        }
        return players[name](given)

    def cached(self) -> dict[str, Path]:
        """Folders by key, oldest first."""
        found = sorted((self.folder / "caches").glob("*"), key=lambda one: one.stat().st_mtime_ns)
        return {one.name: one for one in found}

    def _restore(self, given: Mapping[str, str]) -> tuple[int, dict[str, str]]:
        keys = [given["key"], *given.get("restore-keys", "").split()]
        caches = self.cached()
        hits = [name for key in keys for name in reversed(caches) if name.startswith(key)]
        exact = given["key"] if given["key"] in caches else ""
        matched = exact or next(iter(hits), "")
        if matched:
            for number, place in enumerate(given["path"].split("\n")):
                if (caches[matched] / str(number)).exists():
                    shutil.copytree(caches[matched] / str(number), place.strip(), dirs_exist_ok=True)
        failed = given.get("fail-on-cache-miss") == "true" and not matched
        return int(failed), {"cache-hit": str(bool(exact)).lower(), "cache-matched-key": matched}

    def _save(self, given: Mapping[str, str]) -> tuple[int, dict[str, str]]:
        place = self.folder / "caches" / given["key"]
        for number, path in enumerate(given["path"].split("\n")):
            if Path(path.strip()).exists() and not place.exists():
                shutil.copytree(path.strip(), place / str(number))
        return 0, {}

    def _upload(self, given: Mapping[str, str]) -> tuple[int, dict[str, str]]:
        place = self.folder / "artifacts" / given["name"]
        assert not place.exists(), "GitHub refuses a second artifact of the same name"
        place.mkdir(parents=True)
        for path in given["path"].split("\n"):
            if path.strip():
                shutil.copy(path.strip(), place)
        return 0, {}


@cache
def document() -> dict[str, Any]:
    """action.yml as YAML."""
    found: dict[str, Any] = yaml.safe_load((ACTION / "action.yml").read_text(encoding="utf-8"))
    return found


@dataclass
class Runner:
    """A machine with GitHub's parsers, on which the action runs."""

    parsers: Parsers

    def run(
        self,
        workspace: Path,
        temporary: Path,
        *,
        event: Event | None = None,
        action: Path = ACTION,
        services: Services | None = None,
        env: Mapping[str, str] | None = None,
        **inputs: str,
    ) -> Job:
        """Run the action.

        Args:
            workspace: the checkout.
            temporary: where RUNNER_TEMP and the runner's files are; made here.
            event: what started the run; a push if left out.
            action: the folder that the action was fetched to.
            services: caches and artifacts; new ones if left out.
            env: added to the job's environment.
            inputs: the action's inputs, with underscores for dashes; `python` is a fork of this interpreter, and
                nothing is installed, unless told otherwise.
        """
        event = event or events.event("push")
        (temporary / "files").mkdir(parents=True)
        tree = self.parsers.parse("action", "action.yml", (ACTION / "action.yml").read_text(encoding="utf-8"))
        given = {"python": str(gate_python().executable()), "install": "none"} | {
            name.replace("_", "-"): value for name, value in inputs.items()
        }
        unknown = given.keys() - tree["inputs"].keys()
        assert not unknown, f"the action has no inputs {unknown}"
        state = State(
            {"github": event.context(), "runner": {"os": "Linux", "temp": str(temporary)}, "env": {}}
        )
        defaults = {name: self.parsers.text(one["default"], state) for name, one in tree["inputs"].items()}
        state.contexts["inputs"] = defaults | given
        job = Job()
        course = _Course(
            parsers=self.parsers,
            state=state,
            job=job,
            workspace=workspace,
            files=temporary / "files",
            environment=_environment(workspace, temporary, action, event) | dict(env or {}),
            services=services or Services(temporary / "services"),
            token=event.context()["token"],
        )
        for number, step in enumerate(tree["runs"]["steps"]):
            course.step(number, step)
        job.outputs = {name: self.parsers.text(one["value"], state) for name, one in tree["outputs"].items()}
        job.commands = obeyed(job.log)
        return job


def _environment(workspace: Path, temporary: Path, action: Path, event: Event) -> dict[str, str]:
    kept = {name: os.environ[name] for name in ("PATH", "HOME")} | at_start(os.environ)
    payload = temporary / "files" / "event.json"
    payload.write_text(json.dumps(event.payload), encoding="utf-8")
    return (
        kept
        | event.variables()
        | {
            "CI": "true",
            "GITHUB_ACTIONS": "true",
            "GITHUB_ACTION_PATH": str(action),
            "GITHUB_EVENT_PATH": str(payload),
            "GITHUB_WORKSPACE": str(workspace),
            "RUNNER_ARCH": "X64",
            "RUNNER_OS": "Linux",
            "RUNNER_TEMP": str(temporary),
        }
    )


@dataclass
class _Course:
    """The steps of one run, one after another."""

    parsers: Parsers
    state: State
    job: Job
    workspace: Path
    files: Path
    environment: dict[str, str]
    services: Services
    token: str

    def step(self, number: int, step: dict[str, Any]) -> None:
        assert step.keys() <= STEP_KEYS, step.keys()
        if not self.parsers.holds(step, self.state):
            return
        if "uses" in step:
            given = {name: self.parsers.text(value, self.state) for name, value in step["with"].items()}
            self.job.used[step["name"]] = given
            code, outputs = self.services.play(step["uses"], given)
        else:
            assert step["shell"] == "bash"
            self.job.ran.append(step["name"])
            code, outputs = self._script(number, step)
        if step.get("id"):
            self.state.steps[step["id"]] = {"outputs": outputs}
        if code and not self.state.failed:
            self.job.code, self.state.failed = code, True

    def _script(self, number: int, step: dict[str, Any]) -> tuple[int, dict[str, str]]:
        names = ("OUTPUT", "ENV", "PATH", "STATE", "STEP_SUMMARY")
        paths = {name: self.files / f"{name}-{number}" for name in names}
        for path in paths.values():
            path.touch()
        own = {name: self.parsers.text(value, self.state) for name, value in (step.get("env") or {}).items()}
        if self.token in own.values():
            self.job.tokens.add(step["name"])
        script = self.files / f"script-{number}.sh"
        script.write_text(self.parsers.text(step["run"], self.state), encoding="utf-8")
        done = subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", str(script)],
            cwd=self.workspace,
            env={**self.environment, **own, **{f"GITHUB_{name}": str(path) for name, path in paths.items()}},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=300,
            check=False,
        )
        self.job.log += done.stdout.decode(errors="replace")
        self.job.summary += paths["STEP_SUMMARY"].read_text(encoding="utf-8")
        self.job.environment += paths["ENV"].read_text() + paths["PATH"].read_text()
        self.environment |= parse_outputs(paths["ENV"].read_text())
        added = reversed(paths["PATH"].read_text().splitlines())
        self.environment["PATH"] = ":".join([*added, self.environment["PATH"]])
        return done.returncode, parse_outputs(paths["OUTPUT"].read_text(encoding="utf-8"))


def parse_outputs(text: str) -> dict[str, str]:
    """`name=value` lines and `name<<DELIMITER` blocks of GITHUB_OUTPUT and GITHUB_ENV."""
    outputs: dict[str, str] = {}
    lines = iter(text.splitlines())
    for line in lines:
        heredoc = re.fullmatch(r"([\w-]+)<<(.+)", line)
        if heredoc:
            block = []
            for inner in lines:
                if inner == heredoc[2]:
                    break
                block.append(inner)
            else:
                raise AssertionError(f"no end of {line}")
            outputs[heredoc[1]] = "\n".join(block)
        else:
            name, equals, value = line.partition("=")
            assert equals, f"{line!r} is no output"
            outputs[name] = value
    return outputs


def obeyed(log: str) -> list[str]:
    """Lines that the runner takes as commands."""
    found: list[str] = []
    token: str | None = None
    for line in log.splitlines():
        command = line.lstrip()
        if token is not None:
            token = None if command.startswith(f"::{token}::") else token
        elif command.startswith("::stop-commands::"):
            token = command.removeprefix("::stop-commands::")
        elif command.startswith("::") or "##[" in command:
            found.append(command)
    assert token is None, "the runner was left deaf"
    return found
