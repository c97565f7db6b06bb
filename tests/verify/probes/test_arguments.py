"""Scalars, masks and ignored targets that were recorded at one value, from the set of inputs to the verdict."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional

import pytest_cgins
from pytest_cgins.core.trace import OpCall
from pytest_cgins.core.verdict import Reason
from pytest_cgins.packs.store import open_pack
from pytest_cgins.verify import value_search
from pytest_cgins.verify.messages import PrepareOptions
from pytest_cgins.verify.prepare import prepare
from tests.verify.helpers import normal
from tests.verify.test_judge import torch_kernel
from tests.verify.test_probe_inputs import (
    ATTENTION,
    EMBEDDING,
    GELU,
    LINEAR,
    RELU,
    SOFTMAX,
    Gate,
    Kernel,
    record,
    result,
)

MASK = torch.ones(9, 21, dtype=torch.bool)
QUERY, KEY = normal(1, 2, 9, 8), normal(1, 2, 21, 8, seed=1)
CLASSES = torch.arange(13) % 7
CALLS: dict[str, tuple[str, Callable[[], Any], str, Kernel]] = {
    "slope": (
        "torch.nn.functional.leaky_relu",
        lambda: functional.leaky_relu(normal(5, 77), 0.01),
        "other negative_slope",
        lambda tensors: [functional.leaky_relu(tensors[0], 0.01)],
    ),
    "default eps": (
        "torch.nn.functional.layer_norm",
        lambda: functional.layer_norm(normal(9, 41), (41,)),
        "other eps",
        lambda tensors: [functional.layer_norm(tensors[0], (tensors[0].shape[-1],), eps=1e-5)],
    ),
    "alpha that nobody named": (
        "torch.add",
        lambda: torch.add(normal(5, 77), normal(5, 77, seed=1)),
        "other alpha",
        lambda tensors: [tensors[0] + tensors[1]],
    ),
    "mask that lets all through": (
        ATTENTION,
        lambda: functional.scaled_dot_product_attention(QUERY, KEY, KEY, MASK),
        "other attn_mask",
        lambda tensors: [functional.scaled_dot_product_attention(tensors[0], tensors[1], tensors[1])],
    ),
    "no target that is ignored": (
        "torch.nn.functional.cross_entropy",
        lambda: functional.cross_entropy(normal(13, 7), CLASSES),
        "other target",
        lambda tensors: [functional.cross_entropy(tensors[0], tensors[1].clamp_min(0))],
    ),
}


@pytest.mark.exam
@pytest.mark.parametrize("name", CALLS)
def test_what_was_recorded_at_one_value_must_count(tmp_path: Path, name: str) -> None:
    """The op itself passes; a kernel that knows the recorded value by heart trips, and is told on what."""
    op, run, shown, by_heart = CALLS[name]
    gate = Gate(tmp_path, run, op)
    assert any(one.startswith(shown) for one in gate.names), gate.names
    assert result(gate.judge(), "arguments").outcome == "held"
    found = result(gate.judge(by_heart), "arguments")
    assert found.outcome == "tripped"
    assert shown in found.message
    # Class 0 in the place of an ignored one is no recorded target: what the kernel does is not known.
    known = name != "no target that is ignored"
    assert found.reason is (Reason.ARGUMENT_IGNORED if known else Reason.REFERENCE_MISMATCH)
    argument = shown.removeprefix("other ")
    assert (f"the same call with `{argument}` as recorded" in found.message) is known


def test_an_argument_that_counts_wrongly_is_not_called_ignored(tmp_path: Path) -> None:
    """A slope that is squared differs from the recorded one, and from the right one."""
    op, run, _, _ = CALLS["slope"]

    def squared(call: OpCall) -> Kernel:
        slope = float.fromhex(
            str(next(one.value.value for one in call.arguments if one.name == "negative_slope"))
        )
        return lambda tensors: [functional.leaky_relu(tensors[0], slope if slope == 0.01 else slope**2)]

    found = result(Gate(tmp_path, run, op).judge_call(squared), "arguments")
    assert (found.outcome, found.reason) == ("tripped", Reason.REFERENCE_MISMATCH)


@pytest.mark.exam
def test_an_argument_can_be_fixed(tmp_path: Path) -> None:
    """What the user says never changes is not changed."""
    op, run, _, by_heart = CALLS["slope"]
    gate = Gate(tmp_path, run, op, semantics={"fixed": ["negative_slope"]})
    assert not any("negative_slope" in name for name in gate.names)
    assert result(gate.judge(by_heart), "arguments").outcome == "held"


def test_a_call_without_scalars_has_no_such_set(tmp_path: Path) -> None:
    """The report says why the probe did not run."""
    gate = Gate(tmp_path, lambda: functional.relu(normal(5, 77, dtype=torch.bfloat16)), RELU)
    found = result(gate.judge(), "arguments")
    assert (found.outcome, found.message) == (
        "not-run",
        "the call has no scalar and no mask that could be another",
    )


# ---- options: what torch itself takes, from the seed

LOSSES: Callable[[], Any] = lambda: functional.cross_entropy(normal(13, 7), CLASSES)  # noqa: E731
CONVOLVED: Callable[[], Any] = lambda: functional.conv2d(normal(2, 4, 9, 9), normal(8, 4, 3, 3), padding=1)  # noqa: E731
OPTIONS: dict[str, tuple[str, Callable[[], Any]]] = {
    "gelu approximate": (GELU, lambda: functional.gelu(normal(5, 77))),
    "softmax dim": (SOFTMAX, lambda: functional.softmax(normal(5, 77), dim=-1)),
    "cross_entropy reduction": ("torch.nn.functional.cross_entropy", LOSSES),
    "cross_entropy label_smoothing": ("torch.nn.functional.cross_entropy", LOSSES),
    "cross_entropy ignore_index": ("torch.nn.functional.cross_entropy", LOSSES),
    "cross_entropy ignore_index that targets hold": (
        "torch.nn.functional.cross_entropy",
        lambda: functional.cross_entropy(normal(13, 7), CLASSES.where(CLASSES != 3, -100)),
    ),
    "cross_entropy weight": ("torch.nn.functional.cross_entropy", LOSSES),
    "conv2d stride": ("torch.nn.functional.conv2d", CONVOLVED),
    "conv2d padding": ("torch.nn.functional.conv2d", CONVOLVED),
    "conv2d dilation": ("torch.nn.functional.conv2d", CONVOLVED),
    "linear bias": (LINEAR, lambda: functional.linear(normal(7, 40), normal(24, 40))),
    "sum keepdim": ("torch.sum", lambda: torch.sum(normal(5, 6, 7), dim=1)),
    "smooth_l1_loss beta": ("torch.nn.functional.smooth_l1_loss", lambda: functional.smooth_l1_loss(normal(5, 77), normal(5, 77, seed=3))),
    "attention is_causal": (ATTENTION, lambda: functional.scaled_dot_product_attention(QUERY, KEY, KEY)),
    "layer_norm weight that is left out": (
        "torch.nn.functional.layer_norm",
        lambda: functional.layer_norm(normal(9, 41), (41,), normal(41, seed=1), normal(41, seed=2)),
    ),
}  # fmt: skip


@pytest.mark.exam
@pytest.mark.parametrize("seed", [3, 2026])
@pytest.mark.parametrize("name", OPTIONS)
def test_an_option_that_is_ignored_is_caught_by_each_seed(tmp_path: Path, name: str, seed: int) -> None:
    """A kernel that takes one option as it was recorded trips; the op itself, and a kernel that refuses, do not."""
    op, run = OPTIONS[name]
    ignored = name.split()[1]
    gate = Gate(tmp_path, run, op, seed=seed)
    recorded = gate.call.arguments

    def as_recorded(call: OpCall) -> Kernel:
        old = next(one for one in recorded if one.name == ignored)
        return torch_kernel(
            replace(call, arguments=tuple(old if one.name == ignored else one for one in call.arguments))
        )

    def refuses(call: OpCall) -> Kernel:
        def refusal(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
            raise ValueError("not as recorded")

        return torch_kernel(call) if call.arguments == recorded else refusal

    assert result(gate.judge(), "arguments").outcome == "held"
    assert result(gate.judge_call(as_recorded), "arguments").outcome == "tripped"
    refused = gate.judge_call(refuses)
    assert refused.passed
    assert result(refused, "arguments").outcome in ("not-run", "held")


def test_several_options_change_at_once(tmp_path: Path) -> None:
    """A kernel that minds each of two options, and not both, trips."""
    gate = Gate(tmp_path, lambda: torch.sum(normal(5, 6, 7), dim=1), "torch.sum")
    recorded = {one.name: one.value for one in gate.call.arguments}

    def one_at_a_time(call: OpCall) -> Kernel:
        changed = [one.name for one in call.arguments if one.value != recorded[one.name]]
        kernel = torch_kernel(call)
        return (lambda tensors: [2 * kernel(tensors)[0]]) if {"dim", "keepdim"} <= {*changed} else kernel

    assert result(gate.judge_call(one_at_a_time), "arguments").outcome == "tripped"


def test_what_draws_random_numbers_or_changes_inputs_is_no_option(tmp_path: Path) -> None:
    """A rate of dropout of 0 stays 0; a norm to which embeddings are cut changes the table."""
    drops = Gate(
        tmp_path / "a", lambda: functional.dropout(normal(7, 40), 0.0), "torch.nn.functional.dropout"
    )
    cuts = Gate(tmp_path / "b", lambda: functional.embedding(torch.arange(9), normal(20, 8)), EMBEDDING)
    assert not any(" p=" in name or "max_norm" in name for name in (*drops.names, *cuts.names))


@pytest.mark.parametrize("seed", range(4))
def test_dropout_of_one_weight_is_random_though_draws_agree(tmp_path: Path, seed: int) -> None:
    """Of a single key all is kept or nothing: two draws are equal as often as not."""
    q, k = normal(1, 1, 1, 16), normal(1, 1, 1, 16)
    op = "torch.nn.functional.scaled_dot_product_attention"
    gate = Gate(tmp_path, lambda: functional.scaled_dot_product_attention(q, k, k), op, seed=seed)
    assert not any("dropout_p" in name for name in gate.names)


def test_offsets_keep_what_they_hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With `include_last_offset` the last offset is the end, and where it is none torch on a GPU reads on: it is not asked."""
    asked: set[str] = set()
    answer = value_search.ValueSearch.answer

    def heard(search: Any, changes: Any, **options: Any) -> Any:
        asked.update(argument.name for argument, _ in changes)
        return answer(search, changes, **options)

    monkeypatch.setattr(value_search.ValueSearch, "answer", heard)
    bags = torch.arange(24) % 13
    Gate(
        tmp_path,
        lambda: functional.embedding_bag(bags, normal(13, 5), torch.arange(0, 24, 4)),
        "torch.nn.functional.embedding_bag",
        probes=["arguments"],
    )
    assert {"mode", "padding_idx"} <= asked
    assert "include_last_offset" not in asked


@pytest_cgins.mark
def bounded(x: torch.Tensor, upper: float = 1200.0) -> torch.Tensor:
    return x.clamp(max=upper)


def _names(folder: Path, call: Callable[[], object], op: str) -> list[str]:
    record(folder / "pack", call, op)
    pack = open_pack(folder / "pack")
    options = PrepareOptions(probes=frozenset({"arguments", "sizes"}))
    return [made.expected.name for made in prepare(pack.pack.traces[0], pack, "cpu", 3, options, []).sets]


def test_a_bound_that_was_recorded_far_away_is_tried_where_it_binds(tmp_path: Path) -> None:
    """A kernel that ignores it would be right for every value beside the recorded one."""
    found = _names(tmp_path, lambda: bounded(normal(9, 40)), f"{__name__}.bounded")
    tried = [float(name.partition("upper=")[2]) for name in found if "upper=" in name]
    assert min(tried) < 100


@pytest_cgins.mark
def distance_(x: torch.Tensor, y: torch.Tensor, norm: str = "l2", reduction: str = "mean") -> torch.Tensor:
    x.sub_(y)
    each = x.abs() if norm == "l1" else x.square()
    return each.mean() if reduction == "mean" else each.sum() if reduction == "sum" else each


def test_words_that_an_op_compares_with_are_tried_of_one_that_changes_its_arguments_too(
    tmp_path: Path,
) -> None:
    """What it answers to an unknown word is one of its options, and `none` is nowhere in its source."""
    found = _names(tmp_path, lambda: distance_(normal(9, 40), normal(9, 40, seed=1)), f"{__name__}.distance_")
    assert {"other norm=l1", "other reduction=sum", "other reduction=none"} <= {*found}


def test_a_mask_lets_nothing_through_in_one_row(tmp_path: Path) -> None:
    """torch's answer there is 0; that of a kernel that masks by a great negative number is a mean."""
    seen = torch.ones(9, 21, dtype=torch.bool).tril(12)
    found = _names(
        tmp_path,
        lambda: functional.scaled_dot_product_attention(
            normal(1, 2, 9, 8), normal(1, 2, 21, 8), normal(1, 2, 21, 8), seen
        ),
        "torch.nn.functional.scaled_dot_product_attention",
    )
    assert "a row of attn_mask that lets nothing through" in found
