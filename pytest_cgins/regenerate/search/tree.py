"""The tree of candidates that a search has made; policies read it and nothing else.

Its root is the incumbent, number 0. A candidate hangs below the one whose sources its prompt showed. Times are ratios
to the incumbent's, so that a candidate says the same on every machine that a run is resumed on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pytest_cgins.regenerate.model import INCUMBENT, Ask, Attempt

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
        candidates: in order of their numbers, without the incumbent; each has its `ask`.
    """

    def __init__(self, candidates: Sequence[Attempt] = ()) -> None:
        self._all = (ROOT, *candidates)
        self._asks = tuple(one.ask for one in self._all if one.ask is not None)
        numbers = [one.number for one in self._all]
        if numbers != list(range(len(self._asks))):
            raise ValueError(f"candidates are not numbered in order, or lack what was asked: {numbers}")

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

    def ask(self, number: int) -> Ask:
        """What a candidate came from."""
        return self._asks[number]

    @property
    def champion(self) -> Attempt:
        """The last that was proven faster than its predecessor; the incumbent, if none was."""
        return next((one for one in reversed(self._all) if one.beats_champion), ROOT)

    @property
    def rounds(self) -> int:
        """How many rounds were begun."""
        return max(ask.round for ask in self._asks)

    def of_round(self, number: int) -> tuple[Attempt, ...]:
        """Candidates of a round, in order."""
        return tuple(one for one in self if self.ask(one.number).round == number)

    def children(self, number: int) -> tuple[Attempt, ...]:
        """Those whose prompts showed a candidate's sources, in order."""
        return tuple(one for one in self if self.ask(one.number).parent == number)

    def below(self, number: int) -> tuple[Attempt, ...]:
        """Those, and those below them, in order."""
        found = {number}
        for one in self:
            if self.ask(one.number).parent in found:
                found.add(one.number)
        return tuple(self[one] for one in sorted(found - {number}))

    def source_of(self, number: int) -> Attempt:
        """The nearest right one above a candidate: what it was made from, mendings left out."""
        return next(one for one in self.ancestors(number) if one.is_right)

    def added(self, number: int) -> tuple[str, ...]:
        """Methods by which a candidate differs from `source_of` it, those of wrong ones that it mends among them."""
        named: list[str] = []
        for one in (self[number], *self.ancestors(number)):
            if one is not self[number] and one.is_right:
                break
            named = [*one.methods, *named]
        return tuple(dict.fromkeys(named))

    def applied(self, number: int) -> tuple[str, ...]:
        """All methods that were named on the way from the incumbent to a candidate."""
        way = [self[number], *self.ancestors(number)]
        return tuple(dict.fromkeys(name for one in reversed(way) for name in one.methods))

    def ancestors(self, number: int) -> tuple[Attempt, ...]:
        """From the parent up to the incumbent."""
        found = []
        while number != INCUMBENT:
            number = self.ask(number).parent
            found.append(self[number])
        return tuple(found)
