"""What a kernel sets aside of the L2; the reading itself is tested on a GPU."""

from __future__ import annotations

import ctypes
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from pytest_cgins.verify.probes import l2_carve_out
from pytest_cgins.verify.probes.l2_carve_out import CarveOut


def unreachable() -> None:
    """A call that is not made."""
    raise AssertionError


class Driver:
    """The calls of the driver that the probe makes; `limit` is the context's, `windows` are the streams'."""

    def __init__(self) -> None:
        self.limit, self.windows = 0, dict[int, int]()

    def cuCtxGetLimit(self, value: Any, _what: int) -> int:  # noqa: N802
        value._obj.value = self.limit
        return 0

    def cuCtxSetLimit(self, _what: int, limit: ctypes.c_size_t) -> int:  # noqa: N802
        self.limit = limit.value
        return 0

    def cuCtxResetPersistingL2Cache(self) -> int:  # noqa: N802
        return 0

    def cuStreamGetAttribute(self, stream: ctypes.c_void_p, _what: int, window: Any) -> int:  # noqa: N802
        window._obj.nbytes = self.windows.get(stream.value or 0, 0)
        window._obj.hit_property = 2 if window._obj.nbytes else 0
        return 0

    def cuStreamSetAttribute(self, stream: ctypes.c_void_p, _what: int, window: Any) -> int:  # noqa: N802
        self.windows[stream.value or 0] = window._obj.nbytes
        return 0


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Driver:
    """A stand-in for the driver; torch's streams are one that has the number 7."""
    made = Driver()
    stream = SimpleNamespace(cuda_stream=7)
    monkeypatch.setattr(l2_carve_out.driver, "library", lambda: made)
    monkeypatch.setattr(torch.cuda, "Stream", lambda _device: stream)
    monkeypatch.setattr(torch.cuda, "stream", lambda _stream: nullcontext())
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: stream)
    return made


def test_what_others_set_accuses_nobody(gpu: Driver) -> None:
    """Not what was there before, nor what came between the looks, nor what a first call alone has set."""
    gpu.limit = 1
    carve_out = CarveOut("cuda:0", on=True)
    carve_out.loaded()
    carve_out.settle(lambda: setattr(gpu, "limit", 2))
    assert gpu.limit == 0
    gpu.limit = 3
    carve_out.called(lambda: None)
    assert (carve_out.facts(), gpu.limit) == ({"limit": 0, "window": 0}, 0)


def test_what_a_kernel_sets_is_found_and_given_back(gpu: Driver) -> None:
    """At import, in each call, and as a window of the stream that it is given."""
    carve_out = CarveOut("cuda:0", on=True)
    gpu.limit = 5
    carve_out.loaded()
    assert (carve_out.facts()["limit"], gpu.limit) == (5, 0)
    carve_out = CarveOut("cuda:0", on=True)
    carve_out.called(lambda: setattr(gpu, "limit", 6))
    assert (carve_out.facts()["limit"], gpu.limit) == (6, 0)
    carve_out.called(lambda: gpu.windows.update({7: 4096}))
    assert (carve_out.facts()["window"], gpu.windows) == (4096, {7: 0})


def test_there_is_none_on_a_cpu() -> None:
    """The probe says that it does not apply, and looks at nothing."""
    carve_out = CarveOut("cpu", on=True)
    carve_out.loaded()
    carve_out.settle(unreachable)
    carve_out.called(unreachable)
    assert carve_out.facts() == {"not_run": "a CPU has no carve-out of its caches"}
    assert l2_carve_out.judge(carve_out.facts()) == ""


def test_any_limit_or_window_is_told() -> None:
    """With its size, and why it matters."""
    assert l2_carve_out.judge({"limit": 0, "window": 0}) == ""
    assert "set 10,485,760 bytes of the L2 aside" in l2_carve_out.judge({"limit": 10 * 2**20, "window": 4096})
    assert "a window of 4,096 persisting bytes" in l2_carve_out.judge({"limit": 0, "window": 4096})


def test_the_window_fills_the_attribute_s_union() -> None:
    """The driver writes 64 bytes whatever the attribute."""
    assert ctypes.sizeof(l2_carve_out._Window) == 64
