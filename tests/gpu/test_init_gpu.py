"""A repository with Triton kernels, gated on the GPU as `cgins init` wrote it: an autotuner and bfloat16 among them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.app.init.test_init import Command, passed, repository

__all__ = ["repository"]
pytestmark = pytest.mark.gpu


def test_kernels_of_triton(repository: Path, cgins: Command) -> None:
    """Each in each dtype, without an edit."""
    assert cgins(repository, "init").returncode == 0
    kernels = ("relu", "silu_mul", "softmax")
    assert passed(repository, "8x96 and not mish") == {
        f"{kernel}/cuda-triton {dtype}" for kernel in kernels for dtype in ("f32", "f16", "bf16")
    }
