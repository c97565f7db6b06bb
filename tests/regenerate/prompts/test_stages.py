"""Stages: which one a prompt is of, what it says, and what it says in Triton and CuTe."""

from __future__ import annotations

import itertools
import re
from dataclasses import replace
from typing import get_args

import pytest

from pytest_cgins.regenerate.attempt import Ask, Attempt
from pytest_cgins.regenerate.methods import registry
from pytest_cgins.regenerate.methods.axis_budget import Gaps
from pytest_cgins.regenerate.methods.classes import MethodMemory
from pytest_cgins.regenerate.prompts import assembly, methods, stages, workload
from pytest_cgins.regenerate.prompts.stages import STAGES, stage_of
from pytest_cgins.regenerate.prompts.workload import Backend
from pytest_cgins.regenerate.search.policies.single_shot import SingleShot
from pytest_cgins.regenerate.search.policy import Means
from pytest_cgins.regenerate.search.tree import ROOT, Tree
from tests.regenerate.prompts.example import context_of

FAMILIES = (*get_args(workload.Family), "backward")
BACKENDS = get_args(Backend)
CUDA_ONLY = re.compile(
    r"__\w+|\bfloat4\b|\b\w*expf\b|\bfmaf\b|\berff\b|threadIdx|blockIdx|#pragma|cudaFunc|reinterpret_cast|\btemplates?\b|launch bounds"
)
CPP_NAMES = re.compile(r"\w<\w+|\bSM\d+_\w+|\w::\w|CUTE_\w+")
ALL_GAPS = Gaps(compute=0.5, memory=0.5, latency=0.5)


def offers(context):
    return methods.offers(context, registry.shipped(), MethodMemory(), gaps=ALL_GAPS, metrics={}, applied=())


def ask(parent, number, kind="optimise", **given):
    return Ask(parent=parent, kind=kind, round=number, **given)


def candidate(number, asked, *, ratio=None, beats=False):
    return Attempt(
        number=number, goal="optimise", outcome="right" if ratio else "failed", reason="", message="", ask=asked,
        time_ratio=ratio, beats_champion=beats,
    )  # fmt: skip


def test_a_first_prompt_is_about_structure():
    """A search begins with the first stage."""
    assert stage_of(ask(0, 1), Tree()) == "structure"


def test_each_gain_on_the_way_and_each_round_without_one_leads_to_the_next_stage():
    """Steps of one evolving kernel go through all stages, whether they gained or not, and then are free."""
    made = [
        candidate(1, ask(0, 1), ratio=0.9, beats=True),
        candidate(2, ask(1, 2), ratio=0.95),
        candidate(3, ask(1, 3), ratio=0.8, beats=True),
        candidate(4, ask(3, 4), ratio=0.7, beats=True),
    ]
    seen = [stage_of(made[number].ask, Tree(made[:number])) for number in range(4)]
    assert seen == list(STAGES)
    assert stage_of(ask(4, 5), Tree(made)) == "again"
    assert (
        stage_of(ask(1, 5), Tree(made)) == "finish"
    )  # another way from the first gain: two stages were tried from it


def test_a_round_in_which_nothing_came_out_right_is_repeated_in_its_stage():
    """Wrong candidates, their mendings and ablations do not move the stage; those that are asked at once share it."""
    made = [candidate(1, ask(0, 1)), candidate(2, ask(1, 1, "fix")), candidate(3, ask(0, 1, "regenerate"))]
    tree = Tree(made)
    assert stage_of(ask(0, 1, "regenerate"), tree) == stage_of(ask(0, 2), tree) == "structure"
    assert stage_of(ask(3, 1, "fix"), tree) is None
    mended = Tree([*made, candidate(4, ask(3, 1, "fix"), ratio=0.9, beats=True)])
    assert stage_of(ask(4, 2), mended) == "memory"
    assert stage_of(ask(4, 1, "ablate", method="x"), mended) is None
    ablated = Tree([*mended, candidate(5, ask(4, 1, "ablate", method="x"), ratio=1.0)])
    assert stage_of(ask(4, 2), ablated) == "memory"
    branches = Tree([candidate(1, ask(0, 1), ratio=1.1), candidate(2, ask(0, 1, branch=1), ratio=1.2)])
    assert stage_of(ask(0, 2), branches) == stage_of(ask(0, 2, branch=1), branches) == "memory"


def test_one_pass_has_all_stages():
    """What `single-shot` asks for first is all stages at once, and its mendings none."""
    shot = SingleShot(Means(models=("",)), 3)
    (first,) = shot.next(Tree())
    assert stage_of(first, Tree()) == "all"
    failed = Tree([candidate(1, first)])
    assert stage_of(shot.next(failed)[0], failed) is None


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("family", FAMILIES)
def test_every_kind_of_op_has_its_own_stages(family, backend):
    """For each kind of op and language each stage says something, two stages differ, and nothing is left to fill in."""
    texts = [stages.lines_of((family,), backend, stage) for stage in STAGES]
    titles = [stages.shipped()["families"][family][stage]["title"] for stage in STAGES]
    for lines in texts:
        assert len(lines) >= 2
        for line in lines:
            assert len(line) < 300
            assert line.endswith(".")
            assert not re.search(r"[{}]|TODO|\.\.\.|XXX", line)
            if backend in ("triton", "cute"):
                assert not CUDA_ONLY.search(line)
                assert not CPP_NAMES.search(line)
    for one, other in itertools.combinations(range(len(STAGES)), 2):
        assert not set(texts[one]) & set(texts[other])
        assert titles[one] != titles[other]


def test_a_stage_says_what_is_settled_and_what_comes_later():
    """A prompt's stage names its number, what stays, what is in focus now, and what is to be left for later."""
    context = context_of("linear", "cute", "optimise")
    text = stages.described(context, "memory")
    assert text.startswith(
        "## Stage 2 of 4: how tiles come to the unit\nSettled before, and to stay: (1) tiles"
    )
    assert "In focus now:\n- " in text
    assert (
        "Later, so leave it now: (3) pipeline, warps and occupancy; (4) constants, epilogue and tails."
        in text
    )
    assert "Settled before" not in stages.described(context, "structure")
    assert "Later" not in stages.described(context, "finish")
    assert stages.described(context, None) == ""


@pytest.mark.parametrize(
    ("gaps", "axis"),
    [
        (Gaps(), None),
        (Gaps(compute=0.9, memory=0.05, latency=0.02), None),
        (Gaps(compute=0.9, memory=0.3, latency=0.4), "latency"),
        (Gaps(compute=0.9, memory=0.3, latency=0.2), "memory"),
        (Gaps(compute=0.6, memory=0.9, latency=0.5), "memory"),
        (Gaps(compute=0.2, memory=0.9, latency=0.1), "compute"),
        (Gaps(compute=0.5, memory=0.5, latency=0.5), "memory"),
    ],
)
def test_the_axis_with_most_to_win(gaps, axis):
    """A gap counts unless the other of compute and memory is near its peak, which makes it natural."""
    assert stages.leading(gaps) == axis


def test_evidence_goes_before_the_plan():
    """Where figures point to another stage than the plan's, the prompt says to begin there."""
    context = context_of("softmax", "triton", "optimise")
    gaps = Gaps(compute=0.8, memory=0.7, latency=0.2)
    told = stages.described(context, "parallelism", replace(gaps, compute=0.6))
    assert (
        "leave most to win on memory (gap 0.70): evidence goes before this plan, so begin with (2) contiguous"
        in told
    )
    assert "which is in focus" in stages.described(context, "memory", replace(gaps, compute=0.6))
    assert "Figures that say otherwise go before" in stages.described(context, "memory", Gaps())


@pytest.mark.parametrize(
    ("kernel", "implementation", "wanted"),
    [
        ("softmax", "triton", ("BLOCK", "num_warps", "num_stages", "tl.constexpr")),
        ("linear", "cute", ("TiledMMA", "TiledCopy", "UniversalCopy<uint128_t>", "Swizzle")),
        (
            "silu_mul",
            "cute-dsl",
            ("cute.make_copy_atom", "cutlass.Constexpr", "tiled copy", "cute.make_swizzle"),
        ),
    ],
)
@pytest.mark.parametrize("focus", [*STAGES, "all", "again"])
def test_a_prompt_for_triton_and_cute_is_about_that_language(kernel, implementation, wanted, focus):
    """The prompt of a search has advice, stage, constants and methods of its language, and no other's names."""
    context = context_of(kernel, implementation, "optimise")
    offered = offers(context)
    stage = stages.described(context, focus, ALL_GAPS)
    made = assembly.candidate(
        context, ask(0, 1), ROOT, shown=(), evidence="", methods=offered.text(), stage=stage
    )[-1].text
    assert len(made) <= assembly.MOST_CHARACTERS
    assert stage in made
    assert stages.shipped()["constants"][workload.language_of(context)] in made
    assert (
        made.index("## What makes it fast")
        < made.index(stage.split("\n")[0])
        < made.index("## Methods for this")
    )
    advice = "\n".join([assembly.section("advice.md", context), stage, offered.text()])
    for name in wanted:
        assert name in advice
    if implementation != "cute":
        assert not CUDA_ONLY.search(advice)
        assert not CPP_NAMES.search(advice)


@pytest.mark.parametrize("family", [family for family in FAMILIES if family != "backward"])
@pytest.mark.parametrize(("kernel", "implementation"), [("softmax", "triton"), ("silu_mul", "cute-dsl")])
def test_methods_for_python_languages_name_nothing_of_cuda_cpp(kernel, implementation, family, monkeypatch):
    """Whatever kind of op it is, offers for Triton and CuTe's DSL hold no names of CUDA C++ or C++ templates."""
    monkeypatch.setattr(workload, "family_of", lambda op: family)
    context = context_of(kernel, implementation, "optimise")
    offered = offers(context)
    text = offered.text()
    assert not CUDA_ONLY.search(text), CUDA_ONLY.findall(text)
    assert not CPP_NAMES.search(text), CPP_NAMES.findall(text)


def test_every_language_has_its_constants():
    """What may be tuned is told for each language that a kernel is written in, and nothing is there for others."""
    assert set(stages.shipped()["constants"]) == set(get_args(workload.Language))
    assert set(stages.shipped()["families"]) == set(FAMILIES)
