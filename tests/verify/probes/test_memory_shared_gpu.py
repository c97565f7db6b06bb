"""Memory of a GPU that other processes use as well: what is a leak, and whose."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_cgins.verify.probe_support import idle_pairs, memory
from pytest_cgins.verify.probe_support.idle_pairs import SHARES, evidence
from pytest_cgins.verify.probes import memory_leak, memory_use
from pytest_cgins.verify.probes.memory_leak import Leak
from pytest_cgins.verify.probes.memory_use import Meter

MIB = 2**20
GRAIN = memory.GRAIN_NBYTES


class Gpu:
    """A GPU's counts, which others' steps move whenever they are read; a call of `leak` bytes is run by hand.

    Args:
        leak: bytes that each call takes for good.
        share: of readings, before which another process took or gave back.
        seed: of the others.
    """

    def __init__(self, leak: int, share: float, seed: int) -> None:
        self.leak, self.share = leak, share
        self.own = self.others = 0
        self.calls = 0
        self._random = random.Random(seed)

    def call(self) -> None:
        self.calls += 1
        self.own += self.leak

    def taken(self) -> int:
        """The whole GPU's, in grains."""
        if self._random.random() < self.share:
            self.others += GRAIN * self._random.randint(-250, 250)
        return self.own // GRAIN * GRAIN + self.others


class Relu:
    """The trial of a kernel on such a GPU."""

    name = "recorded"
    device = "cuda:0"
    mutates = mutates_integers = False

    def __init__(self, gpu: Gpu) -> None:
        self._gpu = gpu
        self.answer = [torch.ones(3)]

    def rerun(self, *, poisoned: bool = False) -> list[torch.Tensor]:
        """One call."""
        self._gpu.call()
        return self.answer


@pytest.fixture
def on(monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Lets the probe look at a GPU; gives what it says."""

    def look(gpu: Gpu, *, told: bool) -> str:
        def in_use(_device: str, *, with_own: bool = False) -> dict[str, int]:
            found = {"torch": 0, "driver": gpu.taken()}
            return {**found, "own": gpu.own} if with_own and told else found

        monkeypatch.setattr(memory, "in_use", in_use)
        monkeypatch.setattr(memory, "driver_in_use", lambda _device: gpu.taken())
        monkeypatch.setattr(memory, "held_beside_torch", lambda _device: gpu.own if told else None)
        leak = Leak(Relu(gpu))  # type: ignore[arg-type]
        assert list(leak.deviations()) == []
        return memory_leak.judge(leak.facts)

    return look


def _pairs(gpu: Gpu) -> list[tuple[int, int]]:
    return idle_pairs.observe(gpu.call, gpu.taken, lambda: False)


@given(st.integers(0, 2**32), st.floats(0, 1))
@settings(max_examples=60, deadline=None)
def test_steps_of_others_make_no_kernel_suspect(seed: int, share: float) -> None:
    """However often other processes take and give hundreds of megabytes."""
    assert not idle_pairs.is_growth(_pairs(Gpu(0, share, seed)))


@given(st.integers(0, 2**32), st.floats(0, 0.25), st.integers(2 * MIB, 64 * MIB))
@settings(max_examples=40, deadline=None)
def test_a_leak_is_found_among_steps_of_others(seed: int, share: float, leak: int) -> None:
    """2 MiB a call and more, while every fourth spell has a step of another process in it."""
    assert idle_pairs.is_growth(_pairs(Gpu(leak, share, seed)))


def test_a_smaller_leak_is_found_by_its_grains() -> None:
    """The count rises in every eighth call only."""
    assert idle_pairs.is_growth(_pairs(Gpu(256 * 1024, 0, seed=0)))


@pytest.mark.parametrize("rate", [-1, 1])
def test_a_process_that_grows_or_shrinks_all_the_time_makes_no_kernel_suspect(rate: int) -> None:
    """Idle spells are as long as calls."""
    gpu = Gpu(0, 0, seed=0)

    def taken() -> int:
        gpu.others += rate * GRAIN * gpu._random.randint(0, 3)
        return gpu.taken()

    assert not idle_pairs.is_growth(idle_pairs.observe(gpu.call, taken, lambda: False))


def test_what_comes_back_after_the_call_is_not_leaked() -> None:
    """A library that frees behind a call's back is ahead in every pair, and keeps nothing."""
    assert idle_pairs.is_growth([(8 * MIB, 0)] * 30)
    assert not idle_pairs.is_growth([(8 * MIB, -8 * MIB)] * 30)


def test_few_pairs_prove_nothing() -> None:
    """A kernel too slow for enough pairs is not accused, nor one that allocates at times."""
    assert not idle_pairs.is_growth([])
    assert not idle_pairs.is_growth([(8 * MIB, 0)] * 15)
    assert not idle_pairs.is_growth([(8 * MIB, 0)] * 15 + [(0, 0)] * 200)


def test_a_quiet_honest_kernel_is_let_go_soon() -> None:
    """What was suspected because of a single spell costs few calls."""
    assert len(_pairs(Gpu(0, 0, seed=0))) == idle_pairs.LEAST_PAIRS


def test_no_more_is_called_when_the_kernel_failed() -> None:
    """An error ends the pairs."""
    gpu = Gpu(0, 0, seed=0)
    assert idle_pairs.observe(gpu.call, gpu.taken, lambda: gpu.calls >= 3) == [(0, 0), (0, 0)]


@pytest.mark.exam
@pytest.mark.parametrize("told", [True, False])
@pytest.mark.parametrize("share", [0.0, 0.2])
def test_a_leak_by_the_driver_is_told(on: Callable[..., str], told: bool, share: float) -> None:
    """By what the process holds where that is known, else by calls that are ahead of idle spells."""
    message = on(Gpu(8 * MIB, share, seed=1), told=told)
    where = "what this process holds of the GPU" if told else "free memory of the GPU"
    assert message.startswith(f"memory in use ({where}) grows by about ")
    assert ("and not while the kernel does not run" in message) is not told
    grown = int(message.partition("about ")[2].partition(" bytes")[0].replace(",", ""))
    assert grown == 8 * MIB or share


@pytest.mark.exam
@pytest.mark.parametrize("told", [True, False])
@pytest.mark.parametrize("share", [0.02, 0.2, 0.9])
def test_an_honest_kernel_on_a_busy_gpu_holds(on: Callable[..., str], told: bool, share: float) -> None:
    """Its own count does not grow, and its calls are not ahead."""
    for seed in range(10):
        assert on(Gpu(0, share, seed), told=told) == ""


def test_without_suspicion_no_more_is_asked(on: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
    """An honest kernel on a quiet GPU is called no more often than before, and NVML is left alone."""
    gpu = Gpu(0, 0, seed=0)
    assert on(gpu, told=False) == ""
    assert gpu.calls <= memory_leak.MOST_CALLS_OF_ACCELERATOR + 1


def test_signs_are_bets_at_even_odds() -> None:
    """What is had before a pair is what is had after it, on average; contrary signs cost."""
    for wins, losses in ((0, 0), (7, 2), (30, 30)):
        after = (evidence(wins + 1, losses) + evidence(wins, losses + 1)) / 2
        assert after == pytest.approx(evidence(wins, losses))
    assert evidence(0, 0) == 1
    assert evidence(20, 0) == pytest.approx(sum((1 + share) ** 20 for share in SHARES) / len(SHARES))
    assert evidence(20, 5) < evidence(20, 0)


class Host:
    """What NVML lists: this process under a number it does not know, and others."""

    def __init__(self, *, listed: bool = True, imitated: bool = False) -> None:
        self.held = {4711: 500 * MIB, 9: 300 * MIB}
        self._listed, self._imitated = listed, imitated

    def list(self) -> dict[int, int]:
        self.held[9] += 3 * GRAIN
        return {number: nbytes for number, nbytes in self.held.items() if self._listed or number == 9}

    @contextmanager
    def holding(self, nbytes: int) -> Iterator[None]:
        numbers = [4711, 9] if self._imitated else [4711]
        for number in numbers:
            self.held[number] += nbytes - 3 * GRAIN * (number == 9)
        yield
        self.held[4711] -= nbytes


def test_this_process_is_found_by_what_it_holds() -> None:
    """Its number is the host's: it is the one whose share follows what is allocated here."""
    host = Host()
    assert memory.find_own(host.list, host.holding) == 4711


@pytest.mark.parametrize("host", [Host(listed=False), Host(imitated=True)])
def test_a_process_that_is_not_known_for_sure_is_not_guessed(host: Host) -> None:
    """NVML lists others alone, or two that grew alike."""
    assert memory.find_own(host.list, host.holding) is None
    assert memory.find_own(dict, host.holding) is None


Metered = Callable[..., list[dict[str, int]]]


@pytest.fixture
def metered(monkeypatch: pytest.MonkeyPatch) -> Metered:
    """Facts about some calls, by what NVML says of this process and what torch's allocator says of each call."""

    def run(device: str, when: Literal["first", "later"], held: list[int], peaks: list[int]) -> Any:
        held_in_turn, peaks_in_turn = iter(held), iter(peaks)
        monkeypatch.setattr(memory, "held_beside_torch", lambda _device: next(held_in_turn, None))
        monkeypatch.setattr(memory, "begin_peak", lambda _device: 0)
        monkeypatch.setattr(memory, "peak", lambda _device: next(peaks_in_turn))
        meter = Meter(device, on=True)
        for _ in peaks:
            with meter.call(when, "fresh", MIB):
                pass
        meter.all_ran()
        return meter.facts()

    return run


@pytest.mark.parametrize(("grown", "much"), [(100 * MIB, False), (2048 * MIB, True)])
def test_memory_beside_torch_is_its_own(metered: Metered, grown: int, much: bool) -> None:
    """What NVML tells before the first call and after the last first call is held against the limit."""
    facts = metered("cuda:0", "first", [500 * MIB, 500 * MIB + grown], [0])
    assert bool(memory_use.judge(facts)) is much


def test_without_nvml_others_memory_is_nobodys(metered: Metered) -> None:
    """Where nobody tells what a process holds, only torch's allocator is looked at."""
    assert metered("cuda:0", "first", [], [7]) == [{"when": "first", "set": "fresh", "moved": MIB, "peak": 7}]


def test_of_repeated_calls_the_worst_is_kept(metered: Metered) -> None:
    """One entry, so that what is noted does not grow with the calls."""
    worst = {"when": "later", "set": "fresh", "moved": MIB, "peak": 90}
    assert metered("cpu", "later", [], [5, 90, 20]) == [worst]
