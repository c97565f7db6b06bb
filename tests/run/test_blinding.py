"""Sets of inputs under other names."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_cgins.core.buffers import Buffer
from pytest_cgins.run.blinding import Blinding

NAMES = ("recorded", "fresh", "edge", "sizes 41", "sizes 43")


@pytest.fixture
def pairs() -> list[tuple[dict[str, Any], Buffer]]:
    return [
        (
            {"name": name, "probe": name.partition("sizes")[1], "call": index},
            Buffer.from_chunks([bytes([index])]),
        )
        for index, name in enumerate(NAMES)
    ]


def answer(blinding: Blinding) -> dict[str, Any]:
    """What a worker would say of these sets."""
    sets = [{"name": one["name"], "call": one["call"]} for one in blinding.sets]
    memory = [*({"set": one["name"], "call": one["call"]} for one in sets), {"when": "kept"}]
    return {"sets": sets, "deviations": [dict(sets[0])], "observed": {"memory_use": memory}}


def test_a_worker_learns_neither_names_nor_probes(pairs: list[tuple[dict[str, Any], Buffer]]) -> None:
    """Names are random words, new ones each time; sets of probes are marked only as not to be run again."""
    one, other = (Blinding(pairs, seed="3") for _ in range(2))
    for blinding in (one, other):
        shown = repr(blinding.sets)
        assert not any(name in shown for name in (*NAMES, "probe"))
        assert sum(bool(single.get("once")) for single in blinding.sets) == 2
    assert {single["name"] for single in one.sets}.isdisjoint(single["name"] for single in other.sets)


def test_order_is_that_of_the_seed_and_buffers_follow(pairs: list[tuple[dict[str, Any], Buffer]]) -> None:
    """The same seed gives the same order, another one another; every set keeps its buffer."""
    orders = {}
    for seed in ("3", "3", "4", "5", "6"):
        blinding = Blinding(pairs, seed=seed)
        order = [one["call"] for one in blinding.sets]
        assert [bytes(buffer.view())[0] for buffer in blinding.buffers] == order
        assert orders.setdefault(seed, order) == order
    assert len({tuple(order) for order in orders.values()}) > 1


def test_real_names_come_back(pairs: list[tuple[dict[str, Any], Buffer]]) -> None:
    """Sets, deviations and what calls took get the names that they were prepared under."""
    blinding = Blinding(pairs, seed="3")
    result = answer(blinding)
    blinding.take_off(result)
    assert all(NAMES[one["call"]] == one["name"] for one in (*result["sets"], *result["deviations"]))
    taken = result["observed"]["memory_use"]
    assert all(NAMES[one["call"]] == one["set"] for one in taken if "call" in one)


@pytest.mark.parametrize(
    "forge",
    [
        lambda result: result["sets"].pop(),
        lambda result: result["sets"].reverse(),
        lambda result: result["sets"][0].update(name="recorded"),
        lambda result: result["deviations"][0].update(name="recorded"),
        lambda result: result.pop("deviations"),
    ],
)
def test_an_answer_to_other_sets_is_refused(pairs: list[tuple[dict[str, Any], Buffer]], forge: Any) -> None:
    """Sets that are missing, in another order or unknown do not pass for answers."""
    blinding = Blinding(pairs, seed="3")
    result = answer(blinding)
    forge(result)
    with pytest.raises((KeyError, ValueError)):
        blinding.take_off(result)
