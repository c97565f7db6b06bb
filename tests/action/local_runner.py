"""Runs the `run:` steps of the action's own action.yml with bash, as GitHub's runner would.

`uses:` steps (restore cache, save cache, upload artifact) cannot run here: their conditions and their `with:`
are evaluated and kept, and that is all. What the runner does with lines of the log is done as well: commands
are taken from lines that begin with `::`, except between `::stop-commands::TOKEN` and `::TOKEN::`.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tests.action.expressions import Context, condition, expand

ROOT = Path(__file__).parents[2]
ACTION = ROOT / "action"


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
    """`with:` of the `uses:` steps that would have run, by step name."""
    environment: str = ""
    """All of GITHUB_ENV and GITHUB_PATH."""


def document() -> dict[str, Any]:
    """action.yml."""
    found: dict[str, Any] = yaml.safe_load((ACTION / "action.yml").read_text(encoding="utf-8"))
    return found


def run_action(
    workspace: Path,
    temporary: Path,
    *,
    action: Path = ACTION,
    uses_outputs: Mapping[str, dict[str, str]] | None = None,
    env: Mapping[str, str] | None = None,
    **inputs: str,
) -> Job:
    """Run the action.

    Args:
        workspace: the checkout.
        temporary: where RUNNER_TEMP and the runner's files are; made here.
        action: the folder that the action was fetched to.
        uses_outputs: what `uses:` steps would have given, by step id.
        env: added to the job's environment.
        inputs: the action's inputs, with underscores for dashes; `python` is this interpreter, and nothing is
            installed, unless told otherwise.
    """
    (temporary / "files").mkdir(parents=True)
    described = document()
    given = {"python": sys.executable, "install": "none"} | {
        k.replace("_", "-"): v for k, v in inputs.items()
    }
    unknown = given.keys() - described["inputs"].keys()
    assert not unknown, f"the action has no inputs {unknown}"
    defaults = {name: entry["default"] for name, entry in described["inputs"].items()}
    context = Context(inputs=defaults | given)
    job = Job()
    environment = _environment(workspace, temporary, action) | dict(env or {})
    for number, step in enumerate(described["runs"]["steps"]):
        if not condition(step.get("if", "success()"), context):
            continue
        if "uses" in step:
            job.used[step["name"]] = {
                name: expand(str(value), context) for name, value in step["with"].items()
            }
            context.steps[step.get("id", "")] = dict((uses_outputs or {}).get(step.get("id", ""), {}))
            continue
        assert step["shell"] == "bash"
        job.ran.append(step["name"])
        code = _run_step(step, number, context, environment, workspace, temporary / "files", job)
        if code and not context.failed:
            job.code, context.failed = code, True
    job.outputs = {name: expand(entry["value"], context) for name, entry in described["outputs"].items()}
    job.commands = obeyed(job.log)
    return job


def _environment(workspace: Path, temporary: Path, action: Path) -> dict[str, str]:
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "PYTHONPATH") if name in os.environ}
    return kept | {
        "CI": "true",
        "GITHUB_ACTIONS": "true",
        "GITHUB_ACTION_PATH": str(action),
        "GITHUB_WORKSPACE": str(workspace),
        "RUNNER_ARCH": "X64",
        "RUNNER_OS": "Linux",
        "RUNNER_TEMP": str(temporary),
    }


def _run_step(
    step: dict[str, Any],
    number: int,
    context: Context,
    environment: Mapping[str, str],
    workspace: Path,
    files: Path,
    job: Job,
) -> int:
    paths = {name: files / f"{name}-{number}" for name in ("OUTPUT", "ENV", "PATH", "STATE", "STEP_SUMMARY")}
    for path in paths.values():
        path.touch()
    own = {name: expand(str(value), context) for name, value in step.get("env", {}).items()}
    script = files / f"script-{number}.sh"
    script.write_text(expand(step["run"], context), encoding="utf-8")
    done = subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", str(script)],
        cwd=workspace,
        env={**environment, **own, **{f"GITHUB_{name}": str(path) for name, path in paths.items()}},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=300,
        check=False,
    )
    job.log += done.stdout.decode(errors="replace")
    job.summary += paths["STEP_SUMMARY"].read_text(encoding="utf-8")
    job.environment += paths["ENV"].read_text() + paths["PATH"].read_text()
    context.steps[step.get("id", "")] = parse_outputs(paths["OUTPUT"].read_text(encoding="utf-8"))
    return done.returncode


def parse_outputs(text: str) -> dict[str, str]:
    """`name=value` lines and `name<<DELIMITER` blocks of GITHUB_OUTPUT."""
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
