"""The prompts of one target, from its traces, its hardware and what was tried."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, replace
from pathlib import Path
from typing import Any

from pytest_cgins.core.session_report import Evaluation
from pytest_cgins.regenerate.attempt import INCUMBENT, Advice, Ask, Attempt, Target
from pytest_cgins.regenerate.conversation import Message
from pytest_cgins.regenerate.methods.axis_budget import Gaps
from pytest_cgins.regenerate.methods.classes import MethodMemory
from pytest_cgins.regenerate.methods.definition import AXES, Axis
from pytest_cgins.regenerate.methods.select import Situation
from pytest_cgins.regenerate.profiling import rooflines
from pytest_cgins.regenerate.project_copy import ProjectCopy
from pytest_cgins.regenerate.prompts import assembly, blocks, findings, methods, schema_line
from pytest_cgins.regenerate.prompts.context import Context, gather
from pytest_cgins.regenerate.prompts.hardware import Hardware
from pytest_cgins.regenerate.search import verifiers
from pytest_cgins.regenerate.search.profile_figures import Evidence
from pytest_cgins.regenerate.search.tree import Tree

_MOST_ADVICE = 6000
_MOST_AVOIDED = 10
_MOST_LINE = 300
_TEXT_KEYS = ("advice", "text", "suggestion", "fix", "diagnosis", "analysis")
_AVOID_KEYS = ("do_not_repeat", "avoid", "dont_repeat", "do not repeat", "not_again")
_AVOID_HEADING = re.compile(
    r"^\W*(?:do\W?n[o']?t\s+(?:repeat|try(?:\s+again)?)|do\s+not\s+(?:repeat|try(?:\s+again)?)|avoid)\W*(?P<rest>.*)$",
    re.IGNORECASE,
)
_BULLET = re.compile(r"^\s*(?:[-*•+]|\d{1,3}[.)])\s+(?P<text>.*\S)")
_HEADING = re.compile(r"^\s*(?:#{1,6}\s+\S|\*\*[^*]+\*\*:?\s*$)")
_OFFERED = ("optimise", "regenerate")
"""Kinds of prompts that offer methods: mendings and ablations are about what is there."""
_LONGEST_ANSWER = 1 << 20
_MOST_OBJECTS = 50


def read_advice(answer_text: str) -> Advice:
    """Advice from an answer in whatever form: JSON, in a fence or in prose, or plain sections; never raises."""
    text = blocks.clean(answer_text[:_LONGEST_ANSWER])
    for answer in _objects(text):
        advice = _of_object(answer)
        if advice is not None:
            return advice
    return _of_sections(text)


def _objects(text: str) -> Iterator[dict[str, Any]]:
    """JSON objects in a text, wherever they begin."""
    decoder = json.JSONDecoder(strict=False)
    start = text.find("{")
    for _ in range(_MOST_OBJECTS):
        if start < 0:
            return
        try:
            value, end = decoder.raw_decode(text, start)
        except (ValueError, RecursionError):
            start = text.find("{", start + 1)
            continue
        if isinstance(value, dict):
            yield value
        start = text.find("{", end)


def _of_object(answer: dict[str, Any]) -> Advice | None:
    lowered = {str(key).lower(): value for key, value in answer.items()}
    text = next((lowered[key] for key in _TEXT_KEYS if lowered.get(key)), None)
    avoid = next((lowered[key] for key in _AVOID_KEYS if lowered.get(key)), ())
    if text is None and not avoid:
        return None
    advice = "\n".join(map(_plain, text)) if isinstance(text, list) else _plain(text or "")
    listed = [avoid] if isinstance(avoid, str) else list(avoid) if isinstance(avoid, (list, tuple)) else []
    return _bounded(advice, [_plain(way) for way in listed])


def _plain(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, sort_keys=True)


def _of_sections(text: str) -> Advice:
    """Bullets under a heading such as "Do not repeat" are what to avoid; all else is advice."""
    kept: list[str] = []
    avoid: list[str] = []
    inside = False
    for line in text.splitlines():
        heading = _AVOID_HEADING.match(line)
        # "Avoid bank conflicts by padding" is advice; a heading is short, or ends before its list.
        if heading and (not heading["rest"] or line.rstrip().endswith((":", "**", ":**"))):
            inside = True
            continue
        bullet = _BULLET.match(line)
        if inside and bullet:
            avoid.append(bullet["text"])
        elif inside and line.strip() and (_HEADING.match(line) or not line[:1].isspace()):
            inside = False
            kept.append(line)
        elif not inside:
            kept.append(line)
        elif line.strip() and avoid:
            avoid[-1] += f" {line.strip()}"
    return _bounded("\n".join(kept), avoid)


def _bounded(text: str, avoid: list[str]) -> Advice:
    lines = [blocks.one_line(line, _MOST_LINE) for line in avoid]
    return Advice(
        text=blocks.head(text.strip(), _MOST_ADVICE),
        avoid=tuple(line for line in dict.fromkeys(lines) if line)[:_MOST_AVOIDED],
    )


@dataclass(eq=False, repr=False)
class ContextPrompts:
    """Makes prompts; traces are read when the first one is asked for."""

    target: Target
    """What is regenerated."""
    copy: ProjectCopy
    """Where its sources are."""
    incumbent: Mapping[str, str]
    """Sources as they are in the project, by path, main file first."""
    hardware: Callable[[], Hardware]
    """What it runs on, asked when it is needed."""
    evaluations: tuple[Evaluation, ...]
    """What the gate had found."""
    _: KW_ONLY
    memory: Callable[[], MethodMemory] = MethodMemory
    """What is remembered of methods, asked again for each prompt."""
    runs: Path | None = None
    """Folder of the project's runs."""

    def __post_init__(self) -> None:
        self._gathered: Context | None = None

    def mended(
        self, ask: Ask, sources: Mapping[str, str], attempts: tuple[Attempt, ...], advices: tuple[Advice, ...]
    ) -> tuple[Message, ...]:
        """For the generator of a repair: with all attempts so far, and the last candidate's sources if there is one."""
        context = self._context(sources, attempts, advices)
        is_new = self.target.goal == "generate"
        offered = methods.first_ones(context, self.memory()) if is_new else ""
        return assembly.generator(context, methods=offered, variant=ask.variant)

    def advise(
        self, sources: Mapping[str, str], attempts: tuple[Attempt, ...], advices: tuple[Advice, ...]
    ) -> tuple[Message, ...]:
        """For the helper, after an attempt that failed."""
        return assembly.helper(self._context(sources, attempts, advices))

    def candidate(
        self, ask: Ask, tree: Tree, sources: Callable[[int], Mapping[str, str]], evidence: Evidence | None
    ) -> tuple[Message, ...]:
        """For the generator of a search.

        Args:
            ask: what the policy wants.
            tree: all candidates until then.
            sources: of any of them.
            evidence: what profilers found in the parent; None if the policy does not want it told.
        """
        context = self._context(sources(ask.parent), (), ())
        others = [tree[number] for number in ask.shown]
        shown = [
            assembly.Shown(attempt=other, sources=sources(other.number) if other.is_right else {})
            for other in others
        ]
        offered = self._offers(context, ask, tree, evidence) if ask.kind in _OFFERED else None
        return assembly.candidate(
            context,
            replace(ask, method=methods.named(ask.method)),
            tree[ask.parent],
            shown=shown,
            evidence=evidence.text() if evidence else "",
            methods=offered.text(turn_of(ask, tree)) if offered is not None else "",
            judged=findings.last_judged(tuple(tree)),
        )

    def complaints(
        self,
        ask: Ask,
        tree: Tree,
        sources: Callable[[int], Mapping[str, str]],
        evidence: Evidence | None,
        answer: str,
    ) -> tuple[str, ...]:
        """What is wrong with an answer's choice of methods, in words; the other arguments are those of its prompt."""
        if ask.kind not in _OFFERED:
            return ()
        offered = self._offers(self._context(sources(ask.parent), (), ()), ask, tree, evidence)
        return offered.complaints(answer) if offered is not None else ()

    def situation(self) -> Situation | None:
        """What methods are remembered for; None where none are offered."""
        return methods.situation(self._context(self.incumbent, (), ()))

    def _offers(
        self, context: Context, ask: Ask, tree: Tree, evidence: Evidence | None
    ) -> methods.Offers | None:
        gaps = evidence.gaps if evidence else Gaps()
        if evidence is None and ask.parent == INCUMBENT:
            gaps = _gaps_of_times(self.evaluations)
        return methods.offers(
            context,
            self.memory(),
            gaps=gaps,
            metrics=evidence.figures if evidence else {},
            applied=tree.applied(ask.parent),
        )

    def verifier(self, sources: Mapping[str, str]) -> tuple[Message, ...]:
        """For a verifier of a search, about a candidate that nobody has run."""
        return assembly.verifier(self._context(sources, (), ()), verifiers.QUESTIONS)

    def read_advice(self, text: str) -> Advice:
        """What the helper said."""
        return read_advice(text)

    def _context(
        self, sources: Mapping[str, str], attempts: tuple[Attempt, ...], advices: tuple[Advice, ...]
    ) -> Context:
        if self._gathered is None:
            entry, implementation = self.copy.entry()
            self._gathered = gather(
                self.target,
                self.copy.config,
                entry,
                implementation,
                sources=self.incumbent,
                hardware=self.hardware(),
                evaluations=self.evaluations,
                top=self.copy.top,
            )
            if self.target.goal == "generate":
                traces = [trace for _, trace in self._gathered.traces]
                schema = schema_line.derive(self.copy.config, entry, implementation, traces)
                self._gathered = replace(self._gathered, schema=schema, runs=self.runs)
        candidate = {} if sources == self.incumbent else dict(sources)
        return replace(self._gathered, candidate=candidate, attempts=attempts, advices=advices)


def _gaps_of_times(evaluations: Iterable[Evaluation]) -> Gaps:
    """Of the call that takes longest, by work over time; none where neither work nor peaks are known."""
    timed = [one.measurement for one in evaluations if one.measurement is not None]
    known = [
        (one.kernel.median_ns_per_call, one.roofline) for one in timed if one.roofline and one.roofline.flops
    ]
    if not known:
        return Gaps()
    _, roofline = max(known, key=lambda one: one[0])
    return rooflines.of_roofline(roofline).measured()


def turn_of(ask: Ask, tree: Tree) -> Axis | None:
    """Which axis it is the turn of: a search goes through them where no figures say where most is to win.

    Arithmetic and its structure, then traffic, then waiting; None after these, and for a single pass.

    Args:
        ask: what the policy wants.
        tree: all candidates until then.
    """
    if not ask.staged:
        return None
    start = ask.parent if tree[ask.parent].is_right else tree.source_of(ask.parent).number
    done = _done(tree, start, before=ask.round)
    return AXES[done] if done < len(AXES) else None


def _done(tree: Tree, number: int, *, before: int) -> int:
    """Axes that lie behind a kernel when a round begins from it."""
    tried = {
        tree.ask(one.number).round
        for one in tree
        if one.is_right
        and tree.ask(one.number).kind != "ablate"
        and tree.source_of(one.number).number == number
    }
    here = sum(1 for one in tried if one < before)
    if number == INCUMBENT:
        return here
    return here + 1 + _done(tree, tree.source_of(number).number, before=tree.ask(number).round)
