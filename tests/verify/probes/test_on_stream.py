"""Captures through a driver that only takes notes: what is asked of it, and what its answers mean."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from pytest_cgins.building.loading import cuda_driver
from pytest_cgins.core.errors import LaunchError
from pytest_cgins.verify.probe_support import set_trial
from pytest_cgins.verify.probes import on_stream

STREAM, GRAPH = 77, 99


class Driver:
    """Notes its calls; each answers success, but those that are told otherwise."""

    def __init__(self, **answers: int) -> None:
        self.calls: list[str] = []
        self._answers = answers

    def cuStreamBeginCapture_v2(self, stream: Any, mode: int) -> int:  # noqa: N802
        """Of the stream, for its thread alone."""
        assert (stream.value, mode) == (STREAM, 1)
        return self._note("begin")

    def cuStreamEndCapture(self, stream: Any, graph: Any) -> int:  # noqa: N802
        """There is a graph where all went well."""
        assert stream.value == STREAM
        status = self._note("end")
        graph._obj.value = None if status else GRAPH
        return status

    def cuGraphDestroy(self, graph: Any) -> int:  # noqa: N802
        """Of that graph."""
        assert graph.value == GRAPH
        return self._note("destroy")

    def cuGetErrorName(self, status: int, name: Any) -> int:  # noqa: N802
        """Unknown."""
        return 0

    cuGetErrorString = cuGetErrorName  # noqa: N815

    def _note(self, call: str) -> int:
        self.calls.append(call)
        return self._answers.get(call, 0)


class Captured:
    """A trial that runs again, or does not."""

    device = "cpu"
    mutates = False

    def __init__(self, fails: int = 0) -> None:
        self._fails = fails

    def rerun(self) -> list[torch.Tensor]:
        """No tensors, after so many failures."""
        self._fails -= 1
        if self._fails >= 0:
            raise RuntimeError("captured event")
        return []


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Driver:
    """In place of CUDA's."""
    made = Driver(**getattr(request, "param", {}))
    monkeypatch.setattr(cuda_driver, "library", lambda: made)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda _: SimpleNamespace(cuda_stream=STREAM))
    return made


@pytest.mark.parametrize("driver", [{}, {"end": 904}], indirect=True)
def test_how_a_capture_ended_is_told(driver: Driver) -> None:
    """A graph is kept, since events that a kernel holds may point into it; a failed capture has none."""
    with set_trial.capturing("cuda:0") as capture:
        assert driver.calls == ["begin"]
    assert (capture.status, driver.calls) == (driver._answers.get("end", 0), ["begin", "end"])


@pytest.mark.parametrize("driver", [{"end": 901}], indirect=True)
def test_a_capture_is_ended_whatever_the_kernel_raises(driver: Driver) -> None:
    """The stream is usable afterwards, and the kernel's own error is what is seen."""
    with pytest.raises(RuntimeError, match="not while capturing"), set_trial.capturing("cuda:0"):
        raise RuntimeError("not while capturing")
    assert driver.calls == ["begin", "end"]


@pytest.mark.parametrize("driver", [{"begin": 1}], indirect=True)
def test_what_cannot_begin_is_not_ended(driver: Driver) -> None:
    """CUDA's refusal is an error of its own."""
    with pytest.raises(LaunchError, match="stream capture"), set_trial.capturing("cuda:0"):
        pass
    assert driver.calls == ["begin"]


@pytest.mark.parametrize(
    ("facts", "reproach"),
    [
        ({"direct": True, "early": False, "unjoined": False}, ""),
        ({"direct": True, "early": True}, "works on another stream than the one it is given"),
        ({"direct": True, "early": False, "late": True}, "while the default one was held, that one was done"),
        ({"direct": True, "early": False, "late": False, "unjoined": True}, "error 904, unjoined"),
        ({"direct": False, "early": False}, ""),
        ({"direct": False, "early": True, "early_on_default": False}, ""),
        (
            {"direct": False, "early": True, "early_on_default": True},
            "not even where that is the default one",
        ),
    ],
)
def test_who_is_given_the_stream_must_work_on_it(facts: dict[str, Any], reproach: str) -> None:
    """Others may count on the default stream, and are told of it."""
    message = on_stream.judge(facts)
    assert reproach in message
    assert bool(message) is bool(reproach)
    assert ("\n→ " in message) is bool(reproach)
    is_told = facts == {"direct": False, "early": True, "early_on_default": False}
    assert bool(on_stream.notes(facts)) is is_told


def test_a_kernel_that_does_not_run_again_is_not_accused() -> None:
    """What cannot be known is said."""
    facts = on_stream.observe(Captured(), direct=True)  # type: ignore[arg-type]
    assert "did not run once more" in facts["not_run"]
    assert on_stream.notes(facts) == ()


@pytest.mark.parametrize(("fails", "usable"), [(0, True), (1, True), (2, False)])
def test_a_process_in_which_a_kernel_no_longer_runs_is_spent(fails: int, usable: bool) -> None:
    """Whatever a capture left behind is not left to the next kernel, but for an error that is told once."""
    assert on_stream.usable(Captured(fails=fails)) is usable  # type: ignore[arg-type]
