"""Journals of runs that never were, written by the hand of a test."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pytest_cgins.core.session_report import Evaluation
from pytest_cgins.regenerate.attempt import Attempt, Guarded, Result, Target, Trial
from pytest_cgins.regenerate.conversation import Answer, Message, Request, Usage
from pytest_cgins.regenerate.journal.journal import RUN_VERSION, Found, Journal, RunRecord, now
from pytest_cgins.regenerate.provider import files

RUN = "20260102-030405-ab12"


def target(kernel: str = "gelu", **changes: Any) -> Target:
    known: dict[str, Any] = {
        "implementation": "cpp",
        "device": "cpu",
        "contract": "launcher",
        "goal": "repair",
    }
    return Target(**{"kernel": kernel, "op": f"torch.nn.functional.{kernel}"} | known | changes)


def journal(
    config: Path,
    *targets: Target,
    runs: Path | None = None,
    before: Sequence[Evaluation] = (),
    overlays: Mapping[str, Mapping[str, str]] | None = None,
    **record: Any,
) -> Journal:
    """A run that has just begun; its lock is free."""
    runs = runs or config.parent / ".cgins" / "runs"
    known: dict[str, Any] = {
        "version": RUN_VERSION,
        "id": RUN,
        "created_at": now(),
        "cgins": "1.2",
        "config": os.path.relpath(config, runs / RUN),
        "here": os.path.relpath(config.parent, runs / RUN),
        "targets": targets,
        "provider": "replay",
        "models": {"generator": ("a-model",), "helper": ("",), "verifier": ()},
        "command": "pytest --cgins --cgins-regenerate",
    }
    made = Journal.create(runs, RunRecord(**known | record))
    for one in targets:
        overlay = (overlays or {}).get(one.name)
        made.begin(one, Found(evaluations=tuple(before)), {}, Guarded(files={}), overlay)
    made.begun()
    made.close()
    return made


def ask(
    run: Journal, one: Target, number: int = 1, model: str = "a-model", role: Any = "generator"
) -> Request:
    """A prompt without an answer."""
    request = Request(
        id=f"{one.name}/attempt-{number:02d}/{role}",
        role=role,
        model=model,
        messages=(Message(role="user", text=f"Write {one.op}."),),
        max_tokens=100,
    )
    run.place(request)
    return request


def answer(run: Journal, request: Request, text: str = "Here it is.", usd: float | None = 0.25) -> None:
    usage = Usage(prompt_tokens=1000, cached_tokens=0, answer_tokens=200, usd=usd)
    found = Answer(text=text, finish="stop", model=request.model, usage=usage, seconds=2.0)
    files.write_json(run.folder / request.id / files.ANSWER, found)
    run.keep_answer(request, found)


def attempt(
    run: Journal,
    one: Target,
    number: int = 1,
    outcome: Any = "failed",
    *,
    sources: Mapping[str, str] | None = None,
    **changes: Any,
) -> Attempt:
    """An answered and tried attempt."""
    answer(run, ask(run, one, number))
    known: dict[str, Any] = {
        "number": number,
        "goal": one.goal,
        "outcome": outcome,
        "reason": "ok" if outcome == "accepted" else "reference-mismatch",
        "message": "2 elements are wrong",
        "seconds": 1.5,
    }
    made = Attempt(**known | changes)
    run.keep_attempt(one, made, sources or {})
    return made


def settle(run: Journal, one: Target, state: Any, sources: Mapping[str, str], why: str = "") -> Result:
    """A target that is done; an accepted one has an empty proposal."""
    result = Result(target=one, state=state, attempts=run.attempts(one), why=why)
    run.keep_result(result, sources)
    if state == "accepted":
        run.proposal(one).mkdir(parents=True, exist_ok=True)
    return result


def trial(*evaluations: Evaluation, **changes: Any) -> Trial:
    """What became of a candidate."""
    known: dict[str, Any] = {"stage": "check", "environments": (), "seed": 1, "seconds": 1.0}
    return Trial(evaluations=evaluations, sandbox=True, sanitized=False, **known | changes)
