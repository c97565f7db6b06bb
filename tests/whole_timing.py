"""A measurement from `open` to `finish`, with the service in this process or in a worker."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pytest_cgins.core.buffers import Buffer
from pytest_cgins.core.measurement import ArmName, Measurement
from pytest_cgins.run import kernel_timing
from pytest_cgins.run.pool import WorkerPool
from pytest_cgins.run.timing_service import TimingService
from pytest_cgins.timing.block_sampler import BlockSampler, Prepared
from pytest_cgins.timing.sequential import Rule
from pytest_cgins.verify.messages import read
from pytest_cgins.verify.timing_messages import Opened

Ask = Callable[[str, dict[str, Any], Sequence[Buffer]], tuple[dict[str, Any], Sequence[Buffer]]]
RULE = Rule(tolerate=0.02, catch=0.05, alpha=0.01, beta=0.01, tests=10, most_blocks=64)


@dataclass(frozen=True)
class Whole:
    """All that came of a measurement."""

    measurement: Measurement
    prepared: Prepared
    refused: Mapping[ArmName, str]
    answers: list[dict[str, Any]]
    observed: dict[str, Any]
    buffers: Sequence[Buffer]


def here(service: TimingService) -> Ask:
    """Asks a service in this process."""
    return lambda method, params, buffers: getattr(service, method)(params, list(buffers))


def of_worker(pool: WorkerPool, *, timeout_s: float = 120.0) -> Ask:
    """Asks a worker's."""

    def ask(
        method: str, params: dict[str, Any], buffers: Sequence[Buffer]
    ) -> tuple[dict[str, Any], Sequence[Buffer]]:
        reply = pool.call("timing", method, params, list(buffers), timeout_s=timeout_s)
        return reply.result, reply.buffers

    return ask


def measured(
    ask: Ask,
    params: dict[str, Any],
    buffers: Sequence[Buffer],
    *,
    floor: float | None = None,
    rule: Rule = RULE,
) -> Whole:
    """Time a kernel; against its base if `params` has one."""
    result, _ = ask(
        "open", {"limit_s": 0.05, **{key: one for key, one in params.items() if key != "seed"}}, buffers
    )
    prepared = read(Opened, result)
    sampler = BlockSampler(
        prepared,
        seed=params.get("seed", 1),
        base=rule if "base" in prepared.arms else None,
        floor=(rule, floor) if floor else None,
    )

    def take(orders: Sequence[str]) -> Any:
        return kernel_timing.read_blocks(ask("blocks", {"orders": list(orders)}, ())[0], orders)

    sampler.run(take)
    told, answers = ask("finish", {}, ())
    return Whole(
        sampler.measurement(), prepared, prepared.refused, told["answers"], told["observed"], answers
    )
