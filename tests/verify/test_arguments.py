"""Scalars, masks and ignored targets that were recorded at one value, from the set of inputs to the verdict."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional

from pytest_cgins.model import OpCall, Reason
from tests.verify.helpers import normal
from tests.verify.test_probe_sets import ATTENTION, GELU, Gate, Kernel, result

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


def test_an_argument_can_be_fixed(tmp_path: Path) -> None:
    """What the user says never changes is not changed."""
    op, run, _, by_heart = CALLS["slope"]
    gate = Gate(tmp_path, run, op, semantics={"fixed": ["negative_slope"]})
    found = result(gate.judge(by_heart), "arguments")
    assert (found.outcome, found.message) == (
        "not-run",
        "the call has no scalar and no mask that could be another",
    )


def test_a_call_without_scalars_has_no_such_set(tmp_path: Path) -> None:
    """The report says why the probe did not run."""
    gate = Gate(tmp_path, lambda: functional.gelu(normal(5, 77)), GELU)
    assert result(gate.judge(), "arguments").outcome == "not-run"
