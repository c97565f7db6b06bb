"""Policies by name."""

from __future__ import annotations

from pytest_cgins.regenerate.search.policies.branch import Branch
from pytest_cgins.regenerate.search.policies.evolve import Evolve
from pytest_cgins.regenerate.search.policies.mcts import Mcts
from pytest_cgins.regenerate.search.policies.refine import Refine
from pytest_cgins.regenerate.search.policies.single_shot import SingleShot
from pytest_cgins.regenerate.search.policy import Means, Policy


def policy(name: str, means: Means, attempts: int) -> Policy:
    """The policy of a name.

    Args:
        name: as `--cgins-policy` takes it.
        means: what it has.
        attempts: most answers that it may ask for.
    """
    made: dict[str, type[SingleShot | Refine | Branch | Evolve | Mcts]] = {
        one.name: one for one in (SingleShot, Refine, Branch, Evolve, Mcts)
    }
    return made[name](means, attempts)
