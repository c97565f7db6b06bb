"""What is said of the cause of a wrong answer: the planted mistake, or nothing. Every dtype, several seeds."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from pytest_cgins.core.case import Case
from pytest_cgins.core.verdict import Check, Correctness, Reason
from pytest_cgins.verify.judge import JudgeService
from tests.verify.helpers import normal
from tests.verify.test_judge import judged, record

SEEDS = (1, 2)
DTYPES = (torch.float32, torch.float16, torch.bfloat16)
NN = "torch.nn.functional"


@dataclass(frozen=True)
class Planted:
    """A kernel with one mistake."""

    call: str
    """Of `CALLS`."""
    kernel: Callable[..., Tensor]
    """In fp32, of the tensors of the call."""
    words: str
    """What may be said of it; "" if nothing may."""
    named: tuple[torch.dtype, ...] = ()
    """Where it must be said."""


def norm(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    *,
    eps: float = 1e-5,
    ddof: int = 0,
    root: bool = True,
) -> Tensor:
    centered = x - x.mean(-1, keepdim=True)
    variance = centered.square().sum(-1, keepdim=True) / (x.shape[-1] - ddof)
    y = centered / ((variance + eps).sqrt() if root else variance.sqrt() + eps)
    y = y if weight is None else y * weight
    return y if bias is None else y + bias


def uncentered(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    variance = x.square().mean(-1, keepdim=True) - x.mean(-1, keepdim=True).square()
    return (x - x.mean(-1, keepdim=True)) / (variance + 1e-5).sqrt() * weight + bias


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None = None,
    *,
    scale: float | None = None,
    causal: bool = False,
) -> Tensor:
    scores = q @ k.mT * (1 / math.sqrt(q.shape[-1]) if scale is None else scale)
    if causal:
        scores = scores.masked_fill(torch.ones(scores.shape[-2:]).triu(1).bool(), -math.inf)
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf) if mask.dtype == torch.bool else scores + mask
    return scores.softmax(-1) @ v


def fewer(x: Tensor, bits: int, *, cut: bool = False) -> Tensor:
    patterns = x.contiguous().view(torch.int32) + (0 if cut else 1 << (22 - bits))
    return (patterns & -(1 << (23 - bits))).view(torch.float32)


def sums_in(dtype: torch.dtype) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    def kernel(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        total = bias.expand(x.shape[0], -1).clone()
        for k in range(x.shape[1]):
            total = (total + x[:, k, None] * weight[None, :, k]).to(dtype).float()
        return total

    return kernel


def batched(
    x: Tensor, mean: Tensor, var: Tensor, weight: Tensor, bias: Tensor, *, eps: float = 1e-5
) -> Tensor:
    at = (None, slice(None), None)
    return (x - mean[at]) / (var[at] + eps).sqrt() * weight[at] + bias[at]


def grouped(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    y = norm(x.reshape(4, 3, -1), None, None, ddof=1).reshape(x.shape)
    return y * weight[:, None, None] + bias[:, None, None]


ALL, HALVES, FP32 = DTYPES, DTYPES[1:], DTYPES[:1]
NORM, LINEAR, ATTENTION = f"{NN}.layer_norm", f"{NN}.linear", f"{NN}.scaled_dot_product_attention"
QKV = [(2, 3, 16, 32)] * 3
torch_attends = functional.scaled_dot_product_attention
CALLS: dict[str, tuple[str, Callable[[Callable[..., Tensor]], object]]] = {
    "norm": (NORM, lambda of: functional.layer_norm(of(16, 96), [96], of(96), of(96))),
    "plain norm": (NORM, lambda of: functional.layer_norm(of(16, 96), [96])),
    "linear": (LINEAR, lambda of: functional.linear(of(12, 68), of(20, 68), of(20))),
    "square": (LINEAR, lambda of: functional.linear(of(12, 32), of(32, 32), of(32))),
    "wide": (LINEAR, lambda of: functional.linear(of(24, 512), of(40, 512), of(40))),
    "turned": (LINEAR, lambda of: functional.linear(of(64, 24).T, of(20, 64), of(20))),
    "gelu": (f"{NN}.gelu", lambda of: functional.gelu(of(16, 96))),
    "softmax": (f"{NN}.softmax", lambda of: functional.softmax(of(4, 16, 24), dim=1)),
    "masked": (
        ATTENTION,
        lambda of: torch_attends(*(of(*shape) for shape in QKV), torch.ones(16, 16).tril().bool()),
    ),
    "causal": (ATTENTION, lambda of: torch_attends(*(of(*shape) for shape in QKV), is_causal=True)),
    "sub": ("torch.sub", lambda of: torch.sub(of(16, 48), of(16, 48), alpha=2)),
    "conv": (f"{NN}.conv2d", lambda of: functional.conv2d(of(2, 6, 10, 10), of(8, 6, 3, 3), of(8), padding=1)),
    "group norm": (f"{NN}.group_norm", lambda of: functional.group_norm(of(4, 12, 5, 5), 3, of(12), of(12))),
    "rms norm": (f"{NN}.rms_norm", lambda of: functional.rms_norm(of(16, 96), [96], of(96), 1e-5)),
    "batch norm": (
        f"{NN}.batch_norm",
        lambda of: functional.batch_norm(of(6, 12, 5), of(12), of(12).abs() + 0.1, of(12), of(12)),
    ),
    "pool": (f"{NN}.max_pool2d", lambda of: functional.max_pool2d(of(2, 3, 8, 8), 2)),
    "mse": (f"{NN}.mse_loss", lambda of: functional.mse_loss(of(16, 48), of(16, 48))),
}  # fmt: skip
"""The op, and a call of it on tensors that its argument makes, in the dtype of the case."""
PLANTED = {
    "norm-unbiased": Planted("norm", lambda *t: norm(*t, ddof=1), "divided by n - 1", ALL),
    "norm-unbiased-plain": Planted("plain norm", lambda x: norm(x, None, None, ddof=1), "divided by n - 1", FP32),
    "norm-no-eps": Planted("norm", lambda *t: norm(*t, eps=0.0), "with `eps` 0", ALL),
    "norm-eps-outside": Planted("norm", lambda *t: norm(*t, root=False), ""),
    "norm-no-bias": Planted("norm", lambda x, w, b: norm(x, w, None), "without `bias`", ALL),
    "norm-no-weight": Planted("norm", lambda x, w, b: norm(x, None, b), "without `weight`", ALL),
    "norm-one-pass": Planted("norm", uncentered, ""),
    "norm-not-centred": Planted("norm", lambda x, w, b: norm(x, w, b) + x.mean(-1, keepdim=True), ""),
    "norm-swapped": Planted("norm", lambda x, w, b: norm(x, b, w), "`weight` and `bias` exchanged", ALL),
    "group-norm-unbiased": Planted("group norm", grouped, "divided by n - 1", ALL),
    "rms-norm-no-weight": Planted(
        "rms norm", lambda x, w: x / (x.square().mean(-1, keepdim=True) + 1e-5).sqrt(),
        "without `weight`", ALL,
    ),
    "rms-norm-no-eps": Planted(
        "rms norm", lambda x, w: x / x.square().mean(-1, keepdim=True).sqrt() * w, "with `eps` 0", FP32
    ),
    "batch-norm-no-eps": Planted(
        "batch norm", lambda *t: batched(*t, eps=0.0), "with `eps` 0"
    ),
    "batch-norm-no-mean": Planted(
        "batch norm", lambda x, m, v, w, b: batched(x, 0 * m, v, w, b), "without `running_mean`", ALL
    ),
    "linear-no-bias": Planted("linear", lambda x, w, b: x @ w.T, "without `bias`", ALL),
    "linear-transposed": Planted("square", lambda x, w, b: x @ w + b, "`weight` read as 32x32, transposed", ALL),
    "linear-as-transposed": Planted(
        "linear", lambda x, w, b: x @ w.reshape(68, 20) + b, "`weight` read as 68x20, transposed", ALL
    ),
    "linear-ignores-stride": Planted(
        "turned", lambda x, w, b: x.as_strided(x.shape, (64, 1)) @ w.T + b, "`input` read as if it were contiguous", ALL
    ),
    "linear-last-one": Planted("linear", lambda x, w, b: x[:, :-1] @ w[:, :-1].T + b, "the last one of 68", ALL),
    "linear-tail": Planted("linear", lambda x, w, b: x[:, :64] @ w[:, :64].T + b, "the last 4 of 68", ALL),
    "linear-tf32": Planted(
        "linear", lambda x, w, b: fewer(x, 10) @ fewer(w, 10).T + b, "inputs with 11 significant bits", FP32
    ),
    "linear-tf32-cut": Planted(
        "linear", lambda x, w, b: fewer(x, 10, cut=True) @ fewer(w, 10, cut=True).T + b,
        "inputs with 11 significant bits", FP32,
    ),
    "linear-bf16-inputs": Planted(
        "linear", lambda x, w, b: fewer(x, 7) @ fewer(w, 7).T + b, "inputs with 8 significant bits", FP32
    ),
    "linear-sums-in-fp16": Planted("wide", sums_in(torch.float16), "sums that are kept in fp16", FP32),
    "linear-sums-in-bf16": Planted("wide", sums_in(torch.bfloat16), "sums that are kept in bf16", FP32),
    "gelu-tanh": Planted("gelu", lambda x: functional.gelu(x, approximate="tanh"), "`approximate` tanh", FP32),
    "gelu-nearly": Planted("gelu", lambda x: functional.gelu(x) * 1.003, "0.30% more than what is expected", FP32),
    "gelu-half": Planted("gelu", lambda x: functional.gelu(x) * 0.5, "0.5 times what is expected", ALL),
    "gelu-moved": Planted("gelu", lambda x: functional.gelu(x).roll(1, 0), "the rows moved by +1", ALL),
    "gelu-zeros": Planted("gelu", torch.zeros_like, "Every element is zero", ALL),
    "gelu-copy": Planted("gelu", torch.clone, "a copy of `input`", ALL),
    "gelu-in-fp16": Planted(
        "gelu", lambda x: functional.gelu(x).half().float(), "at most 11 significant bits", FP32
    ),
    "gelu-in-bf16": Planted(
        "gelu", lambda x: functional.gelu(x).bfloat16().float(), "at most 8 significant bits", FP32
    ),
    "gelu-shrunk-by-row": Planted(
        "gelu", lambda x: functional.gelu(x) * torch.linspace(1, 0.99, 16)[:, None], ""
    ),
    "gelu-noise": Planted("gelu", lambda x: functional.gelu(x) * (1 + 0.05 * normal(16, 96, seed=7)), ""),
    "gelu-shrunk": Planted("gelu", lambda x: functional.gelu(x) * (1 - 2e-3 * x.abs()), ""),
    "gelu-sigmoid": Planted("gelu", lambda x: x * torch.sigmoid(1.702 * x), ""),
    "softmax-wrong-dim": Planted("softmax", lambda x: x.softmax(-1), "with `dim`", ALL),
    "softmax-half-exp": Planted(
        "softmax", lambda x: (e := (x - x.amax(1, keepdim=True)).exp().half().float()) / e.sum(1, keepdim=True), ""
    ),
    "softmax-no-last-term": Planted("softmax", lambda x: x.exp() / x.exp()[:, :-1].sum(1, keepdim=True), ""),
    "attention-unscaled": Planted("masked", lambda *t: attend(*t, scale=1.0), "with `scale` 1", ALL),
    "attention-no-mask": Planted("masked", lambda q, k, v, m: attend(q, k, v), "without `attn_mask`", ALL),
    "attention-not-causal": Planted("causal", attend, "with `is_causal` False", ALL),
    "attention-swapped": Planted(
        "causal", lambda q, k, v: attend(k, q, v, causal=True), "`query` and `key` exchanged", ALL
    ),
    "sub-swapped": Planted("sub", lambda a, b: b - 2 * a, "`input` and `other` exchanged", ALL),
    "sub-no-alpha": Planted("sub", lambda a, b: a - b, "with `alpha` 1", ALL),
    "conv-no-bias": Planted("conv", lambda x, w, b: functional.conv2d(x, w, padding=1), "without `bias`", ALL),
    "conv-last-channel": Planted(
        "conv", lambda x, w, b: functional.conv2d(x[:, :-1], w[:, :-1], b, padding=1), "the last one of 6", ALL
    ),
    "pool-zeros-end": Planted(
        "pool", lambda x: functional.max_pool2d(x, 2).index_fill(0, torch.tensor([1]), 0.0),
        "without the last one of 2 along dimension 0", FP32,
    ),
    "mse-sum": Planted("mse", lambda a, b: (a - b).square().sum(), "with `reduction` sum", ALL),
}  # fmt: skip
SAID = re.compile(
    r"same call .*|Its error is .*|Every element (?:is|has) .*|It is the right answer with .*|It is the right answer transp.*"
    r"|is a copy of .*|→ .*"
)


def gate(folder: Path, planted: Planted, dtype: torch.dtype) -> Case:
    seeds = iter(range(100))
    op, call = CALLS[planted.call]
    return record(
        folder / "pack", lambda: call(lambda *shape: normal(*shape, seed=next(seeds)).to(dtype)), op
    )


def run(
    case: Case, planted: Planted, dtype: torch.dtype, seed: int, *, allow_tf32: bool = False
) -> Correctness:
    def kernel(tensors: list[Tensor]) -> list[Tensor]:
        single = [tensor if tensor.dtype == torch.bool else tensor.float() for tensor in tensors]
        return [planted.kernel(*single).to(dtype)]

    return judged(JudgeService(), case, kernel, seed=seed, further={"allow_tf32": allow_tf32})[1]


def failed(found: Correctness) -> list[Check]:
    return [check for check in found.checks if not check.passed]


@pytest.mark.parametrize(
    "dtype", [DTYPES[0], *(pytest.param(one, marks=pytest.mark.exam) for one in DTYPES[1:])], ids=str
)
@pytest.mark.parametrize("name", PLANTED)
def test_the_cause_is_named_or_nothing_is(tmp_path: Path, name: str, dtype: torch.dtype) -> None:
    """Of no planted mistake is a wrong cause told, with any seed; where it must be known, it is told each time."""
    planted = PLANTED[name]
    case = gate(tmp_path, planted, dtype)
    for seed in SEEDS:
        wrong = failed(run(case, planted, dtype, seed))
        told = {" ".join(SAID.findall(check.message)) for check in wrong}
        assert all(planted.words in text if planted.words else not text for text in told if text), (
            seed,
            told,
        )
        precise = "significant bits" in planted.words or "sums that" in planted.words
        assert precise or Reason.LOW_PRECISION not in {check.reason for check in wrong}, seed
        assert wrong or dtype not in planted.named
        if dtype in planted.named:
            assert "" not in told, (seed, [check.message for check in wrong])


def test_tf32_is_offered_only_where_it_would_pass(tmp_path: Path) -> None:
    """Leave to compute in TF32 is a remedy for a product of TF32, and for nothing else, set or not."""
    for name, offered in (
        ("linear-tf32", True),
        ("linear-bf16-inputs", False),
        ("linear-no-bias", False),
        ("gelu-in-fp16", False),
    ):
        planted = PLANTED[name]
        case = gate(tmp_path / name, planted, torch.float32)
        texts = [check.message for check in failed(run(case, planted, torch.float32, 1))]
        assert texts
        assert {"precision: {allow_tf32: true}" in text for text in texts} == {offered}
    planted = PLANTED["linear-tf32"]
    assert not failed(
        run(gate(tmp_path / "allowed", planted, torch.float32), planted, torch.float32, 1, allow_tf32=True)
    )
    for name in ("norm-unbiased", "linear-bf16-inputs"):
        planted = PLANTED[name]
        case = gate(tmp_path / f"{name}-allowed", planted, torch.float32)
        wrong = failed(run(case, planted, torch.float32, 1, allow_tf32=True))
        assert wrong
        assert all("allow_tf32" not in check.message for check in wrong)


def test_a_cause_that_leaves_one_set_unexplained_is_not_named(tmp_path: Path) -> None:
    """A kernel that leaves the bias out, and on large numbers something else as well, has no one mistake."""

    def kernel(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        y = x @ weight.T
        return y + 1 if float(x.abs().max()) > 50 else y

    planted = Planted("linear", kernel, "")
    wrong = failed(run(gate(tmp_path, planted, torch.float32), planted, torch.float32, 1))
    assert {check.inputs for check in wrong} == {"recorded", "fresh", "edge"}
    assert all(not SAID.findall(check.message) for check in wrong)
