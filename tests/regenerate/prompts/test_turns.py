"""Which axis a prompt begins with, and that its advice is of its language: methods, or where there are none the advice of its kind of op."""

from __future__ import annotations

import re
from typing import get_args

import pytest

from pytest_cgins.regenerate.attempt import Ask, Attempt
from pytest_cgins.regenerate.methods.axis_budget import Gaps
from pytest_cgins.regenerate.methods.classes import MethodMemory
from pytest_cgins.regenerate.methods.definition import AXES
from pytest_cgins.regenerate.prompts import assembly, methods, templating, workload
from pytest_cgins.regenerate.prompts.target_prompts import turn_of
from pytest_cgins.regenerate.search.policies.single_shot import SingleShot
from pytest_cgins.regenerate.search.policy import Means
from pytest_cgins.regenerate.search.tree import ROOT, Tree
from tests.regenerate.prompts.example import context_of

CUDA_ONLY = re.compile(
    r"__\w+|\bfloat4\b|\b\w*expf\b|\bfmaf\b|\berff\b|threadIdx|blockIdx|#pragma|cudaFunc|reinterpret_cast|\btemplates?\b|launch bounds"
)
CPP_NAMES = re.compile(r"\w<\w+|\bSM\d+_\w+|\w::\w|CUTE_\w+")
ALL_GAPS = Gaps(compute=0.5, memory=0.5, latency=0.5)


def offers(context):
    return methods.offers(context, MethodMemory(), gaps=ALL_GAPS, metrics={}, applied=())


def ask(parent, number, kind="optimise", **given):
    return Ask(parent=parent, kind=kind, round=number, **given)


def candidate(number, asked, *, ratio=None, beats=False):
    return Attempt(
        number=number, goal="optimise", outcome="right" if ratio else "failed", reason="", message="", ask=asked,
        time_ratio=ratio, beats_champion=beats,
    )  # fmt: skip


def test_each_gain_on_the_way_and_each_round_without_one_gives_the_next_axis_its_turn():
    """Steps of one evolving kernel go through compute, memory and latency, whether they gained or not, and then are free."""
    made = [
        candidate(1, ask(0, 1), ratio=0.9, beats=True),
        candidate(2, ask(1, 2), ratio=0.95),
        candidate(3, ask(1, 3), ratio=0.8, beats=True),
    ]
    assert [turn_of(made[number].ask, Tree(made[:number])) for number in range(3)] == list(AXES)
    assert turn_of(ask(3, 4), Tree(made)) is None
    # another way from the incumbent: one axis was tried from it
    assert turn_of(ask(0, 5), Tree(made)) == "memory"


def test_a_round_in_which_nothing_came_out_right_is_repeated_with_its_axis():
    """Wrong candidates, their mendings and ablations give no other axis its turn; those that are asked at once share it."""
    made = [candidate(1, ask(0, 1)), candidate(2, ask(1, 1, "fix")), candidate(3, ask(0, 1, "regenerate"))]
    tree = Tree(made)
    assert turn_of(ask(0, 1, "regenerate"), tree) == turn_of(ask(0, 2), tree) == "compute"
    mended = Tree([*made, candidate(4, ask(3, 1, "fix"), ratio=0.9, beats=True)])
    assert turn_of(ask(4, 2), mended) == "memory"
    ablated = Tree([*mended, candidate(5, ask(4, 1, "ablate", method="x"), ratio=1.0)])
    assert turn_of(ask(4, 2), ablated) == "memory"
    branches = Tree([candidate(1, ask(0, 1), ratio=1.1), candidate(2, ask(0, 1, branch=1), ratio=1.2)])
    assert turn_of(ask(0, 2), branches) == turn_of(ask(0, 2, branch=1), branches) == "memory"


def test_one_pass_has_no_turns():
    """What `single-shot` asks for looks at all axes at once."""
    (first,) = SingleShot(Means(models=("",)), 3).next(Tree())
    assert turn_of(first, Tree()) is None


@pytest.mark.parametrize(
    ("gaps", "axis"),
    [
        (Gaps(), None),
        (Gaps(compute=0.9, memory=0.05, latency=0.02), None),
        (Gaps(compute=0.9, memory=0.3, latency=0.4), "latency"),
        (Gaps(compute=0.9, memory=0.3, latency=0.2), "memory"),
        (Gaps(compute=0.6, memory=0.9, latency=0.5), "compute"),
        (Gaps(compute=0.99, memory=0.91), "latency"),
        (Gaps(compute=0.2, memory=0.9, latency=0.1), "compute"),
        (Gaps(compute=0.5, memory=0.5, latency=0.5), "memory"),
    ],
)
def test_the_axis_with_most_to_win(gaps, axis):
    """Of compute and memory the one nearer to its peak counts, and waiting; a kernel far from both waits."""
    assert gaps.leading() == axis


def test_figures_go_before_the_turn():
    """Where figures lead to another axis than the one whose turn it is, the prompt says to begin there, and only that."""
    context = context_of("softmax", "triton", "optimise")
    told = methods.offers(
        context, MethodMemory(), gaps=Gaps(compute=0.6, memory=0.4, latency=0.5),
        metrics={}, applied=(),
    ).text("memory")  # fmt: skip
    assert "Begin with latency: there is most to win, as the figures say." in told
    assert told.index("### Latency") < told.index("### Memory")
    unknown = methods.offers(context, MethodMemory(), gaps=Gaps(), metrics={}, applied=())
    assert "Begin with latency: the axes are taken in turn" in unknown.text("latency")
    assert "Begin with" not in unknown.text()


@pytest.mark.parametrize(
    ("kernel", "implementation", "wanted"),
    [
        ("softmax", "triton", ("BLOCK", "num_warps", "num_stages", "tl.constexpr")),
        ("linear", "cute", ("TiledMMA", "TiledCopy", "Swizzle")),
        ("silu_mul", "cute-dsl", ("cute.make_copy_atom", "cutlass.Constexpr", "tiled copy")),
    ],
)
def test_a_prompt_for_triton_and_cute_is_about_that_language(kernel, implementation, wanted):
    """The prompt of a search has one source of advice, the methods of its language, and no other's names."""
    context = context_of(kernel, implementation, "optimise")
    offered = offers(context).text("memory")
    made = assembly.candidate(context, ask(0, 1), ROOT, shown=(), evidence="", methods=offered)[-1].text
    assert len(made) <= assembly.MOST_CHARACTERS
    assert offered in made
    assert "## What makes it fast" not in made
    for name in wanted:
        assert name in made
    if implementation != "cute":
        assert not CUDA_ONLY.search(offered)
        assert not CPP_NAMES.search(offered)


def test_a_new_kernel_is_told_the_methods_of_its_kind_of_op():
    """What makes it fast is said by the methods of first priority for its op and language, a few lines; a repair is not told."""
    for kernel, implementation, wanted, unwanted in (
        ("linear", "cpp", "Blocked products with packed panels", "Threads over independent planes"),
        ("softmax", "cuda", "Neighbouring threads touch neighbouring elements", "Blocked products"),
    ):
        context = context_of(kernel, implementation, "generate")
        told = methods.first_ones(context, MethodMemory())
        assert wanted in told
        assert unwanted not in told
        assert 2 <= told.count("\n- ") + 1 <= 5
        assert told in assembly.generator(context, methods=told)[-1].text
    assert "What makes it fast" not in assembly.generator(context_of("linear", "cpp"))[-1].text


@pytest.mark.parametrize("family", get_args(workload.Family))
@pytest.mark.parametrize(("kernel", "implementation"), [("softmax", "triton"), ("silu_mul", "cute-dsl")])
def test_methods_for_python_languages_name_nothing_of_cuda_cpp(kernel, implementation, family, monkeypatch):
    """Whatever kind of op it is, offers for Triton and CuTe's DSL hold no names of CUDA C++ or C++ templates."""
    monkeypatch.setattr(workload, "family_of", lambda op: family)
    context = context_of(kernel, implementation, "optimise")
    offered = offers(context)
    text = offered.text()
    assert not CUDA_ONLY.search(text), CUDA_ONLY.findall(text)
    assert not CPP_NAMES.search(text), CPP_NAMES.findall(text)


@pytest.mark.parametrize("language", get_args(workload.Language))
def test_every_language_has_its_constants(language):
    """What may be tuned is told for each language that a kernel is written in."""
    assert "Constants that may be tuned: " in templating.text(f"languages/{language}.md")
