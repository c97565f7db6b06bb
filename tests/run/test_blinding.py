"""Sets of inputs under other names."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pytest_cgins.core.buffers import Buffer
from pytest_cgins.core.trace import OpCall
from pytest_cgins.run.blinding import Blinding
from pytest_cgins.run.kernel_run import Pair
from pytest_cgins.verify.messages import DeviantAnswer, KernelAnswers, PackedInputs, SetAnswer

NAMES = ("recorded", "fresh", "edge", "sizes 41", "sizes 43")


def inputs_of(name: str, index: int) -> PackedInputs:
    call = OpCall(op=f"torch.op{index}", arguments=())
    return PackedInputs(
        name=name, call=call, tensors={}, outputs=(), probe="sizes" if name.startswith("sizes") else ""
    )


@pytest.fixture
def pairs() -> list[Pair]:
    return [
        (inputs_of(name, index), Buffer.from_chunks([bytes([index])])) for index, name in enumerate(NAMES)
    ]


def answer(blinding: Blinding) -> KernelAnswers:
    """What a worker would say of these sets."""
    sets = tuple(SetAnswer(name=one.name, tensors={"op": one.call.op}) for one in blinding.sets)
    memory = [*({"set": one.name, "op": one.tensors["op"]} for one in sets), {"when": "kept"}]
    deviant = DeviantAnswer(probe="repeat", name=sets[0].name, tensors=sets[0].tensors)
    return KernelAnswers(sets=sets, deviations=(deviant,), observed={"memory_use": memory})


def test_a_worker_learns_neither_names_nor_probes(pairs: list[Pair]) -> None:
    """Names are random words, new ones each time; sets of probes are marked only as not to be run again."""
    one, other = (Blinding(pairs, seed="3") for _ in range(2))
    for blinding in (one, other):
        shown = repr(blinding.sets)
        assert not any(name in shown for name in NAMES)
        assert not any(single.probe for single in blinding.sets)
        assert sum(single.once for single in blinding.sets) == 2
    assert {single.name for single in one.sets}.isdisjoint(single.name for single in other.sets)


def test_order_is_that_of_the_seed_and_buffers_follow(pairs: list[Pair]) -> None:
    """The same seed gives the same order, another one another; every set keeps its buffer."""
    orders = {}
    for seed in ("3", "3", "4", "5", "6"):
        blinding = Blinding(pairs, seed=seed)
        order = [one.call.op for one in blinding.sets]
        assert [f"torch.op{bytes(buffer.view())[0]}" for buffer in blinding.buffers] == order
        assert orders.setdefault(seed, order) == order
    assert len({tuple(order) for order in orders.values()}) > 1


def test_real_names_come_back(pairs: list[Pair]) -> None:
    """Sets, deviations and what calls took get the names that they were prepared under."""
    names = {inputs.call.op: inputs.name for inputs, _ in pairs}
    blinding = Blinding(pairs, seed="3")
    result = blinding.take_off(answer(blinding))
    assert all(names[one.tensors["op"]] == one.name for one in (*result.sets, *result.deviations))
    taken = result.observed["memory_use"]
    assert all(names[one["op"]] == one["set"] for one in taken if "op" in one)


@pytest.mark.parametrize(
    "forge",
    [
        lambda result: replace(result, sets=result.sets[1:]),
        lambda result: replace(result, sets=result.sets[::-1]),
        lambda result: replace(result, sets=(replace(result.sets[0], name="recorded"), *result.sets[1:])),
        lambda result: replace(result, deviations=(replace(result.deviations[0], name="recorded"),)),
        lambda result: replace(result, observed={"memory_use": [{"set": "recorded"}]}),
        lambda result: replace(result, observed={"memory_use": [{"set": []}]}),
    ],
)
def test_an_answer_to_other_sets_is_refused(pairs: list[Pair], forge: Any) -> None:
    """Sets that are missing, in another order or unknown do not pass for answers."""
    blinding = Blinding(pairs, seed="3")
    with pytest.raises(ValueError, match=r"not sent|not those"):
        blinding.take_off(forge(answer(blinding)))
