"""`--cgins-device` on a machine without the device."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from conftest import Run

FAST = ("--cgins", "--cgins-no-timing", "--cgins-json=report.json")
NO_GPU = {"CUDA_VISIBLE_DEVICES": ""}


def test_a_device_that_was_asked_for_is_no_skip(project: Path, run: Callable[..., Run]) -> None:
    """--cgins-device=cuda without a GPU ends in INFRASTRUCTURE and exit 6, with the remedy."""
    found = run(project, *FAST, "--cgins-device=cuda", env=NO_GPU)
    assert (found.code, found.counts) == (6, {"errors": 2}), found.out
    assert set(found.statuses().values()) == {"INFRASTRUCTURE"}
    (verdict, *_) = [one["verdict"] for one in found.evaluations().values()]
    assert verdict["reason"] == "device-absent"
    assert verdict["message"].startswith("no CUDA device: torch ")
    assert "`cgins doctor` says what is missing" in found.out


@pytest.mark.exam
def test_kernel_fixture_is_an_error_likewise(project: Path, run: Callable[..., Run]) -> None:
    """cgins_kernel, which skips without its device, is an error and exit 6 where that was asked for by name."""
    (project / "test_gpu.py").write_text(
        "import pytest\n"
        "@pytest.mark.cgins(kernel='relu', implementation='cuda')\n"
        "def test_it(cgins_kernel): raise AssertionError\n"
    )
    found = run(project, "--cgins", "--cgins-device=cuda", "test_gpu.py", env=NO_GPU)
    assert (found.code, found.counts) == (6, {"error": 1}), found.out
    assert "no CUDA device, and --cgins-device=cuda asks for it" in found.out


@pytest.mark.parametrize(
    ("other", "code"), [("def test_other(): pass\n", 6), ("def test_other(): assert 0\n", 1)]
)
def test_what_a_test_cannot_have_is_not_its_kernels_fault(
    project: Path, run: Callable[..., Run], other: str, code: int
) -> None:
    """A tool that is lost while a test runs is exit 6 as well, unless another test fails for its own reasons."""
    (project / "test_tool.py").write_text(
        "from pytest_cgins.core.errors import InfrastructureError\n"
        "def test_it(): raise InfrastructureError('the device is busy', remedy='wait')\n" + other
    )
    assert run(project, "--cgins", "test_tool.py").code == code
