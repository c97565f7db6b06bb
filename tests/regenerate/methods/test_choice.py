"""What is offered for a round, what a prompt says of it, and which choices hold to the rules."""

from __future__ import annotations

import random
from contextlib import suppress
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_cgins.core.errors import AnswerError
from pytest_cgins.regenerate.methods import registry
from pytest_cgins.regenerate.methods.axis_budget import TIES, Gaps, axis_budget
from pytest_cgins.regenerate.methods.classes import MethodMemory, Tried, classify
from pytest_cgins.regenerate.methods.definition import FAMILIES, LANGUAGES
from pytest_cgins.regenerate.methods.registry import Registry
from pytest_cgins.regenerate.methods.select import (
    SPARE,
    Choice,
    Pick,
    Situation,
    not_again,
    read_choice,
    select,
    validate,
)
from pytest_cgins.regenerate.prompts.methods import offered_in, offered_text

SHIPPED = registry.shipped()
HOPPER = Situation(
    kernel="mm", device="cuda", device_name="NVIDIA H200", capability=90, language="cuda", families=("matmul",),
    dtypes=("float16",), metrics={"share_of_compute": 0.2},
)  # fmt: skip
BUDGET = axis_budget(Gaps(compute=0.8, memory=0.3, latency=0.05))
EMPTY = MethodMemory()


def tried(method: str, result: str = "ineffective", **more: object) -> Tried:
    shown = "absent" if result == "implementation-failed" else "present" if result != "unknown" else "unknown"
    values = {
        "kernel": "mm", "device_name": "NVIDIA H200", "language": "cuda", "method": method, "result": result,
        "shown": shown, "proven": result == "effective", "families": ("matmul",), "run": "r1", "round": 1,
    }  # fmt: skip
    return Tried(**{**values, **more})  # type: ignore[arg-type]


def offered(situation: Situation = HOPPER, memory: MethodMemory = EMPTY) -> list[str]:
    return [offer.method.id for offer in select(SHIPPED, situation, BUDGET, memory)]


def complaints(
    *picks: str,
    skipped: dict[str, str] | None = None,
    situation: Situation = HOPPER,
    memory: MethodMemory = EMPTY,
) -> list[tuple[str, str]]:
    choice = Choice(picks=tuple(Pick(method=name, why="because") for name in picks), skipped=skipped or {})
    found = validate(
        choice, select(SHIPPED, situation, BUDGET, memory), registry=SHIPPED, situation=situation, budget=BUDGET,
        memory=memory,
    )  # fmt: skip
    assert all(
        one.message and one.message.startswith(one.method)
        for one in found
        if one.code in {"unfit", "not-again"}
    )
    return [(one.code, one.method) for one in found]


def test_the_classes() -> None:
    """Machine code decides first, then the proof; without an ablation nothing is proven."""
    assert classify("present", True) == "effective"
    assert classify("present", False) == classify("present", None) == "ineffective"
    assert classify("absent", True) == "implementation-failed"
    assert classify("unknown", True) == classify("unknown", None) == "unknown"


def test_offers_follow_budget_and_evidence() -> None:
    """Axes without a budget offer nothing; what a bad metric calls for leads its axis."""
    names = offered()
    axes = [SHIPPED.get(name).axis for name in names]
    assert (BUDGET.compute, BUDGET.memory, BUDGET.latency) == (2, 1, 0)
    assert set(axes) == {"compute", "memory"}
    assert axes.count("compute") <= 2 + SPARE
    assert names[0] in {"wgmma", "tensor-core-mma"}
    busy = replace(HOPPER, metrics={"share_of_compute": 0.9})
    assert offered(busy)[0] not in {"wgmma", "tensor-core-mma"}


def test_offers_fit_device_language_type_and_workload() -> None:
    """Nothing is offered that the device, the language, the type or the op cannot use."""
    assert "wgmma" not in offered(replace(HOPPER, capability=80))
    assert "wgmma" not in offered(replace(HOPPER, capability=100))
    assert "tensor-core-mma" not in offered(replace(HOPPER, dtypes=("float32",)))
    assert "online-softmax" not in offered()
    assert not set(offered(replace(HOPPER, language="triton"))) & {"padded-rows", "matrix-loads"}
    host = replace(HOPPER, device="cpu", capability=0, language="cpp")
    assert offered(host)
    assert all(name.startswith("cpu-") for name in offered(host))


def test_what_is_in_the_kernel_is_not_offered_nor_what_it_excludes() -> None:
    """Applied methods and their opposites are left out, and what they make possible comes in."""
    conflicts = {"bank_conflict_pct": 60.0}
    assert "swizzled-layout" in offered(replace(HOPPER, metrics=conflicts))
    names = offered(replace(HOPPER, metrics=conflicts, applied=("swizzled-layout", "tma-load")))
    assert not {"swizzled-layout", "padded-rows", "tma-load"} & set(names)


def test_what_did_not_work_is_not_offered_again() -> None:
    """Ineffective and failed methods are barred for this kernel, device and language alone; a later success frees them."""
    first = offered()[0]
    for result in ("ineffective", "implementation-failed"):
        assert first not in offered(memory=MethodMemory(tried=(tried(first, result),)))
    for other in ({"kernel": "conv"}, {"device_name": "NVIDIA A100"}, {"language": "triton"}):
        assert first in offered(memory=MethodMemory(tried=(tried(first, **other),)))
    freed = MethodMemory(tried=(tried(first), tried(first, "effective", round=2)))
    assert first in offered(memory=freed)


def test_what_worked_elsewhere_comes_first() -> None:
    """An effective method of the same workload leads; an unproven one falls behind."""
    names = offered()
    last = next(name for name in reversed(names) if SHIPPED.get(name).axis == "compute")
    elsewhere = tried(last, "effective", kernel="other", device_name="NVIDIA A100", slowdown_without=1.4)
    memory = MethodMemory(tried=(elsewhere,))
    assert offered(memory=memory).index(last) < names.index(last)
    (offer,) = [one for one in select(SHIPPED, HOPPER, BUDGET, memory) if one.method.id == last]
    assert "worked for other on NVIDIA A100, 1.40 times" in offer.why
    unproven = offered(memory=MethodMemory(tried=(tried(names[0], "unknown"),)))
    assert names[0] not in unproven[:1]


@pytest.mark.exam
@given(
    capability=st.sampled_from([70, 75, 80, 86, 89, 90, 100, 120]),
    language=st.sampled_from(LANGUAGES),
    families=st.lists(st.sampled_from(FAMILIES), max_size=2, unique=True).map(tuple),
    gaps=st.builds(Gaps, compute=st.floats(0, 1), memory=st.floats(0, 1), latency=st.floats(0, 1)),
    metric=st.floats(0, 1),
    seed=st.integers(0, 99),
)
def test_offers_are_the_same_each_time_and_all_of_them_may_be_chosen(
    capability: int, language: str, families: tuple[str, ...], gaps: Gaps, metric: float, seed: int
) -> None:
    """The order of the registry does not matter; each offer alone, with what it requires, has nothing against it but order."""
    cpu = language == "cpp"
    situation = Situation(
        kernel="k", device="cpu" if cpu else "cuda", device_name="d", capability=0 if cpu else capability,
        language=language, families=families, metrics={"share_of_bandwidth": metric},  # type: ignore[arg-type]
    )  # fmt: skip
    budget = axis_budget(gaps)
    offers = select(SHIPPED, situation, budget, EMPTY)
    shuffled = list(SHIPPED.methods.items())
    random.Random(seed).shuffle(shuffled)
    assert offers == select(Registry(dict(shuffled)), situation, budget, EMPTY)
    assert all(sum(one.method.axis == axis for one in offers) <= budget.of(axis) + SPARE for axis in TIES)
    for offer in offers:
        choice = Choice(picks=(Pick(method=offer.method.id, why="x"),))
        found = validate(choice, offers, registry=SHIPPED, situation=situation, budget=budget, memory=EMPTY)
        assert {one.code for one in found} <= {"priority", "requires"}


def test_a_good_choice() -> None:
    """Three of the first offers of each axis are right."""
    names = offered()
    compute = [name for name in names if SHIPPED.get(name).axis == "compute"][:2]
    memory = [name for name in names if SHIPPED.get(name).axis == "memory"][:1]
    assert complaints(*compute, *memory) == []


def test_each_rule_has_its_complaint() -> None:
    """Budget, existence, repetition, device, conflicts, requirements and priorities."""
    assert complaints() == [("empty", "")]
    assert complaints("wgma") == [("unknown", "wgma")]
    assert ("twice", "wgmma") in complaints("wgmma", "wgmma")
    assert complaints("wgmma", "tensor-core-mma", "compile-time-shape") == [("budget", "compile-time-shape")]
    assert ("budget", "one-launch") in complaints("one-launch")
    assert ("unfit", "tcgen05-mma") in complaints("tcgen05-mma")
    assert ("unfit", "cpu-one-pass") in complaints("cpu-one-pass")
    assert ("unfit", "wgmma") in complaints("wgmma", situation=replace(HOPPER, applied=("wgmma",)))
    assert ("not-again", "wgmma") in complaints("wgmma", memory=MethodMemory(tried=(tried("wgmma"),)))
    assert ("conflict", "padded-rows") in complaints("swizzled-layout", "padded-rows")
    assert ("requires", "tma-multicast") in complaints("tma-multicast")
    applied = replace(HOPPER, applied=("tma-load",))
    assert ("requires", "tma-multicast") not in complaints("tma-multicast", situation=applied)


def test_a_skipped_priority_needs_a_reason() -> None:
    """A method of priority 2 stands only if every better offer of its axis is chosen, excluded or excused."""
    assert SHIPPED.get("warp-tile-shape").priority == 2
    better = [
        one for one in offered() if SHIPPED.get(one).axis == "compute" and SHIPPED.get(one).priority == 1
    ]
    found = complaints("warp-tile-shape")
    assert found == [("priority", name) for name in better]
    assert complaints("warp-tile-shape", skipped=dict.fromkeys(better, "done by the library")) == []
    assert complaints("warp-tile-shape", skipped=dict.fromkeys(better, "  ")) == found
    assert ("priority", "coalesced-access") not in found  # another axis


def test_a_choice_needs_reasons() -> None:
    """A pick without a why is told."""
    choice = Choice(picks=(Pick(method="wgmma", why=" "),))
    offers = select(SHIPPED, HOPPER, BUDGET, EMPTY)
    found = validate(choice, offers, registry=SHIPPED, situation=HOPPER, budget=BUDGET, memory=EMPTY)
    assert [(one.code, one.message) for one in found] == [
        ("no-reason", "wgmma was chosen without a reason: give one")
    ]


def test_choices_are_read_from_answers() -> None:
    """The block that is a choice counts, wherever it stands; none is an error with the form to use."""
    text = (
        'Thus:\n```json\n{"other": 1}\n```\n```json\n{"picks": [{"method": "wgmma", "why": "idle tensor cores"}],\n'
        ' "skipped": {"tma-load": "later"}}\n```\nand code.'
    )
    assert read_choice(text) == Choice(
        picks=(Pick(method="wgmma", why="idle tensor cores"),), skipped={"tma-load": "later"}
    )
    assert read_choice('{"picks": []}') == Choice(picks=())
    with pytest.raises(AnswerError, match="no choice of methods") as caught:
        read_choice("I take wgmma.")
    assert caught.value.code == "no-choice"
    assert '{"picks": [{"method": ID' in caught.value.remedy


@given(text=st.text(alphabet='{}[]"picks:,method why`\n', max_size=300))
def test_no_answer_breaks_the_reader(text: str) -> None:
    """Any text is a choice or an AnswerError."""
    with suppress(AnswerError):
        assert isinstance(read_choice(text), Choice)


def test_the_block_of_a_prompt() -> None:
    """Budget, offers with how, care and evidence, what is not to be repeated, and the form of the answer."""
    memory = MethodMemory(tried=(tried("register-tile", round=2),))
    text = offered_text(select(SHIPPED, HOPPER, BUDGET, memory), BUDGET, "cuda", not_again(HOPPER, memory))
    assert text.startswith("## Methods for this round\nChoose at most 3 methods (1 of memory, 2 of compute).")
    assert "### Compute: at most 2\n" in text
    assert sorted(offered_in(text)) == sorted(
        one.method.id for one in select(SHIPPED, HOPPER, BUDGET, memory)
    )
    assert "### Latency" not in text
    assert "- `wgmma` (priority 1) Warpgroup products" in text
    assert "  How: wgmma.mma_async" in text
    assert "  Here: share_of_compute is 0.2 (good: 0.75, bad: 0.4)." in text
    assert "### Not again\n- `register-tile`: ineffective in round 2 of run r1" in text
    assert read_choice(text.rsplit("`", 2)[1]).picks[0].method == "ID"
    assert len(text) < 12_000
    guessed = axis_budget(Gaps(compute=0.8))
    assert "Nothing was measured for memory and latency" in offered_text([], guessed, "cuda", {})
