"""GitHub's own parsers of workflows, actions and expressions, and its example events: npm's packages, run by node.

They are installed once into a cache folder outside of the repository, in the versions of `node/package-lock.json`.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import platformdirs
from filelock import FileLock

NODE = Path(__file__).parent / "node"
INSTALL = ("npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error")
LIMIT_S = 180


class Unavailable(Exception):
    """The packages are not here and cannot be had; the text says why."""


@cache
def folder() -> Path:
    """Where `node_modules` with GitHub's parsers is.

    Raises:
        Unavailable: node or npm is missing, or npm cannot install.
    """
    return installed(NODE)


def installed(packages: Path) -> Path:
    """A folder outside of the repository with `node_modules`, installed by the first who asks for it.

    Args:
        packages: folder with `package.json` and `package-lock.json`.

    Raises:
        Unavailable: node or npm is missing, or npm cannot install.
    """
    for tool in ("node", "npm"):
        if shutil.which(tool) is None:
            raise Unavailable(
                f"no {tool} on PATH: the packages that tests/{packages.parent.name} needs are npm's"
            )
    lock = (packages / "package-lock.json").read_bytes()
    place = platformdirs.user_cache_path("pytest-cgins-tests") / hashlib.sha256(lock).hexdigest()[:16]
    place.mkdir(parents=True, exist_ok=True)
    with FileLock(place / "lock"):
        if not (place / "installed").exists():
            for name in ("package.json", "package-lock.json"):
                shutil.copy(packages / name, place / name)
            try:
                done = subprocess.run(
                    INSTALL, cwd=place, capture_output=True, text=True, timeout=LIMIT_S, check=False
                )
            except subprocess.TimeoutExpired:
                raise Unavailable(f"npm ci took longer than {LIMIT_S} s") from None
            if done.returncode:
                raise Unavailable(f"npm ci failed: {' '.join(done.stderr.split())[:300]}")
            (place / "installed").touch()
    return place


@dataclass
class Parsers:
    """A process with the parsers."""

    process: subprocess.Popen[str]

    def parse(self, kind: str, name: str, content: str) -> dict[str, Any]:
        """The tree of a `workflow` or an `action`; texts with expressions are `{"expr": …}`.

        Raises:
            AssertionError: GitHub's parser has errors.
        """
        answer = self._ask({"kind": kind, "name": name, "content": content})
        assert not answer["errors"], f"{name}: {answer['errors']}"
        tree: dict[str, Any] = answer["tree"]
        return tree

    def evaluate(self, value: Any, state: State) -> tuple[str, bool]:
        """A value of a tree as text, and whether it counts as true."""
        if not (isinstance(value, dict) and value.keys() == {"expr"}):
            text = str(value).lower() if isinstance(value, bool) else str(value)
            return text, bool(value)
        request = {
            "expression": value["expr"],
            "contexts": state.contexts,
            "failed": state.failed,
            "cancelled": state.cancelled,
        }
        answer = self._ask(request)
        assert "errors" not in answer, f"{value['expr']}: {answer}"
        return answer["text"], answer["truth"]

    def text(self, value: Any, state: State) -> str:
        """A value as text."""
        return self.evaluate(value, state)[0]

    def holds(self, part: Mapping[str, Any], state: State) -> bool:
        """Whether the `if` of a job or a step holds."""
        return self.evaluate(part["if"], state)[1]

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        assert line, "GitHub's parsers have ended"
        answer: dict[str, Any] = json.loads(line)
        return answer


@dataclass
class State:
    """What expressions see."""

    contexts: dict[str, Any]
    """github, inputs, steps, runner, …; `null` for a name that a context lacks, as on GitHub."""
    failed: bool = False
    """Whether a step, or a job that is needed, has failed."""
    cancelled: bool = False
    """Whether the run was cancelled."""
    steps: dict[str, Any] = field(init=False)
    """Outputs and outcomes by step id."""

    def __post_init__(self) -> None:
        self.steps = self.contexts.setdefault("steps", {})


@contextmanager
def serve() -> Iterator[Parsers]:
    """Start the parsers.

    Raises:
        Unavailable: they cannot be had.
    """
    place = folder()
    process = subprocess.Popen(
        ["node", "--no-warnings", str(NODE / "parsers.mjs"), str(place)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "NODE_OPTIONS": ""},
    )
    try:
        yield Parsers(process)
    finally:
        process.stdin.close()  # type: ignore[union-attr]
        process.wait(30)


def examples(name: str) -> list[dict[str, Any]]:
    """Payloads of an event that GitHub has sent, from octokit's collection."""
    collection = folder() / "node_modules/@octokit/webhooks-examples/api.github.com/index.json"
    found = json.loads(collection.read_bytes())
    payloads: list[dict[str, Any]] = next(one["examples"] for one in found if one["name"] == name)
    return payloads
