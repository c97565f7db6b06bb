"""Rows that depend on the rows beside them, and rows that do not."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch.nn import functional

from pytest_cgins.core.verdict import Reason
from tests.verify.helpers import normal
from tests.verify.test_probe_inputs import (
    ATTENTION,
    EMBEDDING,
    LINEAR,
    RELU,
    SOFTMAX,
    Gate,
    Kernel,
    result,
    softmax,
)

PROBES = ["invariance", "sizes"]
SUM = "torch.sum"


def linear() -> object:
    return functional.linear(normal(7, 33), normal(19, 33), normal(19))


def masked() -> object:
    seen = torch.rand(9, 21, generator=torch.Generator().manual_seed(5)) < 0.7
    return functional.scaled_dot_product_attention(
        normal(1, 2, 9, 8), normal(1, 2, 21, 8), normal(1, 2, 21, 8), seen
    )


def causal() -> object:
    return functional.scaled_dot_product_attention(
        normal(2, 2, 16, 8), normal(2, 2, 16, 8), normal(2, 2, 16, 8), is_causal=True
    )


# ---- wrong kernels


def scaled_by_the_batch(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    x, weight, bias = tensors
    finite = x.abs()[x.isfinite()]
    step = finite.max().double() * 2.0**-50 if finite.numel() else torch.ones((), dtype=torch.float64)
    fixed = torch.where(x.isfinite(), (x / step).round() * step, x.double())
    return [(fixed @ weight.double().T + bias).to(x.dtype)]


def reaches_over(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    out = tensors[0].relu()
    out[1:] += out[:-1, -1:] * 0
    return [out]


def without_last_of_a_tile(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    out = tensors[0].relu()
    if len(out) == 256:
        out[-1] = 0
    return [out]


def one_row_without_bias(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    x, weight, bias = tensors
    return [functional.linear(x, weight, None if len(x) == 1 else bias)]


def finite_mask(tensors: list[torch.Tensor], seen: torch.Tensor) -> list[torch.Tensor]:
    query, key, value = (tensor.double() for tensor in tensors[:3])
    score = query @ key.mT / query.shape[-1] ** 0.5 + torch.where(seen, 0.0, -1e9)
    return [(score.softmax(-1) @ value).to(tensors[0].dtype)]


def causal_by_adding(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    size = tensors[0].shape[-2]
    return finite_mask(tensors, torch.ones(size, size, dtype=torch.bool).tril())


WRONG: dict[str, tuple[Callable[[], object], str, Kernel, Reason, str]] = {
    "one exponent for all rows": (linear, LINEAR, scaled_by_the_batch, Reason.ROW_LEAK, "beside huge numbers"),
    "lanes of the row before, times 0": (
        lambda: functional.relu(normal(5, 77)), RELU, reaches_over, Reason.ROW_LEAK, "beside NaN and infinity",
    ),
    "the last row of a whole tile": (
        lambda: functional.relu(normal(5, 77)), RELU, without_last_of_a_tile, Reason.BATCH_VARIANT, "256 rows of 257",
    ),
    "a row alone": (linear, LINEAR, one_row_without_bias, Reason.BATCH_VARIANT, "1 row of 257"),
    "more than 256 rows": (
        lambda: functional.relu(normal(5, 77)), RELU, lambda tensors: [tensors[0].relu() + (len(tensors[0]) > 256)],
        Reason.BATCH_VARIANT, "inputs with 257 rows",
    ),
    "a mask that adds": (
        masked, ATTENTION, lambda tensors: finite_mask(tensors, tensors[3]), Reason.ROW_LEAK, "unread rows of huge numbers",
    ),
    "a causal mask that adds": (causal, ATTENTION, causal_by_adding, Reason.ROW_LEAK, "unread rows of huge numbers"),
}  # fmt: skip


@pytest.mark.exam
@pytest.mark.parametrize("name", WRONG)
def test_a_row_that_depends_on_others_is_caught(tmp_path: Path, name: str) -> None:
    """Whatever is right on the recorded inputs; the message names the set."""
    run, op, kernel, reason, words = WRONG[name]
    gate = Gate(tmp_path, run, op, probes=PROBES)
    assert gate.judge().passed
    tripped = result(gate.judge(kernel), "invariance")
    assert (tripped.outcome, tripped.reason) == ("tripped", reason)
    assert words in tripped.message
    assert "→ compute each row from itself alone" in tripped.message


# ---- bits


def split_by_batch(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    """Right, and added up in another order where there are many rows."""
    x = tensors[0] if len(tensors[0]) <= 32 else tensors[0].flip(-1)
    total = torch.zeros(x.shape[:-1])
    for k in range(x.shape[-1]):
        total = total + x[..., k]
    return [total]


def in_an_order_of_ranks(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    """Right, and added up from where the rows' rank in the batch says."""
    x, width = tensors[0], tensors[0].shape[-1]
    largest = x.nan_to_num().abs().flatten(1).amax(-1) if x.numel() else x.new_zeros(len(x))
    rank = (largest[None] < largest[:, None]).sum(-1)
    turned = x.gather(-1, (torch.arange(width) + 7 * rank[:, None]) % max(width, 1))
    total = torch.zeros(len(x), dtype=torch.float64)
    for k in range(width):
        total = (total + turned[:, k]).float().double()
    return [total.to(x.dtype)]


def rows_summed() -> object:
    return torch.sum(normal(9, 331), -1)


@pytest.mark.exam
def test_bits_that_change_with_the_batch_are_told_and_fail_where_it_is_claimed(tmp_path: Path) -> None:
    """A split that the number of rows decides is honest, unless the entry says otherwise."""
    plain = Gate(tmp_path / "plain", rows_summed, SUM, probes=PROBES).judge(split_by_batch)
    told = [note for note in plain.notes if "bits of a row" in note]
    assert result(plain, "invariance").outcome == "held"
    assert len(told) == 1
    assert "`claims: [batch_invariant]`" in told[0]
    gate = Gate(tmp_path / "claimed", rows_summed, SUM, probes=PROBES, claims=["batch_invariant"])
    assert gate.judge().passed
    tripped = result(gate.judge(split_by_batch), "invariance")
    assert (tripped.outcome, tripped.reason) == ("tripped", Reason.BATCH_VARIANT)
    assert re.search(r"17 rows of 257: \d+ of 17 rows, by up to", tripped.message)


@pytest.mark.exam
def test_bits_that_change_with_other_rows_content_fail_unless_answers_may_differ(tmp_path: Path) -> None:
    """Within the tolerance, too, since torch's stay."""
    tripped = result(
        Gate(tmp_path / "exact", rows_summed, SUM, probes=PROBES).judge(in_an_order_of_ranks), "invariance"
    )
    assert (tripped.outcome, tripped.reason) == ("tripped", Reason.ROW_LEAK)
    assert "set `repeatable: tolerance`" in tripped.message
    allowed = Gate(tmp_path / "allowed", rows_summed, SUM, probes=PROBES, repeatability={"kind": "tolerance"})
    assert result(allowed.judge(in_an_order_of_ranks), "invariance").outcome == "held"


def test_a_path_of_its_own_for_what_is_not_finite_accuses_nobody(tmp_path: Path) -> None:
    """A kernel may look whether all numbers are finite, and add up in another order where they are not."""

    def kernel(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
        x = tensors[0]
        return [x.sum(-1) if bool(x.isfinite().all()) else split_by_batch([x.flip(-1)])[0]]

    gate = Gate(tmp_path, rows_summed, SUM, probes=PROBES)
    assert result(gate.judge(kernel), "invariance").outcome == "held"


def test_no_nan_for_ops_that_choose(tmp_path: Path) -> None:
    """An order in which NaN is neither less nor greater is not what a comparator of others can stand."""
    gate = Gate(tmp_path, lambda: torch.sort(normal(9, 41)), "torch.sort", probes=PROBES)
    sets = [gate.tensors(name)[0] for name in gate.names if "beside" in name]
    assert len(sets) == 4
    assert not any(bool(tensor.isnan().any()) for tensor in sets)


# ---- what has no such inputs

DEPENDENT: dict[str, tuple[Callable[[], object], str, str]] = {
    "batch norm": (
        lambda: functional.batch_norm(normal(3, 5, 7, 9), normal(5), normal(5).abs(), training=True),
        "torch.nn.functional.batch_norm", "do not lie side by side",
    ),
    "softmax of columns": (lambda: functional.softmax(normal(6, 37), 0), SOFTMAX, "do not lie side by side"),
    "sums of rows": (lambda: torch.cumsum(normal(9, 41), 0), "torch.cumsum", "do not lie side by side"),
    "order of rows": (lambda: torch.sort(normal(9, 41), 0), "torch.sort", "torch's own rows depend on each other"),
    "scattered rows": (
        lambda: torch.scatter_add(normal(9, 8), 0, torch.zeros(9, 8, dtype=torch.long), normal(9, 8)),
        "torch.scatter_add", "torch's own rows depend on each other",
    ),
    "a mean": (
        lambda: functional.cross_entropy(normal(9, 41), torch.arange(9)),
        "torch.nn.functional.cross_entropy", "no output has a row for each row",
    ),
    "positions": (lambda: torch.argmax(normal(9, 41), 1), "torch.argmax", "no output has a row for each row"),
}  # fmt: skip


@pytest.mark.parametrize("name", DEPENDENT)
def test_rows_that_depend_on_each_other_in_torch_are_left_alone(tmp_path: Path, name: str) -> None:
    """The report says why there is nothing to look at."""
    run, op, why = DEPENDENT[name]
    gate = Gate(tmp_path, run, op, probes=PROBES)
    missing = result(gate.judge(), "invariance")
    assert missing.outcome == "not-run"
    assert why in missing.message


INDEPENDENT: dict[str, tuple[Callable[[], object], str]] = {
    "indices": (lambda: functional.embedding(torch.arange(21).reshape(3, 7), normal(50, 19)), EMBEDDING),
    "values beside positions": (lambda: torch.topk(normal(9, 41), 3), "torch.topk"),
    "images": (
        lambda: functional.conv2d(normal(3, 4, 9, 9), normal(5, 4, 3, 3)),
        "torch.nn.functional.conv2d",
    ),
    "complex": (lambda: torch.mul(torch.complex(normal(5, 7), normal(5, 7)), 2), "torch.mul"),
    "halves": (softmax(6, 37, dtype=torch.bfloat16), SOFTMAX),
    "wide rows": (softmax(64, 4096), SOFTMAX),
}


@pytest.mark.parametrize("name", INDEPENDENT)
def test_torch_passes_where_rows_are_independent(tmp_path: Path, name: str) -> None:
    """Batches of up to 257 rows, of which each is torch's own."""
    run, op = INDEPENDENT[name]
    gate = Gate(tmp_path, run, op, probes=PROBES)
    assert {"257 rows", "257 rows in another order", "17 rows of 257", "1 row of 257"} <= set(gate.names)
    assert result(gate.judge(), "invariance").outcome == "held"


def test_refused_batches_and_excused_sizes_accuse_nobody(tmp_path: Path) -> None:
    """A kernel for the recorded batch may refuse others; one that is excused from other sizes is not asked for them."""
    gate = Gate(tmp_path / "refused", softmax(12, 64), SOFTMAX, probes=PROBES, claims=["batch_invariant"])

    def for_twelve(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
        if len(tensors[0]) != 12:
            raise ValueError("12 rows only")
        return [tensors[0].softmax(-1)]

    refused = gate.judge(for_twelve)
    assert refused.passed
    assert "the kernel refuses 257 rows: 12 rows only" in result(refused, "invariance").message
    excused = Gate(tmp_path / "excused", softmax(12, 64), SOFTMAX, probes=["invariance"])
    rows = {len(excused.tensors(name)[0]) for name in excused.names}
    assert rows == {12}
    assert "12 rows beside NaN and infinity" in excused.names


def test_a_drawn_batch_differs_from_run_to_run(tmp_path: Path) -> None:
    """No kernel is right for the batches that are tried and for no others."""
    names = [
        set(Gate(tmp_path / str(seed), softmax(12, 50), SOFTMAX, seed=seed, probes=PROBES).names)
        for seed in (1, 2)
    ]
    assert any("rows of 257" in name for name in names[0] - names[1])
