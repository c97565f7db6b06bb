"""Launchers through ctypes: what arrives in C, what comes back, and how misuse is refused."""

from __future__ import annotations

import ctypes
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch

from pytest_cgins.building.loading.launcher import older_remedy
from pytest_cgins.core.errors import CginsError, ContractError, LaunchError, SourceError

ECHO = """\
// cgins: add(Tensor input, Scalar other, *, Scalar alpha=1) -> Tensor
#include <cgins.h>
extern "C" int add(const DLTensor* input, const cgins_scalar* other, const cgins_scalar* alpha,
                   DLTensor* out, cgins_stream stream) {
  CGINS_CHECK(stream == nullptr, "a CPU kernel has no stream");
  CGINS_CHECK(cgins::dtype_of(input) == cgins::Dtype::float32, "float32 only");
  for (int64_t i = 0; i < cgins::numel(input); ++i) {
    cgins::data<float>(out)[cgins::offset_of(out, i)] =
        cgins::data<float>(input)[cgins::offset_of(input, i)] + float(other->real * alpha->real);
  }
  return 0;
}
"""


def test_runs_on_strided_tensors(bind: Any) -> None:
    """Inputs arrive with their strides, outputs are allocated with those that torch would give."""
    x = torch.arange(24, dtype=torch.float32).reshape(2, 3, 4).transpose(0, 2)
    want = torch.add(x, 2.5)
    (out,) = bind(ECHO, "torch.add", x, 2.5, outputs=[want]).run()
    assert out.stride() == want.stride() == (1, 4, 12)
    assert torch.equal(out, want)


@pytest.mark.parametrize(
    "x", [torch.ones(()), torch.ones(0), torch.ones(3, 0, 2), torch.ones(1), torch.arange(10.0)[3:7]]
)
def test_runs_on_empty_and_zero_dimensional_tensors_and_views(bind: Any, x: torch.Tensor) -> None:
    """They are passed like any other; the data pointer of a view is that of its own first element."""
    (out,) = bind(ECHO, "torch.add", x, 1).run()
    assert torch.equal(out, torch.add(x, 1))


def test_unwritten_elements_are_poison(bind: Any) -> None:
    """What a kernel does not write is NaN, and `poison` makes it so again."""
    text = ECHO.replace("i < cgins::numel(input)", "i + 1 < cgins::numel(input)")
    bound = bind(text, "torch.add", torch.ones(3), 1)
    (out,) = bound.run()
    assert out[:2].tolist() == [2, 2]
    assert out[2].isnan()
    bound.poison()
    assert out.isnan().all()


def test_error_code_and_message(project: Any, bind: Any) -> None:
    """A failed CGINS_CHECK ends with the kernel's message; a bare code with advice, not with an earlier message."""
    launcher = project.launcher(ECHO.replace("return 0;", "return 7;"), op="torch.add")
    with pytest.raises(LaunchError, match="it/cpp: add returned 1: float32 only"):
        bind(launcher, "torch.add", torch.ones(2, dtype=torch.float64), 1).run()
    with pytest.raises(LaunchError) as caught:
        bind(launcher, "torch.add", torch.ones(2), 1).run()
    assert caught.value.what == "it/cpp: add returned 7, without a message"
    assert "cgins_fail" in caught.value.remedy


def test_a_generator_that_the_call_leaves_out(bind: Any) -> None:
    """The kernel gets the seed of torch's own."""
    text = """\
// cgins: bernoulli(Tensor input, *, Generator? generator=None) -> Tensor
extern "C" int bernoulli(const DLTensor*, uint64_t generator, DLTensor* out, cgins_stream) {
  cgins::data<float>(out)[0] = float(generator);
  return 0;
}
"""
    torch.manual_seed(77)
    assert bind(text, "torch.bernoulli", torch.ones(1)).run()[0].item() == 77


def test_one_number_for_a_list(bind: Any) -> None:
    """Where the op takes a number or a list of them, the kernel always gets a list."""
    text = """\
// cgins: pool(Tensor input, int[] output_size) -> Tensor
extern "C" int pool(const DLTensor*, const int64_t* output_size, int64_t output_size_len, DLTensor* out,
                    cgins_stream) {
  cgins::data<float>(out)[0] = 10 * output_size_len + output_size[0];
  return 0;
}
"""
    op = "torch.nn.functional.adaptive_avg_pool2d"
    (out,) = bind(text, op, torch.ones(1, 4, 4), 1, outputs=[torch.ones(1, 1, 1)]).run()
    assert out.item() == 11


WORKSPACE = """\
// cgins: neg(Tensor input) -> Tensor
extern "C" int64_t neg_workspace(const DLTensor* input, DLTensor*) { return 3 * cgins::numel(input); }
extern "C" int neg(const DLTensor*, DLTensor* out, void* workspace, int64_t workspace_nbytes, cgins_stream) {
  for (int64_t i = 0; i < workspace_nbytes; ++i) static_cast<char*>(workspace)[i] = 1;
  cgins::data<float>(out)[0] = float(workspace_nbytes);
  return 0;
}
"""


@pytest.mark.parametrize("flags", ["", "-fvisibility=hidden, -flto"])
def test_workspace(project: Any, bind: Any, flags: str) -> None:
    """Scratch memory has the size that the source's own function computes, which is found where symbols are hidden."""
    project.write("kernel.cpp", WORKSPACE)
    compiled = project.build(f"{{op: torch.neg, source: kernel.cpp, flags: [{flags}]}}")
    assert bind(compiled, "torch.neg", torch.ones(7)).run()[0][0] == 21


def test_a_library_here_that_is_older_than_the_compiler_s(tmp_path: Path) -> None:
    """What to do names the library and the version: no flag of the linker brings it."""
    build = [os.environ.get("CXX", "g++"), "-shared", "-fPIC", "-x", "c++", "-"]
    mapped, older, newer = tmp_path / "v.map", tmp_path / "libown.so", tmp_path / "newer/libown.so"
    newer.parent.mkdir()
    mapped.write_text("OWN_5.1 { global: own; };")
    new = [*build, f"-Wl,--version-script={mapped},-soname,libown.so", "-o", newer]
    subprocess.run(new, input='extern "C" int own() { return 1; }', text=True, check=True)
    mapped.write_text("OWN_4.0 { global: own; };")
    subprocess.run([*new[:-1], older], input='extern "C" int own() { return 1; }', text=True, check=True)
    kernel = tmp_path / "k.so"
    uses = 'extern "C" int own(); extern "C" int f() { return own(); }'
    link = ["-x", "none", newer, f"-Wl,-rpath,{tmp_path}", "-o", kernel]
    subprocess.run([*build, *link], input=uses, text=True, check=True)
    with pytest.raises(OSError, match=r"OWN_5\.1") as caught:
        ctypes.CDLL(str(kernel))
    assert "the libown.so of this process is older than the compiler's" in older_remedy(caught.value)
    assert "Leave out what needs OWN_5.1" in older_remedy(caught.value)
    assert not older_remedy(OSError("k.so: undefined symbol: own"))


def test_mutated_argument_is_the_result(project: Any, op_call: Any, bind: Any) -> None:
    """An op that returns the argument which it changes passes it once, and returns that very tensor."""
    text = """\
// cgins: relu_(Tensor(a!) self) -> Tensor(a!)
extern "C" int relu_(DLTensor* self, cgins_stream) {
  for (int64_t i = 0; i < cgins::numel(self); ++i)
    if (cgins::data<float>(self)[i] < 0) cgins::data<float>(self)[i] = 0;
  return 0;
}
"""
    x = torch.tensor([-1.0, 2.0])
    name = op_call("torch.relu_", x)[0].arguments[0].name
    (out,) = bind(text.replace("self", name), "torch.relu_", x).run()
    assert out is x
    assert x.tolist() == [0, 2]


def test_several_outputs_and_lists(bind: Any) -> None:
    """Outputs are passed in the op's order; a list output takes as many as the op returns."""
    text = """\
// cgins: split(Tensor tensor, int split_size_or_sections, int dim=0) -> Tensor[]
extern "C" int split(const DLTensor*, int64_t, int64_t, DLTensor* const* out, int64_t out_len, cgins_stream) {
  for (int64_t i = 0; i < out_len; ++i) cgins::data<float>(out[i])[0] = float(out_len * 10 + i);
  return 0;
}
"""
    x = torch.ones(3)
    got = bind(text, "torch.split", x, 1, outputs=torch.split(x, 1)).run()
    assert [out.item() for out in got] == [30, 31, 32]


NEGATE = """\
// cgins: negate(Tensor input) -> Tensor
extern "C" int negate(const DLTensor* input, DLTensor* out, cgins_stream) {
  for (int64_t i = 0; i < cgins::numel(input); ++i)
    cgins::data<float>(out)[i] = -cgins::data<float>(input)[i];
  return 0;
}
"""
NEGATIVE = """\
// cgins: neg(Tensor input) -> Tensor
extern "C" int64_t neg_workspace(const DLTensor*, DLTensor*) { return -1; }
extern "C" int neg(const DLTensor*, DLTensor*, void*, int64_t, cgins_stream) { return 0; }
"""
ADD, GELU = "torch.add", "torch.nn.functional.gelu"
x = torch.ones(2)


@pytest.mark.parametrize(
    ("text", "call", "options", "kind", "told"),
    [
        (NEGATIVE, ("torch.neg", x), {}, LaunchError, "neg_workspace returned -1"),
        (ECHO, (ADD, x, 2.0), {"outputs": [x, x]}, SourceError, "declares 1 output, the op returns 2"),
        (ECHO.replace("Tensor input", "Tensor inptu"), (ADD, x, 2.0), {}, SourceError, 'did you mean "input"?'),
        (ECHO, (ADD, x, x), {}, ContractError, "argument 'other' is declared as Scalar, the call passes Tensor"),
        (NEGATE, (GELU, x), {"approximate": "tanh"}, ContractError,
         "contract not met: the kernel does not take 'approximate', and the call passes 'tanh', not its default 'none'"),
        (ECHO.replace("=1) -> Tensor", "=1, Tensor(a!) out) -> Tensor(a!)"), (ADD, x, 2.0), {}, ContractError,
         "contract not met: the kernel requires 'out', and the call does not pass it"),
        (NEGATE.replace("(Tensor input", "(int dim, Tensor input").replace("(const", "(int64_t, const"), ("torch.sum", x), {}, ContractError,
         "contract not met: the kernel requires 'dim', and the call does not pass it"),
        (NEGATE.replace("(Tensor input) -> Tensor", "(Tensor self, Tensor(a!) out) -> Tensor(a!)"), ("torch.Tensor.neg", x), {},
         SourceError, "the schema's argument 'out' is not a parameter of the op"),
    ],
)  # fmt: skip
def test_misuse(bind: Any, text: str, call: Any, options: Any, kind: type[CginsError], told: str) -> None:
    """A size function's error, other outputs, names and types than the op's, a parameter that is left out, and one that the call lacks."""
    with pytest.raises(kind) as caught:
        bind(text, *call, **options).run()
    assert told in caught.value.what or told == caught.value.remedy


@pytest.mark.parametrize("options", [{}, {"approximate": "none"}])
def test_undeclared_parameter_at_its_default(bind: Any, options: dict[str, str]) -> None:
    """A kernel may leave out a parameter, as long as the call leaves or sets it to the op's default."""
    assert bind(NEGATE, GELU, x, **options).run()[0].tolist() == [-1, -1]


@pytest.mark.parametrize(("dtype", "poison"), [(torch.int32, -(2**31)), (torch.uint8, 0xA5)])
def test_integer_output_is_poisoned(bind: Any, dtype: torch.dtype, poison: int) -> None:
    """Signed integers are poisoned with the least one, other types without NaN by a byte pattern."""
    (out,) = bind(NEGATE.replace("cgins::numel(input)", "0"), GELU, x.to(dtype)).run()
    assert out.tolist() == [poison, poison]


THREADS = """\
// cgins: neg(Tensor input) -> Tensor
extern "C" int neg(const DLTensor*, DLTensor* out, cgins_stream) {
  float threads = 0;
#pragma omp parallel reduction(+ : threads)
  threads += 1;
  cgins::data<float>(out)[0] = threads;
  return 0;
}
"""


@pytest.mark.parametrize("count", [1, 2])
def test_openmp_uses_as_many_threads_as_torch(bind: Any, count: int) -> None:
    """Kernel and torch are timed with the same number of threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        (out,) = bind(THREADS, "torch.neg", torch.ones(1)).run()
    finally:
        torch.set_num_threads(before)
    assert out.item() == count


def test_scratch_is_poisoned_and_guarded(project: Any, bind: Any) -> None:
    """Scratch memory reads as NaN before a kernel writes it, and a write behind it is noticed."""
    text = """\
// cgins: scale(Tensor input, float other) -> Tensor
#include <cgins.h>
extern "C" int64_t scale_workspace(const DLTensor*, double, DLTensor*) { return 4; }
extern "C" int scale(const DLTensor* input, double other, DLTensor* out, void* workspace, int64_t, cgins_stream) {
  float* scratch = (float*)workspace;
  for (int64_t i = 0; i < cgins::numel(input); ++i) cgins::data<float>(out)[i] = scratch[0];
  if (other > 2) scratch[1] = 0;
  return 0;
}
"""
    kernel = project.launcher(text)
    for factor, says in ((2.0, ""), (3.0, "behind the workspace")):
        bound = bind(kernel, "torch.mul", torch.ones(5), factor)
        (out,) = bound.run()
        assert out.isnan().all()
        assert says in bound.overrun()
        assert bool(bound.overrun()) == bool(says)
