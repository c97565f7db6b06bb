"""The prompts of one target, from its traces, its hardware and what was tried."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from pytest_cgins.core.model import Evaluation
from pytest_cgins.regenerate.methods import registry
from pytest_cgins.regenerate.methods.axis_budget import Gaps
from pytest_cgins.regenerate.methods.classes import MethodMemory
from pytest_cgins.regenerate.methods.select import Situation
from pytest_cgins.regenerate.model import Advice, Ask, Attempt, Message, Target
from pytest_cgins.regenerate.project_copy import ProjectCopy
from pytest_cgins.regenerate.prompts import (
    advice,
    assembly,
    findings,
    methods,
    schema_line,
    stages,
)
from pytest_cgins.regenerate.prompts.context import Context, gather
from pytest_cgins.regenerate.prompts.hardware import Hardware
from pytest_cgins.regenerate.search import verifiers
from pytest_cgins.regenerate.search.evidence import Evidence
from pytest_cgins.regenerate.search.stage import stage_of
from pytest_cgins.regenerate.search.tree import Tree


class ContextPrompts:
    """Makes prompts; traces are read when the first one is asked for.

    Args:
        target: what is regenerated.
        copy: where its sources are.
        incumbent: sources as they are in the project, by path, main file first.
        hardware: what it runs on, asked when it is needed.
        evaluations: what the gate had found.
        memory: what is remembered of methods, asked again for each prompt.
    """

    def __init__(
        self,
        target: Target,
        copy: ProjectCopy,
        incumbent: Mapping[str, str],
        hardware: Callable[[], Hardware],
        evaluations: tuple[Evaluation, ...],
        *,
        memory: Callable[[], MethodMemory] = MethodMemory,
    ) -> None:
        self._target = target
        self._copy = copy
        self._incumbent = dict(incumbent)
        self._hardware = hardware
        self._evaluations = evaluations
        self._memory = memory
        self._gathered: Context | None = None

    def first(
        self, sources: Mapping[str, str], attempts: tuple[Attempt, ...], advices: tuple[Advice, ...]
    ) -> tuple[Message, ...]:
        """For the generator: see `target_loop.Prompts`."""
        return assembly.generator(self._context(sources, attempts, advices))

    def advise(
        self, sources: Mapping[str, str], attempts: tuple[Attempt, ...], advices: tuple[Advice, ...]
    ) -> tuple[Message, ...]:
        """For the helper: see `target_loop.Prompts`."""
        return assembly.helper(self._context(sources, attempts, advices))

    def candidate(
        self,
        ask: Ask,
        tree: Tree,
        sources: Callable[[int], Mapping[str, str]],
        evidence: Evidence | None,
    ) -> tuple[Message, ...]:
        """For the generator of a search: see `target_loop.Prompts`."""
        context = self._context(sources(ask.parent), (), ())
        others = [tree[number] for number in ask.shown]
        shown = [
            assembly.Shown(attempt=other, sources=sources(other.number) if other.is_right else {})
            for other in others
        ]
        offered = self._offers(context, ask, tree, evidence)
        return assembly.candidate(
            context,
            replace(ask, method=methods.named(registry.shipped(), ask.method)),
            tree[ask.parent],
            shown=shown,
            evidence=evidence.text() if evidence else "",
            methods=offered.text() if offered is not None else "",
            stage=stages.described(context, stage_of(ask, tree), evidence.gaps if evidence else None),
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
        """What is wrong with an answer's choice of methods: see `target_loop.Prompts`."""
        if ask.kind not in ("optimise", "regenerate"):
            return ()
        offered = self._offers(self._context(sources(ask.parent), (), ()), ask, tree, evidence)
        return offered.complaints(answer) if offered is not None else ()

    def situation(self) -> Situation | None:
        """What methods are remembered for: see `target_loop.Prompts`."""
        return methods.situation(self._context(self._incumbent, (), ()))

    def _offers(
        self, context: Context, ask: Ask, tree: Tree, evidence: Evidence | None
    ) -> methods.Offers | None:
        return methods.offers(
            context,
            registry.shipped(),
            self._memory(),
            gaps=evidence.gaps if evidence else Gaps(),
            metrics=evidence.figures if evidence else {},
            applied=tree.applied(ask.parent),
        )

    def verifier(self, sources: Mapping[str, str]) -> tuple[Message, ...]:
        """For a verifier of a search: see `target_loop.Prompts`."""
        return assembly.verifier(self._context(sources, (), ()), verifiers.QUESTIONS)

    def read_advice(self, text: str) -> Advice:
        """What the helper said."""
        return advice.read_advice(text)

    def _context(
        self, sources: Mapping[str, str], attempts: tuple[Attempt, ...], advices: tuple[Advice, ...]
    ) -> Context:
        if self._gathered is None:
            entry, implementation = self._copy.entry()
            self._gathered = gather(
                self._target,
                self._copy.config,
                entry,
                implementation,
                hardware=self._hardware(),
                evaluations=self._evaluations,
                top=self._copy.top,
            )
            if self._target.goal == "generate":
                traces = [trace for _, trace in self._gathered.traces]
                schema = schema_line.derive(self._copy.config, entry, implementation, traces)
                self._gathered = replace(self._gathered, schema=schema)
        candidate = {} if sources == self._incumbent else dict(sources)
        return replace(
            self._gathered, sources=self._incumbent, candidate=candidate, attempts=attempts, advices=advices
        )
