"""A model's opinion of tasks: is a part of what an op computes without effect, or computed in a roundabout way?

A kernel that leaves such a part out is right and fast, and has shown nothing: robust-kbench has a model look for tasks like
that ("Towards Robust Agentic CUDA Kernel Benchmarking", Lange et al., 2025). `cgins traces audit` measures what a case can
tell; this reads the source. Its word gates nothing.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pytest_cgins.building.contracts import torch_schema
from pytest_cgins.config.llm import LlmSettings
from pytest_cgins.core import documents
from pytest_cgins.core.document_base import Document
from pytest_cgins.core.text import counted
from pytest_cgins.core.trace import Trace
from pytest_cgins.regenerate.budget import Inquiry, Ledger
from pytest_cgins.regenerate.conversation import Answer, Message, Request
from pytest_cgins.regenerate.prompts import blocks, calls, workload
from pytest_cgins.regenerate.prompts.templating import render
from pytest_cgins.regenerate.provider import files
from pytest_cgins.regenerate.provider.base import Provider

WAIT_S = 1.0
MOST_CALLS = 8
"""Forms of calls that a prompt lists."""
_LINE = re.compile(r"^\W*(redundant|inefficient)\W*:\W*(yes|no)\b", re.IGNORECASE | re.MULTILINE)
_WHY = re.compile(r"^\W*why\W*:\s*(.+)$", re.IGNORECASE | re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One op of a pack."""

    pack: str
    """Name of the pack."""
    op: str
    """Qualified name."""
    traces: tuple[Trace, ...]
    """Its calls."""
    root: Path
    """Where the project's functions are looked for."""

    @property
    def id(self) -> str:
        """Of its request, and of recorded answers."""
        return f"judge/{self.pack}/{re.sub(r'[^A-Za-z0-9]+', '_', self.op).strip('_')}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Opinion(Document):
    """What a model says of one task."""

    pack: str
    """Name of the pack."""
    op: str
    """Qualified name."""
    redundant: bool | None
    """Whether a part of it cannot matter; None if the answer does not say."""
    inefficient: bool | None
    """Whether its definition does avoidable work; None if the answer does not say."""
    why: str
    """In a sentence; "" if the answer has none."""
    model: str
    """Who says so."""


def request(task: Task, settings: LlmSettings) -> Request:
    """What is asked of a task; the same for the same task and model."""
    models = settings.models
    forward = task.op.partition("@")[0]
    is_torch = forward.startswith("torch.")
    sentence = workload.SENTENCES.get(workload.word(forward)) if is_torch else None
    source = None if is_torch else workload.find(task.root, forward)
    user = render(
        "judge.md",
        op=task.op,
        sentence=sentence,
        documentation=torch_schema.documentation(forward).strip() if is_torch and not sentence else None,
        source=source[1] if source is not None else None,
        calls=_listed(task.traces),
    )
    return Request(
        id=task.id,
        role="verifier",
        model=(models.verifier or models.generator)[0],
        messages=(Message(role="system", text=render("judge_system.md")), Message(role="user", text=user)),
        max_tokens=settings.max_answer_tokens,
        temperature=settings.temperature.verifier,
    )


def read(task: Task, answer: Answer) -> Opinion:
    """The opinion in an answer; what it leaves out is None."""
    said = {match[1].lower(): match[2].lower() == "yes" for match in _LINE.finditer(answer.text)}
    why = _WHY.search(answer.text)
    return Opinion(
        pack=task.pack,
        op=task.op,
        redundant=said.get("redundant"),
        inefficient=said.get("inefficient"),
        why=blocks.one_line(why[1], 400) if why else "",
        model=answer.model,
    )


def judged(
    tasks: Sequence[Task],
    settings: LlmSettings,
    provider: Provider,
    folder: Path,
    *,
    say: Callable[[str], object] = lambda _: None,
) -> list[Opinion | None]:
    """Ask about all tasks at once; None for one whose answer comes by hand, and is not there yet.

    Answers stay in `folder`: what was asked once is not asked again, as long as the prompt and the model are the same.

    Args:
        tasks: what is judged.
        settings: who is asked, and what it may take.
        provider: made from these.
        folder: made if need be.
        say: takes a line for each answer.

    Raises:
        BudgetError: the budget is used up.
        ProviderError: there will be no answer.
    """
    ledger = Ledger(settings.budget, settings.prices)
    asked = {task.id: _inquiry(request(task, settings), folder, ledger) for task in tasks}
    opinions: dict[str, Opinion] = {}
    while True:
        for task in tasks:
            if task.id not in opinions and (answer := asked[task.id].ask(provider)) is not None:
                opinions[task.id] = read(task, answer)
                say(f"{task.pack}: {task.op} ({len(opinions)} of {len(tasks)})")
        if len(opinions) == len(tasks) or not provider.wait(WAIT_S):
            return [opinions.get(task.id) for task in tasks]


def _inquiry(asked: Request, folder: Path, ledger: Ledger) -> Inquiry:
    digest = hashlib.sha256(documents.dump(asked).encode()).hexdigest()[:12]
    path = folder / f"{asked.id.removeprefix('judge/')}-{digest}"

    def keep(request: Request) -> None:
        path.mkdir(parents=True, exist_ok=True)
        files.write_json(path / files.REQUEST, request)

    return Inquiry(asked, path, ledger, keep, counts_earlier=False)


def _listed(traces: Sequence[Trace]) -> list[str]:
    lines = [
        ", ".join(f"{one.name}={calls.plain(one.value, trace.tensors)}" for one in calls.arguments(trace))
        + f" → {calls.outputs(trace)}; {counted(trace.count, 'call')}"
        for trace in traces[:MOST_CALLS]
    ]
    more = len(traces) - MOST_CALLS
    return [
        *(blocks.one_line(line, 600) for line in lines),
        *([f"and {counted(more, 'more form')}"] if more > 0 else []),
    ]
