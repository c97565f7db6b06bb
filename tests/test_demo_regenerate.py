"""The demo of regeneration, as `make demo-regenerate` runs it."""

from __future__ import annotations

import pytest

from tests.demo_regenerate import main


@pytest.mark.exam
def test_demo(capfd: pytest.CaptureFixture[str]) -> None:
    """A broken kernel is found, repaired at the second attempt, proposed as a pull request, and green on its branch."""
    assert main() == 0, capfd.readouterr()
    told = capfd.readouterr().out
    assert "3 INCORRECT" in told
    assert "layer_norm-cpu-cpp: accepted after 2 of 5 attempts" in told
    assert "opened #1" in told
    assert "green again" in told
