"""Right on all that was recorded, and wrong beside what a buffer holds where nobody has written."""

import torch
from torch import Tensor


def padded_mean__times_mask(x: Tensor, lengths: Tensor) -> Tensor:
    """Zero times NaN is NaN."""
    mask = torch.arange(x.shape[1]) < lengths[:, None]
    return (x * mask[..., None]).sum(1) / lengths[:, None]


def padded_mean__cleaned(x: Tensor, lengths: Tensor) -> Tensor:
    """NaN of the padding is taken for 0, and infinity for a large number: finite, and wrong."""
    mask = torch.arange(x.shape[1]) < lengths[:, None]
    return (torch.nan_to_num(x, nan=0.0) * mask[..., None]).nan_to_num().sum(1) / lengths[:, None]


def padded_mean__less_the_rest(x: Tensor, lengths: Tensor) -> Tensor:
    """The whole sum, less the sum of the padding."""
    mask = torch.arange(x.shape[1]) < lengths[:, None]
    rest = torch.where(mask[..., None], 0.0, x).double().sum(1)
    return ((x.double().sum(1) - rest) / lengths[:, None]).to(x.dtype)


def padded_attention__finite_mask(q: Tensor, k: Tensor, v: Tensor, lengths: Tensor) -> Tensor:
    """Scores of the padding are less 10⁴, which is not minus infinity."""
    scores = (k @ q[:, :, None])[..., 0] * q.shape[-1] ** -0.5
    scores = scores - 1e4 * (torch.arange(k.shape[1]) >= lengths[:, None])
    return (scores.softmax(-1)[:, None] @ v)[:, 0]


def padded_attention__values_of_padding(q: Tensor, k: Tensor, v: Tensor, lengths: Tensor) -> Tensor:
    """Weights of the padding are 0, and its values are read."""
    scores = (k @ q[:, :, None])[..., 0] * q.shape[-1] ** -0.5
    scores = scores.masked_fill(torch.arange(k.shape[1]) >= lengths[:, None], -torch.inf)
    return (scores.softmax(-1)[:, None] @ v)[:, 0]


def padded_attention__maximum_of_padding(q: Tensor, k: Tensor, v: Tensor, lengths: Tensor) -> Tensor:
    """The maximum that is subtracted is that of all keys: beside a large one nothing is left of the others."""
    scores = (k @ q[:, :, None])[..., 0] * q.shape[-1] ** -0.5
    mask = torch.arange(k.shape[1]) < lengths[:, None]
    weights = torch.where(mask, (scores - scores.nan_to_num().amax(-1, keepdim=True)).exp(), 0.0)
    values = torch.where(mask[..., None], v, 0.0)
    return (weights[:, None] @ values)[:, 0] / weights.sum(-1, keepdim=True)


def paged_sum__whole_pages(cache: Tensor, table: Tensor, lengths: Tensor) -> Tensor:
    """The rest of the last page counts 0 times."""
    tokens = cache[table.long()].reshape(len(table), -1, cache.shape[-1])
    weights = (torch.arange(tokens.shape[1]) < lengths[:, None]).to(cache.dtype)
    return (weights[:, None] @ tokens)[:, 0]


def expert_linear__all_experts(x: Tensor, weight: Tensor, experts: Tensor) -> Tensor:
    """All experts, times 0 or 1."""
    chosen = torch.nn.functional.one_hot(experts, len(weight)).to(x.dtype)
    return torch.einsum("nk,ekm,ne->nm", x, weight, chosen)


def causal_average__adds(x: Tensor, scores: Tensor) -> Tensor:
    """Later positions have the weight 0."""
    later = torch.ones_like(scores, dtype=torch.bool).triu(1)
    return scores.masked_fill(later, -torch.inf).softmax(-1) @ x


def masked_mean__times_mask(x: Tensor, mask: Tensor) -> Tensor:
    """Zero times infinity is NaN."""
    return (x * mask[..., None]).sum(1) / mask.sum(1, keepdim=True).clamp_min(1)


def embedding__as_product(input: Tensor, weight: Tensor, **_: object) -> Tensor:  # noqa: A002
    """All rows of the table, times 0 or 1."""
    return torch.nn.functional.one_hot(input, len(weight)).to(weight.dtype) @ weight


def index_select__as_product(input: Tensor, dim: int, index: Tensor) -> Tensor:  # noqa: A002
    """All rows, times 0 or 1."""
    if dim != 0 or input.ndim != 2:
        raise ValueError("rows of a matrix only")
    return torch.nn.functional.one_hot(index, len(input)).to(input.dtype) @ input
