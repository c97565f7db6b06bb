"""What is sent to be timed, and what comes back: free of torch, as all of pytest's own process."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pytest_cgins import documents
from pytest_cgins.execute.buffers import Buffer
from pytest_cgins.measurement import Measurement
from pytest_cgins.model import Case, Correctness, Probe

NO_TIMING = "kernels are not timed: --cgins-no-timing"
UNTIMED = "the kernel was not timed"
_ALIKE = ("call", "tensors", "outputs", "context", "mutated")
_TIMED_ON = ("recorded", "fresh")


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """A measurement, and what probes saw meanwhile."""

    measurement: Measurement
    """The timings."""
    probes: tuple[Probe, ...]
    """Results of the probes that look at a kernel while it is timed."""
    numbers: dict[str, float]
    """For the verdict: `floor_ns_per_call`, if a floor is known."""

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


def told_of(result: Mapping[str, Any], pairs: Sequence[tuple[Any, Buffer]]) -> dict[str, Any]:
    """What the worker tells, with the sets' real names.

    Raises:
        KeyError, TypeError, ValueError, AttributeError: it is not what our own service would tell.
    """
    names = {str(index): one["name"] for index, (one, _) in enumerate(pairs)}
    measurement = documents.load_python(Measurement, result["measurement"])
    return {
        "measurement": documents.dump_python(measurement),
        "answers": [{**answer, "name": names[answer["name"]]} for answer in result["answers"]],
        "observed": dict(result["observed"]),
    }


def timing_of(told: Mapping[str, Any], judged: Mapping[str, Any]) -> Timing:
    """What was measured, and how the reference worker judged it."""
    floor = float(judged["floor_ns_per_call"])
    return Timing(
        measurement=documents.load_python(Measurement, told["measurement"]),
        probes=tuple(documents.load_python(Probe, one) for one in judged["probes"]),
        numbers={"floor_ns_per_call": floor} if floor else {},
    )
