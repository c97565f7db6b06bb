"""Prompts of a search as a run makes them, from a real copy of a project."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from pytest_cgins.config import load
from pytest_cgins.core.measurement import Roofline
from pytest_cgins.core.session_report import Evaluation
from pytest_cgins.regenerate.attempt import Ask, Attempt
from pytest_cgins.regenerate.methods.axis_budget import Gaps
from pytest_cgins.regenerate.project_copy import ProjectCopy
from pytest_cgins.regenerate.prompts.target_prompts import ContextPrompts
from pytest_cgins.regenerate.search.policies.refine import Refine
from pytest_cgins.regenerate.search.policies.single_shot import SingleShot
from pytest_cgins.regenerate.search.policy import Means, Policy
from pytest_cgins.regenerate.search.profile_figures import Evidence
from pytest_cgins.regenerate.search.tree import Tree
from tests.evaluations import make_evaluation
from tests.regenerate import journals
from tests.regenerate.projects import FILES, committed
from tests.regenerate.prompts.example import CPU

MEANS = Means(models=("",))


def prompts_of(tmp_path: Path) -> ContextPrompts:
    project = committed(tmp_path / "project")
    copy = ProjectCopy(
        load(project / "cgins.yaml"), ("scale", "cpp", "cpu"), tmp_path / "copy", baseline="merge-base"
    )
    target = journals.target("scale", op="torch.relu", goal="optimise")
    return ContextPrompts(target, copy, copy.incumbent(), lambda: CPU, ())


def prompt(prompts: ContextPrompts, policy: Policy, tree: Tree, evidence: Evidence | None = None) -> str:
    (ask,) = policy.next(tree)
    sources = {"native/scale.cpp": FILES["native/scale.cpp"]}
    return prompts.candidate(ask, tree, lambda _: sources, evidence)[-1].text


def made(tree: Tree, policy: Policy, *, ratio: float | None, beats: bool = False) -> Tree:
    """The tree with what the policy asks for answered so."""
    (ask,) = policy.next(tree)
    one = Attempt(
        number=len(tree) + 1, goal="optimise", outcome="right" if ratio else "failed", reason="build-error",
        message="no", ask=ask, time_ratio=ratio, beats_champion=beats,
    )  # fmt: skip
    return Tree((*tree, one))


def test_refine_goes_through_the_axes(tmp_path: Path) -> None:
    """Each step of one evolving kernel begins with the next axis, or with that of the figures; a mending has no methods."""
    prompts, policy, tree = prompts_of(tmp_path), Refine(MEANS, 24), Tree()
    assert "Begin with compute: the axes are taken in turn" in prompt(prompts, policy, tree)
    tree = made(tree, policy, ratio=None)
    assert "## Methods for this round" not in prompt(prompts, policy, tree)
    tree = made(tree, policy, ratio=0.8, beats=True)
    assert "Begin with memory: the axes are taken in turn" in prompt(prompts, policy, tree)
    text = prompt(prompts, policy, tree, Evidence(case="c", gaps=Gaps(compute=0.9, memory=0.4, latency=0.6)))
    assert "Begin with latency: there is most to win" in text
    tree = made(tree, policy, ratio=0.85)
    assert "Begin with latency: the axes are taken in turn" in prompt(prompts, policy, tree)


def test_a_search_begins_where_its_slowest_call_is_bound(tmp_path: Path) -> None:
    """Nobody has profiled the incumbent as yet; it was told to begin with compute at 40% of the bandwidth."""
    roofline = Roofline(
        nbytes=8, flops=8, source="signature", peak_bytes_per_s=1e12, peak_flops_per_s=1e13,
        share_of_bandwidth=0.4, share_of_compute=0.01, bound="memory",
    )  # fmt: skip

    def timed(ns: float, **shares: float) -> Evaluation:
        one = make_evaluation(times_ns=(ns, 2 * ns))
        assert one.measurement is not None
        return replace(one, measurement=replace(one.measurement, roofline=replace(roofline, **shares)))

    quick = timed(10.0, share_of_bandwidth=0.01, share_of_compute=0.5)
    prompts, policy = prompts_of(tmp_path), Refine(MEANS, 24)
    prompts.evaluations = (quick, timed(99.0), make_evaluation(times_ns=None))
    assert "Begin with memory: there is most to win" in prompt(prompts, policy, Tree())
    prompts.evaluations = (
        quick,
        timed(99.0, flops=0),
    )  # of a call whose work nobody knows, figures lead nowhere
    assert "Begin with memory" not in prompt(prompts, policy, Tree())


def test_single_shot_has_all_axes(tmp_path: Path) -> None:
    """The one pass is offered methods of all axes, without an order."""
    text = prompt(prompts_of(tmp_path), SingleShot(MEANS, 5), Tree())
    assert "## Methods for this round" in text
    assert "Begin with" not in text


def test_an_ablation_is_offered_no_methods(tmp_path: Path) -> None:
    """Leaving out a method is an experiment on what is there."""
    tree = made(Tree(), Refine(MEANS, 24), ratio=0.8, beats=True)
    ask = Ask(parent=1, kind="ablate", round=1, method="vector-access")
    sources = {"native/scale.cpp": FILES["native/scale.cpp"]}
    text = prompts_of(tmp_path).candidate(ask, tree, lambda _: sources, None)[-1].text
    assert "## Methods for this round" not in text
    assert "## What makes it fast" not in text


def test_an_ablation_says_what_the_method_is(tmp_path: Path) -> None:
    """Who takes it out knows what to look for; a name that nobody knows is told as it is."""
    champion = Attempt(
        number=1, goal="optimise", outcome="right", reason="faster", message="", time_ratio=0.5,
        beats_champion=True, ask=Ask(parent=0, kind="optimise", round=1), methods=("cpu-cache-blocks",),
    )  # fmt: skip
    prompts, sources = prompts_of(tmp_path), {"native/scale.cpp": FILES["native/scale.cpp"]}
    for method, told in (
        ("cpu-cache-blocks", "cpu-cache-blocks (Work in tiles that the cache holds: "),
        ("own-idea", "own-idea. Put"),
    ):
        ask = Ask(parent=1, kind="ablate", round=1, method=method)
        text = prompts.candidate(ask, Tree((champion,)), lambda _: sources, None)[-1].text
        assert f"Take this one method out of it: {told}" in text
