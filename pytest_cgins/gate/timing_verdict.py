"""Turns timings into a verdict: what the sequential tests prove of a right kernel, and the message."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

from pytest_cgins.config import TimingGate
from pytest_cgins.config.timing_gate import MOST_BLOCKS
from pytest_cgins.core.measurement import Arm, Comparison, Measurement, Sums
from pytest_cgins.core.number_text import percent, ratio, relative, slowdown, speedup, time_ns
from pytest_cgins.core.text import counted
from pytest_cgins.core.verdict import Reason, Status, Verdict
from pytest_cgins.timing.block_sampler import TEST_BUDGET_S

Against = Literal["base", "torch"]
ConfirmedOutcome = Literal["slower", "unconfirmed", "clean", "faster", "inconclusive"]
FailOn = Literal["regression", "inconclusive", "never"]

NOT_HELD = "not compared with a base revision: "
"""How the message of a verdict says that a time gates nothing; the reason follows on the same line."""
NO_BASE_REASON = {"none": "none was asked for", "refused": "its build or load failed"}
_WORST_FIRST = (Status.SLOWER, Status.BELOW_FLOOR, Status.INCONCLUSIVE)


def decide_timing(
    verdict: Verdict,
    measurement: Measurement,
    *,
    base_state: str,
    base_note: str,
    gate: TimingGate,
    base_label: str,
    kernel: str = "the kernel",
) -> Verdict:
    """Judge the times of a right kernel; the worst finding counts.

    Args:
        verdict: what its answers gave; unless that is `PASSED` or `WEAK`, it is returned as it is.
        measurement: its timings, with a confirmation where the first process found it slower.
        base_state: `new`, `unchanged`, `none` or `refused`, where there is no comparison with the base.
        base_note: why there is none.
        gate: the kernel's settings.
        base_label: what it is compared with: `1a2b3c4d5e (merge-base with main)`.
        kernel: its name in cgins.yaml, for remedies.

    Returns:
        With the timing's numbers added. `SLOWER` or `BELOW_FLOOR` if a fresh process confirmed it; `INCONCLUSIVE` if
        the noise left it open or no fresh process confirmed it; else `SAME`, `FASTER`, `NEW`, or `PASSED`. A `WEAK`
        case stays `WEAK` unless its time fails it.
    """
    if verdict.status not in (Status.PASSED, Status.WEAK):
        return verdict
    facts = _TimingFacts(measurement=measurement, gate=gate, label=base_label, kernel=kernel)
    findings = [_against_base(facts, base_state, base_note), *_against_torch(facts)]
    findings.sort(
        key=lambda finding: _WORST_FIRST.index(finding.status) if finding.status in _WORST_FIRST else 9
    )
    worst = findings[0]
    # Of what passes, only the floor's own findings would come second, and these are worse or nothing.
    message = "\n".join(
        [
            worst.message,
            *(f"also {finding.reason.value}: {finding.message}" for finding in findings[1:] if finding.fatal),
        ]
    )
    numbers = {**verdict.numbers, **timing_numbers(measurement)}
    if verdict.status is Status.WEAK:
        if not fails(worst.status, gate.fail_on):
            time_text = f"\ntime: {message}" if message else ""
            return replace(verdict, message=verdict.message + time_text, numbers=numbers)
        message = f"{message}\nalso {verdict.reason.value}: {verdict.message}"
    return Verdict(status=worst.status, reason=worst.reason, message=message, numbers=numbers)


def fails(status: Status, fail_on: FailOn) -> bool:
    """Whether a status fails its case under `gate.fail_on`, which says so of times alone."""
    if status in (Status.SLOWER, Status.BELOW_FLOOR):
        return fail_on != "never"
    if status is Status.INCONCLUSIVE:
        return fail_on == "inconclusive"
    return status.outcome == "fail"


def confirmed_outcome(measurement: Measurement, against: Against) -> ConfirmedOutcome | None:
    """What the comparison with an arm and its confirmation prove together; None without one.

    `unconfirmed`: slower in the first process, and no fresh one has shown it again. Pairs of processes need none.
    """
    first = measurement.against(against)
    if first is None or first.outcome != "slower" or first.unit == "pair":
        return None if first is None else first.outcome
    again = confirmation(measurement, against)
    return "slower" if again is not None and again.outcome == "slower" else "unconfirmed"


def confirmation(measurement: Measurement, against: Against) -> Comparison | None:
    """The comparison with the same arm in the fresh process."""
    return measurement.confirmation.against(against) if measurement.confirmation is not None else None


def timing_numbers(measurement: Measurement) -> dict[str, float]:
    """What a verdict on time rests on; a key carries its unit, ratios are time over time and have none."""
    numbers: dict[str, float] = {}
    for arm in (measurement.kernel, measurement.base, measurement.torch, measurement.compiled):
        if arm is not None:
            numbers[f"{arm.name}_median_ns_per_call"] = arm.median_ns_per_call
    numbers["speedup_vs_torch"] = measurement.speedup_vs_torch
    if measurement.speedup_vs_compile is not None:
        numbers["speedup_vs_compile"] = measurement.speedup_vs_compile
    for comparison in measurement.comparisons:
        numbers |= _test_numbers(comparison, confirmation(measurement, comparison.against))
    numbers["timed_ms"] = measurement.timed_ns / 1e6
    if measurement.kernel.host_ns_per_call is not None:
        numbers["host_ns_per_call"] = measurement.kernel.host_ns_per_call
    if measurement.roofline is not None:
        numbers["share_of_bandwidth"] = measurement.roofline.share_of_bandwidth
        numbers["share_of_compute"] = measurement.roofline.share_of_compute
    return numbers


def _test_numbers(comparison: Comparison, again: Comparison | None) -> dict[str, float]:
    """Numbers of one test; names of the test against torch begin with `floor_`."""
    prefix = "" if comparison.against == "base" else "floor_"
    numbers = {
        f"ratio_to_{comparison.against}": comparison.ratio,
        f"ratio_to_{comparison.against}_low": comparison.ratio_low,
        f"ratio_to_{comparison.against}_high": comparison.ratio_high,
        f"{prefix}blocks": float(len(comparison.log_ratios)),
        f"{prefix}sigma": comparison.power.sigma,
        f"{prefix}log_e_slower": comparison.log_e_slower,
        f"{prefix}log_e_threshold": log_threshold(comparison),
        f"{prefix}tests": float(comparison.tests),
        f"{prefix}tolerate": comparison.tolerate,
        f"{prefix}catch": comparison.catch,
    }
    if comparison.sums is not None:
        numbers[f"sum_ratio_to_{comparison.against}"] = comparison.sums.ratio
        numbers[f"{prefix}sum_calls"] = float(comparison.sums.calls)
        numbers[f"{prefix}sum_log_e_slower"] = comparison.sums.log_e_slower
    if again is not None and again.sums is not None:
        numbers[f"confirmed_sum_ratio_to_{comparison.against}"] = again.sums.ratio
    if again is not None:
        numbers[f"{prefix}confirmed_ratio_to_{comparison.against}"] = again.ratio
        numbers[f"{prefix}confirmed_log_e_slower"] = again.log_e_slower
    return numbers


def log_threshold(comparison: Comparison) -> float:
    """Ln E from which "slower" is proven."""
    return math.log(comparison.tests / comparison.alpha)


# ---- findings


@dataclass(frozen=True, slots=True, kw_only=True)
class _Finding:
    """What one comparison, or the want of it, says."""

    status: Status
    reason: Reason
    message: str

    @property
    def fatal(self) -> bool:
        return self.status in _WORST_FIRST


@dataclass(frozen=True, slots=True, kw_only=True)
class _TimingFacts:
    """What all messages are made of."""

    measurement: Measurement
    gate: TimingGate
    label: str
    kernel: str

    def setting(self, text: str) -> str:
        """A setting with the place in cgins.yaml where it belongs."""
        return f"gate: {{{text}}} under {self.kernel} in cgins.yaml"


def _against_base(facts: _TimingFacts, state: str, note: str) -> _Finding:
    comparison = facts.measurement.against("base")
    if comparison is None:
        return _without_base(facts, state, note)
    match confirmed_outcome(facts.measurement, "base"):
        case "slower":
            return _Finding(
                status=Status.SLOWER, reason=Reason.SLOWER_THAN_BASE, message=_slower(facts, comparison)
            )
        case "unconfirmed":
            return _Finding(
                status=Status.INCONCLUSIVE,
                reason=Reason.NOT_CONFIRMED,
                message=_unconfirmed(facts, comparison),
            )
        case "faster":
            text = f"faster than {facts.label}: {_seen_in(comparison)}"
            return _Finding(status=Status.FASTER, reason=Reason.FASTER_THAN_BASE, message=text)
        case "clean":
            text = f"not slower than {facts.label}: {_seen_in(comparison)} "
            text += f"(a {percent(comparison.catch)} slowdown would have been detected)"
            text += f"; {_plain_sums(comparison.sums)}" if comparison.sums is not None else ""
            return _Finding(status=Status.SAME, reason=Reason.NOT_SLOWER, message=text)
    return _Finding(
        status=Status.INCONCLUSIVE, reason=Reason.NOISE, message=_undecided(facts, comparison, facts.label)
    )


def _without_base(facts: _TimingFacts, state: str, note: str) -> _Finding:
    if state == "new":
        text = f"nothing to compare its time with: {note or f'{facts.label} has no such kernel'}"
        return _Finding(status=Status.NEW, reason=Reason.NO_BASELINE, message=text)
    if state == "unchanged":
        text = f"not timed against itself: the build is that of {facts.label}"
        return _Finding(status=Status.PASSED, reason=Reason.UNCHANGED, message=text)
    why = " ".join((note or NO_BASE_REASON.get(state, state)).split())
    return _Finding(status=Status.PASSED, reason=Reason.OK, message=f"{NOT_HELD}{why}")


def _against_torch(facts: _TimingFacts) -> list[_Finding]:
    """What a declared floor adds, if it was missed or left open."""
    comparison = facts.measurement.against("torch")
    match confirmed_outcome(facts.measurement, "torch"):
        case "slower":
            assert comparison is not None
            return [
                _Finding(
                    status=Status.BELOW_FLOOR,
                    reason=Reason.BELOW_TORCH_FLOOR,
                    message=_below(facts, comparison),
                )
            ]
        case "unconfirmed":
            assert comparison is not None
            text = _unconfirmed(facts, comparison)
            return [_Finding(status=Status.INCONCLUSIVE, reason=Reason.NOT_CONFIRMED, message=text)]
        case "inconclusive":
            assert comparison is not None
            rival = f"torch, of which at least {speedup(floor(comparison))} is declared"
            text = _undecided(facts, comparison, rival)
            return [_Finding(status=Status.INCONCLUSIVE, reason=Reason.NOISE, message=text)]
    return []


# ---- messages


def interval(comparison: Comparison) -> str:
    """What was observed, with its interval: time over the base's `1.0812x (1.0760..1.0851)`, or speed over torch's."""
    low, high = comparison.ratio_low, comparison.ratio_high
    if comparison.against == "base":
        return f"{slowdown(comparison.ratio)} ({relative(low)}..{relative(high)})"
    return f"{speedup(1 / comparison.ratio)} ({ratio(1 / high)}..{ratio(1 / low)})"


def _interval_text(comparison: Comparison, label: str) -> str:
    """The interval as a part of a sentence."""
    return f"{interval(comparison)} the {'time' if comparison.against == 'base' else 'speed'} of {label}"


def by_sums(comparison: Comparison) -> bool:
    """Whether sums of calls decide what medians do not show."""
    sums = comparison.sums
    return sums is not None and (
        (sums.outcome == "slower" and comparison.log_e_slower < log_threshold(comparison))
        or (sums.outcome == "faster" and comparison.log_e_slower >= log_threshold(comparison))
        or (sums.outcome == "maybe-slower" and comparison.outcome == "inconclusive")
    )


def lasting(comparison: Comparison) -> bool:
    """Whether the medians were slower in blocks that are correlated, so that nothing is proven."""
    return (
        comparison.outcome == "inconclusive"
        and comparison.runs is not None
        and comparison.log_e_slower >= log_threshold(comparison)
    )


def sums_text(comparison: Comparison) -> str:
    """What both tests saw, where they differ: a cost that comes rarely."""
    sums = comparison.sums
    assert sums is not None
    median = f"the median call takes {ratio(comparison.ratio)} times as long"
    if abs(comparison.ratio - 1) <= comparison.tolerate:
        median = "the median call is as fast"
    cost = "a cost that occurs rarely" if sums.ratio > comparison.ratio else "a rare cost is gone"
    return (
        f"{median}, but the sum of {counted(sums.calls, 'call')} is {ratio(sums.ratio)} times as long: {cost}"
    )


def _plain_sums(sums: Sums) -> str:
    return f"sums of {counted(sums.calls, 'call', grouped=True)} {slowdown(sums.ratio)}"


def _seen_in(comparison: Comparison) -> str:
    if by_sums(comparison):
        assert comparison.sums is not None
        return f"{sums_text(comparison)}, over {counted(len(comparison.sums.log_ratios), 'sum')}"
    return f"{interval(comparison)} its time over {units(comparison)}"


def units(comparison: Comparison, count: int | None = None, verb: str = "") -> str:
    """So many blocks, or pairs of fresh processes; by default those that were taken."""
    number = len(comparison.log_ratios) if count is None else count
    many, single = f" {verb}" if verb else "", f" {verb}s" if verb else ""
    if comparison.unit == "pair":
        return counted(number, f"pair of processes{single}", f"pairs of processes{many}", grouped=True)
    return counted(number, f"block{single}", f"blocks{many}", grouped=True)


def seen(comparison: Comparison) -> str:
    """What a test that ended undecided could have seen, and what would decide it; one line."""
    power = comparison.power
    detected = percent(power.detectable) if power.detectable is not None else "not even a doubled time"
    needed = (
        f"about {units(comparison, power.blocks_needed)} would decide it"
        if power.blocks_needed is not None
        else f"no number of {comparison.unit}s is enough"
    )
    return (
        f"{comparison.unit} noise is {percent(power.sigma)}: {units(comparison, comparison.most_blocks, 'detect')} {detected}, "
        f"the target is {percent(comparison.catch)}; {needed}"
    )


def floor(comparison: Comparison) -> float:
    """Least speed against torch that was declared."""
    return math.exp(comparison.shift)


def chance(log_e: float) -> str:
    """Bound of the chance that noise alone ever gives such an e-value: at most 1/E, by Ville's inequality."""
    if log_e < math.log(2):
        return "1 in 1"
    if log_e >= math.log(1e7):
        return f"1 in 10^{math.floor(log_e / math.log(10))}"
    value = math.exp(log_e) * (1 + 1e-12)
    digits = max(0, math.floor(math.log10(value)) - 1)
    return f"1 in {math.floor(value / 10**digits) * 10**digits:,}"


def _slower(facts: _TimingFacts, first: Comparison) -> str:
    if first.unit == "pair":
        return (
            f"{_interval_text(first, facts.label)} in {units(first)}; slowdowns up to {percent(first.tolerate)} pass; "
            f"p-value at most {chance(first.log_e_slower)}; 1 in {first.tests / first.alpha:,.0f} proves it"
        )
    again = confirmation(facts.measurement, "base")
    assert again is not None
    if by_sums(first):
        head = f"{sums_text(first)}, against {facts.label}; slowdowns up to {percent(first.tolerate)} pass"
    else:
        head = (
            f"{slowdown(first.ratio)} the time of {facts.label}, {slowdown(again.ratio)} in a fresh process; "
            f"slowdowns up to {percent(first.tolerate)} pass"
        )
    return "\n".join([head, *_processes(facts.measurement, "base")])


def _below(facts: _TimingFacts, first: Comparison) -> str:
    again = confirmation(facts.measurement, "torch")
    assert again is not None
    rare = f"; {sums_text(first)}" if by_sums(first) else ""
    head = (
        f"{speedup(1 / first.ratio)} the speed of torch, {speedup(1 / again.ratio)} in a fresh process; "
        f"at least {speedup(floor(first))} is declared{rare}"
    )
    return "\n".join([head, *_processes(facts.measurement, "torch")])


def _processes(measurement: Measurement, against: Against) -> list[str]:
    """Both processes side by side: ratio with its interval, medians, blocks, and what noise would do."""
    heading = "time vs base" if against == "base" else "speed vs torch"
    rows = [["", f"{heading} (95%)", "kernel", against, "blocks", "p-value, at most"]]
    for name, measured in (("first", measurement), ("fresh", measurement.confirmation)):
        comparison = measured.against(against) if measured is not None else None
        rival: Arm | None = getattr(measured, against) if measured is not None else None
        if measured is None or comparison is None or rival is None:
            continue
        times, log_e = interval(comparison), comparison.log_e_slower
        taken = f"{len(comparison.log_ratios):,}"
        if by_sums(comparison) and comparison.sums is not None:
            sums = comparison.sums
            sum_ratio = slowdown(sums.ratio) if against == "base" else speedup(1 / sums.ratio)
            times, log_e = f"{sum_ratio} (sums)", sums.log_e_slower
            taken = counted(len(comparison.sums.log_ratios), "sum")
        rows.append(
            [
                name,
                times,
                time_ns(measured.kernel.median_ns_per_call),
                time_ns(rival.median_ns_per_call),
                taken,
                f"{chance(log_e)}; 1 in {comparison.tests / comparison.alpha:,.0f} proves it",
            ]
        )
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]


def _unconfirmed(facts: _TimingFacts, first: Comparison) -> str:
    again = confirmation(facts.measurement, first.against)
    rival = facts.label if first.against == "base" else "torch"
    if again is None:
        second = "no fresh process has been asked"
    else:
        second = f"a fresh process found {interval(again)} in {len(again.log_ratios)} ({again.outcome})"
    if by_sums(first):
        assert first.sums is not None
        if again is not None and again.sums is not None:
            second += f", {_plain_sums(again.sums)}"
        return (
            f"{sums_text(first)}, against {rival} in {counted(len(first.sums.log_ratios), 'sum')} of one process, which would "
            f"be slower, but {second}: nothing is proven\n→ run it again"
        )
    return (
        f"{_interval_text(first, rival)} in {counted(len(first.log_ratios), 'block')} of one process, which would be slower, "
        f"but {second}: nothing is proven\n→ run it again"
    )


def _undecided(facts: _TimingFacts, comparison: Comparison, rival: str) -> str:
    if by_sums(comparison):
        assert comparison.sums is not None
        return (
            f"undecided after {counted(len(comparison.sums.log_ratios), 'sum')}: {sums_text(comparison)}, against {rival}, "
            "or noise\n→ run it again while nothing else runs on the device and the host"
        )
    if lasting(comparison):
        return (
            f"undecided: {_interval_text(comparison, rival)} in {counted(len(comparison.log_ratios), 'block')}, but block "
            "times are autocorrelated: one of the two builds has slow phases, so nothing is proven\n"
            "→ run it again while nothing else runs on the device and the host"
        )
    return (
        f"undecided after {units(comparison)}: {_interval_text(comparison, rival)}\n"
        f"{seen(comparison)}\n→ {_budget(facts, comparison)}"
    )


def _budget(facts: _TimingFacts, comparison: Comparison) -> str:
    """What would decide it the next time."""
    needed, taken = comparison.power.blocks_needed, len(comparison.log_ratios)
    if needed is None:
        return "run it again while nothing else runs on the device and the host"
    if comparison.unit == "block" and comparison.most_blocks < min(needed, facts.gate.max_blocks):
        return (
            f"record a smaller call: the {TEST_BUDGET_S:g} s time budget ends before enough blocks are taken"
        )
    if needed > comparison.most_blocks:
        return f"take more: {facts.setting(f'max_blocks: {_round(needed)}')}"
    if taken < comparison.most_blocks:
        return "run it again: the test ended before all its blocks were taken"
    return (
        "its slowdown lies between tolerate and catch, or the blocks were unlucky: run it again, with more "
        f"if it stays so: {facts.setting(f'max_blocks: {_round(2 * comparison.most_blocks)}')}"
    )


def _round(blocks: int) -> int:
    """The next power of two, up to the most that there may be: cases of one kernel are told one number, mostly."""
    return min(MOST_BLOCKS, 1 << (blocks - 1).bit_length())
