"""Captures through a driver that only takes notes: what is asked of it, and what its answers mean."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from pytest_cgins.errors import LaunchError
from pytest_cgins.kernels import cuda_driver
from pytest_cgins.probes import stream_capture

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
    """A trial whose capture ends in some way, and that runs again, or does not."""

    device = "cpu"
    mutates = False

    def __init__(self, ends: int | BaseException = 0, fails: int = 0) -> None:
        self._ends, self._fails = ends, fails

    def captured(self) -> int:
        """The status, or what is raised."""
        if isinstance(self._ends, BaseException):
            raise self._ends
        return self._ends

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


def test_a_graph_is_kept(driver: Driver) -> None:
    """Events that a kernel holds may point into it."""
    with stream_capture.capturing("cuda:0") as capture:
        assert driver.calls == ["begin"]
    assert (capture.status, driver.calls) == (0, ["begin", "end"])


@pytest.mark.parametrize("driver", [{"end": 904}], indirect=True)
def test_how_a_capture_ended_is_told(driver: Driver) -> None:
    """There is no graph to destroy."""
    with stream_capture.capturing("cuda:0") as capture:
        pass
    assert (capture.status, driver.calls) == (904, ["begin", "end"])


@pytest.mark.parametrize("driver", [{"end": 901}], indirect=True)
def test_a_capture_is_ended_whatever_the_kernel_raises(driver: Driver) -> None:
    """The stream is usable afterwards, and the kernel's own error is what is seen."""
    with pytest.raises(RuntimeError, match="not while capturing"), stream_capture.capturing("cuda:0"):
        raise RuntimeError("not while capturing")
    assert driver.calls == ["begin", "end"]


@pytest.mark.parametrize("driver", [{"begin": 1}], indirect=True)
def test_what_cannot_begin_is_not_ended(driver: Driver) -> None:
    """CUDA's refusal is an error of its own."""
    with pytest.raises(LaunchError, match="stream capture"), stream_capture.capturing("cuda:0"):
        pass
    assert driver.calls == ["begin"]


@pytest.mark.parametrize(
    ("ends", "facts"),
    [
        (904, {"unjoined": True}),
        (0, {"unjoined": False}),
        (901, {"unjoined": False}),
        (RuntimeError("operation not permitted when stream is capturing"), {}),
        (SystemExit(3), {}),
    ],
)
def test_only_unjoined_work_is_held_against_a_kernel(ends: Any, facts: dict[str, Any]) -> None:
    """A kernel that cannot be captured may be right."""
    assert stream_capture.observe(Captured(ends)) == facts  # type: ignore[arg-type]
    assert bool(stream_capture.judge(facts)) is (ends == 904)


def test_the_message_says_what_to_do() -> None:
    """What was seen, how it is known, the remedy."""
    message = stream_capture.judge({"unjoined": True})
    assert "work on another stream that the caller's stream does not wait for" in message
    assert "error 904, unjoined" in message
    assert "cudaStreamWaitEvent, or wait_stream in Python" in message


@pytest.mark.parametrize(("fails", "usable"), [(0, True), (1, True), (2, False)])
def test_a_process_in_which_a_kernel_no_longer_runs_is_spent(fails: int, usable: bool) -> None:
    """Whatever a capture left behind is not left to the next kernel, but for an error that is told once."""
    assert stream_capture.usable(Captured(fails=fails)) is usable  # type: ignore[arg-type]
