"""Turns the checks of a kernel's answers into a verdict."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from pytest_cgins.config import ResourceLimits
from pytest_cgins.core.case import KernelResources
from pytest_cgins.core.measurement import Measurement
from pytest_cgins.core.text import counted
from pytest_cgins.core.verdict import Correctness, Reason, Status, Verdict
from pytest_cgins.verify.probes.registry import CHEATS, PROBE_SPECS

WARP_THREADS = 32
REGISTERS_PER_PARTITION = 16384
PARTITIONS = 4
REGISTER_GRANULE = 8
RESIDENT_WARPS = 64
FEWER_RESIDENT_WARPS = {75: 32, 86: 48, 87: 48, 88: 48, 89: 48, 110: 48, 120: 48, 121: 48}
"""Most warps that are resident on a multiprocessor, by compute capability, where it is not `RESIDENT_WARPS`."""
SHOWN_FUNCTIONS = 5

_TRIPPED = {
    **dict.fromkeys(CHEATS, Status.SUSPECT),
    Reason.RECOMPILES: Status.RESOURCES,
    Reason.OUT_OF_MEMORY: Status.RUNTIME_ERROR,
}
"""Statuses by the reason of a probe that tripped, other than INCORRECT."""


def decide(correctness: Correctness, measurement: Measurement | None) -> Verdict:
    """Judge one case that ran to its end; its timings are reported, they do not decide anything yet.

    Returns:
        Tampering, else the first probe that tripped and explains wrong answers, else the first check that failed, else
        the first of the other probes: `SUSPECT` if that looks like a cheat, else `INCORRECT`. Where nothing failed,
        `SKIPPED` when no element was compared (empty never passes), `WEAK` when a forged answer would have passed
        too, else `PASSED`.
    """
    numbers = _numbers(correctness, measurement)
    failed = [check for check in correctness.checks if not check.passed]
    tripped = [probe for probe in correctness.tripped if not failed or PROBE_SPECS[probe.name].explains]
    # A process that the kernel has changed may show anything; a cause says more than what follows from it.
    tripped.sort(
        key=lambda probe: (probe.reason is not Reason.TAMPERING, not PROBE_SPECS[probe.name].explains)
    )
    accepted = [power.forgery for power in correctness.power if not power.caught]
    if tripped:
        status, reason = _TRIPPED.get(tripped[0].reason, Status.INCORRECT), tripped[0].reason
        others = (f"also {probe.name}: {probe.message}" for probe in tripped[1:])
        message = "\n".join([tripped[0].message, *others])
    elif failed:
        status, reason = Status.INCORRECT, failed[0].reason
        unlike = (
            f"also {probe.name}: {probe.message}" for probe in correctness.tripped if probe.name == "repeat"
        )
        message = "\n".join([failed[0].message, *unlike])
    elif not any(check.compared for check in correctness.checks):
        status, reason = Status.SKIPPED, Reason.EMPTY
        message = "nothing could be compared: the op's outputs have no elements in this call"
    elif accepted:
        status, reason = Status.WEAK, Reason.NO_POWER
        message = f"right, but the case would also accept {', '.join(accepted)} as the answer"
    else:
        status, reason, message = Status.PASSED, Reason.OK, ""
    return Verdict(status=status, reason=reason, message=message, numbers=numbers)


def _numbers(correctness: Correctness, measurement: Measurement | None) -> dict[str, float]:
    numbers: dict[str, float] = {}
    if correctness.share is not None:
        numbers["error_share_of_tolerance"] = correctness.share
    if measurement is not None:
        numbers["kernel_median_ns_per_call"] = measurement.kernel.median_ns_per_call
        numbers["torch_median_ns_per_call"] = measurement.torch.median_ns_per_call
        numbers["speedup_vs_torch"] = measurement.speedup_vs_torch
    return numbers


# ---- resources: what the compile gate judges


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """One function that takes more than at the base revision."""

    function: str
    """The function's name today."""
    reason: Reason
    """`spills-grew` or `registers-grew`."""
    message: str
    """What it takes, what it took, and what that means; one line."""
    amount: int
    """Spilled bytes or registers that came, a thread."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Matched:
    """Functions of two builds, side by side."""

    pairs: tuple[tuple[KernelResources, KernelResources], ...]
    """Today's and the base's."""
    appeared: tuple[KernelResources, ...]
    """Functions without a counterpart at the base."""
    vanished: tuple[KernelResources, ...]
    """Functions of the base without a counterpart today."""


def decide_resources(
    functions: tuple[KernelResources, ...],
    base: tuple[KernelResources, ...],
    *,
    revision: str,
    limits: ResourceLimits,
) -> Verdict:
    """Judge what a build takes against what it took at the base revision, for the same architecture.

    Returns:
        `RESOURCES` if a function spills more bytes, or spills no fewer, has more registers, and fewer warps
        therefore fit on a multiprocessor, and the limits do not allow it; else `PASSED`. Spills come first, then
        the greatest growth.
    """
    numbers = resource_numbers(functions, base)
    matched = match(functions, base)
    growths = [growth for now, then in matched.pairs for growth in _growths(now, then, limits, revision)]
    growths.sort(
        key=lambda growth: (growth.reason is not Reason.SPILLS_GREW, -growth.amount, growth.function)
    )
    news = _appeared_and_vanished(matched, revision)
    if not growths:
        return Verdict(status=Status.PASSED, reason=Reason.OK, message="; ".join(news), numbers=numbers)
    lines = [growth.message for growth in growths[:SHOWN_FUNCTIONS]]
    if len(growths) > SHOWN_FUNCTIONS:
        lines.append(
            f"and {counted(len(growths) - SHOWN_FUNCTIONS, 'more function')}: the JSON report has them all"
        )
    return Verdict(
        status=Status.RESOURCES, reason=growths[0].reason, message="\n".join([*lines, *news]), numbers=numbers
    )


def match(functions: Iterable[KernelResources], base: Iterable[KernelResources]) -> Matched:
    """Pair functions by name, template arguments and parameters included; static ones of two files share one.

    What is left is paired by its plain name, where both sides have as many of it: a new parameter makes no new
    function. Of several with one name, what takes least goes with what took least.
    """
    now, then = (sorted(side, key=_taken) for side in (functions, base))
    pairs: list[tuple[KernelResources, KernelResources]] = []
    for name in sorted({one.function for one in now}):
        new, old = ([one for one in side if one.function == name] for side in (now, then))
        # Nobody knows which of the side with more is without a counterpart: no growth is claimed that may be none.
        shared = min(len(new), len(old))
        pairs += zip(new[:shared], old[len(old) - shared :], strict=True)
    now, then = ([one for one in side if not _among(one, pairs)] for side in (now, then))
    for name in sorted({plain_name(one.function) for one in now}):
        new, old = ([one for one in side if plain_name(one.function) == name] for side in (now, then))
        if len(new) == len(old):
            pairs += zip(new, old, strict=True)
    appeared, vanished = (tuple(one for one in side if not _among(one, pairs)) for side in (now, then))
    return Matched(pairs=tuple(pairs), appeared=appeared, vanished=vanished)


def _taken(function: KernelResources) -> tuple[int, int, str]:
    return spilled_nbytes(function), function.registers_per_thread, function.function


def _among(function: KernelResources, pairs: Iterable[tuple[KernelResources, KernelResources]]) -> bool:
    """Whether this very object is of a pair: functions of two files may be equal in all that is known."""
    return any(function is member for pair in pairs for member in pair)


def plain_name(function: str) -> str:
    """A demangled name without return type, template arguments and parameters: `ns::scale`."""
    name = function.replace("(anonymous namespace)", "{anonymous}")
    while "<" in name:
        shorter = re.sub(r"<[^<>]*>", "", name)
        if shorter == name:
            break
        name = shorter
    return name.partition("(")[0].split(" ")[-1]


def resident_warps(registers_per_thread: int, arch: str) -> int:
    """Most warps that a multiprocessor of an architecture holds, as far as registers decide it.

    Each of its four partitions has 16384 registers, and gives them to warps of 32 threads in steps of 8 a thread.
    Source: CUDA C++ Programming Guide, compute capabilities, and the occupancy calculator.
    """
    granules = max(1, -(-registers_per_thread // REGISTER_GRANULE))
    by_registers = PARTITIONS * (REGISTERS_PER_PARTITION // (WARP_THREADS * REGISTER_GRANULE * granules))
    digits = re.search(r"\d+", arch)
    most = FEWER_RESIDENT_WARPS.get(int(digits[0]), RESIDENT_WARPS) if digits else RESIDENT_WARPS
    return min(by_registers, most)


def spilled_nbytes(function: KernelResources) -> int:
    """Bytes a thread writes to and reads from local memory for want of registers."""
    return function.spill_store_nbytes + function.spill_load_nbytes


def resource_numbers(
    functions: tuple[KernelResources, ...], base: tuple[KernelResources, ...] = ()
) -> dict[str, float]:
    """The greatest of each resource over the functions, today and at the base."""
    numbers: dict[str, float] = {}
    for prefix, side in (("", functions), ("base_", base)):
        if side:
            numbers[f"{prefix}registers_per_thread"] = max(function.registers_per_thread for function in side)
            numbers[f"{prefix}spill_nbytes_per_thread"] = max(map(spilled_nbytes, side))
            numbers[f"{prefix}stack_nbytes_per_thread"] = max(
                function.stack_nbytes_per_thread for function in side
            )
            numbers[f"{prefix}static_shared_nbytes_per_block"] = max(
                function.static_shared_nbytes_per_block for function in side
            )
    return numbers


def _growths(
    now: KernelResources, then: KernelResources, limits: ResourceLimits, revision: str
) -> Iterable[Growth]:
    spilled, before = spilled_nbytes(now), spilled_nbytes(then)
    if spilled > before and spilled > limits.spill_nbytes:
        yield Growth(
            function=now.function,
            reason=Reason.SPILLS_GREW,
            message=f"{now.function} on {now.arch} spills {counted(spilled, 'byte', grouped=True)} a thread ({now.spill_store_nbytes:,} "
            f"stored, {now.spill_load_nbytes:,} loaded), {before:,} at {revision}: they go through local memory",
            amount=spilled - before,
        )
    if spilled < before:
        return  # registers are what that was bought with
    warps, warps_before = (
        resident_warps(function.registers_per_thread, function.arch) for function in (now, then)
    )
    if warps < warps_before and now.registers_per_thread > (limits.registers or 0):
        yield Growth(
            function=now.function,
            reason=Reason.REGISTERS_GREW,
            message=f"{now.function} on {now.arch} takes {counted(now.registers_per_thread, 'register')} a thread, "
            f"{then.registers_per_thread} at {revision}: at most {counted(warps, 'warp fits', 'warps fit')} on a multiprocessor, "
            f"{warps_before} before",
            amount=now.registers_per_thread - then.registers_per_thread,
        )


def _appeared_and_vanished(matched: Matched, revision: str) -> list[str]:
    parts = ((matched.appeared, "not at"), (matched.vanished, "only at"))
    return [f"{word} {revision}: {_names(functions)}" for functions, word in parts if functions]


def _names(functions: tuple[KernelResources, ...]) -> str:
    names = [function.function for function in functions[:SHOWN_FUNCTIONS]]
    more = len(functions) - len(names)
    return ", ".join(names) + (f" and {more} more" if more else "")
