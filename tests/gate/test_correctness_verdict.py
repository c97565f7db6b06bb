from dataclasses import replace
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_cgins.config import ResourceLimits
from pytest_cgins.core.case import KernelResources
from pytest_cgins.core.measurement import Arm, Measurement
from pytest_cgins.core.verdict import Check, Correctness, ForgeryCheck, Probe, Reason, Status, Verdict
from pytest_cgins.gate.correctness_verdict import decide, decide_resources, match, plain_name, resident_warps
from pytest_cgins.verify.probes.registry import CHEATS, PROBE_SPECS

GOOD = Check(
    rule="gold", inputs="recorded", passed=True, reason=Reason.OK, message="", share=0.25, compared=8
)
BAD = Check(
    rule="reference",
    inputs="fresh",
    passed=False,
    reason=Reason.REFERENCE_MISMATCH,
    message="row 3 is wrong",
    share=40.0,
)
CAUGHT = ForgeryCheck(forgery="zeros", caught=True)
ARM = Arm(
    name="kernel",
    samples_ns_per_call=(1100.0, 1190.0),
    calls_per_batch=100,
    median_ns_per_call=1145.0,
    iqr_ns_per_call=45.0,
)
MEASUREMENT = Measurement(
    method="perf-counter",
    cache="warm",
    orders="KTTK",
    kernel=ARM,
    torch=replace(ARM, name="torch", median_ns_per_call=2290.0),
    speedup_vs_torch=2.0,
    speedup_low=1.9,
    speedup_high=2.1,
)


def test_a_right_kernel_with_a_telling_case_passes() -> None:
    """All checks hold and every forgery is caught: PASSED, with the error's share of tolerance."""
    verdict = decide(Correctness(checks=(GOOD,), power=(CAUGHT,)), None)
    assert (verdict.status, verdict.reason, verdict.message) == (Status.PASSED, Reason.OK, "")
    assert verdict.numbers == {"error_share_of_tolerance": 0.25}


def test_the_first_failed_check_gives_reason_and_message() -> None:
    """One failed check is enough, whatever the others say."""
    verdict = decide(Correctness(checks=(GOOD, BAD, GOOD), power=(CAUGHT,)), None)
    assert (verdict.status, verdict.reason) == (Status.INCORRECT, Reason.REFERENCE_MISMATCH)
    assert verdict.message == "row 3 is wrong"
    assert verdict.numbers["error_share_of_tolerance"] == 40.0


def test_a_wrong_answer_that_the_same_inputs_do_not_give_again_is_told_as_that_too() -> None:
    """The check decides, and whoever looks for the mistake learns that it is not always made."""
    unlike = Probe(
        name="repeat", outcome="tripped", reason=Reason.NOT_REPEATABLE, message="two answers differ"
    )
    verdict = decide(Correctness(checks=(GOOD, BAD), power=(CAUGHT,), probes=(unlike,)), None)
    assert (verdict.reason, verdict.message) == (
        Reason.REFERENCE_MISMATCH,
        "row 3 is wrong\nalso repeat: two answers differ",
    )


@pytest.mark.parametrize("checks", [(), (replace(GOOD, compared=0),)])
def test_nothing_compared_is_not_a_pass(checks: tuple[Check, ...]) -> None:
    """A case in which no element was compared is skipped with its reason: empty never passes."""
    verdict = decide(Correctness(checks=checks, power=()), None)
    assert (verdict.status, verdict.reason) == (Status.SKIPPED, Reason.EMPTY)
    assert "nothing could be compared" in verdict.message


def test_a_case_that_accepts_a_forgery_is_weak() -> None:
    """The message names each forged answer that would have passed."""
    power = (
        CAUGHT,
        ForgeryCheck(forgery="ones", caught=False),
        ForgeryCheck(forgery="permuted-gold", caught=False),
    )
    verdict = decide(Correctness(checks=(GOOD,), power=power), None)
    assert (verdict.status, verdict.reason) == (Status.WEAK, Reason.NO_POWER)
    assert "ones, permuted-gold" in verdict.message


def test_an_incorrect_kernel_stays_incorrect_on_a_weak_case() -> None:
    """Weakness of the case never hides a failure."""
    power = (ForgeryCheck(forgery="zeros", caught=False),)
    assert decide(Correctness(checks=(BAD,), power=power), None).status is Status.INCORRECT


@pytest.mark.parametrize("speedup", [0.01, 100.0])
def test_timings_are_reported_and_decide_nothing(speedup: float) -> None:
    """A slow kernel passes as a fast one does; the numbers are those of the measurement."""
    measurement = replace(MEASUREMENT, speedup_vs_torch=speedup)
    verdict = decide(Correctness(checks=(GOOD,), power=(CAUGHT,)), measurement)
    assert verdict.status is Status.PASSED
    assert verdict.numbers["kernel_median_ns_per_call"] == 1145.0
    assert verdict.numbers["torch_median_ns_per_call"] == 2290.0
    assert verdict.numbers["speedup_vs_torch"] == speedup


def test_outcome_of_each_status() -> None:
    """Every status has exactly the outcome that the documentation gives it."""
    outcomes = {status: status.outcome for status in Status}
    assert [s.name for s, outcome in outcomes.items() if outcome == "error"] == [
        "TRACE_DRIFT",
        "INFRASTRUCTURE",
    ]
    assert [s.name for s, outcome in outcomes.items() if outcome == "skip"] == ["SKIPPED"]
    assert [s.name for s, outcome in outcomes.items() if outcome == "pass"] == [
        "PASSED",
        "FASTER",
        "SAME",
        "NEW",
        "WEAK",
        "INCONCLUSIVE",
    ]


# ---- resources


def function(
    name: str = "f(float*)", *, registers: int = 40, stores: int = 0, loads: int = 0, arch: str = "sm_90a"
) -> KernelResources:
    return KernelResources(
        function=name,
        arch=arch,
        registers_per_thread=registers,
        spill_store_nbytes=stores,
        spill_load_nbytes=loads,
        stack_nbytes_per_thread=0,
        static_shared_nbytes_per_block=0,
    )


def judged(now: list[KernelResources], then: list[KernelResources], **limits: int) -> Verdict:
    return decide_resources(tuple(now), tuple(then), revision="1a2b (main)", limits=ResourceLimits(**limits))


@pytest.mark.parametrize(
    ("registers", "arch", "warps"),
    [
        # NVIDIA's occupancy calculator: 65536 registers, given in steps of 8 a thread.
        (1, "sm_90a", 64),
        (32, "sm_80", 64),
        (33, "sm_80", 48),
        (40, "sm_80", 48),
        (64, "sm_100", 32),
        (65, "sm_100", 28),
        (128, "sm_90a", 16),
        (168, "sm_90a", 12),
        (255, "sm_80", 8),
        (40, "sm_86", 48),
        (32, "sm_86", 48),
        (32, "sm_75", 32),
    ],
)
def test_resident_warps(registers: int, arch: str, warps: int) -> None:
    """Warps on a multiprocessor, as far as registers and the architecture's own limit decide it."""
    assert resident_warps(registers, arch) == warps


def test_more_spilled_bytes_fail() -> None:
    """Any growth of stores and loads together fails, and the message has function and numbers, and nothing on how to let it pass."""
    verdict = judged([function(stores=1000, loads=500)], [function(stores=1000, loads=496)])
    assert (verdict.status, verdict.reason) == (Status.RESOURCES, Reason.SPILLS_GREW)
    assert verdict.message == (
        "f(float*) on sm_90a spills 1,500 bytes a thread (1,000 stored, 500 loaded), 1,496 at 1a2b (main): they go "
        "through local memory"
    )
    assert verdict.numbers["spill_nbytes_per_thread"] == 1500
    assert verdict.numbers["base_spill_nbytes_per_thread"] == 1496
    assert judged([function(stores=1000, loads=500)], [function()], spill_nbytes=1500).status is Status.PASSED
    assert (
        judged([function(stores=1001, loads=500)], [function()], spill_nbytes=1500).status is Status.RESOURCES
    )


def test_more_registers_fail_where_they_cost_resident_warps() -> None:
    """A step of occupancy is what counts: 40 to 41 is one, 41 to 48 is none, and on sm_75 neither is."""
    verdict = judged([function(registers=41)], [function(registers=40)])
    assert (verdict.status, verdict.reason) == (Status.RESOURCES, Reason.REGISTERS_GREW)
    assert verdict.message.startswith(
        "f(float*) on sm_90a takes 41 registers a thread, 40 at 1a2b (main): at most 40 warps fit on a "
        "multiprocessor, 48 before"
    )
    assert "→" not in verdict.message
    assert judged([function(registers=48)], [function(registers=41)]).status is Status.PASSED
    old = [function(registers=41, arch="sm_75")], [function(registers=40, arch="sm_75")]
    assert judged(*old).status is Status.PASSED
    assert judged([function(registers=41)], [function(registers=40)], registers=41).status is Status.PASSED


def test_registers_that_take_spills_away_are_no_regression() -> None:
    """Fewer spilled bytes may cost registers."""
    assert judged([function(registers=64)], [function(registers=32, stores=8)]).status is Status.PASSED


def test_the_worst_function_comes_first() -> None:
    """Spills before registers, then the greatest growth; what is left out is counted."""
    now = [function("a()", registers=80), function("b()", stores=8), function("c()", stores=80)]
    verdict = judged(now, [function("a()"), function("b()"), function("c()")])
    assert [line.partition(" ")[0] for line in verdict.message.splitlines()] == ["c()", "b()", "a()"]
    assert verdict.reason is Reason.SPILLS_GREW
    many = [function(f"f{n}()", stores=n) for n in range(1, 8)]
    verdict = judged(many, [function(f"f{n}()") for n in range(1, 8)])
    assert "\nand 2 more functions: the JSON report has them all" in verdict.message


def test_functions_that_appear_or_vanish_are_listed() -> None:
    """They are compared with nothing, and named."""
    now = [function("f<float, 8>(float*)"), function("f<half, 8>(half*)")]
    verdict = judged(now, [function("f<float, 4>(float*)"), function("g()", stores=9)])
    assert verdict.status is Status.PASSED
    assert verdict.message == (
        "not at 1a2b (main): f<float, 8>(float*), f<half, 8>(half*); only at 1a2b (main): f<float, 4>(float*), g()"
    )


def test_a_new_parameter_makes_no_new_function() -> None:
    """Where one function of a plain name is left on each side, they are compared."""
    verdict = judged([function("void ns::f(float*, int)", stores=4)], [function("void ns::f(float*)")])
    assert verdict.reason is Reason.SPILLS_GREW


def test_a_template_argument_more_makes_no_new_functions() -> None:
    """As many of a plain name on both sides are compared, the one that takes least with the one that took least."""
    then = [function("void f<float, 8>(float*)"), function("void f<float, 16>(float*)", registers=64)]
    now = [
        function("void f<float, 8, false>(float*)"),
        function("void f<float, 16, true>(float*)", registers=96),
    ]
    verdict = judged(now, then)
    assert verdict.reason is Reason.REGISTERS_GREW
    assert verdict.message.startswith(
        "void f<float, 16, true>(float*) on sm_90a takes 96 registers a thread, 64 at"
    )
    assert "not at" not in verdict.message


def test_functions_of_one_name_are_compared_each() -> None:
    """Static functions of two files: what grows is found behind a larger one, and what goes blames nobody."""
    name = "(anonymous namespace)::f(float*)"
    small, large = function(name, registers=18), function(name, registers=39)
    for order in ((small, large), (large, small)):
        verdict = judged([large, function(name, registers=71)], list(order))
        assert verdict.reason is Reason.REGISTERS_GREW
        assert "takes 71 registers a thread, 39 at" in verdict.message
        assert judged([large], list(order)).status is Status.PASSED
        assert judged(list(order), [small]).message == f"not at 1a2b (main): {name}"


@pytest.mark.parametrize(
    ("name", "plain"),
    [
        ("plain", "plain"),
        ("void scale<float, 256>(float*, float, int)", "scale"),
        ("void (anonymous namespace)::an<launch::{lambda(float)#1}>(float*)", "{anonymous}::an"),
        ("void a::b<c<(d)1>, e<f> >::g<h>(i<j>)", "a::b::g"),
        ("_Z5scaleIfLi256EEvPT_fi", "_Z5scaleIfLi256EEvPT_fi"),
        ("unbalanced<", "unbalanced<"),
    ],
)
def test_plain_names(name: str, plain: str) -> None:
    """Return type, template arguments and parameters are no part of it."""
    assert plain_name(name) == plain


FUNCTIONS = st.lists(
    st.builds(
        function,
        st.sampled_from(["a(int)", "a(float)", "void a<int>(int)", "b()", "ns::b()", "c<1>()", "c<2>()"]),
        registers=st.integers(0, 255),
        stores=st.integers(0, 64),
    )
)


@given(now=FUNCTIONS, then=FUNCTIONS)
def test_every_function_is_compared_or_listed_once(
    now: list[KernelResources], then: list[KernelResources]
) -> None:
    """No function is lost, and none is in two places."""
    found = match(now, then)
    names = [one.function for one, _ in found.pairs] + [one.function for one in found.appeared]
    assert sorted(names) == sorted(one.function for one in now)
    names = [one.function for _, one in found.pairs] + [one.function for one in found.vanished]
    assert sorted(names) == sorted(one.function for one in then)


@given(functions=FUNCTIONS)
def test_nothing_grows_against_itself(functions: list[KernelResources]) -> None:
    """An unchanged build passes without a word."""
    verdict = judged(functions, functions)
    assert (verdict.status, verdict.message) == (Status.PASSED, "")


def tripped(name: str, message: str = "seen") -> Probe:
    """A probe that tripped, with its usual reason."""
    return Probe(name=name, outcome="tripped", reason=PROBE_SPECS[name].reason, message=message)


def test_a_probe_that_trips_fails_a_kernel_with_right_numbers() -> None:
    """Right numbers do not help: the verdict has the probe's reason and message, and names the others."""
    probes = (tripped("repeat", "differs"), tripped("memory_leak", "grows"))
    verdict = decide(Correctness(checks=(GOOD,), power=(CAUGHT,), probes=probes), None)
    assert (verdict.status, verdict.reason) == (Status.INCORRECT, Reason.NOT_REPEATABLE)
    assert verdict.message == "differs\nalso memory_leak: grows"


def test_tampering_comes_first() -> None:
    """What other probes see in a process that the kernel has changed may be its work."""
    probes = (tripped("repeat", "differs"), tripped("integrity", "replaced"))
    verdict = decide(Correctness(checks=(GOOD,), power=(CAUGHT,), probes=probes), None)
    assert verdict.reason is Reason.TAMPERING


def test_a_cause_comes_before_what_follows_from_it() -> None:
    """A result cache answers differently where an address is given again: it is called a cache, not a race."""
    probes = (tripped("repeat", "differs"), tripped("fresh_memory", "kept"))
    verdict = decide(Correctness(checks=(GOOD,), power=(CAUGHT,), probes=probes), None)
    assert (verdict.reason, verdict.message) == (Reason.STALE_ANSWER, "kept\nalso repeat: differs")


@pytest.mark.parametrize("name", sorted(PROBE_SPECS))
def test_a_wrong_kernel_is_called_by_the_probe_that_explains_it(name: str) -> None:
    """Stale answers or late work are why numbers are wrong; a leak or a race of its own is not."""
    verdict = decide(Correctness(checks=(GOOD, BAD), power=(), probes=(tripped(name),)), None)
    reason = PROBE_SPECS[name].reason if PROBE_SPECS[name].explains else BAD.reason
    assert verdict.reason is reason
    assert verdict.status is (Status.SUSPECT if reason in CHEATS else Status.INCORRECT)


@pytest.mark.parametrize(
    ("name", "reason", "status"),
    [
        ("poison", Reason.UNWRITTEN, Status.INCORRECT),
        ("inputs_unchanged", Reason.INPUT_CHANGED, Status.INCORRECT),
        ("sizes", Reason.SIZE_DEPENDENT, Status.INCORRECT),
        ("memcheck", Reason.MEMCHECK, Status.INCORRECT),
        ("on_stream", Reason.NOT_ON_STREAM, Status.INCORRECT),
        ("fresh_memory", Reason.NOT_REPEATABLE, Status.INCORRECT),
        ("fresh_memory", Reason.STALE_ANSWER, Status.SUSPECT),
        ("op_callback", Reason.OP_CALLBACK, Status.SUSPECT),
        ("physical_floor", Reason.TOO_FAST, Status.SUSPECT),
    ],
)
def test_only_what_looks_like_a_cheat_is_suspect(name: str, reason: Reason, status: Status) -> None:
    """A kernel that is merely buggy is not accused; the reason decides, as a probe may have several."""
    probe = replace(tripped(name), reason=reason)
    assert decide(Correctness(checks=(GOOD,), power=(CAUGHT,), probes=(probe,)), None).status is status


@pytest.mark.parametrize("outcome", ["held", "excused", "not-run"])
def test_only_tripped_probes_count(outcome: Literal["held", "excused", "not-run"]) -> None:
    """An exception with a reason, or a probe that did not apply, fails nothing."""
    probe = Probe(name="repeat", outcome=outcome, reason=Reason.OK, message="why")
    verdict = decide(Correctness(checks=(GOOD,), power=(CAUGHT,), probes=(probe,)), None)
    assert verdict.status is Status.PASSED
