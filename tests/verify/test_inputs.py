"""Fresh and edge inputs: what is replaced, what is kept, and that they are the same everywhere."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional

from pytest_cgins.config import declared
from pytest_cgins.packs import backward
from pytest_cgins.verify import inputs
from tests.forked_python import ForkedPython
from tests.verify.helpers import call_of, normal

Case = tuple[Any, list[torch.Tensor]]


def called(name: str, *args: Any, **kwargs: Any) -> Case:
    """A call of one of torch's functions, and its tensors."""
    home, path = (functional, "torch.nn.functional") if hasattr(functional, name) else (torch, "torch")
    return call_of(f"{path}.{name}", getattr(home, name), *args, **kwargs)


def fresh(case: Case) -> list[torch.Tensor]:
    return inputs.fresh(*case, "1")


def edge(case: Case) -> list[torch.Tensor]:
    return inputs.edge(*case, "1")


def layer_norm(dtype: torch.dtype = torch.float32, rows: int = 26) -> Case:
    x, w, b = normal(rows, 64, dtype=dtype), torch.ones(64, dtype=dtype), torch.zeros(64, dtype=dtype)
    return called("layer_norm", x, (64,), w, b, 1e-5)


def linear() -> Case:
    return called("linear", normal(26, 256), normal(8, 256), torch.zeros(8))


def scales(tensor: torch.Tensor) -> torch.Tensor:
    """log2 of each row's standard deviation, rounded."""
    return tensor.float().std(-1).log2().round()


def test_same_key_same_inputs_other_key_others() -> None:
    """Inputs are a function of key and call."""
    call, tensors = layer_norm()
    first, again, other = (inputs.fresh(call, tensors, key) for key in ("1/a", "1/a", "2/a"))
    assert torch.equal(first[0], again[0])
    assert not torch.equal(first[0], other[0])
    assert not torch.equal(first[0], inputs.edge(call, tensors, "1/a")[0])


def test_fresh_inputs_are_the_same_on_every_host() -> None:
    """The bytes are pinned: another host or numpy must make the same."""
    call, tensors = layer_norm()
    made = inputs.fresh(call, tensors, "1/a")
    digest = hashlib.sha256(b"".join(tensor.numpy().tobytes() for tensor in made)).hexdigest()
    assert digest[:16] == "91d47fc670853af5"


@pytest.mark.parametrize("boundaries", [0, 3])
def test_numbers_meet_the_boundaries_that_there_are(boundaries: int) -> None:
    """On which side of one a number falls that is it."""
    x, edges = fresh(called("bucketize", normal(5, 8), normal(boundaries).sort().values))
    assert torch.isin(x, edges).sum() == (10 if boundaries else 0)
    made = fresh(called("bucketize", torch.full((5, 8), -1), torch.arange(boundaries)))
    assert (made[0] >= 0).sum() == (10 if boundaries else 0)


def test_positions_do_not_meet_what_is_in_order() -> None:
    """They may point into something, of which there may be less."""
    called_with = {"order": torch.arange(8) * 9, "rows": torch.arange(5), "x": normal(5, 3)}
    case = call_of("m.op", lambda order, rows, x: x[rows] + order.sum(), **called_with)
    _, rows, _ = inputs.fresh(*case, "1", declared({"coupled": {"order": "sorted"}}))
    assert torch.equal(rows, torch.arange(5))


def test_recorded_inputs_are_left_alone() -> None:
    """Making inputs does not write into the recorded ones."""
    call, tensors = layer_norm()
    before = [tensor.clone() for tensor in tensors]
    inputs.fresh(call, tensors, "1")
    inputs.edge(call, tensors, "1")
    assert all(torch.equal(a, b) for a, b in zip(before, tensors, strict=True))


def test_rows_form_a_ladder_of_scales() -> None:
    """All powers of two from 2⁻⁶ to 2⁶ occur among 26 rows, twice each."""
    found = scales(fresh(linear())[0])
    assert sorted(found.tolist()) == sorted([*range(-6, 7)] * 2)


def test_ladder_is_shorter_in_fp16() -> None:
    """From 2⁻⁴ to 2⁴, so that products stay finite."""
    found = scales(fresh(layer_norm(torch.float16))[0])
    assert (float(found.min()), float(found.max())) == (-4, 4)


def test_constant_parameters_are_randomized() -> None:
    """gamma 1 and beta 0 hide kernels that ignore them."""
    _, weight, bias = fresh(layer_norm())
    assert 0.5 < float(weight.std()) < 1.5
    assert 0.5 < float(bias.std()) < 1.5


def test_weights_are_scaled_by_fan_in() -> None:
    """A linear layer's weight is N(0, 1/K)."""
    assert float(fresh(linear())[1].std()) == pytest.approx(1 / 16, rel=0.1)


def test_softmax_ladder_runs_across_the_softmax() -> None:
    """All elements of one softmax have one scale, also along an inner dimension."""
    found = fresh(called("softmax", normal(3, 200, 4), dim=1))[0].std(1).log2().round()
    assert len(found.unique()) > 6


ANGLE = normal(5, 8).repeat(1, 2)
ADDED = torch.zeros(5, 5).masked_fill(torch.ones(5, 5).triu(1).bool(), -torch.inf)
LEAST = torch.zeros(5, 5).masked_fill(torch.eye(5).bool(), torch.finfo(torch.float32).min)


def apply_rotary(query: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    return query * cos + query.roll(8, -1) * sin


@pytest.mark.parametrize("make", [fresh, edge])
@pytest.mark.parametrize(
    ("case", "kept"),
    [
        (
            called("scaled_dot_product_attention", *(normal(1, 2, 5, 16, seed=n) for n in range(3)), ADDED),
            [3],
        ),
        (called("embedding", torch.tensor([1, 3, 3]), normal(10, 4)), [0]),
        # By its values, whatever its name.
        (called("add", normal(5, 5), LEAST), [1]),
        # A kernel may read one half of a table whose halves are equal, which those of random numbers are not.
        (call_of("models.apply_rotary", apply_rotary, normal(2, 5, 16), ANGLE.cos(), ANGLE.sin()), [1, 2]),
    ],
    ids=["mask", "index", "unnamed mask", "angles"],
)
def test_masks_indices_and_tables_are_kept(
    make: Callable[[Case], list[torch.Tensor]], case: Case, kept: list[int]
) -> None:
    """They are the recorded ones, and all else is new."""
    same = [
        index
        for index, (new, old) in enumerate(zip(make(case), case[1], strict=True))
        if torch.equal(new, old)
    ]
    assert same == kept


def test_sign_is_kept_where_the_op_may_need_it() -> None:
    """log of fresh inputs is as finite as log of the recorded ones."""
    assert bool((fresh(called("log", normal(26, 64).abs() + 0.1))[0] >= 0).all())


def test_probabilities_stay_within_zero_and_one() -> None:
    """Recorded values within [0, 1] have fresh ones within [0, 1]."""
    made = fresh(called("logit", torch.rand(26, 64)))[0]
    assert 0 <= float(made.min()) <= float(made.max()) <= 1


def test_running_variance_is_positive() -> None:
    """A variance of ones is randomized, and stays one that has a root."""
    assert float(fresh(called("batch_norm", normal(4, 8, 3, 3), torch.zeros(8), torch.ones(8)))[2].min()) > 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_running_variances_of_edge_rows_show_whether_eps_is_added(dtype: torch.dtype) -> None:
    """They are about eps, 0 or about 1, and torch's answer is finite; without eps there is no 0."""
    x, mean, var = (normal(*shape).to(dtype) for shape in ((4, 14, 9), (14,), (14,)))
    made = edge(called("batch_norm", x, mean, var.abs(), eps=1e-4))
    least = made[2].double()
    assert (least == 0).any()
    assert ((least > 0) & (least < 1e-3)).any()
    assert (least > 0.2).any()
    assert functional.batch_norm(*made, eps=1e-4).isfinite().all()
    assert (edge(called("batch_norm", x, mean, var.abs(), eps=0.0))[2] > 0.2).all()


def test_rows_of_a_cross_entropy_run_along_its_classes() -> None:
    """Logits that overflow a naive exponential are in one row; class weights stay positive."""
    arguments = normal(4, 32, 6), torch.zeros(4, 6, dtype=torch.int64), torch.rand(32) + 0.5
    case = called("cross_entropy", *arguments)
    made = edge(case)
    rows = made[0].movedim(1, -1).reshape(-1, 32)
    assert (rows.amin(1) > 900).any()
    assert (made[2] >= 0).all()
    assert set(scales(fresh(case)[0].movedim(1, -1)).flatten().tolist()) >= {-6.0, 6.0}


def test_strides_and_aliases_are_kept() -> None:
    """A transposed view stays one; two views of one storage stay two."""
    base = normal(64, 26)
    made = fresh(called("sub", base.T, base.T[:13]))
    assert made[0].stride() == (1, 26)
    assert made[0].untyped_storage().data_ptr() == made[1].untyped_storage().data_ptr()
    assert torch.equal(made[0][:13], made[1])


def test_expanded_tensors_are_filled_once() -> None:
    """A stride of 0 is no obstacle."""
    made = fresh(called("add", normal(26, 64), normal(64).expand(26, 64)))
    assert made[1].stride() == (0, 1)
    assert torch.equal(made[1][0], made[1][25])


def test_norm_edge_rows() -> None:
    """Rows with std ≈ √eps, with mean ≫ std, constant ones, zeros, and large ones."""
    x = edge(layer_norm(rows=28))[0]
    std, mean = x.std(-1), x.mean(-1)
    assert float(std[0]) == pytest.approx(1e-5**0.5, rel=0.5)
    assert float(mean[1]) == pytest.approx(1024, rel=0.01)
    assert float(std[1]) == pytest.approx(1, rel=0.5)
    assert bool((x[2] == 1).all())
    assert not bool(x[4].any())
    assert float(std[5]) > 1000


def test_constant_row_is_small_where_eps_is() -> None:
    """A mean that is off by one rounding shows as less than a thousandth in the normalized row."""
    constant = edge(called("layer_norm", normal(28, 12), (12,), None, None, 1e-12))[0][2]
    assert bool((constant == constant[0]).all())
    assert 0 < float(constant[0]) * 2**-24 / 1e-6 < 1e-3


@pytest.mark.parametrize("eps", [1e-12, 1e-6, 1e-5, 0.0])
def test_sums_over_a_constant_row_are_exact(eps: float) -> None:
    """A plain loop over 768 equal numbers is not called wrong for roundings that all go the same way."""
    constant = edge(called("layer_norm", normal(28, 768), (768,), None, None, eps))[0][2]
    assert 0 <= float(constant[0]) <= 1
    # numpy's running sum is a plain loop in fp32; torch's is taken in fp64.
    assert float(np.cumsum(constant.numpy())[-1]) == 768 * float(constant[0])


def test_softmax_edge_rows_overflow_a_naive_exponential() -> None:
    """Raw logits beyond 88 are among them in every dtype."""
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        x = edge(called("softmax", normal(14, 64, dtype=dtype), dim=-1))[0]
        assert bool((x > 100).any())
        assert bool((x.amax(-1) < -500).any())


def test_activation_edge_rows_cover_the_negative_tail() -> None:
    """The exact and the tanh form of gelu part between −2 and −6."""
    x = edge(called("gelu", normal(12, 64)))[0]
    assert int(((x > -6) & (x < -2)).sum()) > 64


def test_lone_vector_has_a_scale_for_each_element() -> None:
    """The only tensor of a call is data, also if it is 1-D."""
    assert float(fresh(called("gelu", normal(1000)))[0].abs().max()) > 64


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_all_made_inputs_are_finite(dtype: torch.dtype) -> None:
    """No overflow in any dtype."""
    for make in (fresh, edge):
        assert all(bool(tensor.isfinite().all()) for tensor in make(layer_norm(dtype)))


def test_empty_and_scalar_tensors() -> None:
    """No elements, nothing to do; a zero-dimensional tensor is a setting, and is kept."""
    made = fresh(called("mul", torch.empty(0, 4), torch.tensor(2.5)))
    assert made[0].shape == (0, 4)
    assert float(made[1]) == 2.5


def test_a_backward_has_the_edge_rows_of_its_op() -> None:
    """Among the inputs of a norm's backward are rows with std ≈ √eps, and rows with a large mean."""
    name = "torch.nn.functional.layer_norm@backward(input)"
    x = edge(call_of(name, backward.resolve(name), normal(28, 64), normal(28, 64), (64,)))[1]
    assert float(x[0].std()) == pytest.approx(1e-5**0.5, rel=0.5)
    assert float(x[1].mean()) == pytest.approx(1024, rel=0.01)


def test_making_inputs_imports_no_algebra(forked_torch: ForkedPython) -> None:
    """torch.unravel_index imports sympy, 2.7 s of each worker on the H200's host."""
    program = (
        "import sys, torch; from pytest_cgins.verify import inputs; from tests.verify.test_inputs import layer_norm\n"
        "from pytest_cgins.verify.semantics import semantics_for; call, tensors = layer_norm()\n"
        "inputs.put_largest_last(semantics_for(call, inputs._UNDECLARED), call, tensors); sys.exit('sympy' in sys.modules)"
    )
    done = forked_torch.run(["-c", program])
    assert done.returncode == 0, done.stderr
