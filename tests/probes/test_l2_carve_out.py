"""What a kernel sets aside of the L2; the reading itself is tested on a GPU."""

from __future__ import annotations

import ctypes

from pytest_cgins.probes import l2_carve_out
from pytest_cgins.probes.l2_carve_out import CarveOut


def test_there_is_none_on_a_cpu() -> None:
    """The probe says that it does not apply, and looks at nothing."""
    carve_out = CarveOut("cpu", on=True)
    carve_out.look()
    carve_out.reset()
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
