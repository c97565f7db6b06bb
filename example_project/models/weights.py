"""Weights of models that nobody has trained."""

import torch
from torch import nn


def randomize(model: nn.Module, seed: int = 0) -> nn.Module:
    """Give every constant parameter and buffer of a fresh model values that matter.

    A random-weight model has bias 0 and gamma 1; with these no trace could tell a kernel that
    forgets its bias or its weight.
    """
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for tensor in [*model.parameters(), *model.buffers()]:
            if tensor.is_floating_point() and tensor.numel() > 1 and torch.all(tensor == tensor.flatten()[0]):
                factors = 1 + 0.2 * torch.randn(tensor.shape, generator=generator, device="cpu")
                terms = 0.1 * torch.rand(tensor.shape, generator=generator, device="cpu")
                tensor.mul_(factors.to(tensor.device)).add_(terms.to(tensor.device))
    return model.eval()
