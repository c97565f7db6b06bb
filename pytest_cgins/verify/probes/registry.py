"""All probes: what each trips with, which level of `--cgins-probes` has it, and what processes without torch tell of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from pytest_cgins.core.options import SANITIZERS
from pytest_cgins.core.text import inputs_phrase
from pytest_cgins.core.verdict import PROBES, Reason


@dataclass(frozen=True, slots=True)
class ProbeSpec:
    """One probe."""

    reason: Reason
    """What a kernel that trips it fails with."""
    fast: bool = True
    """Whether the level `fast` has it: it needs no further answer of torch."""
    explains: bool = True
    """Whether it is the cause where answers are wrong, too: the verdict then names the probe."""


PROBE_SPECS = {
    "on_stream": ProbeSpec(Reason.NOT_ON_STREAM),  # the cause of most that others see then
    "poison": ProbeSpec(Reason.UNWRITTEN),
    "guards": ProbeSpec(Reason.OUT_OF_BOUNDS),
    "inputs_unchanged": ProbeSpec(Reason.INPUT_CHANGED),
    "repeat": ProbeSpec(Reason.NOT_REPEATABLE, explains=False),
    "fresh_memory": ProbeSpec(Reason.STALE_ANSWER),
    "late_work": ProbeSpec(Reason.LATE_WORK),
    "device_order": ProbeSpec(Reason.DEVICE_ORDER),
    "plain_outputs": ProbeSpec(Reason.LAZY_OUTPUT),
    "autotuner": ProbeSpec(Reason.WRONG_CONFIG, explains=False),
    "recompiles": ProbeSpec(Reason.RECOMPILES, explains=False),
    "op_callback": ProbeSpec(Reason.OP_CALLBACK),
    "libraries": ProbeSpec(Reason.OP_CALLBACK),
    "integrity": ProbeSpec(Reason.TAMPERING),
    "snooping": ProbeSpec(Reason.SNOOPING),
    "memory_use": ProbeSpec(Reason.MEMORY_USE, explains=False),
    "memory_leak": ProbeSpec(Reason.MEMORY_LEAK, explains=False),
    "sizes": ProbeSpec(Reason.SIZE_DEPENDENT, fast=False, explains=False),
    "invariance": ProbeSpec(Reason.BATCH_VARIANT, fast=False, explains=False),
    "arguments": ProbeSpec(Reason.ARGUMENT_IGNORED, fast=False, explains=False),
    "layouts": ProbeSpec(Reason.LAYOUT_DEPENDENT, fast=False, explains=False),
    "special_values": ProbeSpec(Reason.NAN_PATTERN, fast=False, explains=False),
    "second_precision": ProbeSpec(Reason.HIDDEN_BY_PRECISION, fast=False, explains=False),
    "large_indices": ProbeSpec(Reason.INDEX_OVERFLOW, fast=False, explains=False),
    "ranks": ProbeSpec(Reason.RANK_RACE),
    "after_timing": ProbeSpec(Reason.WRONG_AFTER_TIMING),
    "content_cache": ProbeSpec(Reason.STALE_ANSWER),
    "physical_floor": ProbeSpec(Reason.TOO_FAST),
    "l2_carve_out": ProbeSpec(Reason.L2_CARVE_OUT),
    "memcheck": ProbeSpec(Reason.MEMCHECK),
    "racecheck": ProbeSpec(Reason.RACECHECK),
    "initcheck": ProbeSpec(Reason.INITCHECK),
    "synccheck": ProbeSpec(Reason.SYNCCHECK),
}
"""All probes by name, in the order in which reports list them."""
CHEATS = frozenset({
    Reason.STALE_ANSWER, Reason.LATE_WORK, Reason.LAZY_OUTPUT, Reason.OP_CALLBACK, Reason.TAMPERING, Reason.SNOOPING,
    Reason.WRONG_AFTER_TIMING, Reason.TOO_FAST, Reason.L2_CARVE_OUT,
})  # fmt: skip
"""What makes a kernel `SUSPECT`: honest code has no use for it. With any other reason it is `INCORRECT`, as it is merely wrong."""
ALWAYS = ("poison", "guards", "inputs_unchanged", "on_stream", "physical_floor")
"""Probes that no level leaves out: without them an answer or a time is not the kernel's."""
PREPARED = frozenset(name for name, spec in PROBE_SPECS.items() if not spec.fast)
"""Probes that have sets of inputs of their own."""
SANITIZED = frozenset(SANITIZERS)
"""Probes that `--cgins-sanitize` switches on, and no level."""
TIMED = frozenset({"after_timing", "content_cache", "physical_floor", "l2_carve_out"})
"""Probes that look at a kernel while it is timed."""


RANKED = frozenset({"poison", "guards", "inputs_unchanged", "plain_outputs", "ranks", "after_timing"})
"""Probes of a kernel that several processes call together; `ranks` is of these alone. Others run it a number of times that
the processes would not agree on, or call the op in one of them."""


def switched_on(
    level: str, excused: Iterable[str] = (), *, sanitize: Iterable[str] = (), ranked: bool = False
) -> tuple[str, ...]:
    """Names of the probes that are looked for at the level `full`, `fast` or `off`."""
    levels = {
        "full": [name for name in PROBES if name not in SANITIZED],
        "fast": [name for name in PROBES if name not in SANITIZED and PROBE_SPECS[name].fast],
        "off": ALWAYS,
    }
    skipped = {*excused, *(set(PROBES) - RANKED if ranked else RANKED & {"ranks"})}
    return tuple(name for name in (*levels[level], *sanitize) if name not in skipped)


WORTH_BYTES = 1 << 20
"""On a CPU `large_indices` makes the call of more than 2^31 elements, which takes a second, for recorded arguments as large."""

When = Literal["among", "last", "after", "captured", "held", "ordinary"]
"""When `after_timing` had an answer."""
_WHEN: dict[str, str] = {
    "among": "one of the timed calls",
    "last": "the last timed call",
    "after": "a call after it was timed",
    "captured": "a CUDA graph of its call, which does something else while it is captured",
    "held": "an answer that was kept while other calls were timed",
    "ordinary": "a call from an ordinary process, where nothing is around its outputs and nothing shows that it is gated",
}


def wrong_when(when: When, inputs: str, wrong: str) -> str:
    """What to say of an answer that is wrong, by the message of the check that failed, or that is not there, by what was raised."""
    return f"right when it was verified, wrong in {_WHEN[when]} ({inputs_phrase(inputs)}): {wrong}"
