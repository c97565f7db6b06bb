"""Torch's three answers: which dtype, which context, on copies, with what note."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch.nn import functional

from pytest_cgins.core.device import device_of
from pytest_cgins.core.layout import lay_out, rebuild
from pytest_cgins.core.trace import Autocast, Context
from pytest_cgins.packs.ops import trust
from pytest_cgins.verify import reference
from pytest_cgins.verify.probe_support.dispatch_mode import DispatchMode
from pytest_cgins.verify.reference import Answers, Lengths, answers, inputs_on, widen
from pytest_cgins.verify.tolerance import derive
from tests.forked_python import ForkedPython
from tests.verify.helpers import call_of, normal


def answers_to(name: str, *args: Any, context: Context = Context(), **kwargs: Any) -> Answers:  # noqa: B008
    """Torch's, to a call of one of its functions."""
    call, tensors = call_of(f"torch.nn.functional.{name}", getattr(functional, name), *args, **kwargs)
    return answers(call, lay_out(tensors), context, "cpu")


def doubled_in_single(x: torch.Tensor) -> torch.Tensor:
    """Casts down on purpose, as marked functions do."""
    return (x.float() * 3).to(torch.float32) / 7


trust(f"{__name__}.doubled_in_single")


def test_half_inputs_are_widened_after_rounding() -> None:
    """r is fp64 of the rounded inputs, t32 fp32 of them, t in half."""
    x, w = normal(5, 64, dtype=torch.float16), normal(8, 64, seed=1, dtype=torch.float16)
    made = answers_to("linear", x, w)
    assert torch.equal(made.answer[0], functional.linear(x, w))
    assert torch.equal(made.answer32[0], functional.linear(x.float(), w.float()))
    assert torch.equal(made.reference[0], functional.linear(x.double(), w.double()))
    assert made.note == ""


def test_dtype_arguments_do_not_narrow_the_reference() -> None:
    """softmax(x, dtype=float16) is float64 in the reference, float32 in t32."""
    x = normal(4, 9)
    made = answers_to("softmax", x, -1, dtype=torch.float16)
    assert made.answer[0].dtype == torch.float16
    assert torch.equal(made.reference[0], x.double().softmax(-1))


def test_casts_inside_a_function_do_not_narrow_the_reference() -> None:
    """A function that computes in fp32 inside still has an fp64 reference."""
    from pytest_cgins.verify.reference import KeepWide

    x = normal(100).double()
    with KeepWide(torch.float64):
        wide = doubled_in_single(x)
    assert wide.dtype == torch.float64
    assert torch.equal(wide, x * 3 / 7)


def test_autocast_is_for_torchs_answer_only() -> None:
    """In autocast t is bf16; reference and t32 are of the fp32 inputs."""
    x, w = normal(5, 64), normal(8, 64, seed=1)
    context = Context(autocast=(Autocast(device_type="cpu", dtype="bfloat16"),))
    made = answers_to("linear", x, w, context=context)
    assert made.answer[0].dtype == torch.bfloat16
    assert made.answer32[0].dtype == torch.float32
    assert torch.equal(made.reference[0], functional.linear(x.double(), w.double()))


def test_integers_stay_as_they_are() -> None:
    """Indices are not widened."""
    table, index = normal(10, 4), torch.tensor([1, 3, 3])
    made = answers_to("embedding", index, table)
    assert torch.equal(made.reference[0], table.double()[index])


def test_mutated_inputs_follow_the_outputs() -> None:
    """An in-place op is found out by comparing, and every run starts from the same inputs."""
    x, y = normal(6, dtype=torch.float16), normal(6, seed=1, dtype=torch.float16)
    call, tensors = call_of("torch.Tensor.add_", torch.Tensor.add_, x, y)
    layout = lay_out(tensors)
    made = answers(call, layout, Context(), "cpu")
    assert made.mutated == (0,)
    assert len(made.answer) == 2
    for answer in made.answer:
        assert torch.equal(answer, x + y)
    for exact in made.reference:
        assert torch.equal(exact, x.double() + y.double())
    assert torch.equal(rebuild(layout.metas, layout.spans, "cpu")[0], x)


def test_op_without_fp64_falls_back_with_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where fp64 is refused everywhere, fp32 is the reference, and it is said."""
    plain = functional.softmax

    def refuses(input: torch.Tensor, dim: int) -> torch.Tensor:  # noqa: A002 - torch's own name
        if input.dtype == torch.float64:
            raise NotImplementedError("no fp64 kernel")
        return plain(input, dim)

    x = normal(3, 5)
    monkeypatch.setattr("pytest_cgins.packs.forward.resolve", lambda op: refuses)
    made = answers_to("softmax", x, -1)
    assert made.note == (
        "torch.nn.functional.softmax does not run in fp64 (cpu: no fp64 kernel): fp32 is the reference"
    )
    assert torch.equal(made.reference[0], plain(x, -1).double())
    assert made.perturbed is not None
    distance = (made.perturbed[0].double() - made.reference[0]).abs()
    assert 1e-9 < float(distance.max()) < 1e-6  # another order of summation errs as much


def widened(*tensors: torch.Tensor) -> list[torch.Tensor]:
    layout = widen(lay_out(tensors), torch.float64)
    return rebuild(layout.metas, layout.spans, "cpu")


def test_widening_keeps_strides_and_aliases() -> None:
    """Two views of one storage are two views of one wider storage."""
    base = normal(6, 8, dtype=torch.float16)
    first, second = widened(base.T, base[2:])
    assert first.stride() == (1, 8)
    assert torch.equal(first, base.T.double())
    assert torch.equal(second, base[2:].double())
    second.zero_()
    assert not bool(first[:, 2:].any())


def test_widening_splits_a_storage_of_two_dtypes() -> None:
    """Bytes that are two things at once are widened separately."""
    base = normal(8)
    floats, integers = widened(base, base.view(torch.int32))
    assert torch.equal(floats, base.double())
    assert torch.equal(integers, base.view(torch.int32))


def test_widening_complex() -> None:
    """complex64 becomes complex128."""
    x = torch.complex(normal(4), normal(4, seed=1))
    assert torch.equal(widened(x)[0], x.to(torch.complex128))


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_the_perturbed_reference_is_a_rounding_away(dtype: torch.dtype) -> None:
    """p is fp64 of inputs moved by 2⁻²⁴ of themselves, the inputs are left alone, and lots are repeatable."""
    x = normal(50, 40).to(dtype)
    call, tensors = call_of("torch.nn.functional.gelu", functional.gelu, x)
    layout = lay_out(tensors)
    made, again = (answers(call, layout, Context(), "cpu") for _ in range(2))
    assert made.perturbed is not None
    assert again.perturbed is not None
    distance = (made.perturbed[0] - made.reference[0]).abs()
    assert 0 < distance.max() <= x.double().abs().max() * 2.0**-23
    assert torch.equal(made.perturbed[0], again.perturbed[0])
    assert torch.equal(rebuild(layout.metas, layout.spans, "cpu")[0], x)


def test_perturbation_goes_both_ways() -> None:
    """About half of the inputs grow and half shrink, none stays."""
    x = torch.ones(3000)
    made = answers_to("relu", x)
    assert made.perturbed is not None
    moved = (made.perturbed[0] - 1) * 2.0**24
    assert set(moved.tolist()) == {1.0, -1.0}
    assert abs(float(moved.mean())) < 0.1


def cut_off(x: torch.Tensor, w: torch.Tensor, step: int = 16) -> torch.Tensor:
    """x @ w.T as tensor cores add: exactly over a step, then to fp32 by cutting off."""
    total = torch.zeros(len(x), len(w))
    for k in range(0, x.shape[1], step):
        exact = total.double() + x[:, k : k + step].double() @ w[:, k : k + step].double().T
        total = exact.float()
        total = torch.where(
            total.double().abs() > exact.abs(), torch.nextafter(total, torch.zeros_like(total)), total
        )
    return total


@pytest.mark.exam
def test_long_sums_of_tensor_cores_are_right() -> None:
    """A plain loop over 14,336 numbers in bf16: on an H200 one element of 65,536 was called wrong."""
    x, w = normal(16, 14_336).bfloat16(), (0.02 * normal(512, 14_336, seed=1)).bfloat16()
    made = answers_to("linear", x, w)
    parts = made.reference[0], made.answer[0], made.answer32[0]
    scale = derive(*parts, made.perturbed and made.perturbed[0])
    error = (cut_off(x, w).bfloat16().double().flatten() - scale.reference).abs()
    assert float((error / scale.unit).max()) <= scale.peak_limit / 2
    # The unit without it, and what any kernel that sums in bf16 makes of it.
    rounding = answers_to("linear", x[:, :64], w[:, :64])
    assert rounding.perturbed is not None
    exact = x[:, :64].double() @ w[:, :64].double().T
    assert float((rounding.perturbed[0] - exact).abs().max()) < 1e-6
    coarse = sum(
        (x[:, k : k + 1024].float() @ w[:, k : k + 1024].float().T).bfloat16() for k in range(0, 14_336, 1024)
    )
    assert isinstance(coarse, torch.Tensor)
    assert float(((coarse.double().flatten() - scale.reference).abs() / scale.unit).max()) > scale.peak_limit


def attention_inputs(heads: int, mask: tuple[int, ...] | None) -> tuple[torch.Tensor, ...]:
    """Four heads of queries, and as many of keys as are asked for."""
    masks = () if mask is None else (normal(*mask, seed=3).double(),)
    shapes = ((2, 4, 9, 8), (2, heads, 11, 8), (2, heads, 11, 6))
    return (*(normal(*shape, seed=index).double() for index, shape in enumerate(shapes)), *masks)


@pytest.mark.parametrize(
    ("heads", "mask", "options"),
    [
        (4, None, {"is_causal": True}),
        (2, None, {"enable_gqa": True, "scale": 0.3}),
        (1, (2, 4, 9, 11), {"enable_gqa": True}),
        (2, (1, 4, 1, 11), {"enable_gqa": True}),
        (4, (9, 11), {}),
        (4, (2, 1, 9, 11), {}),
    ],
)
def test_a_large_attention_is_computed_in_parts(
    monkeypatch: pytest.MonkeyPatch, heads: int, mask: tuple[int, ...] | None, options: dict[str, Any]
) -> None:
    """The reference of 32 heads of 8,192 words took 119 GB of a GPU that others share."""
    given = attention_inputs(heads, mask)
    whole = functional.scaled_dot_product_attention(*given, **options)
    monkeypatch.setattr(reference, "_SCORES_NBYTES", 8 * 9 * 11 * (4 // heads))
    with Seen() as seen, reference.AttentionInParts():
        in_parts = functional.scaled_dot_product_attention(*given, **options)
    torch.testing.assert_close(in_parts, whole, rtol=1e-12, atol=1e-12)
    assert seen.most == 9 * 11 * (4 // heads)


def test_an_attention_of_one_query_for_all_is_computed_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its batch of queries is broadcast over that of keys."""
    query, key, value = (
        tensor[:batch] for tensor, batch in zip(attention_inputs(4, None), (1, 2, 2), strict=True)
    )
    monkeypatch.setattr(reference, "_SCORES_NBYTES", 1)
    whole = functional.scaled_dot_product_attention(query, key, value)
    with reference.AttentionInParts():
        in_parts = functional.scaled_dot_product_attention(query, key, value)
    torch.testing.assert_close(in_parts, whole, rtol=1e-12, atol=1e-12)


def test_dropped_scores_are_not_computed_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their numbers are drawn for all of them at once."""
    monkeypatch.setattr(reference, "_SCORES_NBYTES", 1)
    results = []
    for mode in (nullcontext(), reference.AttentionInParts()):
        torch.manual_seed(0)
        with mode:
            results.append(functional.scaled_dot_product_attention(*attention_inputs(4, None), None, 0.5))
    assert torch.equal(*results)


class Seen(DispatchMode):
    """The most numbers that a softmax gave."""

    most = 0

    def dispatch(self, func: Any, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """See `DispatchMode`."""
        result = func(*args, **named)
        if "softmax" in str(func):
            self.most = max(self.most, result.numel())
        return result


@pytest.mark.parametrize(
    ("name", "args", "longest"),
    [
        ("linear", lambda d: (normal(3, 400).to(d), normal(5, 400).to(d), normal(5).to(d)), 400),
        ("conv2d", lambda d: (normal(1, 50, 5, 5).to(d), normal(4, 50, 3, 3).to(d)), 450),
        ("scaled_dot_product_attention", lambda d: [normal(1, 2, n, 8).to(d) for n in (3, 700, 700)], 700),
        ("gelu", lambda d: (normal(3, 400).to(d),), 0),
    ],
)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_the_length_of_products_is_known(name: str, args: Any, longest: int, dtype: torch.dtype) -> None:
    """Of 16-bit numbers alone: fp32 is summed as it is rounded."""
    with Lengths() as seen:
        getattr(functional, name)(*args(dtype))
    assert seen.longest == (longest if dtype == torch.bfloat16 else 0)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_inputs_are_widened_on_the_gpu_to_the_same_bits(
    monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype
) -> None:
    """On the host where the GPU has no room for them."""
    x, w = normal(16, 1000).to(dtype), normal(8, 1000, seed=1).to(dtype)
    call, tensors = call_of("torch.nn.functional.linear", functional.linear, x, w.T.contiguous().T)
    layout = lay_out(tensors)
    near = answers(call, layout, Context(), "cuda")
    assert all(span.is_cuda for span in inputs_on(layout, "cuda").spans)
    monkeypatch.setattr(type(device_of("cuda")), "free_nbytes", lambda _: 0)
    assert not any(span.is_cuda for span in inputs_on(layout, "cuda").spans)
    far = answers(call, layout, Context(), "cuda")
    assert near.perturbed is not None
    assert far.perturbed is not None
    assert torch.equal(near.reference[0], far.reference[0])
    assert torch.equal(near.perturbed[0], far.perturbed[0])


def test_references_do_not_import_torchs_compiler(forked_torch: ForkedPython) -> None:
    """Running an op in wider dtypes does not load `torch._dynamo`, which takes seconds in every worker."""
    script = (
        "import sys, torch; from pytest_cgins.verify.reference import KeepWide\n"
        "with KeepWide(torch.float64): assert torch.ones(2).to(torch.float16).dtype == torch.float64\n"
        "sys.exit('torch._dynamo' in sys.modules)"
    )
    done = forked_torch.run(["-c", script])
    assert done.returncode == 0, done.stderr
