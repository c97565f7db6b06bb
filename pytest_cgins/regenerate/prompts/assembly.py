"""The prompts: who is asked, with which template, and what that is filled in with.

The same arguments give the same text, byte for byte.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from pytest_cgins.core.measurement import Measurement
from pytest_cgins.core.session_report import Evaluation
from pytest_cgins.regenerate.attempt import Ask, Attempt, Goal
from pytest_cgins.regenerate.conversation import Message
from pytest_cgins.regenerate.prompts import (
    blocks,
    contract,
    exemplars,
    findings,
    templating,
    traces,
    workload,
)
from pytest_cgins.regenerate.prompts.context import Context
from pytest_cgins.regenerate.prompts.hardware import Hardware

MOST_CHARACTERS = 84_000
"""Of a whole prompt: about 21,000 tokens."""
LEAST_USEFUL = (
    "exemplar", "other candidates", "methods", "project headers", "the source before all attempts",
    "figures of profilers", "what was tried",
)  # fmt: skip
"""Parts that a prompt which is longer does without, in this order, until it is short enough; it says which."""
LONG_CHARACTERS = 3_000
"""From here on a change is asked for as edits: about eighty lines."""
MOST_SHOWN_CHARACTERS = 12_000
"""Of the sources of other candidates, all together."""
_LEAST_SHOWN = 200
_MOST_TIMED_CASES = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """Another candidate that a prompt tells of."""

    attempt: Attempt
    """What became of it."""
    sources: Mapping[str, str]
    """Its sources; empty if they are not to be shown."""


def generator(
    context: Context, goal: Goal | None = None, *, methods: str = "", variant: str = ""
) -> tuple[Message, ...]:
    """Asks for a kernel: that is wrong, not there yet, or right and too slow.

    Args:
        context: what it is about.
        goal: if not the target's.
        methods: what makes it fast, as a list; "" for nothing.
        variant: what it has that others do not, which are asked for at the same time.
    """
    goal = goal or context.target.goal
    return _messages("system.md", "generator.md", context, goal=goal, methods=methods, variant=variant)


def helper(context: Context) -> tuple[Message, ...]:
    """Asks who reads a source that failed what to do next, and what not to try again."""
    return _messages("helper_system.md", "helper.md", context)


def verifier(context: Context, questions: Mapping[str, str]) -> tuple[Message, ...]:
    """Asks for an opinion on a candidate, whose sources are the `candidate` of `context`."""
    return _messages("verifier_system.md", "verifier.md", context, questions=questions)


def candidate(
    context: Context,
    ask: Ask,
    parent: Attempt,
    *,
    shown: Sequence[Shown],
    evidence: str,
    methods: str,
    judged: Attempt | None = None,
) -> tuple[Message, ...]:
    """Asks for a candidate of a search, made from another one.

    Args:
        context: with the parent's sources as its `candidate`.
        ask: what is asked for.
        parent: the candidate whose sources are changed.
        shown: others, the nearest first.
        evidence: what profilers found in the parent; "" for nothing.
        methods: those that are offered, as a section; "" for none.
        judged: the last candidate that the gate judged; None before the first.
    """
    return _messages(
        "system.md",
        "candidate.md",
        replace(context, attempts=(parent,) if parent.trials else ()),
        ask=ask,
        parent=parent,
        others=[other.attempt for other in shown],
        sources_of_others=[
            (f"Candidate {other.attempt.number}, {blocks.one_line(path, 80)}", text)
            for other in shown
            for path, text in other.sources.items()
        ],
        evidence=evidence,
        methods=methods,
        judged=judged,
    )


def _messages(system: str, user: str, context: Context, **values: object) -> tuple[Message, ...]:
    text = section(user, context, **values)
    left_out: tuple[str, ...] = ()
    for part in LEAST_USEFUL:
        if len(text) <= MOST_CHARACTERS:
            break
        shorter = section(user, context, left_out=(*left_out, part), **values)
        if len(shorter) < len(text):
            text, left_out = shorter, (*left_out, part)
    # A last guard, for what no part is to blame for. The answer's form comes last and must stay.
    text = blocks.without_middle(text, MOST_CHARACTERS)
    return Message(role="system", text=section(system, context)), Message(role="user", text=text)


def section(template: str, context: Context, **values: object) -> str:
    """A template, filled in with what is known of a kernel, without some of `LEAST_USEFUL`; `values` are besides that."""
    return templating.render(
        template,
        context=context,
        hardware=with_peaks(context),
        language=workload.language_of(context),
        fence_of=workload.fence_of,
        described_op=workload.described_op,
        recorded_calls=traces.recorded_calls,
        described_contract=contract.described_contract,
        checks=contract.checks,
        of_evaluations=findings.of_evaluations,
        of_attempt=findings.of_attempt,
        last_judged=findings.last_judged,
        changes=blocks.changes,
        exemplar=exemplars.exemplar,
        written=_written,
        fitted=_fitted,
        timed_tables=_timed_tables,
        long_characters=LONG_CHARACTERS,
        most_shown_characters=MOST_SHOWN_CHARACTERS,
        **{"left_out": (), **values},
    )


def with_peaks(context: Context) -> Hardware:
    """The device, with the peaks that measurements name where it has none."""
    it = context.hardware
    if it.peak_bytes_per_s:
        return it
    for evaluation in context.evaluations:
        roofline = evaluation.measurement.roofline if evaluation.measurement is not None else None
        if roofline is not None:
            rate = roofline.peak_flops_per_s
            rates = {evaluation.case.dtype: rate} if rate else {}
            return replace(
                it,
                peak_bytes_per_s=roofline.peak_bytes_per_s,
                peak_flops_per_s={**rates, **it.peak_flops_per_s},
            )
    return it


def _written(files: Mapping[str, str]) -> dict[str, str]:
    """Files that are there, without those that are to be written."""
    return {path: text for path, text in files.items() if text}


def _fitted(texts: Iterable[tuple[str, str]], characters: int) -> Iterator[tuple[str, str, str | None]]:
    """Names and texts, and of each what fits into so many characters together; None if there is no room."""
    for name, text in texts:
        kept = blocks.head(text, characters) if characters >= _LEAST_SHOWN else None
        characters -= len(kept or "")
        yield name, text, kept


def _timed_tables(context: Context) -> list[tuple[str, list[tuple[Evaluation, Measurement]], int]]:
    """Title, rows and how many are left out, of the source before all attempts and of the last one tried."""
    evaluations = {"The source before all attempts": context.evaluations}
    last = next((attempt for attempt in reversed(context.attempts) if attempt.trials), None)
    if last is not None:
        evaluations[f"Attempt {last.number}"] = last.trials[-1].evaluations
    tables = []
    for title, every in evaluations.items():
        timed = [(it, it.measurement) for it in every if it.measurement is not None]
        # The slowest against torch first: there is the most to gain.
        timed.sort(key=lambda row: (row[1].speedup_vs_torch, row[0].case.name))
        if timed:
            tables.append((title, timed[:_MOST_TIMED_CASES], len(timed) - _MOST_TIMED_CASES))
    return tables
