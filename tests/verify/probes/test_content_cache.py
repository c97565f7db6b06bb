"""Time on numbers that a kernel has seen, and on others."""

from __future__ import annotations

import random
import time
from functools import partial
from typing import Any

import pytest
import torch

from pytest_cgins.timing.devices.cpu import Cpu
from pytest_cgins.verify.probes import content_cache
from pytest_cgins.verify.probes.content_cache import Contents


def test_a_result_that_is_kept_for_calls_in_a_row_is_seen() -> None:
    """As calls in a loop come one after the other: a kernel that looks nothing up after a pause."""
    tensors, cache = [torch.randn(40, 50) for _ in range(20)], {}
    ended = 0.0

    def call(tensor: torch.Tensor) -> None:
        nonlocal ended
        paused = time.perf_counter() - ended > 1e-3
        key = tensor.numpy().tobytes()
        if key not in cache or paused:
            end = time.perf_counter() + 5e-4  # well above what the copy takes on a busy machine
            while time.perf_counter() < end:
                pass
            cache[key] = True
        ended = time.perf_counter()

    facts = content_cache.observe([(partial(call, one), [one]) for one in tensors], Cpu())
    assert "results are kept by their inputs' content" in content_cache.judge(facts)


def test_an_honest_call_is_not() -> None:
    """Branches that depend on the numbers, denormals among them, cost the same the second time."""
    tensor = torch.randn(200, 300)
    tensor[::3] *= 1e-38

    def call() -> torch.Tensor:
        return torch.where(tensor > 0, tensor * 1e-3, tensor.exp())

    facts = content_cache.observe([(call, [tensor])], Cpu())
    assert content_cache.judge(facts) == ""
    assert facts["rounds"]


def test_the_tensors_hold_their_own_content_afterwards() -> None:
    """What the next probe finds is what was there before."""
    tensors = [torch.randn(30, 30), torch.arange(9)]
    before = [tensor.clone() for tensor in tensors]
    content_cache.observe([(lambda: None, tensors)], Cpu())
    assert all(map(torch.equal, tensors, before))


def test_other_orders_have_the_same_numbers_at_other_places() -> None:
    """All values of an order are among the recorded ones, integers stay, and no order comes twice."""
    data, index = torch.randn(20, 20).double(), torch.arange(20)
    contents = Contents([data, index])
    original = data.clone()
    seen = set()
    for _ in range(20):
        contents.write(contents.choose())
        assert torch.isin(data, original).all()
        assert index.tolist() == list(range(20))
        seen.add(data.numpy().tobytes())
    assert len(seen) == 20
    assert original.numpy().tobytes() not in seen


def test_sums_change_with_each_order() -> None:
    """A key that does not know the order, such as a sum, would otherwise be found again."""
    tensors = [torch.arange(1000.0), torch.arange(500.0)]
    contents = Contents(tensors)
    totals = [float(tensor.sum()) for tensor in tensors]
    for number in range(1, 1000):
        contents.write(number)
        assert all(float(tensor.sum()) != total for tensor, total in zip(tensors, totals, strict=True)), (
            number
        )


def test_views_of_one_storage_change_together() -> None:
    """Tensors that share memory are one row of numbers; transposed ones too."""
    base = torch.randn(30, 40)
    first = base.flatten().clone()
    Contents([base.t(), base[3:]]).write(7)
    moved = base.flatten()
    assert moved[7] != first[0]  # the one that is replaced, so that sums change
    assert torch.equal(moved[8:], first[1:-7])
    assert torch.equal(moved[:7], first[-7:])


@pytest.mark.parametrize("tensors", [[torch.arange(100)], [torch.zeros(1000)], [torch.randn(3)], []])
def test_calls_without_numbers_to_move_are_left_out(tensors: list[torch.Tensor]) -> None:
    """Integers, constants and a handful of numbers: the probe says that it was not run."""
    facts = content_cache.observe([(lambda: None, tensors)], Cpu())
    assert "no floating-point inputs" in facts["not_run"]
    assert content_cache.judge(facts) == ""


def test_an_op_that_refuses_another_order_is_left_alone() -> None:
    """What a matrix must be beyond its numbers is not known here: a refusal says nothing of the kernel."""
    matrix = torch.eye(9) + torch.ones(9, 9) / 20
    facts = content_cache.observe([(lambda: torch.linalg.cholesky(matrix), [matrix])], Cpu())
    assert "in another order" in facts["not_run"]


def _facts(rounds: list[list[tuple[float, float]]], *, in_a_row: bool = False) -> dict[str, Any]:
    return {"rounds": [{"in_a_row": in_a_row, "pairs": pairs} for pairs in rounds]}


def test_one_round_is_not_enough() -> None:
    """A single slow spell of a machine accuses nobody."""
    slow = [(90_000.0, 10_000.0)] * 7
    assert content_cache.judge(_facts([slow])) == ""
    assert content_cache.judge(_facts([slow, [(10_000, 10_000), *slow[1:]]])) == ""
    assert content_cache.judge(_facts([slow, slow])) != ""
    assert content_cache.judge(_facts([[(9_000, 5_000)] * 7] * 2)) == ""  # 4 µs are nothing


def test_learned_branches_are_no_cache() -> None:
    """After calls on the same numbers in a row a processor has learned a short call's branches: 2.5 times are nothing."""
    learned = _facts([[(50_000, 20_000)] * 7] * 2, in_a_row=True)
    assert content_cache.judge(learned) == ""
    assert content_cache.judge(_facts([[(50_000, 20_000)] * 7] * 2)) != ""
    assert content_cache.judge(_facts([[(500_000, 200_000)] * 7] * 2, in_a_row=True)) != ""


def _loaded(seed: int, ratio: float, turned: float) -> list[list[tuple[float, float]]]:
    """Rounds as a loaded host gives them: some pairs are turned round."""
    chance = random.Random(seed)
    pairs = [
        (1.0e6, ratio * 1e6) if chance.random() < turned else (ratio * 1e6, 1.0e6)
        for _ in range(content_cache.PAIRS * content_cache.MOST_ROUNDS)
    ]
    return [pairs[at : at + content_cache.PAIRS] for at in range(0, len(pairs), content_cache.PAIRS)]


@pytest.mark.parametrize("in_a_row", [True, False])
def test_a_loaded_host_does_not_hide_a_cache(in_a_row: bool) -> None:
    """Where some pairs are turned round by others' load, more rounds decide."""
    observed = [
        (2171323.0, 983926.0), (2015619.0, 984718.0), (3664020.0, 615064.0), (4021526.0, 759241.0),
        (3907550.0, 2379293.0), (2678009.0, 2726627.0), (2300000.0, 900000.0),
    ]  # fmt: skip
    for count, is_seen in ((1, False), (2, False), (content_cache.MOST_ROUNDS, True)):
        assert bool(content_cache.judge(_facts([observed] * count, in_a_row=in_a_row))) is is_seen


def test_a_loaded_host_accuses_nobody() -> None:
    """An honest call's pairs go either way, however far apart their times are."""
    for seed in range(300):
        rounds = _loaded(seed, 3.0, turned=0.5)
        assert not any(
            content_cache.judge(_facts(rounds[:count], in_a_row=in_a_row))
            for count in range(2, len(rounds) + 1)
            for in_a_row in (True, False)
        )


def test_rounds_go_on_while_they_do_not_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    """Until it is certain; an honest call has one of each kind."""
    waiting = {row: iter(_loaded(3, 3.0, turned=0.15)) for row in (True, False)}
    monkeypatch.setattr(content_cache, "_round", lambda *given, is_first: next(waiting[given[-1]]))
    facts = content_cache.observe([(lambda: None, [torch.randn(30, 30)])], Cpu())
    assert 4 < len(facts["rounds"]) <= 2 * content_cache.MOST_ROUNDS
    assert content_cache.judge(facts) != ""
    monkeypatch.setattr(content_cache, "_round", lambda *_, is_first: [(1e6, 1e6)] * content_cache.PAIRS)
    assert len(content_cache.observe([(lambda: None, [torch.randn(30, 30)])], Cpu())["rounds"]) == 2


@pytest.mark.parametrize(
    ("pairs", "is_cleared"),
    [
        ([(1e6, 1e6)] * 3, True),  # three of seven are turned round
        ([(1.5e6, 1e6)] * 3, False),
        ([(1.5e6, 1e6)] * 4, True),  # the median of seven is below the ratio
        ([(9e3, 5e3)] * 4, True),  # or the difference too small
        ([(3e6, 1e6)] * 6, False),
    ],
)
def test_a_first_round_that_nothing_can_change_ends(
    pairs: list[tuple[float, float]], is_cleared: bool
) -> None:
    """Whatever pairs would follow."""
    assert content_cache._is_cleared(pairs) is is_cleared
    rest = [(1e9, 1.0)] * (content_cache.PAIRS - len(pairs))
    assert not (is_cleared and content_cache._may_be_kept([pairs + rest], False))


def test_a_few_pairs_prove_nothing() -> None:
    """On a loaded host rounds end after three pairs, all of which may be slower by chance; fourteen are not."""
    slower = [(6.7e6, 2.9e6)]
    assert not content_cache._is_kept([slower * 3] * 2, False)
    assert not content_cache._is_kept([slower * 3] * 4, False)
    assert content_cache._is_kept([slower * 3] * 5, False)
    assert content_cache._is_kept([slower * content_cache.PAIRS] * 2, False)


@pytest.mark.parametrize("row", [True, False])
def test_the_same_comes_before_both_of_a_pair(row: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many calls: how long a process has run without a pause decides when it is interrupted."""
    calls, before = 0, {True: set[int](), False: set[int]()}

    def call() -> None:
        nonlocal calls
        calls += 1

    def timed(_call: object, _contents: object, number: int, _device: object) -> int:
        nonlocal calls
        before[number == 0].add(calls)
        calls = 0
        return 1_000_000

    contents = Contents([torch.randn(30, 30)])
    monkeypatch.setattr(content_cache, "_written_and_called", lambda *_: 1_000_000)
    monkeypatch.setattr(content_cache, "_time", timed)
    content_cache._round(call, contents, Cpu(), row, is_first=False)
    assert before[True] == before[False]
    assert min(before[True]) >= 2


def test_a_fault_of_the_probe_itself_is_not_the_kernel_s(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the kernel raises leaves the probe out; what raises in the probe is told as what it is."""
    monkeypatch.setattr(content_cache, "forget_branches", lambda: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        content_cache.observe([(lambda: None, [torch.randn(30, 30)])], Cpu())


@pytest.mark.parametrize(("sightings", "kept"), [(2, 10**6), (4, 10**6), (12, 10**6), (4, 2)])
def test_a_cache_may_wait_and_be_small(sightings: int, kept: int) -> None:
    """From whichever sighting on a result is looked up, and however few are kept: timed numbers are found."""
    tensor = torch.randn(40, 50)
    cache: dict[bytes, int] = {}

    def call() -> None:
        key = tensor.numpy().tobytes()
        cache[key] = cache.get(key, 0) + 1
        while len(cache) > kept:
            del cache[next(iter(cache))]
        if cache[key] < sightings:
            time.sleep(0.001)

    for _ in range(20):
        call()
    assert "results are kept" in content_cache.judge(content_cache.observe([(call, [tensor])], Cpu()))
