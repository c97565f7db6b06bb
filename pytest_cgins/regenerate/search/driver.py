"""A search for a faster kernel: asks what its policy says, tries what is answered, and keeps the tree in the journal.

As with `Repair`, nothing is kept that is not in the journal. A run that was killed builds the same tree, batch by batch,
and so its policy asks for the same again; what was answered and tried is found there.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from pytest_cgins.core.errors import BudgetError
from pytest_cgins.core.model import Status
from pytest_cgins.core.text import counted
from pytest_cgins.regenerate.events import Event, Stage
from pytest_cgins.regenerate.journal.journal import Journal
from pytest_cgins.regenerate.judgement import Goalposts, accepted, judged
from pytest_cgins.regenerate.methods.classes import Tried
from pytest_cgins.regenerate.methods.sass_signature import Shown
from pytest_cgins.regenerate.methods.select import Situation
from pytest_cgins.regenerate.model import (
    INCUMBENT,
    Answer,
    Ask,
    Attempt,
    Message,
    Request,
    Result,
    Target,
)
from pytest_cgins.regenerate.prompts import methods
from pytest_cgins.regenerate.repair import Steps
from pytest_cgins.regenerate.screen import Check, Screen
from pytest_cgins.regenerate.search import lessons, standing, summary, verifiers
from pytest_cgins.regenerate.search.evidence import Evidence
from pytest_cgins.regenerate.search.policy import Policy
from pytest_cgins.regenerate.search.tree import ROOT, Tree
from pytest_cgins.regenerate.trial import Bench, rejections

MOST_ACCEPTANCES = 3
"""So many champions, the best first, are measured again before a search ends with nothing."""
_SPEEDS = (Status.SLOWER, Status.BELOW_FLOOR, Status.INCONCLUSIVE)

Batch = Generator[tuple[Request, ...], tuple[Answer, ...], None]


class SearchPrompts(Protocol):
    """Makes the prompts of one target's search."""

    def candidate(
        self,
        ask: Ask,
        tree: Tree,
        sources: Callable[[int], Mapping[str, str]],
        evidence: Evidence | None,
    ) -> tuple[Message, ...]:
        """For the generator.

        Args:
            ask: what the policy wants.
            tree: all candidates until then.
            sources: those of a candidate, by path; of the incumbent for number 0.
            evidence: what profilers found in the parent; None if the policy does not want it told.
        """
        ...

    def verifier(self, sources: Mapping[str, str]) -> tuple[Message, ...]:
        """For a verifier, about a candidate that nobody has run."""
        ...

    def complaints(
        self,
        ask: Ask,
        tree: Tree,
        sources: Callable[[int], Mapping[str, str]],
        evidence: Evidence | None,
        answer: str,
    ) -> tuple[str, ...]:
        """What is wrong with an answer's choice of methods, in words; the other arguments are those of its prompt."""
        ...

    def situation(self) -> Situation | None:
        """What methods are remembered for; None where none are offered."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchSettings:
    """What holds for a whole search."""

    attempts: int
    """Most answers of the generator."""
    verifiers: tuple[str, ...]
    """Models that say how likely a candidate is right; ("",) for nobody."""
    max_tokens: int
    """Most tokens of an answer."""


class Search:
    """The candidates of one target.

    Args:
        target: what is to become faster.
        journal: where everything is kept.
        bench: tries candidates.
        prompts: makes prompts.
        policy: says what is asked for.
        settings: see there.
        incumbent: sources as they are in the project, by path, main file first.
        check: the static check of sources.
        goalposts: what no candidate may move.
        on_event: told at each stage.
        remember: takes what was learned of methods, again and again.
    """

    def __init__(
        self,
        target: Target,
        journal: Journal,
        bench: Bench,
        prompts: SearchPrompts,
        policy: Policy,
        *,
        settings: SearchSettings,
        incumbent: Mapping[str, str],
        check: Check,
        goalposts: Goalposts,
        on_event: Callable[[Event], object],
        remember: Callable[[tuple[Tried, ...]], object] = lambda _: None,
    ) -> None:
        self.target = target
        self._journal = journal
        self._bench = bench
        self._prompts = prompts
        self._policy = policy
        self._settings = settings
        self._incumbent = dict(incumbent)
        self._screen = Screen(target.goal, incumbent, check)
        self._goalposts = goalposts
        self._on_event = on_event
        self._remember = remember
        self._tree = Tree()
        self._best: Attempt = ROOT
        self.awaited = 1
        """How many answers it waits for, while it does."""

    @property
    def done(self) -> bool:
        """Whether it is known what became of it."""
        return self._journal.result(self.target) is not None

    def steps(self) -> Steps:
        """Batch after batch, until the policy or the budget ends it; then the best one is measured again."""
        known = self._journal.result(self.target)
        if known is not None:
            return known
        self._journal.go_on(self.target)
        why = ""
        try:
            while asks := self._policy.next(self._tree):
                if why := self._near_peak(asks):
                    break
                yield from self._batch(asks)
                self._learn()
                if any(one.outcome == "tampered" for one in self._tree):
                    break
        except BudgetError as error:
            if not len(self._tree):
                raise
            why = error.what
        return self._ended(why or self._policy.ended(self._tree))

    def ended_early(self, state: str, why: str, remedy: str = "") -> Result:
        """What is known of a search that is not done: it waits, or was stopped; words may have several lines."""
        result = Result(
            target=self.target,
            state="waiting" if state == "waiting" else "stopped",
            attempts=tuple(self._tree),
            why=" ".join(why.split("\n")),
            remedy=" ".join(remedy.split("\n")),
        )
        self._journal.keep_result(result, {})
        summary.write(self._journal, result, result.why)
        return result

    # ---- one batch

    def _batch(self, asks: Sequence[Ask]) -> Batch:
        first = len(self._tree) + 1
        known = {
            number: self._journal.attempt(self.target, number) for number in range(first, first + len(asks))
        }
        missing = {number: ask for number, ask in enumerate(asks, first) if known[number] is None}
        if missing:
            self.awaited = len(missing)
            self._tell(first, "asking", asks[0].kind)
            got = yield tuple(self._request(number, ask) for number, ask in missing.items())
            read = {
                number: self._read(number, missing[number], answer)
                for number, answer in zip(missing, got, strict=True)
            }
            order = yield from self._ranked(read, tries=self._policy.tries(len(asks)))
            self._begin(known.values(), [read[number] for number in order])
            yield ()  # while these are built and checked, other targets begin with theirs
            for number in order:
                known[number] = self._tried(*read[number])
        done = [one for _, one in sorted(known.items()) if one is not None]
        for one in done:
            self._screen.remember(one)
            if one.beats_champion:
                self._best = one
        self._tree = Tree((*self._tree, *done))

    def _begin(
        self, known: Iterable[Attempt | None], read: Sequence[tuple[Attempt, dict[str, str], bool]]
    ) -> None:
        """Have all candidates of a batch built and checked from now on, side by side; they are timed in this order.

        Args:
            known: of the batch, what an earlier part of the run tried before these.
            read: what is to be tried, and what is not.
        """
        earlier = [one for one in known if one is not None and one.beats_champion]
        # In the order in which they were tried: by the verifiers' ranks, then by numbers.
        self._best = max(earlier, key=lambda one: (-(one.rank or 0.0), one.number), default=self._best)
        candidates = [sources for _, sources, is_candidate in read if is_candidate]
        if candidates:
            self._bench.begin(candidates, self._champion())

    def _champion(self) -> dict[str, str] | None:
        """Sources of the best one until now; None for the incumbent."""
        return None if self._best.number == INCUMBENT else self._sources(self._best.number)

    def _request(self, number: int, ask: Ask) -> Request:
        name = f"{self.target.name}/attempt-{number:02d}/generator"
        known = self._journal.read(Request, self._journal.folder / name / "request.json")
        return known or Request(
            id=name,
            role="generator",
            model=ask.model,
            messages=self._prompts.candidate(ask, self._tree, self._sources, self._shown_evidence(ask)),
            max_tokens=self._settings.max_tokens,
            temperature=ask.temperature,
        )

    def _shown_evidence(self, ask: Ask) -> Evidence | None:
        return self._evidence(ask.parent) if ask.shows_evidence else None

    def _evidence(self, number: int) -> Evidence | None:
        """What profilers find in a candidate, asked once; None if it is not right."""
        if not self._tree[number].is_right:
            return None
        known = self._journal.evidence(self.target, number)
        if known is None:
            self._tell(number, "profiling")
            trials = [trial.evaluations for trial in self._tree[number].trials if trial.stage == "times"]
            timed = trials[-1] if trials else self._journal.before(self.target) if number == INCUMBENT else ()
            known = self._bench.evidence(self._sources(number), timed)
            self._journal.keep_evidence(self.target, number, known)
        return known

    def _near_peak(self, asks: Sequence[Ask]) -> str:
        """Why the best candidate leaves little to win, if it is profiled for what is asked now; "" else."""
        champion = self._tree.champion.number
        if not any(ask.shows_evidence and ask.parent == champion for ask in asks):
            return ""
        known = self._evidence(champion)
        return known.near_peak if known is not None else ""

    def _read(self, number: int, ask: Ask, answer: Answer) -> tuple[Attempt, dict[str, str], bool]:
        made, sources, is_candidate = self._screen.read(number, answer, self._sources(ask.parent))
        if is_candidate:
            self._screen.remember(made)
        said = self._prompts.complaints(
            ask, self._tree, self._sources, self._shown_evidence(ask), answer.text
        )
        read = replace(made, ask=ask, methods=methods.chosen(answer.text), complaints=said)
        return read, sources, is_candidate

    def _ranked(
        self, read: dict[int, tuple[Attempt, dict[str, str], bool]], *, tries: int
    ) -> Generator[tuple[Request, ...], tuple[Answer, ...], tuple[int, ...]]:
        """The order in which candidates are tried; those beyond the number of tries are not."""
        if not self._policy.ranks or not any(self._settings.verifiers):
            return tuple(read)
        candidates = [number for number, (_, _, is_candidate) in read.items() if is_candidate]
        asked = {
            (number, index): self._verifier(number, index, model, read[number][1])
            for number in candidates
            for index, model in enumerate(self._settings.verifiers, 1)
        }
        answers = (yield tuple(asked.values())) if asked else ()
        said: dict[int, list[float]] = {number: [] for number in candidates}
        for (number, _), answer in zip(asked, answers, strict=True):
            said[number] += verifiers.opinions(answer.text)
        for number in candidates:
            made, sources, _ = read[number]
            rank = sum(said[number]) / len(said[number]) if said[number] else 0.5
            read[number] = (replace(made, rank=rank), sources, True)
        order = sorted(candidates, key=lambda number: (-(read[number][0].rank or 0.0), number))
        for number in order[tries:]:
            made, sources, _ = read[number]
            text = "verifiers put others before it"
            read[number] = (
                replace(made, outcome="not-tried", reason="ranked-below", message=text), sources, False
            )  # fmt: skip
        return (*order, *(number for number in read if number not in order))

    def _verifier(self, number: int, index: int, model: str, sources: Mapping[str, str]) -> Request:
        name = f"{self.target.name}/attempt-{number:02d}/verifier-{index}"
        known = self._journal.read(Request, self._journal.folder / name / "request.json")
        return known or Request(
            id=name,
            role="verifier",
            model=model,
            messages=self._prompts.verifier(sources),
            max_tokens=self._settings.max_tokens,
        )

    def _learn(self) -> None:
        """What the candidates until now teach about methods."""
        situation = self._prompts.situation()
        if situation is None or not any(one.methods for one in self._tree):
            return
        marks = {
            one.number: self._marks(one.number)
            for one in self._tree
            if one.is_right and self._tree.added(one.number) and self._tree.ask(one.number).kind != "ablate"
        }
        found = lessons.lessons(self._tree, marks, situation, run=self._journal.record.id)
        if found != self._journal.tried(self.target):
            self._journal.keep_tried(self.target, found)
            self._remember(found)

    def _marks(self, number: int) -> dict[str, Shown]:
        """What machine code says of a candidate's methods, looked at once."""
        known = self._journal.marks(self.target, number)
        if known is None:
            known = self._bench.marks(self._sources(number))
            if known is None:
                return {}
            self._journal.keep_marks(self.target, number, known)
        return {one.method: one.state for one in known.signatures}

    # ---- one candidate

    def _tried(self, made: Attempt, sources: dict[str, str], is_candidate: bool) -> Attempt:
        """What became of a candidate, written down."""
        started = time.monotonic()
        attempt = self._on_the_bench(made, sources) if is_candidate else made
        attempt = replace(attempt, seconds=time.monotonic() - started)
        self._journal.keep_attempt(self.target, attempt, sources)
        if attempt.beats_champion:
            self._best = attempt
        return attempt

    def _on_the_bench(self, made: Attempt, sources: dict[str, str]) -> Attempt:
        self._tell(made.number, "checking")
        check = self._bench.check(sources)
        self._goalposts.require(sources)
        touched = self._goalposts.touched()
        if touched:
            return accepted(replace(made, trials=(check,)), self.target, self._bench, touched)
        bad = rejections(check.evaluations, self.target)
        if bad:
            return judged(made, "failed", bad, (check,))
        self._tell(made.number, "timing")
        times = self._bench.times(sources, self._champion())
        bad = tuple(
            one for one in rejections(times.evaluations, self.target) if one.verdict.status not in _SPEEDS
        )
        if bad:
            return judged(made, "failed", bad, (check, times))
        ratio = standing.ratio(times.evaluations)
        base = self._best.time_ratio or 1.0
        beats = standing.beats(times.evaluations) and made.ask is not None and made.ask.kind != "ablate"
        text = (
            "no time could be compared"
            if ratio is None
            else f"{ratio:.3f} times the time of the best until then"
        )
        return replace(
            made,
            outcome="right",
            reason="faster" if beats else "not-faster",
            message=text,
            trials=(check, times),
            time_ratio=base if ratio is None else base * ratio,
            beats_champion=beats,
        )

    # ---- the end

    def _ended(self, why: str) -> Result:
        champions = [one for one in reversed(tuple(self._tree)) if one.beats_champion][:MOST_ACCEPTANCES]
        share = 1 / max(1, sum(1 for one in self._tree if one.is_right))
        for one in champions:
            attempt = self._accepted(one, share)
            if attempt.outcome in ("accepted", "tampered"):
                break
        else:
            count = len(self._tree)
            text = f"nothing faster in {counted(count, 'candidate')}: {why}"
            return self._finished("failed", text, {}, text)
        if attempt.outcome == "tampered":
            return self._finished("failed", attempt.message, self._sources(attempt.number), attempt.message)
        return self._finished("accepted", "", self._sources(attempt.number), why)

    def _accepted(self, champion: Attempt, share: float) -> Attempt:
        """The champion on fresh blocks and held-out inputs; each candidate was one more chance to win by luck."""
        if champion.outcome in ("accepted", "not-accepted", "tampered"):
            return champion
        self._tell(champion.number, "accepting")
        sources = self._sources(champion.number)
        trial = self._bench.accept(sources, goal=self.target.goal, alpha_share=share)
        made = replace(champion, trials=(*champion.trials, trial))
        self._goalposts.require(sources)
        found = accepted(made, self.target, self._bench, self._goalposts.touched())
        self._journal.keep_attempt(self.target, found, sources)
        candidates = [found if one.number == found.number else one for one in self._tree]
        self._tree = Tree(candidates)
        return found

    def _finished(self, state: str, why: str, sources: Mapping[str, str], ended: str) -> Result:
        result = Result(
            target=self.target,
            state="accepted" if state == "accepted" else "failed",
            attempts=tuple(self._tree),
            why=why,
        )
        summary.write(self._journal, result, ended)
        self._journal.keep_result(result, sources)
        self._tell(len(self._tree), "done", state)
        return result

    def _sources(self, number: int) -> dict[str, str]:
        """Sources of a candidate that had some, else of the one that it came from."""
        while number != INCUMBENT:
            kept = self._journal.sources(self.target, number)
            if kept:
                return {path: kept[path] for path in self._incumbent}
            number = self._tree.ask(number).parent
        return dict(self._incumbent)

    def _tell(self, number: int, stage: Stage, detail: str = "") -> None:
        self._on_event(
            Event(
                target=self.target.name,
                attempt=number,
                attempts=self._settings.attempts,
                stage=stage,
                detail=detail,
            )
        )
