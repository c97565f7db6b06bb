"""Records a block's calls, as the model makes them and at the dispatcher."""

import fused_ops
import torch

import pytest_cgins


def block() -> None:
    """A feed-forward block between two norms."""
    torch.manual_seed(0)
    ops = torch.ops.fused_ops
    hidden, residual, weight = torch.randn(6, 64), torch.randn(6, 64), torch.rand(64)
    normed = torch.zeros_like(hidden)
    ops.rms_norm(normed, hidden, weight, 1e-6)
    ops.fused_add_rms_norm(normed, residual, weight, 1e-6)
    gated = torch.zeros(6, 32)
    ops.silu_and_mul(gated, normed)
    total = ops.scaled_add(gated, gated.flip(0), 0.5)
    ops.scaled_add.out(total, gated, out=torch.zeros_like(total))


assert fused_ops.__file__
with torch.inference_mode():
    with pytest_cgins.record("traces/function"):
        block()
    with pytest_cgins.record("traces/dispatch", level="dispatch"):
        block()
