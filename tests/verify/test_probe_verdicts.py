"""From what probes saw to what a kernel is suspected of."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from pytest_cgins.config import IndexOutput, ProbeException, Repeatability, Tolerance
from pytest_cgins.core.trace import Context
from pytest_cgins.core.verdict import PROBES, Check, Probe, Reason
from pytest_cgins.verify.messages import SetAnswer
from pytest_cgins.verify.probe_verdicts import DeviatingAnswer, ProbeResults
from pytest_cgins.verify.probes.registry import PROBE_SPECS
from pytest_cgins.verify.random_outputs import draw
from pytest_cgins.verify.ties import indices_of
from tests.verify.helpers import expected_output, expected_set

RIGHT = torch.linspace(-2, 2, 24).reshape(4, 6)
NEARLY = RIGHT * (1 + 2**-23)


def probe_results(**permissions: Any) -> ProbeResults:
    """Of a kernel for which all probes are on."""
    return ProbeResults(PROBES, Tolerance(), **permissions)


def outcome(found: ProbeResults, name: str) -> Probe:
    """Result of one probe."""
    return next(probe for probe in found.probes() if probe.name == name)


def second(
    probe: str,
    given: torch.Tensor | None,
    error: str = "",
    *,
    first: torch.Tensor = RIGHT,
    reused: bool = False,
    about: str = "",
) -> DeviatingAnswer:
    """A deviation from the right answer."""
    return DeviatingAnswer(
        probe=probe,
        expected=expected_set(expected_output(first.double())),
        first=[first],
        given=[] if given is None else [given],
        error=error,
        reused=reused,
        about=about,
    )


def after(*deviations: DeviatingAnswer, **permissions: Any) -> Probe:
    """What becomes of the last one's probe."""
    found = probe_results(**permissions)
    for deviation in deviations:
        found.add_rerun(deviation)
    return outcome(found, deviations[-1].probe)


def test_without_a_finding_every_probe_holds() -> None:
    """One result a probe, in the registry's order."""
    results = probe_results().probes()
    assert [one.name for one in results] == list(PROBE_SPECS)
    assert {one.outcome for one in results} == {"held"}


def test_probes_that_are_off_say_nothing() -> None:
    """Neither a result nor a finding comes of a probe that was not wanted."""
    found = ProbeResults(("repeat",), Tolerance())
    found.trip("guards", "4 bytes behind output 0 were overwritten")
    assert [one.name for one in found.probes()] == ["repeat"]


@pytest.mark.parametrize("probe", ["repeat", "fresh_memory"])
@pytest.mark.parametrize("drawn", [True, False])
def test_random_outputs_need_not_be_repeated(probe: str, drawn: bool) -> None:
    """Another draw is no deviation; what is no draw at all is one."""
    draws = draw(lambda context: RIGHT.double() * (-1) ** int(context.rng_seed or 0), Context(), (-2.0, 2.0))
    expected = expected_set(replace(expected_output(RIGHT.double()), draws=draws))
    result = after(replace(second(probe, -RIGHT if drawn else 3 * RIGHT), expected=expected))
    assert result.outcome == ("held" if drawn else "tripped")


def test_an_exception_is_shown_with_its_reason() -> None:
    """What cgins.yaml excuses is listed with the user's words."""
    found = probe_results(exceptions=(ProbeException(probe="late_work", reason="the caller waits"),))
    result = outcome(found, "late_work")
    assert (result.outcome, result.message) == ("excused", "the caller waits")


def test_answers_that_differ_trip_repeat_with_how_much() -> None:
    """The message counts the elements, gives the greatest distance, and says that the second is wrong by itself."""
    other = RIGHT.clone()
    other[1, 2] += 0.25
    result = after(second("repeat", other))
    assert result.reason is Reason.NOT_REPEATABLE
    assert "1 of 24 elements of output 0, by up to 0.25" in result.message
    assert result.message.endswith("; the second is not within the tolerance")
    assert "repeatable" not in result.message


@pytest.mark.parametrize("probe", ["repeat", "fresh_memory", "late_work"])
def test_a_kernel_that_raises_when_it_is_run_again_is_not_called_stale(probe: str) -> None:
    """An exception shows neither a kept answer nor work that ends late: it is told as what it is, the first of several."""
    result = after(*[second(probe, None, error="LaunchError: no workspace is left")] * 3)
    assert (result.outcome, result.reason) == ("tripped", Reason.NOT_REPEATABLE)
    assert result.message.endswith(
        "inputs, the kernel raised LaunchError: no workspace is left (and 2 more like it)"
    )


@pytest.mark.parametrize("probe", ["repeat", "fresh_memory", "autotuner"])
def test_no_memory_to_run_again_is_told_as_that(probe: str) -> None:
    """It ran before, and who holds the memory now is not known: it does not pass, and is not called unrepeatable."""
    result = after(
        second(probe, None, error="OutOfMemoryError: CUDA out of memory. Tried to allocate 16.00 MiB.")
    )
    assert (result.outcome, result.reason) == ("tripped", Reason.OUT_OF_MEMORY)
    assert result.message.startswith(
        "no memory was left to run it again (recorded inputs): OutOfMemoryError: CUDA"
    )
    assert "→ end what else holds the device's memory" in result.message


def test_repeatable_is_offered_only_where_it_would_pass() -> None:
    """An answer that differs by a rounding passes with `repeatable: tolerance`, and that is said of it."""
    message = after(second("repeat", NEARLY)).message
    assert message.endswith("set `repeatable: tolerance` in cgins.yaml")
    wrong_at_first = replace(second("repeat", RIGHT), first=[-RIGHT])
    assert after(wrong_at_first).message.endswith("; the first is not within the tolerance")


@pytest.mark.parametrize(
    ("allowed", "distance", "trips"),
    [
        (Repeatability(), 2e-7, True),
        (Repeatability(kind="tolerance"), 2e-7, False),
        (Repeatability(kind="tolerance"), 0.1, True),
        (Repeatability(kind="explicit", atol=0.2), 0.1, False),
        (Repeatability(kind="explicit", atol=0.05), 0.1, True),
        (Repeatability(kind="explicit", rtol=0.05), 0.1, True),
    ],
)
def test_a_declared_bound_is_held_against_the_difference(
    allowed: Repeatability, distance: float, trips: bool
) -> None:
    """Exact means every bit; `tolerance` and numbers allow what they say and no more."""
    first = RIGHT.clone()
    first[0, 0] = 1.0
    other = first.clone()
    other[0, 0] += distance
    result = after(second("repeat", other, first=first), repeatability=allowed)
    assert (result.outcome == "tripped") is trips


def test_the_answer_to_other_numbers_is_stale() -> None:
    """A kept answer in reused memory trips; one that is right for these numbers does not, whatever its bits."""
    wrong = after(second("fresh_memory", RIGHT.flip(0), reused=True))
    assert wrong.reason is Reason.STALE_ANSWER
    assert "caches by tensor address or identity" in wrong.message
    assert after(second("fresh_memory", NEARLY, reused=True)).outcome == "held"


def test_a_wrong_answer_that_was_never_given_is_a_race() -> None:
    """It is not repeatable, and nobody is sent to look for a cache."""
    result = after(second("fresh_memory", RIGHT.flip(0)))
    assert result.reason is Reason.NOT_REPEATABLE
    assert "from tensors that had held other numbers (24 of 24 elements" in result.message
    assert result.message.endswith("; the second is not within the tolerance")
    assert "address" not in result.message


@pytest.mark.parametrize(("kind", "outcome_then"), [("explicit", "held"), ("tolerance", "tripped")])
def test_a_declared_bound_also_holds_in_reused_tensors(kind: Any, outcome_then: str) -> None:
    """Numbers allow what they say; `tolerance` allows no wrong answer."""
    allowed = Repeatability(kind=kind, atol=5.0)
    assert after(second("fresh_memory", RIGHT.flip(0)), repeatability=allowed).outcome == outcome_then


@pytest.mark.parametrize("probe", ["repeat", "fresh_memory"])
@pytest.mark.parametrize(
    ("values", "index", "outcome_then"),
    [
        ((2.0, 2.0), (2, 0), "held"),  # the other order of equal values
        ((2.0, 2.0), (2, 2), "tripped"),  # one of them twice
        ((2.0, 2.0), (0, 1), "tripped"),  # another value
        ((2.0, 2.0 + 2**-22), (2, 0), "tripped"),  # a value of other bits, beside an order that may be
    ],
)
def test_another_order_of_equal_values_is_no_deviation(
    probe: str, values: tuple[float, float], index: tuple[int, int], outcome_then: str
) -> None:
    """An op that takes any of equal values may take another one each time; everything else is the same, bit for bit."""
    x, own = torch.tensor([[2.0, 1.0, 2.0]]), torch.tensor([[0, 2]])
    said = IndexOutput(number=1, into="x", dims=(-1,), distinct=True)
    right = expected_output(torch.tensor([[2.0, 2.0]]).double())
    pointing = replace(expected_output(own, index=1), indices=indices_of(said, "torch.topk", x, own))
    deviation = replace(
        second(probe, None),
        expected=expected_set(right, pointing),
        first=[right.answer, own],
        given=[torch.tensor([values]), torch.tensor([index])],
    )
    # A value that is nearly right is right, and fresh_memory asks no more of it.
    nearly = probe == "fresh_memory" and values[1] != 2
    assert after(deviation).outcome == ("held" if nearly else outcome_then)


def test_an_answer_that_is_late_is_not_called_stale() -> None:
    """Until it is there, the memory holds the answer before: no result was kept."""
    late, stale = (
        second(probe, RIGHT.flip(0), reused=probe != "late_work") for probe in ("late_work", "fresh_memory")
    )
    assert after(late, stale).outcome == "held"


def test_work_that_comes_late_has_no_excuse() -> None:
    """An answer that changes after the call trips even where both are within tolerance."""
    assert after(second("late_work", NEARLY)).reason is Reason.LATE_WORK


def test_conduct_and_poison() -> None:
    """Writes out of bounds, changed inputs, lazy outputs and unwritten elements trip their own probes."""
    found = probe_results()
    answer = SetAnswer(
        name="fresh", tensors={}, overrun="4 bytes behind output 0", inputs_changed=(1,), unlike=("Lazy",)
    )
    found.add_conduct(answer, "fresh", ["input", "weight"])
    unwritten = Check(
        rule="form", inputs="edge", passed=False, reason=Reason.UNWRITTEN, message="never written", share=None
    )
    found.add_checks([unwritten])
    tripped = {probe.name: probe.message for probe in found.probes() if probe.outcome == "tripped"}
    assert tripped == {
        "poison": "never written",
        "guards": "the kernel wrote out of bounds: 4 bytes behind output 0 (fresh inputs)",
        "inputs_unchanged": "the kernel changed input tensors [1] (of input, weight), which the op leaves as they are "
        "(fresh inputs)\n→ write to memory of its own; if the op may change them, name the argument: semantics: {mutated: [NAME]}",
        "plain_outputs": "the kernel returned Lazy instead of plain tensors: return torch.Tensor",
    }


def test_a_probe_that_the_worker_did_not_run_says_why() -> None:
    """Neither held nor tripped, whatever kind of probe it is."""
    found = probe_results()
    found.add_facts({"memory_leak": {"not_run": "positions"}, "repeat": {"not_run": "it broke the process"}})
    for name, why in (("memory_leak", "positions"), ("repeat", "it broke the process")):
        result = outcome(found, name)
        assert (result.outcome, result.message) == ("not-run", why)


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.complex64, torch.bool])
@pytest.mark.parametrize(("atol", "outcome_then"), [(2.0, "held"), (0.5, "tripped")])
def test_a_bound_applies_to_any_type(dtype: torch.dtype, atol: float, outcome_then: str) -> None:
    """Also to those that torch cannot compare."""
    deviation = replace(
        second("repeat", torch.ones(4).to(dtype), first=torch.zeros(4)), first=[torch.zeros(4).to(dtype)]
    )
    assert after(deviation, repeatability=Repeatability(kind="explicit", atol=atol)).outcome == outcome_then


def test_memory_that_a_later_call_overwrites_has_words_of_its_own() -> None:
    """No stream or thread is blamed for a static buffer."""
    message = after(second("late_work", RIGHT + 1, reused=True)).message
    assert "the kernel returned memory that a later call overwrites" in message
    assert "clone it" in message
    assert "streams" not in message
