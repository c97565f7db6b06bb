"""A mixture of experts in the manner of Mixtral (Jiang et al., 2024): each token's MLP is that of its best two experts."""

import torch
from torch import nn

import pytest_cgins
from models.decoder import silu_mul


@pytest_cgins.mark
def grouped_matmul(x: torch.Tensor, weight: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
    """Rows of x, (rows, k), times the matrix of their group, weight (groups, k, n); gives (rows, n).

    Group g has the rows from ends[g - 1] to ends[g], int32, rising to the number of rows.
    """
    if x.is_cuda and x.dtype == torch.bfloat16:
        return nn.functional.grouped_mm(x, weight, offs=ends)
    starts = [0, *ends.tolist()]
    parts = [x[start:end] @ one for start, end, one in zip(starts, starts[1:], weight, strict=False)]
    return torch.cat(parts)


class Mixture(nn.Module):
    """Tokens (rows, hidden) to the same, by the two experts of eight that a router likes best."""

    def __init__(self, hidden: int, intermediate: int, experts: int = 8, chosen: int = 2) -> None:
        super().__init__()
        self.chosen = chosen
        self.router = nn.Linear(hidden, experts, bias=False)
        self.gate, self.up, self.down = (
            nn.Parameter(torch.randn(experts, *sizes) * sizes[0] ** -0.5)
            for sizes in ((hidden, intermediate), (hidden, intermediate), (intermediate, hidden))
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        share, expert = nn.functional.softmax(self.router(x), dim=-1).topk(self.chosen, dim=-1)
        share = share / share.sum(-1, keepdim=True)
        order = expert.flatten().argsort(stable=True)
        token = order // self.chosen
        # bincount would copy its length to the host, which no CUDA graph takes.
        experts = torch.arange(len(self.gate), device=x.device)[:, None]
        ends = (expert.flatten() == experts).sum(1).cumsum(0).to(torch.int32)
        rows = x[token]
        rows = silu_mul(grouped_matmul(rows, self.gate, ends), grouped_matmul(rows, self.up, ends))
        rows = grouped_matmul(rows, self.down, ends) * share.flatten()[order, None]
        return torch.zeros_like(x).index_add(0, token, rows)
