"""Records the pack `traces/tiny`: two calls of relu, one of threshold, one of the project's own op."""

import tiny_ops
import torch
from torch.nn import functional

import pytest_cgins

OPS = ["torch.nn.functional.relu", "torch.nn.functional.threshold", "tiny_ops.scaled"]

torch.manual_seed(0)
with pytest_cgins.record("traces/tiny", ops=OPS):
    functional.relu(torch.randn(2, 3))
    functional.relu(torch.randn(4, 8))
    functional.threshold(torch.randn(3, 5), 1e9, 0.0)
    tiny_ops.scaled(torch.randn(5, 4))
