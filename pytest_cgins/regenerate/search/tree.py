"""The tree of candidates that a search has made; policies read it and nothing else.

Its root is the incumbent, number 0. A candidate hangs below the one whose sources its prompt showed. Times are ratios
to the incumbent's, so that a node says the same on every machine that a run is resumed on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from pytest_cgins.document_base import Document
from pytest_cgins.regenerate.model import Outcome

Kind = Literal["optimise", "fix", "regenerate", "ablate"]
"""Make it faster; mend what the last one got wrong; take another way from the same source; leave one method out."""

ROOT = 0
"""Number of the incumbent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask(Document):
    """One prompt that a policy wants answered."""

    parent: int
    """Candidate whose sources are shown and changed; 0 for the incumbent."""
    kind: Kind
    """What is asked for."""
    round: int
    """1-based; what belongs to one step of the policy has the same."""
    branch: int = 0
    """Which of those that are asked for at once."""
    model: str = ""
    """Who is asked; "" for a person or an agent."""
    temperature: float | None = None
    """None: the provider's default."""
    shows_evidence: bool = False
    """Whether figures of profilers are in the prompt."""
    variant: str = ""
    """What is to differ from the others of its round, in words of the prompt."""
    shown: tuple[int, ...] = ()
    """Other candidates that the prompt tells of, the nearest first."""
    method: str = ""
    """For `ablate`: id of the method that is to be left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Node(Document):
    """A candidate, as far as a policy needs to know it."""

    number: int
    """1-based, in the order in which they were asked for; 0 is the incumbent."""
    ask: Ask
    """What was asked."""
    outcome: Outcome
    """What became of it; `accepted` for the incumbent."""
    methods: tuple[str, ...] = ()
    """Ids of the methods that the answer names."""
    time_ratio: float | None = None
    """Its time over the incumbent's, geometric mean over the cases; None where it is not right, or not timed."""
    beats_champion: bool = False
    """Whether it was proven faster than the best one until then."""

    @property
    def is_right(self) -> bool:
        """Whether it passed all cases, and was timed."""
        return self.time_ratio is not None


INCUMBENT = Node(
    number=ROOT, ask=Ask(parent=ROOT, kind="optimise", round=0), outcome="accepted", time_ratio=1.0
)


class Tree:
    """All candidates so far.

    Args:
        nodes: in order of their numbers, without the incumbent.
    """

    def __init__(self, nodes: Sequence[Node] = ()) -> None:
        self._nodes = (INCUMBENT, *nodes)
        if [one.number for one in self._nodes] != list(range(len(self._nodes))):
            raise ValueError(f"candidates are not numbered in order: {[one.number for one in nodes]}")

    def __len__(self) -> int:
        return len(self._nodes) - 1

    def __iter__(self) -> Iterator[Node]:
        """All but the incumbent, in order."""
        return iter(self._nodes[1:])

    def __getitem__(self, number: int) -> Node:
        return self._nodes[number]

    @property
    def champion(self) -> Node:
        """The last that was proven faster than its predecessor; the incumbent, if none was."""
        return next((one for one in reversed(self._nodes) if one.beats_champion), INCUMBENT)

    @property
    def rounds(self) -> int:
        """How many rounds were begun."""
        return max(one.ask.round for one in self._nodes)

    def of_round(self, number: int) -> tuple[Node, ...]:
        """Candidates of a round, in order."""
        return tuple(one for one in self if one.ask.round == number)

    def children(self, number: int) -> tuple[Node, ...]:
        """Those whose prompts showed a candidate's sources, in order."""
        return tuple(one for one in self if one.ask.parent == number)

    def ancestors(self, number: int) -> tuple[Node, ...]:
        """From the parent up to the incumbent."""
        found = []
        while number != ROOT:
            number = self[number].ask.parent
            found.append(self[number])
        return tuple(found)

    def since_champion(self) -> int:
        """How many candidates were made since the champion was found, ablations left out."""
        best = self.champion.number
        return sum(1 for one in self if one.number > best and one.ask.kind != "ablate")
