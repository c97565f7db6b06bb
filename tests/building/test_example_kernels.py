"""The example's kernels on calls that its packs do not have: right, or refused with a message."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

from pytest_cgins.building.build import build
from pytest_cgins.building.contracts.source import find
from pytest_cgins.building.loading.callable import LoadedKernel, load
from pytest_cgins.config import load as load_config
from pytest_cgins.core.errors import LaunchError
from pytest_cgins.packs.call import flatten, invoke
from pytest_cgins.packs.ops import trust

PROJECT = Path(__file__).parents[2] / "example_project"
LINEAR, SOFTMAX = "torch.nn.functional.linear", "torch.nn.functional.softmax"
ATTENTION, LAYER_NORM = "torch.nn.functional.scaled_dot_product_attention", "torch.nn.functional.layer_norm"
INF, NAN = float("inf"), float("nan")


@cache
def kernel(op: str) -> LoadedKernel:
    """The C++ kernel of an op, built."""
    trust(op)
    config = load_config(PROJECT / "cgins.yaml")
    (entry,) = [entry for entry in config.kernels if entry.op == op]
    (implementation,) = [one for one in entry.implementations if one.name == "cpp"]
    return load(build(find(config, entry, implementation)))


@pytest.fixture(autouse=True)
def project_models(monkeypatch: pytest.MonkeyPatch) -> None:
    """The example's own ops can be imported."""
    monkeypatch.syspath_prepend(str(PROJECT))


@pytest.fixture
def both(op_call: Any, metas_of: Any) -> Callable[..., tuple[torch.Tensor, torch.Tensor]]:
    """Function that gives the kernel's answer to a call, and torch's."""

    def run(op: str, *args: object, **kwargs: object) -> tuple[torch.Tensor, torch.Tensor]:
        trust(op)
        call, tensors = op_call(op, *args, **kwargs)
        (want,) = flatten(invoke(call, tensors))[1]
        (got,) = kernel(op).bind(call, tensors, metas_of([want]), "cpu").run()
        return got, want

    return run


def normal(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """N(0, 1), always the same."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(1)).to(dtype)


@pytest.mark.exam
@pytest.mark.parametrize(
    ("op", "args"),
    [
        (LINEAR, (normal(37, 70)[:, 3:], normal(67, 67), normal(67))),
        (LINEAR, (normal(3, 2, 5).transpose(0, 1), normal(5, 40).t(), normal(40))),
        (LINEAR, (normal(5), normal(4, 5))),
        (LINEAR, (torch.empty(3, 0), torch.empty(4, 0), normal(4))),
        (SOFTMAX, (normal(4, 9).t(), 0)),
        (SOFTMAX, (torch.tensor(2.0), 0)),
        (SOFTMAX, (torch.empty(0, 5), -1)),
        (SOFTMAX, (torch.tensor([[1, INF], [-INF, -INF], [NAN, 1]]), -1)),
        # Queries of the first batch alone; torch computes all of them.
        (ATTENTION, (normal(1, 2, 5, 8), normal(3, 2, 7, 8), normal(3, 2, 7, 8))),
        (ATTENTION, (normal(2, 2, 5, 8), torch.empty(2, 2, 0, 8), torch.empty(2, 2, 0, 8))),
    ],
)
def test_unusual_call_is_answered_as_torch_does(both: Any, op: str, args: tuple[object, ...]) -> None:
    """Strides, empty tensors, infinities and broadcast batches."""
    got, want = both(op, *args)
    torch.testing.assert_close(got, want, atol=2e-5, rtol=2e-5, equal_nan=True)


def test_softmax_is_taken_in_the_dtype_that_was_asked_for(both: Any) -> None:
    """The input is converted first: to double without loss, and to half with its overflow."""
    got, want = both(SOFTMAX, normal(3, 8, dtype=torch.float16), -1, dtype=torch.float64)
    torch.testing.assert_close(got, want)
    got, _ = both(SOFTMAX, torch.tensor([[1e5, 0.0, 3.0]]), -1, dtype=torch.float16)
    assert got.isnan().all()


@pytest.mark.exam
def test_attention_does_not_lose_a_score_that_is_nan(both: Any) -> None:
    """One NaN among the keys makes the whole row NaN, wherever it stands."""
    for place in (0, 3, 100):
        key = normal(1, 1, 150, 8)
        key[0, 0, place] = NAN
        assert both(ATTENTION, normal(1, 1, 5, 8), key, normal(1, 1, 150, 8))[0].isnan().all()


TOO_MANY = normal(*([2] * 9))


@pytest.mark.exam
@pytest.mark.parametrize(
    ("op", "args", "message"),
    [
        (LINEAR, (normal(3, 8), normal(4, 8), normal(1)), "dense vectors of 4 numbers"),
        (LINEAR, (normal(3, 8), normal(4, 8), normal(8)[::2]), "dense vectors of 4 numbers"),
        (LINEAR, (TOO_MANY, normal(3, 2)), "9 dimensions, more than 8"),
        (SOFTMAX, (TOO_MANY, 3), "9 dimensions, more than 8"),
        (LAYER_NORM, (TOO_MANY, [2]), "9 dimensions, more than 8"),
        (LAYER_NORM, (normal(3, 8, dtype=torch.bfloat16), [8], normal(8), normal(8)), "bfloat16 and float32"),
        ("models.decoder.rms_norm", (normal(3, 8), normal(8, dtype=torch.float16)), "float32 and float16"),
        ("models.decoder.rms_norm", (normal(3, 8), normal(1)), "dense vectors of 8 numbers"),
    ],
)
def test_call_that_a_kernel_cannot_compute_is_refused(
    both: Any, op: str, args: tuple[object, ...], message: str
) -> None:
    """Nothing is read past its end, or as another type than it is."""
    with pytest.raises(LaunchError, match=message):
        both(op, *args)


@pytest.mark.parametrize("op", [LINEAR, ATTENTION])
def test_outputs_of_another_type_under_autocast_are_refused(both: Any, op: str) -> None:
    """Under autocast torch answers fp32 inputs in bf16, which a kernel must not write as fp32."""
    operands = {
        LINEAR: (normal(3, 8), normal(4, 8)),
        ATTENTION: (normal(1, 2, 5, 8), normal(1, 2, 7, 8), normal(1, 2, 7, 8)),
    }
    with (
        torch.autocast("cpu", torch.bfloat16),
        pytest.raises(LaunchError, match="element types differ: float32 and bfloat16"),
    ):
        both(op, *operands[op])
