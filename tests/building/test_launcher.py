"""Launchers through ctypes: what arrives in C, what comes back, and how misuse is refused."""

from __future__ import annotations

import ctypes
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch

from pytest_cgins.building.loading.callable import load
from pytest_cgins.building.loading.launcher import older_remedy
from pytest_cgins.core.errors import ContractError, LaunchError, SourceError

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


def run(compiled: Any, bound: tuple[Any, list[torch.Tensor]], outputs: list[Any]) -> list[torch.Tensor]:
    call, tensors = bound
    return load(compiled).bind(call, tensors, outputs, "cpu").run()


def test_runs_on_strided_tensors(project: Any, op_call: Any, metas_of: Any) -> None:
    """Inputs arrive with their strides, outputs are allocated with those that torch would give."""
    x = torch.arange(24, dtype=torch.float32).reshape(2, 3, 4).transpose(0, 2)
    want = torch.add(x, 2.5)
    (out,) = run(project.launcher(ECHO, op="torch.add"), op_call("torch.add", x, 2.5), metas_of([want]))
    assert out.stride() == want.stride() == (1, 4, 12)
    assert torch.equal(out, want)


@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (1,)])
def test_runs_on_empty_and_zero_dimensional_tensors(
    project: Any, op_call: Any, metas_of: Any, shape: tuple[int, ...]
) -> None:
    """Tensors without dimensions or without elements are passed like any other."""
    x = torch.ones(shape)
    want = torch.add(x, 1)
    (out,) = run(project.launcher(ECHO, op="torch.add"), op_call("torch.add", x, 1), metas_of([want]))
    assert torch.equal(out, want)


def test_offset_of_a_view(project: Any, op_call: Any, metas_of: Any) -> None:
    """The data pointer of a view is that of its own first element."""
    x = torch.arange(10.0)[3:7]
    (out,) = run(project.launcher(ECHO, op="torch.add"), op_call("torch.add", x, 0), metas_of([x]))
    assert out.tolist() == [3, 4, 5, 6]


def test_unwritten_elements_are_poison(project: Any, op_call: Any, metas_of: Any) -> None:
    """What a kernel does not write is NaN, and `poison` makes it so again."""
    text = ECHO.replace("i < cgins::numel(input)", "i + 1 < cgins::numel(input)")
    call, tensors = op_call("torch.add", torch.ones(3), 1)
    bound = load(project.launcher(text, op="torch.add")).bind(call, tensors, metas_of(tensors), "cpu")
    (out,) = bound.run()
    assert out[:2].tolist() == [2, 2]
    assert out[2].isnan()
    bound.poison()
    assert out.isnan().all()


def test_error_code_and_message(project: Any, op_call: Any, metas_of: Any) -> None:
    """A failed CGINS_CHECK ends the launch with the kernel's own message."""
    x = torch.ones(2, dtype=torch.float64)
    with pytest.raises(LaunchError, match="it/cpp: add returned 1: float32 only"):
        run(project.launcher(ECHO, op="torch.add"), op_call("torch.add", x, 1), metas_of([x]))


def test_error_code_without_message(project: Any, op_call: Any, metas_of: Any) -> None:
    """A bare error code is reported, with advice on saying more: not with what an earlier call failed of."""
    launcher = project.launcher(ECHO.replace("return 0;", "return 7;"), op="torch.add")
    wide, x = torch.ones(2, dtype=torch.float64), torch.ones(2)
    with pytest.raises(LaunchError, match="float32 only"):
        run(launcher, op_call("torch.add", wide, 1), metas_of([wide]))
    with pytest.raises(LaunchError) as caught:
        run(launcher, op_call("torch.add", x, 1), metas_of([x]))
    assert caught.value.what == "it/cpp: add returned 7, without a message"
    assert "cgins_fail" in caught.value.remedy


KINDS = """\
// cgins: kinds(Tensor x, int n, int? m, int[] list, int[]? maybe, float? f, float[] g, bool b, bool? c, str s, str? t, ScalarType d, ScalarType? e, Scalar? z, Tensor[] many, Tensor?[] holes, Generator? generator) -> Tensor
#include <cstring>
extern "C" int kinds(const DLTensor* x, int64_t n, const int64_t* m, const int64_t* list, int64_t list_len,
                     const int64_t* maybe, int64_t maybe_len, const double* f, const double* g, int64_t g_len,
                     bool b, const bool* c, const char* s, int64_t s_len, const char* t, int64_t t_len,
                     const DLDataType* d, const DLDataType* e, const cgins_scalar* z, const DLTensor* const* many,
                     int64_t many_len, const DLTensor* const* holes, int64_t holes_len, uint64_t generator,
                     DLTensor* out, cgins_stream) {
  double values[] = {
      double(n), m ? double(*m) : -1, double(list_len), list_len ? double(list[list_len - 1]) : -1,
      maybe ? double(maybe_len) : -1, f ? *f : -1, g_len ? g[0] : -1, double(b), c ? double(*c) : -1,
      double(s_len), double(std::strlen(s)), t ? double(t_len) : -1, double(cgins::dtype_of(*d)),
      e ? double(cgins::dtype_of(*e)) : -1, z ? z->real + z->imaginary * 100 + z->kind * 1000 : -1,
      double(many_len), double(many[1]->shape[0]), double(holes_len), holes[0] ? 1.0 : 0.0, double(generator)};
  for (int64_t i = 0; i < cgins::numel(out); ++i) cgins::data<double>(out)[i] = values[i];
  return x->ndim == 2 ? 0 : cgins_fail("x");
}
"""


def test_every_kind_of_argument(project: Any) -> None:
    """Each schema type arrives in C as the contract says, with None as null and text as UTF-8."""
    from pytest_cgins.core.model import Argument, OpCall, TensorMeta
    from pytest_cgins.packs.values import encode

    torch.manual_seed(77)
    values = {
        "x": torch.ones(1, 1), "n": 5, "m": None, "list": torch.Size([2, 3]), "maybe": None, "f": 1,
        "g": [0.25], "b": True, "c": False, "s": "é!", "t": None, "d": torch.bfloat16, "e": None,
        "z": complex(1, 2), "many": [torch.ones(1), torch.ones(9)], "holes": [None, torch.ones(1)],
        "generator": None,
    }  # fmt: skip
    tensors: list[torch.Tensor] = []
    arguments = tuple(
        Argument(name=name, value=encode(value, tensors), passed="keyword") for name, value in values.items()
    )
    meta = TensorMeta(dtype="float64", shape=(20,), stride=(1,), offset=0, storage=0)
    (out,) = run(project.launcher(KINDS), (OpCall(op="torch.mul", arguments=arguments), tensors), [meta])
    assert out.tolist() == [5, -1, 2, 3, -1, 1, 0.25, 1, 0, 3, 3, -1, 11, -1, 3201, 2, 9, 2, 0, 77]


def test_one_number_for_a_list(project: Any, op_call: Any, metas_of: Any) -> None:
    """Where the op takes a number or a list of them, the kernel always gets a list."""
    text = """\
// cgins: pool(Tensor input, int[] output_size) -> Tensor
extern "C" int pool(const DLTensor*, const int64_t* output_size, int64_t output_size_len, DLTensor* out,
                    cgins_stream) {
  cgins::data<float>(out)[0] = 10 * output_size_len + output_size[0];
  return 0;
}
"""
    x = torch.ones(1, 4, 4)
    op = "torch.nn.functional.adaptive_avg_pool2d"
    (out,) = run(project.launcher(text, op=op), op_call(op, x, 1), metas_of([torch.ones(1, 1, 1)]))
    assert out.item() == 11


def test_workspace(project: Any, op_call: Any, metas_of: Any) -> None:
    """The scratch memory has the size that the source's own function computes from the tensors."""
    text = """\
// cgins: neg(Tensor input) -> Tensor
extern "C" int64_t neg_workspace(const DLTensor* input, DLTensor*) { return 3 * cgins::numel(input); }
extern "C" int neg(const DLTensor*, DLTensor* out, void* workspace, int64_t workspace_nbytes, cgins_stream) {
  for (int64_t i = 0; i < workspace_nbytes; ++i) static_cast<char*>(workspace)[i] = 1;
  cgins::data<float>(out)[0] = float(workspace_nbytes);
  return 0;
}
"""
    x = torch.ones(7)
    (out,) = run(project.launcher(text, op="torch.neg"), op_call("torch.neg", x), metas_of([x]))
    assert out[0] == 21


def test_hidden_symbols(project: Any, op_call: Any, metas_of: Any) -> None:
    """With `-fvisibility=hidden` the launcher and its `_workspace` are found all the same."""
    text = """\
// cgins: neg(Tensor input) -> Tensor
extern "C" int64_t neg_workspace(const DLTensor* input, DLTensor*) { return 3 * cgins::numel(input); }
extern "C" int neg(const DLTensor*, DLTensor* out, void*, int64_t workspace_nbytes, cgins_stream) {
  for (int64_t i = 0; i < 7; ++i) cgins::data<float>(out)[i] = float(workspace_nbytes);
  return 0;
}
"""
    project.write("kernel.cpp", text)
    compiled = project.build("{op: torch.neg, source: kernel.cpp, flags: [-fvisibility=hidden, -flto]}")
    x = torch.ones(7)
    (out,) = run(compiled, op_call("torch.neg", x), metas_of([x]))
    assert out.tolist() == [21] * 7


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


def test_negative_workspace(project: Any, op_call: Any, metas_of: Any) -> None:
    """A size function reports an error by a negative number."""
    text = """\
// cgins: neg(Tensor input) -> Tensor
extern "C" int64_t neg_workspace(const DLTensor*, DLTensor*) { return -1; }
extern "C" int neg(const DLTensor*, DLTensor*, void*, int64_t, cgins_stream) { return 0; }
"""
    x = torch.ones(7)
    with pytest.raises(LaunchError, match="neg_workspace returned -1"):
        run(project.launcher(text, op="torch.neg"), op_call("torch.neg", x), metas_of([x]))


def test_mutated_argument_is_the_result(project: Any, op_call: Any, metas_of: Any) -> None:
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
    call, tensors = op_call("torch.relu_", x)
    renamed = text.replace("self", call.arguments[0].name)
    (out,) = run(project.launcher(renamed, op="torch.relu_"), (call, tensors), metas_of([x]))
    assert out is x
    assert x.tolist() == [0, 2]


def test_several_outputs_and_lists(project: Any, op_call: Any, metas_of: Any) -> None:
    """Outputs are passed in the op's order; a list output takes as many as the op returns."""
    text = """\
// cgins: split(Tensor tensor, int split_size_or_sections, int dim=0) -> Tensor[]
extern "C" int split(const DLTensor*, int64_t, int64_t, DLTensor* const* out, int64_t out_len, cgins_stream) {
  for (int64_t i = 0; i < out_len; ++i) cgins::data<float>(out[i])[0] = float(out_len * 10 + i);
  return 0;
}
"""
    x = torch.ones(3)
    outputs = metas_of(list(torch.split(x, 1)))
    got = run(project.launcher(text, op="torch.split"), op_call("torch.split", x, 1), outputs)
    assert [out.item() for out in got] == [30, 31, 32]


def test_wrong_number_of_outputs(project: Any, op_call: Any, metas_of: Any, scale_text: str) -> None:
    """A schema line that declares other outputs than the op has is the source's fault."""
    x = torch.ones(2)
    with pytest.raises(SourceError, match="declares 1 output, the op returns 2"):
        run(project.launcher(scale_text), op_call("torch.mul", x, 2.0), metas_of([x, x]))


def test_unknown_argument_names_the_nearest(
    project: Any, op_call: Any, metas_of: Any, scale_text: str
) -> None:
    """An argument name that the op does not have is refused with the one that it has."""
    text = scale_text.replace("Tensor input", "Tensor inptu")
    x = torch.ones(2)
    with pytest.raises(SourceError) as caught:
        run(project.launcher(text), op_call("torch.mul", x, 2.0), metas_of([x]))
    assert caught.value.remedy == 'did you mean "input"?'


@pytest.mark.parametrize("approximate", [None, "none"])
def test_undeclared_parameter_at_its_default(
    project: Any, op_call: Any, metas_of: Any, approximate: str | None
) -> None:
    """A kernel may leave out a parameter, as long as the call leaves or sets it to the op's default."""
    options = {} if approximate is None else {"approximate": approximate}
    x = torch.ones(2)
    op = "torch.nn.functional.gelu"
    (out,) = run(project.launcher(NEGATE, op=op), op_call(op, x, **options), metas_of([x]))
    assert out.tolist() == [-1, -1]


def test_undeclared_parameter_with_another_value(project: Any, op_call: Any, metas_of: Any) -> None:
    """A call that sets a parameter which the kernel does not take is outside its contract."""
    x = torch.ones(2)
    op = "torch.nn.functional.gelu"
    with pytest.raises(ContractError) as caught:
        run(project.launcher(NEGATE, op=op), op_call(op, x, approximate="tanh"), metas_of([x]))
    assert "contract not met: the kernel does not take 'approximate'" in caught.value.what
    assert "passes 'tanh', not its default 'none'" in caught.value.what


def test_tensor_where_a_number_is_declared(
    project: Any, op_call: Any, metas_of: Any, scale_text: str
) -> None:
    """A call whose argument is of another type than declared is outside the kernel's contract."""
    x = torch.ones(2)
    with pytest.raises(ContractError, match="argument 'other' is declared as float, the call passes Tensor"):
        run(project.launcher(scale_text), op_call("torch.mul", x, x), metas_of([x]))


def test_integer_output_is_poisoned(project: Any, op_call: Any, metas_of: Any) -> None:
    """Signed integers are poisoned with the least one, other types without NaN by a byte pattern."""
    text = NEGATE.replace("cgins::numel(input)", "0")
    for dtype, poison in ((torch.int32, -(2**31)), (torch.uint8, 0xA5)):
        x = torch.ones(2, dtype=dtype)
        (out,) = run(
            project.launcher(text, op="torch.nn.functional.gelu"),
            op_call("torch.nn.functional.gelu", x),
            metas_of([x]),
        )
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
def test_openmp_uses_as_many_threads_as_torch(project: Any, op_call: Any, metas_of: Any, count: int) -> None:
    """Kernel and torch are timed with the same number of threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        x = torch.ones(1)
        (out,) = run(project.launcher(THREADS, op="torch.neg"), op_call("torch.neg", x), metas_of([x]))
    finally:
        torch.set_num_threads(before)
    assert out.item() == count


NEGATE = """\
// cgins: negate(Tensor input) -> Tensor
extern "C" int negate(const DLTensor* input, DLTensor* out, cgins_stream) {
  for (int64_t i = 0; i < cgins::numel(input); ++i)
    cgins::data<float>(out)[i] = -cgins::data<float>(input)[i];
  return 0;
}
"""


def test_scratch_is_poisoned_and_guarded(project: Any, op_call: Any, metas_of: Any) -> None:
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
    kernel = load(project.launcher(text))
    for factor, says in ((2.0, ""), (3.0, "behind the workspace")):
        x = torch.ones(5)
        call, tensors = op_call("torch.mul", x, factor)
        bound = kernel.bind(call, tensors, metas_of([x]), "cpu")
        (out,) = bound.run()
        assert out.isnan().all()
        assert says in bound.overrun()
        assert bool(bound.overrun()) == bool(says)
