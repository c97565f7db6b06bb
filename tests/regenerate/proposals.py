"""Proposals made to measure, and projects that they are for."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from pytest_cgins.core.session_report import Environment, Evaluation, SessionReport
from pytest_cgins.core.verdict import Reason, Status
from pytest_cgins.regenerate import proposal
from pytest_cgins.regenerate.attempt import Attempt, Guarded, Target
from pytest_cgins.regenerate.conversation import Answer, Usage
from pytest_cgins.report import document
from tests.evaluations import make_evaluation
from tests.regenerate import journals, projects

GELU = "torch.nn.functional.gelu"
OLD = "int scale() {\n  return 1;\n}\n"
NEW = "int scale() {\n  return 2;\n}\n"
PATH = "kernels/scale.cpp"
YAML = """\
version: 1
traces: [traces/tiny]
kernels:
  scale:
    op: torch.nn.functional.gelu
    implementations:
      - {name: cpp, device: cpu, source: kernels/scale.cpp}
"""


def target(kernel: str = "scale", **changes: Any) -> Target:
    return journals.target(kernel, **{"op": GELU, "statuses": (Status.INCORRECT,)} | changes)


def accepted(*evaluations: Evaluation, seed: int = 77) -> SessionReport:
    """The report of an acceptance."""
    return document.session_report(
        evaluations,
        [Environment(device="cpu", device_name="a CPU", python="3.11", torch="2.13")],
        version="1",
        seed=seed,
        started_at=datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone.utc),
        seconds=1.5,
        exit_status=0,
    )


def attempt(number: int, outcome: str, message: str = "") -> Attempt:
    return Attempt(
        number=number,
        goal="repair",
        outcome=outcome,
        reason="reference-mismatch",
        message=message,  # type: ignore[arg-type]
    )


def answer(model: str = "a-model", usd: float | None = 0.25) -> Answer:
    usage = Usage(prompt_tokens=1000, cached_tokens=100, answer_tokens=200, usd=usd)
    return Answer(text="…", finish="stop", model=model, usage=usage, seconds=2.0)


def write(folder: Path, **changes: Any) -> proposal.Proposal:
    """A proposal of one changed file, unless told otherwise."""
    wrong = make_evaluation(
        Status.INCORRECT, reason=Reason.REFERENCE_MISMATCH, message="2 elements wrong", share=3.0
    )
    known: dict[str, Any] = {
        "run_id": "run-1",
        "target": target(),
        "goal": "repair",
        "config": "cgins.yaml",
        "base": {PATH: OLD},
        "new": {PATH: NEW},
        "before": [wrong],
        "after": accepted(make_evaluation()),
        "attempts": [attempt(1, "failed", "still wrong"), attempt(2, "accepted")],
        "answers": [answer(), answer()],
        "provider": "replay",
        "sandbox": True,
        "sanitized": False,
        "guarded": Guarded(files={"cgins.yaml": "0" * 64}),
        "base_commit": "",
    }
    return proposal.write(folder, **known | changes)


def forge(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Edit proposal.json as an attacker would."""
    file = folder / "proposal.json"
    data = json.loads(file.read_text())
    change(data)
    file.write_text(json.dumps(data))


def forge_patch(folder: Path, text: bytes) -> None:
    """Another patch, with its right digest."""
    (folder / "patch.diff").write_bytes(text)
    forge(folder, lambda data: data.update(patch_digest=hashlib.sha256(text).hexdigest()))


def forge_file(folder: Path, path: str, content: bytes) -> None:
    """Other or further new contents, with their right digest, as a new file."""
    place = folder / "files" / path
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(content)

    def change(data: dict[str, Any]) -> None:
        data["files"][path] = hashlib.sha256(content).hexdigest()
        data["base_digests"].setdefault(path, "")

    forge(folder, change)


def git(folder: Path, *words: str) -> str:
    return projects.git(folder, *words).strip()


def project(folder: Path, files: Mapping[str, str] | None = None) -> str:
    """A repository with a `cgins.yaml` and one kernel; gives back its commit."""
    projects.committed(folder, {"cgins.yaml": YAML, PATH: OLD, **(files or {})})
    return git(folder, "rev-parse", "HEAD")
