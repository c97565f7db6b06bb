"""The tree of candidates that a search has made; policies read it and nothing else.

Its root is the incumbent, number 0. A candidate hangs below the one whose sources its prompt showed. Times are ratios
to the incumbent's, so that a candidate says the same on every machine that a run is resumed on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from pytest_cgins.regenerate.attempt import INCUMBENT, Ask, Attempt

ROOT = Attempt(
    number=INCUMBENT,
    goal="optimise",
    outcome="accepted",
    reason="ok",
    message="",
    ask=Ask(parent=INCUMBENT, kind="optimise", round=0),
    time_ratio=1.0,
)


class Tree:
    """All candidates so far.

    Args:
        candidates: in order of their numbers, without the incumbent.
    """

    def __init__(self, candidates: Sequence[Attempt] = ()) -> None:
        self._all = (ROOT, *candidates)
        numbers = [candidate.number for candidate in self._all]
        if numbers != list(range(len(numbers))):
            raise ValueError(f"candidates are not numbered in order: {numbers}")

    def __len__(self) -> int:
        return len(self._all) - 1

    def __iter__(self) -> Iterator[Attempt]:
        """All but the incumbent, in order."""
        return iter(self._all[1:])

    def __getitem__(self, number: int) -> Attempt:
        return self._all[number]

    def with_changed(self, candidate: Attempt) -> Tree:
        """The same tree, with what is known of one candidate by now."""
        return Tree([candidate if known.number == candidate.number else known for known in self])

    def with_asked(self, ask: Ask) -> Tree:
        """The same tree, and one that is not known yet."""
        return Tree(
            [*self, replace(ROOT, number=len(self) + 1, outcome="not-tried", ask=ask, time_ratio=None)]
        )

    def with_last(self, number: int) -> tuple[Attempt, ...]:
        """All candidates, that one after the others; the incumbent is none."""
        return tuple(sorted(self, key=lambda candidate: candidate.number == number))

    def ask(self, number: int) -> Ask:
        """What a candidate came from."""
        return self._all[number].ask

    @property
    def champion(self) -> Attempt:
        """The last that was proven faster than its predecessor; the incumbent, if none was."""
        return next((candidate for candidate in reversed(self._all) if candidate.beats_champion), ROOT)

    @property
    def rounds(self) -> int:
        """How many rounds were begun."""
        return max(one.ask.round for one in self._all)

    def of_round(self, number: int) -> tuple[Attempt, ...]:
        """Candidates of a round, in order."""
        return tuple(candidate for candidate in self if self.ask(candidate.number).round == number)

    def children(self, number: int) -> tuple[Attempt, ...]:
        """Those whose prompts showed a candidate's sources, in order."""
        return tuple(candidate for candidate in self if self.ask(candidate.number).parent == number)

    def below(self, number: int) -> tuple[Attempt, ...]:
        """Those, and those below them, in order."""
        numbers = {number}
        for candidate in self:
            if self.ask(candidate.number).parent in numbers:
                numbers.add(candidate.number)
        return tuple(self[each] for each in sorted(numbers - {number}))

    def source_of(self, number: int) -> Attempt:
        """The nearest right one above a candidate: what it was made from, mendings left out."""
        return next(candidate for candidate in self.ancestors(number) if candidate.is_right)

    def added(self, number: int) -> tuple[str, ...]:
        """Methods by which a candidate differs from `source_of` it, those of wrong ones that it mends among them."""
        named: list[str] = []
        for candidate in (self[number], *self.ancestors(number)):
            if candidate is not self[number] and candidate.is_right:
                break
            named = [*candidate.methods, *named]
        return tuple(dict.fromkeys(named))

    def applied(self, number: int) -> tuple[str, ...]:
        """All methods that were named on the way from the incumbent to a candidate."""
        way = [self[number], *self.ancestors(number)]
        return tuple(dict.fromkeys(name for candidate in reversed(way) for name in candidate.methods))

    def ancestors(self, number: int) -> tuple[Attempt, ...]:
        """From the parent up to the incumbent."""
        ancestors = []
        while number != INCUMBENT:
            number = self.ask(number).parent
            ancestors.append(self[number])
        return tuple(ancestors)
