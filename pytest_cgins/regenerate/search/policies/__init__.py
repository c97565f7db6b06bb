"""Policies by name."""

from __future__ import annotations

from pytest_cgins.regenerate.search.policies.branch import Branch
from pytest_cgins.regenerate.search.policies.evolve import Evolve
from pytest_cgins.regenerate.search.policies.mcts import Mcts
from pytest_cgins.regenerate.search.policies.refine import Refine, Repair
from pytest_cgins.regenerate.search.policies.single_shot import SingleShot
from pytest_cgins.regenerate.search.policy import Means, Policy


def policy(name: str, means: Means, attempts: int) -> Policy:
    """The policy of a name.

    Args:
        name: as `--cgins-policy` takes it, or `repair`.
        means: what it has.
        attempts: most answers that it may ask for.
    """
    by_name = {policy.name: policy for policy in (SingleShot, Refine, Branch, Evolve, Mcts, Repair)}
    return by_name[name](means, attempts)
