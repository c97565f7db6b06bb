"""One target, from its first prompt to an accepted candidate or the end of its attempts.

A policy says what is asked for. A repair asks for a few candidates at once and then for one after another, with a
helper's advice between them, and accepts the first that is right. A search has those that are right timed beside the
best one until then, and measures the fastest again at the end.

`TargetLoop.steps` is a generator that yields what it wants to be answered, so that many kernels wait for answers at once
while each candidate has the machine for itself. It keeps nothing that is not in the journal: a run that was killed
builds the same tree of candidates, batch by batch, and so its policy asks for the same again; what was answered and
tried is found there.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from functools import partial

from pytest_cgins.config.llm import LlmSettings
from pytest_cgins.config.provider_presets import SERVERS
from pytest_cgins.core.errors import BudgetError
from pytest_cgins.core.text import counted
from pytest_cgins.regenerate.attempt import INCUMBENT, Advice, Ask, Attempt, Result, Target
from pytest_cgins.regenerate.conversation import Answer, Message, Request, Role
from pytest_cgins.regenerate.executor.gates import Gate
from pytest_cgins.regenerate.journal.journal import Journal
from pytest_cgins.regenerate.judgement import Candidate, Check, GuardedFiles, Judge, Screen
from pytest_cgins.regenerate.methods.classes import Tried
from pytest_cgins.regenerate.methods.sass_signature import Shown
from pytest_cgins.regenerate.progress import Event, Stage
from pytest_cgins.regenerate.prompts import methods
from pytest_cgins.regenerate.prompts.target_prompts import ContextPrompts
from pytest_cgins.regenerate.search import lessons, summary, verifiers
from pytest_cgins.regenerate.search.policy import Policy
from pytest_cgins.regenerate.search.profile_figures import Evidence
from pytest_cgins.regenerate.search.tree import ROOT, Tree

MOST_ACCEPTANCES = 3
"""So many champions, the best first, are measured again before a search ends with nothing."""

Requests = tuple[Request, ...]


class Ahead(tuple[Request, ...]):
    """Requests that are sent now and whose answers are taken later, when they are asked for once more."""

    __slots__ = ()


Answers = tuple[Answer, ...]
Steps = Generator[Requests, Answers, Result]
"""Yields requests, all of which can be asked at once, is sent their answers in the same order, and returns what became of
the target. `Ahead`, or none at all: it would go on, and lets other targets go on first."""


@dataclass(eq=False, repr=False)
class TargetLoop:
    """The candidates of one target."""

    target: Target
    """What is regenerated."""
    journal: Journal
    """Where everything is kept."""
    gate: Gate
    """Tries candidates."""
    prompts: ContextPrompts
    """Makes prompts."""
    policy: Policy
    """Says what is asked for."""
    _: KW_ONLY
    settings: LlmSettings
    """Who is asked, and how much it may take."""
    incumbent: Mapping[str, str]
    """Sources as they are in the project, by path, main file first."""
    check: Check
    """The static check of sources."""
    goalposts: GuardedFiles
    """What no candidate may move."""
    on_event: Callable[[Event], object]
    """Told at each stage."""
    remember: Callable[[tuple[Tried, ...]], object] = lambda _: None
    """Takes what was learned of methods, again and again."""

    def __post_init__(self) -> None:
        self._screen = Screen(self.target.goal, self.incumbent, self.check)
        self._judge = Judge(self.target, self.gate, self.goalposts, self._tell)
        self._tree = Tree()
        self._advices: list[Advice] = []
        self._best: Attempt = ROOT
        budget = self.settings.budget
        self._attempts = budget.candidates if self.policy.searches else budget.repair_attempts
        self.awaited = 1
        """How many answers it waits for, while it does."""

    @property
    def done(self) -> bool:
        """Whether it is known what became of it."""
        return self.journal.result(self.target) is not None

    def steps(self) -> Steps:
        """Batch after batch, until the policy or the budget ends it."""
        known = self.journal.result(self.target)
        if known is not None:
            return known
        self.journal.go_on(self.target)
        why = ""
        try:
            asks = self.policy.next(self._tree)
            while asks:
                if why := self._near_peak(asks):
                    break
                yield from self._advise(asks[0].parent)
                later = self._later(asks)
                yield from self._batch(asks, later)
                asks = later or self.policy.next(self._tree)
                self._learn()
                if any(attempt.outcome == "tampered" for attempt in self._tree):
                    break
        except BudgetError as error:
            # A repair that has nothing right has nothing to end with: it is stopped, and can go on with more.
            if not self.policy.searches or not len(self._tree):
                raise
            why = error.what
        return self._ended(why or self.policy.ended(self._tree))

    def ended_early(self, state: str, why: str, remedy: str = "") -> Result:
        """What is known of a target that is not done: it waits, or was stopped; words may have several lines."""
        result = Result(
            target=self.target,
            state="waiting" if state == "waiting" else "stopped",
            attempts=tuple(self._tree),
            why=" ".join(why.split("\n")),
            remedy=" ".join(remedy.split("\n")),
        )
        return self._kept(result, {}, result.why)

    # ---- one batch

    def _later(self, asks: Sequence[Ask]) -> tuple[Ask, ...]:
        """What is asked for while these are tried; the same in a resumed run, since it hangs on the tree before them."""
        # Where answers come by hand, whoever gives them should see what became of the last ones.
        if not self.policy.looks_ahead or self.journal.record.provider not in SERVERS:
            return ()
        return self.policy.next(functools.reduce(Tree.with_asked, asks, self._tree))

    def _batch(self, asks: Sequence[Ask], later: Sequence[Ask]) -> Generator[Requests, Answers, None]:
        """Candidates, from their questions to what became of them; `later` is asked for before they are tried."""
        first = len(self._tree) + 1
        asked = dict(enumerate(asks, first))
        known = {number: self.journal.attempt(self.target, number) for number in asked}
        missing = {number: asked[number] for number, attempt in known.items() if attempt is None}
        if missing:
            self.awaited = len(missing)
            self._tell(first, "asking", asks[0].kind if self.policy.searches else "")
            answers = yield tuple(self._generator_request(number, ask) for number, ask in missing.items())
            candidates = {
                number: self._read(number, missing[number], answer)
                for number, answer in zip(missing, answers, strict=True)
            }
            order = yield from self._ranked(candidates, tries=self.policy.tries(len(asks)))
            ahead = Ahead(
                self._generator_request(number, ask) for number, ask in enumerate(later, max(asked) + 1)
            )
            if self.policy.searches or len(order) > 1:
                self._begin(known.values(), [candidates[number] for number in order])
                yield ahead  # while these are built and checked, other targets begin with theirs
            for number in order:
                known[number] = self._tried(self._needed(candidates[number], known.values()))
        done = [attempt for _, attempt in sorted(known.items()) if attempt is not None]
        for attempt in done:
            self._screen.remember(attempt)
            if attempt.beats_champion:
                self._best = attempt
        self._tree = Tree((*self._tree, *done))

    def _needed(self, candidate: Candidate, known: Iterable[Attempt | None]) -> Candidate:
        """The same; of a repair not to be tried, where another of its batch was accepted."""
        accepted = next((one for one in known if one is not None and one.outcome == "accepted"), None)
        if self.policy.searches or accepted is None or not candidate.is_triable:
            return candidate
        text = f"attempt {accepted.number} was accepted before it"
        attempt = replace(candidate.attempt, outcome="not-tried", reason="not-needed", message=text)
        return replace(candidate, attempt=attempt, is_triable=False)

    def _begin(self, known: Iterable[Attempt | None], candidates: Sequence[Candidate]) -> None:
        """Have all candidates of a batch built and checked from now on, side by side; they are timed in this order.

        Args:
            known: of the batch, what an earlier part of the run tried before these.
            candidates: what is to be tried, and what is not.
        """
        earlier = [attempt for attempt in known if attempt is not None and attempt.beats_champion]
        # In the order in which they were tried: by the verifiers' ranks, then by numbers.
        self._best = max(
            earlier, key=lambda attempt: (-(attempt.rank or 0.0), attempt.number), default=self._best
        )
        triable = [candidate.sources for candidate in candidates if candidate.is_triable]
        if triable:
            self.gate.begin(triable, self._champion())

    def _champion(self) -> dict[str, str] | None:
        """Sources of the best one until now; None for the incumbent."""
        return None if self._best.number == INCUMBENT else self._sources(self._best.number)

    def _read(self, number: int, ask: Ask, answer: Answer) -> Candidate:
        candidate = self._screen.read(number, ask, answer, self._sources(ask.parent))
        if candidate.is_triable:
            self._screen.remember(candidate.attempt)
        if not self.policy.searches:
            return candidate
        complaints = self.prompts.complaints(
            ask, self._tree, self._sources, self._shown_evidence(ask), answer.text
        )
        complaints = (*candidate.attempt.complaints, *complaints)
        attempt = replace(candidate.attempt, methods=methods.chosen(answer.text), complaints=complaints)
        return replace(candidate, attempt=attempt)

    def _ranked(
        self, candidates: dict[int, Candidate], *, tries: int
    ) -> Generator[Requests, Answers, tuple[int, ...]]:
        """The order in which candidates are tried; those beyond the number of tries are not."""
        models = self.settings.models.verifier
        if not self.policy.ranks or not any(models):
            return tuple(candidates)
        triable = [number for number, candidate in candidates.items() if candidate.is_triable]
        asked = {
            (number, index): self._request(
                f"attempt-{number:02d}/verifier-{index}",
                "verifier",
                model,
                partial(self.prompts.verifier, candidates[number].sources),
            )
            for number in triable
            for index, model in enumerate(models, 1)
        }
        answers = (yield tuple(asked.values())) if asked else ()
        said: dict[int, list[str]] = {number: [] for number in triable}
        for (number, _), answer in zip(asked, answers, strict=True):
            said[number].append(answer.text)
        ranks = {number: verifiers.rank(texts) for number, texts in said.items()}
        order = sorted(triable, key=lambda number: (-ranks[number], number))
        for turn, number in enumerate(order):
            attempt = replace(candidates[number].attempt, rank=ranks[number])
            if turn >= tries:
                text = "verifiers put others before it"
                attempt = replace(attempt, outcome="not-tried", reason="ranked-below", message=text)
            candidates[number] = replace(candidates[number], attempt=attempt, is_triable=turn < tries)
        return (*order, *(number for number in candidates if number not in order))

    # ---- one candidate

    def _tried(self, candidate: Candidate) -> Attempt:
        """What became of a candidate, written down."""
        started = time.monotonic()
        attempt = self._judged(candidate)
        attempt = replace(attempt, seconds=time.monotonic() - started)
        self.journal.keep_attempt(self.target, attempt, candidate.sources)
        if attempt.beats_champion:
            self._best = attempt
        return attempt

    def _judged(self, candidate: Candidate) -> Attempt:
        if not candidate.is_triable:
            return candidate.attempt
        attempt, is_right = self._judge.check(candidate.attempt, candidate.sources)
        if not is_right:
            return attempt
        if self.policy.searches:
            return self._judge.time(attempt, candidate.sources, self._best, self._champion())
        return self._judge.accept(attempt, candidate.sources, alpha_share=1 / self._attempts)

    # ---- what is asked

    def _generator_request(self, number: int, ask: Ask) -> Request:
        def messages() -> tuple[Message, ...]:
            if self.policy.searches:
                return self.prompts.candidate(ask, self._tree, self._sources, self._shown_evidence(ask))
            shown, attempts = self._sources(ask.parent), self._tree.with_last(ask.parent)
            return self.prompts.mended(ask, shown, attempts, tuple(self._advices))

        name = f"attempt-{number:02d}/generator"
        return self._request(name, "generator", ask.model, messages, temperature=ask.temperature)

    def _advise(self, number: int) -> Generator[Requests, Answers, None]:
        """A helper's advice on an attempt of a repair that failed and is to be mended."""
        helpers = self.settings.models.helper
        if self.policy.searches or number == INCUMBENT or not any(helpers):
            return
        # What was wrong with the form of an answer needs nobody's thought.
        if self._tree[number].outcome in ("unusable", "refused"):
            return
        advice = self.journal.advice(self.target, number)
        if advice is None:
            self._tell(number, "asking the helper", self._tree[number].reason)
            request = self._request(
                f"attempt-{number:02d}/helper",
                "helper",
                helpers[(number - 1) % len(helpers)],
                lambda: self.prompts.advise(
                    self._sources(number), self._tree.with_last(number), tuple(self._advices)
                ),
                temperature=self.settings.temperature.helper,
            )
            (answer,) = yield (request,)
            advice = self.prompts.read_advice(answer.text if answer.finish in ("stop", "length") else "")
            self.journal.keep_advice(self.target, number, advice)
        self._advices.append(replace(advice, attempt=number))

    def _request(
        self,
        name: str,
        role: Role,
        model: str,
        messages: Callable[[], tuple[Message, ...]],
        *,
        temperature: float | None = None,
    ) -> Request:
        """The request as it was first made, or a new one."""
        request_id = f"{self.target.name}/{name}"
        known = self.journal.read(Request, self.journal.folder / request_id / "request.json")
        return known or Request(
            id=request_id,
            role=role,
            model=model,
            messages=messages(),
            max_tokens=self.settings.max_answer_tokens,
            temperature=temperature,
        )

    # ---- what profilers and machine code say

    def _shown_evidence(self, ask: Ask) -> Evidence | None:
        return self._evidence(ask.parent) if ask.shows_evidence else None

    def _evidence(self, number: int) -> Evidence | None:
        """What profilers find in a candidate, asked once; None if it is not right."""
        if not self._tree[number].is_right:
            return None
        known = self.journal.evidence(self.target, number)
        if known is None:
            self._tell(number, "profiling")
            trials = [trial.evaluations for trial in self._tree[number].trials if trial.stage == "times"]
            timed = trials[-1] if trials else self.journal.before(self.target) if number == INCUMBENT else ()
            known = self.gate.evidence(self._sources(number), timed)
            self.journal.keep_evidence(self.target, number, known)
        return known

    def _near_peak(self, asks: Sequence[Ask]) -> str:
        """Why the best candidate leaves little to win, if it is profiled for what is asked now; "" else."""
        champion = self._tree.champion.number
        if not any(ask.shows_evidence and ask.parent == champion for ask in asks):
            return ""
        known = self._evidence(champion)
        return known.near_peak if known is not None else ""

    def _learn(self) -> None:
        """What the candidates until now teach about methods."""
        if not any(attempt.methods for attempt in self._tree):
            return
        situation = self.prompts.situation()
        if situation is None:
            return
        tree = self._tree
        marks = {
            attempt.number: self._marks(attempt.number)
            for attempt in tree
            if attempt.is_right and tree.added(attempt.number) and tree.ask(attempt.number).kind != "ablate"
        }
        learned = lessons.lessons(tree, marks, situation, run=self.journal.record.id)
        if learned != self.journal.tried(self.target):
            self.journal.keep_tried(self.target, learned)
            self.remember(learned)

    def _marks(self, number: int) -> dict[str, Shown]:
        """What machine code says of a candidate's methods, looked at once."""
        known = self.journal.sass_signatures(self.target, number)
        if known is None:
            known = self.gate.sass_signatures(self._sources(number))
            if known is None:
                return {}
            self.journal.keep_sass_signatures(self.target, number, known)
        return {signature.method: signature.state for signature in known.signatures}

    # ---- the end

    def _ended(self, why: str) -> Result:
        """What became of the target; `why` nothing more is asked for."""
        last = self._accept_a_champion() if self.policy.searches else self._decisive()
        sources = self._sources(last.number) if last is not None else {}
        attempts = tuple(self._tree)
        if last is not None and last.outcome == "accepted":
            result = Result(target=self.target, state="accepted", attempts=attempts)
        else:
            if last is not None and last.outcome == "tampered":
                why = last.message
            elif self.policy.searches:
                why = f"nothing faster in {counted(len(attempts), 'candidate')}: {why}"
            result = Result(target=self.target, state="failed", attempts=attempts, why=why)
        self._kept(result, sources if sources != self.incumbent else {}, why)
        self._tell(len(attempts), "done", result.state)
        return result

    def _decisive(self) -> Attempt:
        """Of a repair: the one that ended it, which others may have stood beside."""
        outcomes = {attempt.outcome: attempt for attempt in self._tree}
        return outcomes.get("tampered") or outcomes.get("accepted") or self._tree[len(self._tree)]

    def _accept_a_champion(self) -> Attempt | None:
        """The first of the best ones that ends the search, on fresh blocks and held-out inputs; None if none does."""
        champions = [attempt for attempt in reversed(tuple(self._tree)) if attempt.beats_champion]
        share = 1 / max(1, sum(1 for attempt in self._tree if attempt.is_right))
        for champion in champions[:MOST_ACCEPTANCES]:
            attempt = champion
            if champion.outcome not in ("accepted", "not-accepted", "tampered"):
                sources = self._sources(champion.number)
                attempt = self._judge.accept(champion, sources, share)
                self.journal.keep_attempt(self.target, attempt, sources)
                self._tree = self._tree.with_changed(attempt)
            if attempt.outcome in ("accepted", "tampered"):
                return attempt
        return None

    def _kept(self, result: Result, sources: Mapping[str, str], ended: str) -> Result:
        """A result, written down; a search's with its summary."""
        if self.policy.searches:
            summary.write(self.journal, result, ended)
        self.journal.keep_result(result, sources)
        return result

    # ----

    def _sources(self, number: int) -> dict[str, str]:
        """Sources of a candidate that had some, else of the one that it came from."""
        while number != INCUMBENT:
            kept = self.journal.sources(self.target, number)
            if kept:
                return {path: kept[path] for path in self.incumbent}
            number = self._tree.ask(number).parent
        return dict(self.incumbent)

    def _tell(self, number: int, stage: Stage, detail: str = "") -> None:
        self.on_event(
            Event(
                target=self.target.name, attempt=number, attempts=self._attempts, stage=stage, detail=detail
            )
        )
