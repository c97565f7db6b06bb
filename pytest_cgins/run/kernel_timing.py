"""What is sent to be timed, and what comes back: free of torch, as all of pytest's own process."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, get_args

from pytest_cgins.core import documents
from pytest_cgins.core.buffers import Buffer
from pytest_cgins.core.measurement import ARM_LETTERS, ArmName, Measurement, Method
from pytest_cgins.core.model import Case, Correctness, Probe
from pytest_cgins.core.text import counted
from pytest_cgins.timing.block import Block
from pytest_cgins.timing.measure import Prepared

NO_TIMING = "kernels are not timed: --cgins-no-timing"
UNTIMED = "the kernel was not timed"
_ALIKE = ("call", "tensors", "outputs", "context", "mutated")
_TIMED_ON = ("recorded", "fresh")
METHODS: tuple[str, ...] = get_args(Method)
MOST_CALLS, MOST_MHZ = 10**9, 10**6
LEAST, MOST_NS = 1e-9, 1e18
"""Numbers outside of these are no clock's: a worker under a kernel's control may tell any."""
_MOST_NOTES = 16
_SHOWN = 600


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """A measurement, and what probes saw meanwhile."""

    measurement: Measurement
    """The timings."""
    probes: tuple[Probe, ...]
    """Results of the probes that look at a kernel while it is timed."""
    numbers: dict[str, float]
    """For the verdict: `floor_ns_per_call`, if a floor is known."""
    refused: dict[str, str]
    """Why arms that were wanted are not there, by arm."""

    def merged(self, correctness: Correctness) -> Correctness:
        """What was found before, with these probes' results in the place of what stood for them."""
        results = {probe.name: probe for probe in self.probes}
        return replace(
            correctness, probes=tuple(results.get(probe.name, probe) for probe in correctness.probes)
        )


def seed_for(seed: int, case: Case) -> int:
    """A seed for the timing worker, from which nobody finds that of the run."""
    made = hashlib.sha256(f"timing/{seed}/{case.name}".encode()).digest()
    return int.from_bytes(made[:7], "big")


def timeable(sets: Sequence[Any], buffers: Sequence[Buffer]) -> list[tuple[Any, Buffer]]:
    """The sets of inputs that a kernel is timed on: the first, and a fresh one that differs in its numbers alone."""
    pairs = list(zip(sets, buffers, strict=True))
    first = pairs[0][0]
    return [
        (one, buffer)
        for one, buffer in pairs
        if one is first or (one["name"] in _TIMED_ON and all(one[key] == first[key] for key in _ALIKE))
    ]


def request_sets(pairs: Sequence[tuple[Any, Buffer]]) -> list[dict[str, Any]]:
    """These sets as the timing worker gets them: numbers for names, which tell it nothing."""
    return [{"name": str(index), **{key: one[key] for key in _ALIKE}} for index, (one, _) in enumerate(pairs)]


def prepared_of(result: Mapping[str, Any]) -> tuple[Prepared, dict[str, str]]:
    """What a worker has made ready, and why arms are not there.

    Raises:
        KeyError, TypeError, ValueError, AttributeError: it is not what our own service would tell.
    """
    arms: tuple[ArmName, ...] = tuple(arm for arm in ARM_LETTERS if arm in set(result["arms"]))
    if "kernel" not in arms or "torch" not in arms or result["method"] not in METHODS:
        raise ValueError(f"no such measurement: {result['arms']} by {result['method']}")
    prepared = Prepared(
        arms=arms,
        method=result["method"],
        calls={arm: int(_within(result["calls"][arm], MOST_CALLS, least=1)) for arm in arms},
        batch_seconds={arm: _within(result["batch_seconds"][arm], MOST_NS) for arm in arms},
        host_ns_per_call={
            arm: _within(result["host_ns_per_call"][arm], MOST_NS)
            for arm in arms
            if arm in result["host_ns_per_call"]
        },
        cold=bool(result["cold"]),
        launch_ns=_within(result["launch_ns"], MOST_NS, least=0),
        notes=tuple(str(note)[:_SHOWN] for note in result["notes"][:_MOST_NOTES]),
    )
    return prepared, {str(arm): str(why)[:_SHOWN] for arm, why in result["refused"].items()}


def blocks_of(result: Mapping[str, Any], orders: Sequence[str]) -> list[Block]:
    """The blocks that a worker has run.

    Raises:
        KeyError, TypeError, ValueError, AttributeError: they are not those that were asked for.
    """
    blocks = [
        Block(
            order=one["order"],
            ns_per_call=tuple(_within(time, MOST_NS) for time in one["ns_per_call"]),
            mean_ns_per_call=tuple(_within(time, MOST_NS) for time in one["mean_ns_per_call"]),
            sm_mhz=None if one["sm_mhz"] is None else int(_within(one["sm_mhz"], MOST_MHZ, least=0)),
            throttled=tuple(str(reason)[:_SHOWN] for reason in one["throttled"][:_MOST_NOTES]),
        )
        for one in result["blocks"]
    ]
    if [block.order for block in blocks] != list(orders):
        raise ValueError(f"{counted(len(blocks), 'block')} came for {len(orders)}, or in other orders")
    return blocks


def _within(told: Any, most: float, *, least: float = LEAST) -> float:
    number = float(told)
    if not least <= number <= most:
        raise ValueError(f"{number:g} was told where {least:g} to {most:g} can be")
    return number


def told_of(
    result: Mapping[str, Any],
    pairs: Sequence[tuple[Any, Buffer]],
    measurement: Measurement,
    *,
    launch_ns: float,
) -> dict[str, Any]:
    """What the worker tells at the end, with the sets' real names, and the measurement for the judge.

    Raises:
        KeyError, TypeError, ValueError, AttributeError: it is not what our own service would tell.
    """
    names = {str(index): one["name"] for index, (one, _) in enumerate(pairs)}
    return {
        "cold": measurement.cache == "cold",
        "median_ns_per_call": measurement.kernel.median_ns_per_call,
        "launch_ns": launch_ns,
        "answers": [{**answer, "name": names[answer["name"]]} for answer in result["answers"]],
        "observed": dict(result["observed"]),
    }


def timing_of(measurement: Measurement, judged: Mapping[str, Any], refused: dict[str, str]) -> Timing:
    """What was measured, and how the reference worker judged it."""
    floor = float(judged["floor_ns_per_call"])
    return Timing(
        measurement=measurement,
        probes=tuple(documents.load_python(Probe, one) for one in judged["probes"]),
        numbers={"floor_ns_per_call": floor} if floor else {},
        refused=refused,
    )
