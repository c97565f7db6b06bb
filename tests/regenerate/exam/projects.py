"""The projects of the exam, in repositories of their own, and runs of `pytest --cgins-regenerate` in them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml

from pytest_cgins.regenerate.attempt import Advice, Attempt, Target
from pytest_cgins.regenerate.conversation import Message, Request
from pytest_cgins.regenerate.journal import journal as journals
from tests.regenerate import projects
from tests.regenerate.llm_server import LlmServer

RECORD = """\
import sys
from pathlib import Path

import torch
from torch.nn import functional

import pytest_cgins
from pytest_cgins.packs.gold import load_gold
from pytest_cgins.packs.store import open_pack

torch.manual_seed(0)
calls = {
    "torch.nn.functional.layer_norm": lambda: functional.layer_norm(
        torch.randn(5, 7), (7,), torch.randn(7), torch.randn(7)
    ),
    "torch.nn.functional.relu": lambda: functional.relu(torch.randn(3, 5)),
}
wanted = sys.argv[1:]
with pytest_cgins.record("traces/tiny", ops=wanted):
    for op in wanted:
        calls[op]()
reader = open_pack("traces/tiny")
trace = next(one for one in reader.pack.traces if one.call.op == wanted[0])
numbers = ", ".join(f"{number!r}f" for number in load_gold(trace, reader)[0].values.tolist())
Path("gold.txt").write_text(numbers)
"""
MODELS = {"generator": "writer", "helper": "adviser"}


def record(folder: Path, *ops: str) -> str:
    """Record a pack `traces/tiny` of a call of each op; gives the first one's outputs as numbers of C++."""
    folder.mkdir(parents=True)
    subprocess.run([sys.executable, "-c", RECORD, *ops], cwd=folder, check=True)
    gold = folder / "gold.txt"
    numbers = gold.read_text()
    gold.unlink()
    return numbers


def make(
    folder: Path, kernels: Mapping[str, object], files: Mapping[str, str], *, base_url: str, attempts: int
) -> Path:
    """Commit a project around a pack; gives its folder."""
    llm = {
        "provider": "compatible",
        "base_url": base_url,
        "models": MODELS,
        "budget": {"repair_attempts": attempts, "side_by_side": 1, "tokens": 100_000_000},
    }
    document = {"version": 1, "traces": ["traces/tiny"], "kernels": dict(kernels), "llm": llm}
    text = yaml.safe_dump(document, sort_keys=False)
    return projects.committed(folder, {"cgins.yaml": text, "pytest.ini": "[pytest]\n", **files})


@dataclass(frozen=True)
class RunResult:
    """A run that has ended."""

    code: int
    """Exit code of pytest."""
    out: str
    """What it printed."""
    project: Path
    """Its folder."""
    journal: journals.Journal
    """Of the run."""

    def target(self, kernel: str) -> Target:
        """The one target of a kernel."""
        return next(one for one in self.journal.record.targets if one.kernel == kernel)

    def attempts(self, kernel: str) -> tuple[Attempt, ...]:
        """All attempts of a kernel, in order."""
        return self.journal.attempts(self.target(kernel))

    def request(self, kernel: str, attempt: int, role: str) -> Request | None:
        """What was asked then; None if nobody was."""
        place = self.journal.folder_of(self.target(kernel), attempt) / role / "request.json"
        return journals.load(Request, place) if place.exists() else None


def regenerate(project: Path, *options: str) -> RunResult:
    """Run pytest with the gate and regeneration, untimed, in a process of its own."""
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "COLUMNS": "200"}
    for name in ("CI", "PYTEST_XDIST_WORKER", "PYTEST_XDIST_WORKER_COUNT", "PYTEST_XDIST_TESTRUNUID"):
        environment.pop(name, None)
    words = ["--cgins", "--cgins-regenerate", "--cgins-pr=off", "--cgins-seed=7", *options]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "pytest_cgins.plugin", *words],
        cwd=project,
        env=environment,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    runs = journals.runs_in(project / ".cgins/runs")
    assert len(runs) == 1, done.stdout + done.stderr
    return RunResult(
        code=done.returncode,
        out=done.stdout + done.stderr,
        project=project,
        journal=journals.Journal.read_only(runs[0]),
    )


def said(messages: tuple[Message, ...]) -> str:
    """A prompt as one text."""
    return "\n".join(message.text for message in messages)


def prompts(server: LlmServer, model: str) -> list[str]:
    """Texts of all requests that a model got."""
    return [
        "\n".join(message["content"] for message in asked["messages"])
        for asked in server.asked
        if asked["model"] == model
    ]


def advice(number: int, kernel: str) -> Advice:
    """What the helper of the exam says when it is asked for the n-th time about a kernel."""
    return Advice(
        text=f"Advice {number} on {kernel}: look at line {10 + number}.",
        avoid=(f"way {number} of writing {kernel}",),
    )


def as_json(said: Advice) -> str:
    """In the form that the helper is asked for."""
    return json.dumps({"advice": said.text, "do_not_repeat": said.avoid})


def outside_fences(text: str) -> str:
    """A prompt without its fenced blocks: what in it speaks to the model."""
    kept, mark = [], ""
    for line in text.splitlines():
        fence = re.match(r"`{3,}", line)
        if mark:
            mark = "" if fence and line.rstrip() == fence[0] and len(fence[0]) >= len(mark) else mark
        elif fence:
            mark = fence[0]
        else:
            kept.append(line)
    return "\n".join(kept)
