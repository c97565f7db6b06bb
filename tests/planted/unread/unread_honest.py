"""Right, whatever lies where nobody reads."""

import torch
from torch import Tensor


def padded_mean__where(x: Tensor, lengths: Tensor) -> Tensor:
    """Chosen, not multiplied."""
    mask = torch.arange(x.shape[1]) < lengths[:, None]
    return torch.where(mask[..., None], x, 0.0).sum(1) / lengths[:, None]


def padded_mean__loop(x: Tensor, lengths: Tensor) -> Tensor:
    """Token after token."""
    out = torch.zeros(len(x), x.shape[-1], dtype=torch.float64)
    for row, length in enumerate(lengths.tolist()):
        for at in range(length):
            out[row] += x[row, at]
        out[row] /= length
    return out.to(x.dtype)


def padded_mean__in_blocks(x: Tensor, lengths: Tensor) -> Tensor:
    """Blocks of four tokens, the last of which is cut."""
    out = torch.zeros(len(x), x.shape[-1], dtype=x.dtype)
    for row, length in enumerate(lengths.tolist()):
        for begin in range(0, length, 4):
            out[row] += x[row, begin : min(begin + 4, length)].sum(0)
        out[row] /= length
    return out


def padded_attention__infinite_mask(q: Tensor, k: Tensor, v: Tensor, lengths: Tensor) -> Tensor:
    """Scores and values of the padding are replaced."""
    mask = torch.arange(k.shape[1]) < lengths[:, None]
    scores = torch.where(mask, (k @ q[:, :, None])[..., 0] * q.shape[-1] ** -0.5, -torch.inf)
    return (scores.softmax(-1)[:, None] @ torch.where(mask[..., None], v, 0.0))[:, 0]


def padded_attention__online(q: Tensor, k: Tensor, v: Tensor, lengths: Tensor) -> Tensor:
    """Key after key."""
    out = torch.empty_like(q)
    for row, length in enumerate(lengths.tolist()):
        greatest, weight, mixed = -torch.inf, 0.0, torch.zeros(q.shape[1], dtype=torch.float64)
        for at in range(length):
            score = float(k[row, at].double() @ q[row].double()) * q.shape[-1] ** -0.5
            most = max(greatest, score)
            old, new = float(torch.tensor(greatest - most).exp()), float(torch.tensor(score - most).exp())
            weight, mixed, greatest = weight * old + new, mixed * old + new * v[row, at].double(), most
        out[row] = (mixed / weight).to(q.dtype)
    return out


def paged_sum__where(cache: Tensor, table: Tensor, lengths: Tensor) -> Tensor:
    """Whole pages are read, and the rest of the last one is replaced."""
    tokens = cache[table.long()].reshape(len(table), -1, cache.shape[-1])
    mask = torch.arange(tokens.shape[1]) < lengths[:, None]
    return torch.where(mask[..., None], tokens, 0.0).sum(1)


def expert_linear__by_expert(x: Tensor, weight: Tensor, experts: Tensor) -> Tensor:
    """Tokens of one expert together; those of none are not read."""
    out = torch.empty(len(x), weight.shape[-1], dtype=x.dtype)
    for expert in experts.unique().tolist():
        out[experts == expert] = x[experts == expert] @ weight[expert]
    return out


def causal_average__where(x: Tensor, scores: Tensor) -> Tensor:
    """Later positions are replaced one query after another."""
    out = torch.empty_like(x)
    for at in range(x.shape[1]):
        weights = scores[:, at, : at + 1].softmax(-1)
        out[:, at] = (weights[..., None] * x[:, : at + 1]).sum(1)
    return out


def masked_mean__filled(x: Tensor, mask: Tensor) -> Tensor:
    """Filled with 0 before."""
    return x.masked_fill(~mask[..., None], 0.0).sum(1) / mask.sum(1, keepdim=True).clamp_min(1)


def embedding__gathered(input: Tensor, weight: Tensor, **_: object) -> Tensor:  # noqa: A002
    """The rows that are asked for."""
    return weight.index_select(0, input.reshape(-1)).reshape(*input.shape, -1)


def index_select__gathered(input: Tensor, dim: int, index: Tensor) -> Tensor:  # noqa: A002
    """By another function."""
    return (
        torch.stack([input.select(dim, int(at)) for at in index], dim)
        if len(index)
        else input.narrow(dim, 0, 0)
    )
