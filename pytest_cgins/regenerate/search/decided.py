"""What a policy asked for in a round, in words: journals of different policies read differently."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import groupby

from pytest_cgins.core.text import counted
from pytest_cgins.regenerate.model import INCUMBENT, Ask


def decided(policy: str, asks: Sequence[Ask]) -> str:
    """Of one round, in the order in which it was asked for."""
    parts = [_part(policy, kind, list(group)) for kind, group in groupby(asks, key=lambda ask: ask.kind)]
    return "; then ".join(parts)


def name_of(number: int) -> str:
    """`candidate 3`, or the incumbent."""
    return "the incumbent" if number == INCUMBENT else f"candidate {number}"


def _part(policy: str, kind: str, asks: list[Ask]) -> str:
    parents = ", ".join(name_of(number) for number in dict.fromkeys(ask.parent for ask in asks))
    if kind == "ablate":
        return f"{parents} without {', '.join(ask.method for ask in asks)}{', in turn' if asks[1:] else ''}"
    if kind == "fix":
        return f"fix of {', '.join(str(ask.parent) for ask in asks)}{_means(asks)}"
    if kind == "regenerate":
        return f"anew from {parents}{_means(asks)}"
    return _optimise(policy, asks, parents) + _means(asks)


def _optimise(policy: str, asks: list[Ask], parents: str) -> str:
    count = len(asks)
    if policy == "single-shot":
        return f"one pass over {parents}"
    if policy == "refine":
        return f"next step from {parents}"
    if policy == "branch":
        return f"{counted(count, 'branch', 'branches')} from {parents}"
    if policy == "evolve":
        drawn = Counter(ask.parent for ask in asks)
        told = ", ".join(
            f"{name_of(number)}{f' ({times} times)' if times > 1 else ''}" for number, times in drawn.items()
        )
        return f"generation of {count}, parents from the archive: {told}"
    if policy == "mcts":
        return f"child of {parents} by UCT"
    return f"{counted(count, 'answer')} from {parents}"


def _means(asks: list[Ask]) -> str:
    """By whom, how warm, and what the prompt tells besides."""
    models = list(dict.fromkeys(ask.model for ask in asks))
    warmth = sorted({ask.temperature for ask in asks if ask.temperature is not None})
    shown = list(dict.fromkeys(number for ask in asks for number in ask.shown))
    said = [f"by {', '.join(models)}"] if len(models) > 1 else []
    said += [f"at {', '.join(f'{one:g}' for one in warmth)}"] if len(warmth) > 1 else []
    said += ["with profiles"] if any(ask.shows_evidence for ask in asks) else []
    said += [f"telling of {', '.join(map(str, shown))}"] if shown else []
    return "".join(f", {one}" for one in said)
