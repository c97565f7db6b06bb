"""What is judged after a kernel was timed: the answers that it gave meanwhile, and what probes saw."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace

from pytest_cgins.config import Tolerance
from pytest_cgins.core.buffers import Buffer
from pytest_cgins.core.errors import ProtocolError
from pytest_cgins.core.tensors import unpack
from pytest_cgins.timing import work
from pytest_cgins.timing.devices import timed_device
from pytest_cgins.verify.compare import ExpectedSet, compare
from pytest_cgins.verify.expected import as_real
from pytest_cgins.verify.gold import order
from pytest_cgins.verify.messages import Header, JudgeTiming, TimedAnswer, TimingJudgement
from pytest_cgins.verify.prepare import Preparation
from pytest_cgins.verify.probe_verdicts import Suspicions
from pytest_cgins.verify.probes import after_timing, integrity, physical_floor, snooping
from pytest_cgins.verify.probes.registry import TIMED, wrong_when


def digest(header: Header, buffer: Buffer) -> str:
    """Of an answer: how its tensors lie, and all their bytes."""
    made = hashlib.sha256(json.dumps(header, sort_keys=True).encode())
    if buffer.nbytes:
        made.update(buffer.view())
    return made.hexdigest()


def judge(
    request: JudgeTiming,
    buffers: Sequence[Buffer],
    prepared: Preparation,
    suspicions: Suspicions,
    right: Mapping[str, str],
) -> TimingJudgement:
    """Results of the probes that look at a kernel while it is timed, and the floor.

    `integrity` and `snooping` are among them if they tripped: timing has a process of its own, in which the timer can
    be replaced and its samples can be reached.

    Args:
        request: what was seen.
        buffers: one an answer.
        prepared: the case.
        suspicions: empty.
        right: digests of answers that were found right, by set: the same bytes are not judged twice.

    Raises:
        ProtocolError: if it is not what our own service would tell.
    """
    try:
        _take_answers(request.timing.answers, buffers, prepared, suspicions, dict(right))
    except (KeyError, ValueError) as error:
        raise ProtocolError(f"what was told of a timing is malformed: {error}") from error
    known = TIMED | {integrity.NAME, snooping.NAME}
    suspicions.take_facts({name: facts for name, facts in request.timing.observed.items() if name in known})
    device = request.question.case.device
    floor = _floor_ns_per_call(prepared, device, cold=request.cold, launch_ns=request.launch_ns)
    if not floor:
        suspicions.not_run["physical_floor"] = (
            "the op returns no memory of its own: there is nothing that it cannot do without"
        )
    suspicions.trip(physical_floor.NAME, physical_floor.judge(request.median_ns_per_call, floor))
    probes = (probe for probe in suspicions.probes() if probe.name in TIMED or probe.outcome == "tripped")
    return TimingJudgement(tuple(probes), floor)


def _take_answers(
    answers: Sequence[TimedAnswer],
    buffers: Sequence[Buffer],
    prepared: Preparation,
    suspicions: Suspicions,
    right: dict[str, str],
) -> None:
    expected = {made.expected.name: made.expected for made in prepared.core}
    for answer, buffer in zip(answers, buffers, strict=True):
        name = answer.name
        if answer.error:
            wrong = f"the kernel raised {answer.error.message}"
        elif right.get(name) == (own := digest(answer.tensors, buffer)):
            continue
        else:
            wrong = _wrong(expected[name], answer.tensors, buffer, suspicions.tolerance)
            if not wrong:
                right[name] = own
        if wrong:
            suspicions.trip(after_timing.NAME, wrong_when(answer.when, name, wrong))


def _wrong(expected: ExpectedSet, header: Header, buffer: Buffer, tolerance: Tolerance) -> str:
    """Message of the first check that an answer fails; "" if it passes all."""
    device = expected.outputs[0].answer.device if expected.outputs else "cpu"
    got = unpack(header, buffer, device)
    checks = compare(expected, [as_real(tensor) for tensor in got], tolerance)
    return next((check.message for check in checks if not check.passed), "")


def _floor_ns_per_call(prepared: Preparation, device: str, *, cold: bool, launch_ns: float) -> float:
    """See `verify.probes.physical_floor`; 0 where it cannot be known whether outputs are memory of their own."""
    first, gold = prepared.sets[0], prepared.trace.gold
    if gold is None:
        return 0.0
    shared = {number for number, _ in gold.aliases}
    outputs = [meta for meta, number in zip(first.outputs, order(gold), strict=False) if number not in shared]
    least = work.least(prepared.call, first.layout.metas, outputs)
    if prepared.context.autocast:
        least = replace(least, dtype="bfloat16")
    changed = any(first.layout.metas[index].numel for index in first.mutated)
    # An argument that is only partly read, such as a table, makes a copy larger than what a call moves.
    touched = sum(span.numel() for span in first.layout.spans) + sum(map(work.nbytes, first.outputs))
    limits = timed_device(device).peaks()
    if limits is None:
        return 0.0
    return physical_floor.floor_ns_per_call(
        least,
        limits,
        cold=cold and least.nbytes >= 0.95 * touched,
        launch_ns=launch_ns if changed or least.nbytes else 0.0,
    )
