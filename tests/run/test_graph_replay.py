"""Graphs held against calls, with stand-ins for graphs: what they refuse comes with what a replay gave."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from pytest_cgins.core.case import CompiledKernel
from pytest_cgins.core.tensors import Kept
from pytest_cgins.run import graph_replay
from pytest_cgins.run.kernels import KernelCache
from pytest_cgins.timing import cuda_timer
from pytest_cgins.verify.messages import PackedInputs, read
from pytest_cgins.verify.probe_support.timed_copy import Content, Rotating, TimedCopy
from tests.run.relu import relu_set, zoo_kernel

FIRST, SECOND = torch.linspace(-1, 1, 600), torch.linspace(2, -2, 600)


class Graph:
    """Replays what it was given."""

    def __init__(self, replay: Callable[[], object]) -> None:
        self.replay = replay


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[Rotating], object]], None]:
    """Holds a call of a right kernel against a graph whose replay is a function of the calls."""
    sets = [relu_set(one, name=name) for one, name in ((FIRST, "0"), (SECOND, "1"))]
    contents = [Content(read(PackedInputs, one), Kept(one["tensors"], buffer, "cpu")) for one, buffer in sets]
    copy = TimedCopy(KernelCache().load(read(CompiledKernel, zoo_kernel("quiet_relu"))), contents[0], "cpu")
    arm = Rotating([copy.run])

    def hold(replay: Callable[[Rotating], object] | None) -> None:
        def capture(*_: object) -> Graph:
            arm(0)
            if replay is None:
                raise cuda_timer.EmptyGraphError("the graph is empty")
            return Graph(lambda: replay(arm))

        monkeypatch.setattr(cuda_timer, "capture", capture)
        graph_replay.require("kernel", arm, copy, contents[1])

    return hold


def written(arm: Rotating, numbers: torch.Tensor) -> None:
    """Puts numbers where the captured call has put its answer."""
    (output,) = arm.results[0]
    output.copy_(numbers)


def test_a_replay_that_does_what_calls_do_is_a_graph(held: Callable[..., None]) -> None:
    """Its answer is that of a call on other numbers than it was captured with."""
    held(lambda arm: written(arm, SECOND.relu()))


@pytest.mark.parametrize(
    ("replay", "left"), [(None, torch.nan), (lambda arm: written(arm, torch.full_like(SECOND, 3.0)), 3.0)]
)
def test_what_does_something_else_in_a_graph_is_told_with_its_answer(
    held: Callable[..., None], replay: Callable[[Rotating], object] | None, left: float
) -> None:
    """Nothing at all leaves poison; both are answers that can be judged."""
    with pytest.raises(cuda_timer.CaptureError) as refused:
        held(replay)
    assert refused.value.replayed is not None
    (answer,) = refused.value.replayed
    torch.testing.assert_close(answer, torch.full_like(SECOND, left), equal_nan=True)
