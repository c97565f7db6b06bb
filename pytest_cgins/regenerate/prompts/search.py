"""Prompts of a search: a candidate that is to be made from another one, and a verifier's opinion of one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pytest_cgins.regenerate.model import INCUMBENT, Ask, Attempt, Message
from pytest_cgins.regenerate.prompts import assembly, blocks, failures, figures, files, optimise
from pytest_cgins.regenerate.prompts.context import Context

MOST_SHOWN_CHARACTERS = 12_000
"""Of the sources of other candidates, all together."""
_MOST_LINE = 240
_MOST_METHOD = 600

_TASKS = {
    "fix": (
        "The kernel below was made to be faster than the kernel before all attempts, and is wrong. What is wrong comes "
        "last. Mend that and keep what was meant to make it fast, unless that is the very cause."
    ),
    "regenerate": (
        "The kernel below is right. Several ways to make it faster came out wrong and could not be mended; they are listed. "
        "Take another way from the source below, simpler if need be. It must be right, and faster than that source."
    ),
    "ablate": (
        "This is an experiment on what makes the kernel below fast. Take this one method out of it: {method}. Put the plain "
        "form in its place, keep everything else as it is, and keep it right. It may become slower; that is what is measured."
    ),
}
_VERIFIER = (
    "You review kernels that replace ops of PyTorch, before they are compiled and run. A kernel follows with all that "
    "its author knew. For each line below say how likely it is, in per cent, and nothing else."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """Another candidate that a prompt tells of."""

    attempt: Attempt
    """What became of it."""
    sources: Mapping[str, str]
    """Its sources; empty if they are not to be shown."""


def candidate(
    context: Context,
    ask: Ask,
    parent: Attempt,
    *,
    shown: Sequence[Shown],
    evidence: str,
    methods: str,
    stage: str = "",
) -> tuple[Message, ...]:
    """The prompt for the generator; the same arguments give the same text.

    Args:
        context: with the parent's sources as its `candidate`.
        ask: what is asked for.
        parent: the candidate whose sources are changed.
        shown: others, the nearest first.
        evidence: what profilers found in the parent; "" for nothing.
        methods: those that are offered, as a section; "" for none.
        stage: what is in focus, as a section; "" for a prompt that has no stage.
    """
    task = _TASKS.get(ask.kind, optimise.TASK).format(method=blocks.one_line(ask.method, _MOST_METHOD))
    if ask.variant:
        task += f" Several are written at once with the same methods; yours has {ask.variant}."
    sections = [
        assembly.advice(context) if ask.kind != "ablate" else "",
        files.incumbent(context),
        files.own(context),
        _others(context, shown),
        figures.described(replace(context, attempts=(parent,) if parent.trials else ())),
        blocks.section("What profilers found", [blocks.data("Figures", evidence)] if evidence else []),
        stage,
        methods if ask.kind in ("optimise", "regenerate") else "",
        _wrong(context, parent),
    ]
    return assembly.messages(context, task, sections)


def verifier(context: Context, questions: Mapping[str, str]) -> tuple[Message, ...]:
    """The prompt for a verifier; `context` has the candidate's sources as its `candidate`."""
    lines = "\n".join(f"{name}: …%  ({what})" for name, what in questions.items())
    form = blocks.section("Answer", [f"These lines, with numbers:\n{blocks.fenced(lines)}"])
    user = blocks.join([f"# Task\n{_VERIFIER}", *assembly.known(context), files.own(context), form])
    return (
        Message(role="system", text=f"{_VERIFIER}\n{blocks.DATA_RULE}"),
        Message(role="user", text=assembly.bounded(user)),
    )


def _wrong(context: Context, parent: Attempt) -> str:
    if parent.number == INCUMBENT or parent.is_right:
        return ""
    told = failures.of_attempt(parent, tuple(context.sources), context.top)
    return blocks.section("What is wrong now", [told])


def _others(context: Context, shown: Sequence[Shown]) -> str:
    if not shown:
        return ""
    lines = [_line(one.attempt) for one in shown]
    listed = blocks.data("Other candidates", blocks.without_paths("\n".join(lines), context.top))
    room, texts = MOST_SHOWN_CHARACTERS, []
    for one in shown:
        for path, text in one.sources.items():
            if room > 200:
                kept = blocks.head(text, room)
                room -= len(kept)
                texts.append(
                    blocks.data(f"Candidate {one.attempt.number}, {blocks.one_line(path, 80)}", kept)
                )
    return blocks.section("What else was tried", [listed, *texts])


def _line(one: Attempt) -> str:
    methods = f" with {', '.join(one.methods)}" if one.methods else ""
    methods += (
        f" (its choice: {blocks.one_line('; '.join(one.complaints), _MOST_LINE)})" if one.complaints else ""
    )
    if one.time_ratio is not None:
        return f"{one.number}{methods}: right, {one.time_ratio:.3g} times the incumbent's time"
    return f"{one.number}{methods}: {one.outcome} ({one.reason}): {blocks.one_line(one.message, _MOST_LINE)}"
