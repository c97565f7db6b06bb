"""From what probes saw to what a kernel is suspected of."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from pytest_cgins.config import IndexOutput, ProbeException, Repeatability, Tolerance
from pytest_cgins.core.model import PROBES, Check, Context, Probe, Reason
from pytest_cgins.verify.indices import indices_of
from pytest_cgins.verify.messages import SetAnswer
from pytest_cgins.verify.probe_verdicts import DeviatingRepeat, Permissions, Suspicions
from pytest_cgins.verify.probes.registry import PROBE_SPECS
from pytest_cgins.verify.random_outputs import draw
from tests.verify.helpers import expected_output, expected_set

RIGHT = torch.linspace(-2, 2, 24).reshape(4, 6)


def suspicions(**permissions: Any) -> Suspicions:
    """Of a kernel for which all probes are on."""
    return Suspicions(PROBES, Permissions(**permissions), Tolerance())


def outcome(found: Suspicions, name: str) -> Probe:
    """Result of one probe."""
    return next(probe for probe in found.probes() if probe.name == name)


def second(probe: str, given: torch.Tensor | None, error: str = "") -> DeviatingRepeat:
    """A deviation from the right answer."""
    return DeviatingRepeat(
        probe=probe,
        expected=expected_set(expected_output(RIGHT.double())),
        first=[RIGHT],
        given=[] if given is None else [given],
        error=error,
    )


def test_without_a_finding_every_probe_holds() -> None:
    """One result a probe, in the registry's order."""
    results = suspicions().probes()
    assert [one.name for one in results] == list(PROBE_SPECS)
    assert {one.outcome for one in results} == {"held"}


def test_probes_that_are_off_say_nothing() -> None:
    """Neither a result nor a finding comes of a probe that was not wanted."""
    found = Suspicions(("repeat",), Permissions(), Tolerance())
    found.trip("guards", "4 bytes behind output 0 were overwritten")
    assert [one.name for one in found.probes()] == ["repeat"]


@pytest.mark.parametrize("probe", ["repeat", "fresh_memory"])
@pytest.mark.parametrize("drawn", [True, False])
def test_random_outputs_need_not_be_repeated(probe: str, drawn: bool) -> None:
    """Another draw is no deviation; what is no draw at all is one."""
    draws = draw(lambda context: RIGHT.double() * (-1) ** int(context.rng_seed or 0), Context(), (-2.0, 2.0))
    expected = expected_set(replace(expected_output(RIGHT.double()), draws=draws))
    found = suspicions()
    found.take_second(replace(second(probe, -RIGHT if drawn else 3 * RIGHT), expected=expected))
    assert outcome(found, probe).outcome == ("held" if drawn else "tripped")


def test_an_exception_is_shown_with_its_reason() -> None:
    """What cgins.yaml excuses is listed with the user's words."""
    found = suspicions(exceptions=(ProbeException(probe="late_work", reason="the caller waits"),))
    result = outcome(found, "late_work")
    assert (result.outcome, result.message) == ("excused", "the caller waits")


def test_answers_that_differ_trip_repeat_with_how_much() -> None:
    """The message counts the elements, gives the greatest distance, and says that the second is wrong by itself."""
    other = RIGHT.clone()
    other[1, 2] += 0.25
    found = suspicions()
    found.take_second(second("repeat", other))
    result = outcome(found, "repeat")
    assert result.reason is Reason.NOT_REPEATABLE
    assert "1 of 24 elements of output 0, by up to 0.25" in result.message
    assert result.message.endswith("; the second is not within the tolerance")
    assert "repeatable" not in result.message


@pytest.mark.parametrize("probe", ["repeat", "fresh_memory", "late_work"])
def test_a_kernel_that_raises_when_it_is_run_again_is_not_called_stale(probe: str) -> None:
    """An exception shows neither a kept answer nor work that ends late: it is told as what it is."""
    found = suspicions()
    found.take_second(second(probe, None, error="LaunchError: no workspace is left"))
    result = outcome(found, probe)
    assert (result.outcome, result.reason) == ("tripped", Reason.NOT_REPEATABLE)
    assert result.message.endswith("inputs, the kernel raised LaunchError: no workspace is left")


def test_repeatable_is_offered_only_where_it_would_pass() -> None:
    """An answer that differs by a rounding passes with `repeatable: tolerance`, and that is said of it."""
    found, allowed = suspicions(), suspicions(repeatability=Repeatability(kind="tolerance"))
    for one in (found, allowed):
        one.take_second(second("repeat", RIGHT * (1 + 2**-23)))
    assert outcome(found, "repeat").message.endswith("say so in cgins.yaml: repeatable: tolerance")
    assert outcome(allowed, "repeat").outcome == "held"


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
    found = suspicions(repeatability=allowed)
    found.take_second(
        DeviatingRepeat(
            probe="repeat",
            expected=expected_set(expected_output(first.double())),
            first=[first],
            given=[other],
            error="",
        )
    )
    assert (outcome(found, "repeat").outcome == "tripped") is trips


def test_the_answer_to_other_numbers_is_stale() -> None:
    """A kept answer in reused memory trips; one that is right for these numbers does not, whatever its bits."""
    wrong, nearly = suspicions(), suspicions()
    wrong.take_second(replace(second("fresh_memory", RIGHT.flip(0)), reused=True))
    nearly.take_second(replace(second("fresh_memory", RIGHT * (1 + 2**-23)), reused=True))
    assert outcome(wrong, "fresh_memory").reason is Reason.STALE_ANSWER
    assert "are kept by address or identity" in outcome(wrong, "fresh_memory").message
    assert outcome(nearly, "fresh_memory").outcome == "held"


def test_a_wrong_answer_that_was_never_given_is_a_race() -> None:
    """It is not repeatable, and nobody is sent to look for a cache."""
    found = suspicions()
    found.take_second(second("fresh_memory", RIGHT.flip(0)))
    result = outcome(found, "fresh_memory")
    assert result.reason is Reason.NOT_REPEATABLE
    assert "in tensors that had held other numbers (24 of 24 elements" in result.message
    assert result.message.endswith("; the second is not within the tolerance")
    assert "address" not in result.message


@pytest.mark.parametrize(("kind", "tripped"), [("explicit", False), ("tolerance", True)])
def test_a_declared_bound_also_holds_in_reused_tensors(kind: str, tripped: bool) -> None:
    """Numbers allow what they say; `tolerance` allows no wrong answer."""
    found = suspicions(repeatability=Repeatability(kind=kind, atol=5.0))  # type: ignore[arg-type]
    found.take_second(second("fresh_memory", RIGHT.flip(0)))
    assert (outcome(found, "fresh_memory").outcome == "tripped") is tripped


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
    pointing = replace(
        expected_output(own, torch.int64, index=1), indices=indices_of(said, "torch.topk", x, own)
    )
    found = suspicions()
    found.take_second(
        DeviatingRepeat(
            probe=probe,
            expected=expected_set(right, pointing),
            first=[right.answer, own],
            given=[torch.tensor([values]), torch.tensor([index])],
            error="",
        )
    )
    # A value that is nearly right is right, and fresh_memory asks no more of it.
    nearly = probe == "fresh_memory" and values[1] != 2
    assert outcome(found, probe).outcome == ("held" if nearly else outcome_then)


def test_an_answer_that_is_late_is_not_called_stale() -> None:
    """Until it is there, the memory holds the answer before: no result was kept."""
    found = suspicions()
    found.take_second(second("late_work", RIGHT.flip(0)))
    found.take_second(replace(second("fresh_memory", RIGHT.flip(0)), reused=True))
    assert outcome(found, "fresh_memory").outcome == "held"
    assert outcome(found, "late_work").outcome == "tripped"


def test_work_that_comes_late_has_no_excuse() -> None:
    """An answer that changes after the call trips even where both are within tolerance."""
    found = suspicions()
    found.take_second(second("late_work", RIGHT * (1 + 2**-23)))
    assert outcome(found, "late_work").reason is Reason.LATE_WORK


def test_an_exception_in_a_second_run_trips() -> None:
    """A kernel that runs once only is told by what it raised."""
    found = suspicions()
    found.take_second(second("repeat", None, "RuntimeError: tired"))
    assert "the kernel raised RuntimeError: tired" in outcome(found, "repeat").message


def test_several_findings_of_one_probe_are_counted() -> None:
    """The first is shown."""
    found = suspicions()
    for _ in range(3):
        found.take_second(second("repeat", None, "RuntimeError: tired"))
    assert outcome(found, "repeat").message.endswith("(and 2 more)")


def test_conduct_and_poison() -> None:
    """Writes out of bounds, changed inputs, lazy outputs and unwritten elements trip their own probes."""
    found = suspicions()
    answer = SetAnswer(
        name="fresh", tensors={}, overrun="4 bytes behind output 0", inputs_changed=(1,), unlike=("Lazy",)
    )
    found.take_conduct(answer, "fresh", ["input", "weight"])
    unwritten = Check(
        rule="form", inputs="edge", passed=False, reason=Reason.UNWRITTEN, message="never written", share=None
    )
    found.take_checks([unwritten])
    tripped = {probe.name: probe.message for probe in found.probes() if probe.outcome == "tripped"}
    assert tripped == {
        "poison": "never written",
        "guards": "the kernel wrote outside of its memory: 4 bytes behind output 0 (fresh inputs)",
        "inputs_unchanged": "the kernel changed input tensors [1] (of input, weight), which the op leaves as they "
        "are (fresh inputs)",
        "plain_outputs": "the kernel returned Lazy instead of plain tensors: return torch.Tensor",
    }


def test_a_probe_that_the_worker_did_not_run_says_why() -> None:
    """Neither held nor tripped, whatever kind of probe it is."""
    found = suspicions()
    found.take_facts({"memory_leak": {"not_run": "positions"}, "repeat": {"not_run": "it broke the process"}})
    for name, why in (("memory_leak", "positions"), ("repeat", "it broke the process")):
        result = outcome(found, name)
        assert (result.outcome, result.message) == ("not-run", why)


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.complex64, torch.bool])
@pytest.mark.parametrize(("atol", "outcome_then"), [(2.0, "held"), (0.5, "tripped")])
def test_a_bound_applies_to_any_type(dtype: torch.dtype, atol: float, outcome_then: str) -> None:
    """Also to those that torch cannot compare."""
    first, given = torch.zeros(4).to(dtype), torch.ones(4).to(dtype)
    expected = expected_set(expected_output(torch.zeros(4).double()))
    found = suspicions(repeatability=Repeatability(kind="explicit", atol=atol))
    found.take_second(
        DeviatingRepeat(probe="repeat", expected=expected, first=[first], given=[given], error="")
    )
    assert outcome(found, "repeat").outcome == outcome_then


def test_memory_that_a_later_call_overwrites_has_words_of_its_own() -> None:
    """No stream or thread is blamed for a static buffer."""
    found = suspicions()
    found.take_second(replace(second("late_work", RIGHT + 1), reused=True))
    message = outcome(found, "late_work").message
    assert "the kernel returned memory that a later call overwrites" in message
    assert "clone it" in message
    assert "streams" not in message
