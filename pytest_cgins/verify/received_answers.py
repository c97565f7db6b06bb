"""Answers as a worker that ran a kernel gave them: by the set that they answer, their tensors in buffers."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence

import torch

from pytest_cgins.config import Tolerance
from pytest_cgins.core.bitwise import as_real
from pytest_cgins.core.buffers import Buffer
from pytest_cgins.core.errors import ProtocolError
from pytest_cgins.core.tensors import unpack
from pytest_cgins.core.text import counted
from pytest_cgins.verify.compare import ExpectedSet, compare
from pytest_cgins.verify.messages import Header, KernelAnswers
from pytest_cgins.verify.probe_verdicts import DeviatingAnswer, ProbeResults
from pytest_cgins.verify.probes import after_timing
from pytest_cgins.verify.probes.registry import wrong_when
from pytest_cgins.verify.timing_messages import TimedAnswer


class ReceivedAnswers:
    """What the verification worker gave: an answer a set, and those that deviate from it."""

    def __init__(self, answers: KernelAnswers, buffers: list[Buffer], device: str) -> None:
        self.device = device
        sets, deviations = answers.sets, answers.deviations
        if len(sets) + len(deviations) != len(buffers):
            raise ProtocolError(
                f"{counted(len(sets), 'answer')} and {counted(len(deviations), 'deviation')} came with {counted(len(buffers), 'buffer')}"
            )
        self.first = {answer.name: answer for answer in sets}
        self._buffers = {answer.name: buffer for answer, buffer in zip(sets, buffers, strict=False)}
        self.judged_by: dict[str, ExpectedSet] = {}
        """Sets whose answers were looked at a second time, and what is expected there since."""
        self._deviations = list(zip(deviations, buffers[len(sets) :], strict=True))

    def tensors(self, name: str) -> list[torch.Tensor]:
        """The first answer to a set."""
        return unpack(self.first[name].tensors, self._buffers[name], self.device)

    def digest(self, name: str) -> str:
        """Digest of the first answer to a set."""
        return _digest(self.first[name].tensors, self._buffers[name])

    def seconds(self, expected: dict[str, ExpectedSet]) -> Iterator[DeviatingAnswer]:
        """The deviations."""
        for deviant, buffer in self._deviations:
            name = deviant.name
            yield DeviatingAnswer(
                probe=deviant.probe,
                expected=expected[name],
                first=self.tensors(name) if name in self.first else (),
                given=unpack(deviant.tensors, buffer, self.device),
                error=deviant.error.message if deviant.error else "",
                reused=deviant.reused,
                about=deviant.about,
            )


def _digest(header: Header, buffer: Buffer) -> str:
    """Digest of an answer: how its tensors lie, and all their bytes."""
    digest = hashlib.sha256(json.dumps(header, sort_keys=True).encode())
    if buffer.nbytes:
        digest.update(buffer.view())
    return digest.hexdigest()


def judge_timed_answers(
    answers: Sequence[TimedAnswer],
    buffers: Sequence[Buffer],
    expected: Mapping[str, ExpectedSet],
    results: ProbeResults,
    right: dict[str, str],
) -> None:
    """Trip `after_timing` on answers of timed calls that are wrong; digests of what is found `right` are added, by set."""
    for timed, buffer in zip(answers, buffers, strict=True):
        name = timed.name
        if timed.error:
            wrong = f"the kernel raised {timed.error.message}"
        elif right.get(name) == (own := _digest(timed.tensors, buffer)):
            continue
        else:
            wrong = _wrong(expected[name], timed.tensors, buffer, results.tolerance)
            if not wrong:
                right[name] = own
        if wrong:
            results.trip(after_timing.NAME, wrong_when(timed.when, name, wrong))


def _wrong(expected: ExpectedSet, header: Header, buffer: Buffer, tolerance: Tolerance) -> str:
    """Message of the first check that an answer fails; "" if it passes all."""
    device = expected.outputs[0].answer.device if expected.outputs else "cpu"
    got = unpack(header, buffer, device)
    checks = compare(expected, [as_real(tensor) for tensor in got], tolerance)
    return next((check.message for check in checks if not check.passed), "")
