from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F  # noqa: N812

import pytest_cgins
from pytest_cgins.core.trace import Autocast, Context
from pytest_cgins.packs.context import capture, neutral, restore


def test_what_is_captured_is_restored() -> None:
    """Inside `restore` the context is the captured one; after it, the old one."""
    outside = capture()
    wanted = Context(
        grad_enabled=False,
        inference_mode=True,
        autocast=(Autocast(device_type="cpu", dtype="bfloat16"),),
        default_dtype="float64",
        deterministic=True,
        float32_matmul_precision="medium",
    )
    with restore(wanted, "cpu"):
        assert capture() == wanted
    assert capture() == outside


def test_restore_undoes_the_surrounding_modes() -> None:
    """A trace recorded without autocast replays without it, wherever the replay runs."""
    with torch.autocast("cpu", dtype=torch.bfloat16), torch.inference_mode():
        with restore(Context(grad_enabled=True), "cpu"):
            assert F.linear(torch.ones(1, 2), torch.ones(1, 2)).dtype == torch.float32
            assert not torch.is_inference_mode_enabled()
        assert torch.is_autocast_enabled("cpu")


def test_autocast_of_another_device_moves_along() -> None:
    """Autocast recorded on a GPU is applied to the CPU that replays."""
    recorded = Context(autocast=(Autocast(device_type="cuda", dtype="bfloat16"),))
    with restore(recorded, "cpu"):
        assert F.linear(torch.ones(1, 2), torch.ones(1, 2)).dtype == torch.bfloat16


def test_the_seed_is_set_inside_and_the_generator_left_alone() -> None:
    """Random numbers repeat under one seed, and the model's own sequence goes on."""
    torch.manual_seed(5)
    expected = torch.rand(4)
    torch.manual_seed(5)
    drawn = []
    for _ in range(2):
        with restore(Context(rng_seed=9), "cpu"):
            drawn.append(torch.rand(3))
    assert torch.equal(*drawn)
    assert torch.equal(torch.rand(4), expected)


def test_neutral_is_free_of_every_mode() -> None:
    """The recorder's arithmetic sees no autocast, no gradients and no inference mode."""
    with torch.autocast("cpu"), torch.inference_mode(), neutral():
        state = capture()
    assert (state.grad_enabled, state.inference_mode, state.autocast) == (False, False, ())


@pytest.mark.exam
def test_a_replay_does_not_import_the_compiler() -> None:
    """torch's compiler takes seconds, and imports Triton before a worker has chosen its mode."""
    code = (
        "import sys; from pytest_cgins.core.trace import Context; from pytest_cgins.packs.context import restore\n"
        "with restore(Context(), 'cpu'): pass\n"
        "sys.exit('torch._dynamo' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_cudnn_is_settled_while_recording_and_replaying(tmp_path: Path) -> None:
    """TF32 and algorithms that sum in any order are off for golds and replays, and as before afterwards."""
    cudnn = torch.backends.cudnn
    seen: list[tuple[bool, bool]] = []
    before, cudnn.allow_tf32 = cudnn.allow_tf32, True
    try:
        for repeatable in (True, False):
            with restore(Context(), "cpu", repeatable=repeatable):
                seen.append((cudnn.allow_tf32, cudnn.deterministic))
        with pytest_cgins.record(tmp_path / "pack", ops=["torch.neg"]):
            torch.neg(torch.ones(2))
            seen.append((cudnn.allow_tf32, cudnn.deterministic))
        assert seen == [(False, True), (False, False), (False, True)]
        assert (cudnn.allow_tf32, cudnn.deterministic) == (True, False)
    finally:
        cudnn.allow_tf32 = before
