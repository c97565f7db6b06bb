"""Answers that kernels give while they are timed and afterwards, through the service that times them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from pytest_cgins.core.tensors import unpack
from pytest_cgins.run.timing_service import TimingService
from pytest_cgins.verify.probes import after_timing
from pytest_cgins.verify.probes.registry import wrong_when
from tests.run.relu import launcher, relu_set
from tests.whole_timing import here, measured

Make = Callable[..., Any]
RIGHT = """
def relu(input):
    return input.clamp(min=0)
"""
COUNTS_ITS_CALLS = """
calls = 0

def relu(input):
    global calls
    calls += 1
    return input.clamp(min=0) if calls < 50 else input
"""
HURRIES = """
import time
LAST = {"end": 0.0}

def relu(input):
    hurried = time.monotonic() - LAST["end"] < 1e-3
    answer = LAST["answer"] if hurried else input.clamp(min=0)
    LAST.update(end=time.monotonic(), answer=answer)
    return answer
"""
IN_PLACE = """
def relu(input):
    return input.clamp_(min=0)
"""
INPUTS = {"0": torch.linspace(-1, 1, 3000), "1": torch.linspace(2, -2, 3000)}


def stops_writing(folder: Path, condition: str) -> Any:
    """A launcher that does so from its fiftieth call on."""
    body = f"if (++calls > 50 && {condition}) return 0;\n"
    body += "for (int64_t i = 0; i < cgins::numel(input); ++i) y[i] = x[i] < 0 ? 0 : x[i];"
    return launcher(folder, body, before="static int calls = 0;")


def measure(
    kernel: Any, inputs: dict[str, torch.Tensor] = INPUTS, mutated: tuple[int, ...] = (), **changes: Any
) -> dict[tuple[str, str], Any]:
    """Answers by set and time; what the kernel raised where it gave none."""
    sets = [relu_set(x, name, mutated=mutated) for name, x in inputs.items()]
    params = {
        "kernel": kernel, "device": "cpu", "import_root": "", "sets": [one for one, _ in sets],
        "probes": ["after_timing"], **changes,
    }  # fmt: skip
    whole = measured(here(TimingService()), params, [buffer for _, buffer in sets])
    return {
        (one["name"], one["when"]): one["error"] or unpack(one["tensors"], buffer, "cpu")
        for one, buffer in zip(whole.answers, whole.buffers, strict=True)
    }


def test_all_answers_of_an_honest_kernel_are_right(relu_kernel: Make) -> None:
    """Copies with different numbers are timed in turn, and each set's answer is that of its own numbers."""
    answers = measure(relu_kernel(RIGHT))
    assert set(answers) == {(name, when) for name in INPUTS for when in ("last", "after")}
    for (name, _), (output,) in answers.items():
        assert torch.equal(output, INPUTS[name].relu())


def test_a_kernel_that_counts_its_calls_is_wrong_then(relu_kernel: Make) -> None:
    """Right for fifty calls, which verification would not pass: the last timed answers show it."""
    answers = measure(relu_kernel(COUNTS_ITS_CALLS))
    for (name, _), (output,) in answers.items():
        assert torch.equal(output, INPUTS[name])


RING = """
import itertools
import torch
ring = itertools.cycle(torch.zeros(300, 3000))
def relu(input):
    return torch.clamp(input, min=0, out=next(ring))
"""


def test_an_answer_that_later_calls_write_over_is_told(relu_kernel: Make) -> None:
    """A ring of outputs, larger than what is kept at a time, is still memory that belongs to a user."""
    answers = measure(relu_kernel(RING))
    assert any(when == "held" for _, when in answers)


def test_calls_afterwards_follow_on_each_other_as_timed_ones_do(relu_kernel: Make) -> None:
    """A kernel that does less when it is called again at once does so here, however large its tensors are."""
    large = {"0": torch.linspace(-1, 1, 300_000), "1": torch.linspace(2, -2, 300_000)}
    answers = measure(relu_kernel(HURRIES), large)
    assert torch.equal(answers["0", "after"][0], answers["1", "after"][0])


def test_answers_to_the_same_numbers_are_held_against_the_first() -> None:
    """Of those that differ, the farthest one is given, after the first."""
    repeats = after_timing.Repeats()
    for value in (1.0, 1.0, 1.5, -3.0, 1.25):
        repeats.look([_Left("0", value), _Left("1", 2.0)], seconds=1.0)
    first, farthest = repeats.given()
    assert (first.name, first.when, float(first.tensors[0])) == ("0", "among", 1.0)
    assert (farthest.name, farthest.when, float(farthest.tensors[0])) == ("0", "among", -3.0)
    assert repeats.calls == 10


@pytest.mark.parametrize(
    ("first", "then"), [(1.0, float("nan")), (float("nan"), 1.0), (1.0, float("inf")), (0.0, -0.0)]
)
def test_what_has_no_distance_differs_too(first: float, then: float) -> None:
    """NaN and infinities are farther than any number; signs of zero differ by none, and are judged all the same."""
    repeats = after_timing.Repeats()
    for value in (first, then, first):
        repeats.look([_Left("0", value)], seconds=1.0)
    assert len([*repeats.given()]) == 2


def test_looking_ends_with_its_time_and_goes_on_where_it_was() -> None:
    """A share of the timed calls' own time is spent, at least one copy each time."""
    repeats = after_timing.Repeats()
    copies = [_Left(str(number), 1.0) for number in range(3)]
    for _ in range(4):
        repeats.look(copies, seconds=0.0)
    assert [copy.looks for copy in copies] == [2, 1, 1]


def test_an_error_in_one_call_of_a_hundred_is_met() -> None:
    """Blocks leave the same copies' answers each time, so that it could stay between them for ever."""
    repeats = after_timing.Repeats()
    copies = [_Slips() for _ in range(16)]
    _Slips.calls = 0
    repeats.go_on(copies)
    assert repeats.calls == after_timing.CALLS
    first, farthest = repeats.given()
    assert (float(first.tensors[0]), float(farthest.tensors[0])) == (1.0, -1.0)


class _Slips:
    name = "0"
    is_left = True
    calls = 0

    def call_prepared(self) -> None:
        _Slips.calls += 1

    def finished(self, result: object) -> list[torch.Tensor]:
        return [torch.tensor(-1.0 if self.calls % 127 == 0 else 1.0)]


class _Left:
    is_left = True

    def __init__(self, name: str, value: float) -> None:
        self.name = name
        self.looks = 0
        self._value = value

    def answer_left(self) -> list[torch.Tensor]:
        self.looks += 1
        return [torch.tensor(self._value)]


def test_answers_of_earlier_calls_are_not_taken(tmp_path: Path) -> None:
    """A launcher that finds its outputs filled, and leaves them so, has the answers to other numbers there."""
    answers = measure(stops_writing(tmp_path, "y[0] == y[0]"))
    assert len(answers) == 4
    for name, other in ("01", "10"):
        (last,), (after,) = answers[name, "last"], answers[name, "after"]
        assert torch.equal(last, INPUTS[other].relu())
        assert torch.equal(after, INPUTS[name].relu())


def test_with_one_set_unwritten_answers_are_poison(tmp_path: Path) -> None:
    """A launcher that leaves the right answers of earlier calls in its outputs gives NaN."""
    answers = measure(stops_writing(tmp_path, "true"), {"0": INPUTS["0"]})
    assert all(answers["0", when][0].isnan().all() for when in ("last", "after"))


LAZY_WHEN_TIMED = """
import torch
calls = 0

class Lazy(list):
    def __iter__(self):
        raise AssertionError("asked")

def relu(input):
    global calls
    calls += 1
    if calls < 50:
        return input.clamp(min=0)
    out = torch.zeros_like(input)
    out.as_subclass = out.clone = lambda *_: input.clamp(min=0)
    return Lazy([out])
"""


def test_an_answer_that_is_put_off_while_timed_is_none(relu_kernel: Make) -> None:
    """Code that hangs on a timed call's result is not run when the answer is looked at: what it returned is told."""
    answers = measure(relu_kernel(LAZY_WHEN_TIMED))
    assert len(answers) == 4
    for answer in answers.values():
        assert "returned a tensor with attributes of its own (as_subclass, clone)" in answer["message"]


def test_an_error_afterwards_is_an_answer() -> None:
    """What the kernel raises on the restored inputs is handed over, to be judged."""
    (given,) = after_timing.after([_Raises()])
    assert (given.name, given.when, list(given.tensors)) == ("0", "after", [])
    assert given.error is not None
    assert given.error.message == "ValueError: no more"


class _Raises:
    name = "0"
    is_left = False

    def prepare(self) -> None:
        pass

    def call_prepared(self) -> object:
        raise ValueError("no more")


def test_an_op_that_changes_its_inputs_is_judged_afterwards(relu_kernel: Make) -> None:
    """Nobody knows what the inputs of its last timed call were; the restored ones are known."""
    answers = measure(relu_kernel(IN_PLACE), {"0": INPUTS["0"]}, mutated=(0,))
    assert set(answers) == {("0", "after")}
    assert all(torch.equal(tensor, INPUTS["0"].relu()) for tensor in answers["0", "after"])
    assert len(answers["0", "after"]) == 2


def test_without_the_probe_nothing_is_handed_back(relu_kernel: Make) -> None:
    """An exception in cgins.yaml costs nothing."""
    assert measure(relu_kernel(RIGHT), probes=[]) == {}


@pytest.mark.parametrize(
    ("when", "words"),
    [
        ("last", "wrong in the last timed call"),
        # So that its author looks for what only the gate has.
        (
            "ordinary",
            "an ordinary process, where nothing is around its outputs and nothing shows that it is gated",
        ),
    ],
)
def test_the_message_says_when_and_guesses_nothing(when: Any, words: str) -> None:
    """A wrong answer is told with its set and the check that failed, and with no guess at the cause."""
    message = wrong_when(when, "fresh", "3 of 8 elements are wrong")
    assert f"{words} (fresh inputs): 3 of 8 elements are wrong" in message
    assert "→" not in message
