"""Time on numbers that a kernel has seen, and on others."""

from __future__ import annotations

import random
import time

import pytest
import torch

from pytest_cgins.probes import content_cache
from pytest_cgins.probes.content_cache import Contents


def test_a_result_kept_by_content_is_seen() -> None:
    """A call that takes 2 ms on new numbers, and looks the old ones up, trips."""
    tensor, cache = torch.randn(40, 50), {}

    def call() -> torch.Tensor:
        key = tensor.numpy().tobytes()
        if key not in cache:
            time.sleep(0.002)
            cache[key] = tensor.relu()
        return cache[key]

    call()
    facts = content_cache.observe(call, [tensor], "cpu", seed=1)
    assert "results are kept by their inputs' content" in content_cache.judge(facts)
    assert len(cache) > content_cache.PAIRS


def test_an_honest_call_is_not(benchmark_tensor: torch.Tensor) -> None:
    """Branches that depend on the numbers, denormals among them, cost the same the second time."""
    tensor = benchmark_tensor

    def call() -> torch.Tensor:
        return torch.where(tensor > 0, tensor * 1e-3, tensor.exp())

    facts = content_cache.observe(call, [tensor], "cpu", seed=1)
    assert content_cache.judge(facts) == ""
    assert facts["rounds"]


@pytest.fixture
def benchmark_tensor() -> torch.Tensor:
    tensor = torch.randn(200, 300)
    tensor[::3] *= 1e-38
    return tensor


def test_the_tensors_hold_their_own_content_afterwards() -> None:
    """What the next probe finds is what was there before."""
    tensors = [torch.randn(30, 30), torch.arange(9)]
    before = [tensor.clone() for tensor in tensors]
    content_cache.observe(lambda: None, tensors, "cpu", seed=3)
    assert all(map(torch.equal, tensors, before))


def test_other_orders_have_the_same_numbers_at_other_places() -> None:
    """All values of an order are among the recorded ones, integers stay, and no order comes twice."""
    data, index = torch.randn(20, 20).double(), torch.arange(20)
    contents = Contents([data, index], seed=5)
    original = data.clone()
    seen = set()
    for _ in range(20):
        contents.write(contents.choose())
        assert torch.isin(data, original).all()
        assert index.tolist() == list(range(20))
        seen.add(data.numpy().tobytes())
    assert len(seen) == 20
    assert original.numpy().tobytes() not in seen


def test_sums_change_with_the_order() -> None:
    """A key that does not know the order, such as a sum, would otherwise be found again."""
    data = torch.arange(1000.0)
    contents = Contents([data], seed=2)
    total = float(data.sum())
    contents.write(contents.choose())
    assert float(data.sum()) != total


def test_views_of_one_storage_change_together() -> None:
    """Tensors that share memory are one row of numbers; transposed ones too."""
    base = torch.randn(30, 40)
    first = base.flatten().clone()
    Contents([base.t(), base[3:]], seed=1).write(7)
    moved = base.flatten()
    assert moved[7] != first[0]  # the one that is replaced, so that sums change
    assert torch.equal(moved[8:], first[1:-7])
    assert torch.equal(moved[:7], first[-7:])


@pytest.mark.parametrize("tensors", [[torch.arange(100)], [torch.zeros(1000)], [torch.randn(3)], []])
def test_calls_without_numbers_to_move_are_left_out(tensors: list[torch.Tensor]) -> None:
    """Integers, constants and a handful of numbers: the probe says that it was not run."""
    facts = content_cache.observe(lambda: None, tensors, "cpu", seed=1)
    assert "no floating-point inputs" in facts["not_run"]
    assert content_cache.judge(facts) == ""


def test_an_op_that_refuses_another_order_is_left_alone() -> None:
    """What a matrix must be beyond its numbers is not known here: a refusal says nothing of the kernel."""
    matrix = torch.eye(9) + torch.ones(9, 9) / 20
    facts = content_cache.observe(lambda: torch.linalg.cholesky(matrix), [matrix], "cpu", seed=1)
    assert "in another order" in facts["not_run"]


def test_one_round_is_not_enough() -> None:
    """A single slow spell of a machine accuses nobody."""
    slow = [(90_000, 10_000)] * 7
    assert content_cache.judge({"rounds": [slow]}) == ""
    assert content_cache.judge({"rounds": [slow, [(10_000, 10_000), *slow[1:]]]}) == ""
    assert content_cache.judge({"rounds": [slow, slow]}) != ""
    assert content_cache.judge({"rounds": [[(9_000, 5_000)] * 7] * 2}) == ""  # 4 µs are nothing


def _loaded(seed: int, ratio: float, turned: float) -> list[list[tuple[float, float]]]:
    """Rounds as a loaded host gives them: some pairs are turned round."""
    chance = random.Random(seed)
    pairs = [
        (1.0e6, ratio * 1e6) if chance.random() < turned else (ratio * 1e6, 1.0e6)
        for _ in range(content_cache.PAIRS * content_cache.MOST_ROUNDS)
    ]
    return [pairs[at : at + content_cache.PAIRS] for at in range(0, len(pairs), content_cache.PAIRS)]


def test_a_loaded_host_does_not_hide_a_cache() -> None:
    """Where some pairs are turned round by others' load, more rounds decide."""
    observed = [
        (2171323, 983926), (2015619, 984718), (3664020, 615064), (4021526, 759241), (3907550, 2379293),
        (2678009, 2726627), (2300000, 900000),
    ]  # fmt: skip
    assert content_cache.judge({"rounds": [observed]}) == ""
    assert content_cache.judge({"rounds": [observed] * 2}) == ""
    assert content_cache.judge({"rounds": [observed] * content_cache.MOST_ROUNDS}) != ""


def test_a_loaded_host_accuses_nobody() -> None:
    """An honest call's pairs go either way, however far apart their times are."""
    for seed in range(300):
        rounds = _loaded(seed, 3.0, turned=0.5)
        assert not any(content_cache.judge({"rounds": rounds[:count]}) for count in range(2, len(rounds) + 1))


def test_rounds_go_on_while_they_do_not_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    """Until it is certain; an honest call has one."""
    waiting = iter(_loaded(3, 3.0, turned=0.15))
    monkeypatch.setattr(content_cache, "_round", lambda *_: next(waiting))
    facts = content_cache.observe(lambda: None, [torch.randn(30, 30)], "cpu", seed=1)
    assert 2 < len(facts["rounds"]) <= content_cache.MOST_ROUNDS
    assert content_cache.judge(facts) != ""
    monkeypatch.setattr(content_cache, "_round", lambda *_: [(1e6, 1e6)] * content_cache.PAIRS)
    assert len(content_cache.observe(lambda: None, [torch.randn(30, 30)], "cpu", seed=1)["rounds"]) == 1
