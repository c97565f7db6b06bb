"""Records the pack `traces/tiny`: one call of relu."""

import torch

import pytest_cgins

with pytest_cgins.record("traces/tiny", ops=["torch.nn.functional.relu"]):
    torch.nn.functional.relu(torch.randn(4, 8, generator=torch.Generator().manual_seed(0)))
