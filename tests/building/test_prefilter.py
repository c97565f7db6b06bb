"""The pre-filter: device-code errors are told with their lines, and what nvcc accepts is never refused."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_cgins.building.builders.device_code import device_code
from pytest_cgins.building.builders.prefilter import check

EXAMPLES = sorted((Path(__file__).parents[2] / "example_project/kernels").glob("*.cu"))
LAUNCHER = """\
// cgins: scale(Tensor x, float a) -> Tensor
#include <cgins.h>
#include <vector>
#include <string>
#include <cmath>

constexpr int kThreads = 256;
static std::vector<std::string> names() { return {"a{", "b}"}; }

__device__ float scaled(float x, float a) {
  return x * a;
}

struct Rows {
  int64_t width;
  __device__ int64_t start(int64_t row) const { return row * width; }
};

__global__ void plain(const float* x, float* y, int n, float a) {
  __shared__ float shared[kThreads];
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  shared[threadIdx.x] = i < n ? x[i] : 0;
  __syncthreads();
  if (i < n) y[i] = scaled(shared[threadIdx.x], a);
}

template <typename T>
__global__ void scale(const T* x, T* y, Rows rows, double a) {
  const int64_t i = rows.start(blockIdx.x) + threadIdx.x;
  if (i < rows.width) y[i] = T(float(x[i]) * a);
}

extern "C" int scale(const DLTensor* x, double a, DLTensor* out, cgins_stream stream) {
  CGINS_CHECK(cgins::is_contiguous(x), "x is not contiguous: %s", names()[0].c_str());
  const int64_t n = cgins::numel(x);
  return cgins::dispatch_floating(x, [&](auto zero) {
    using T = decltype(zero);
    scale<<<(n + kThreads - 1) / kThreads, kThreads, 0, stream>>>(cgins::data<T>(x), cgins::data<T>(out), Rows{n}, a);
    CGINS_LAUNCH_CHECK();
    return 0;
  });
}
"""
EXTENSION = """\
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
#include <vector>
#define CHECK_CUDA(x) TORCH_CHECK(x.device().is_cuda(), #x " must be a CUDA tensor")

template <typename scalar_t>
__global__ void relu_kernel(const scalar_t* __restrict__ x, scalar_t* __restrict__ y, size_t n) {
  const auto i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i] > scalar_t(0) ? x[i] : scalar_t(0);
}

__global__ void float_kernel(const float* x, float* y, int n) {
  int i = threadIdx.x;
  float v = __ldg(x + i);
  if (i < n) y[i] = fmaxf(v, 0.f);
}

torch::Tensor relu(torch::Tensor x);
torch::Tensor relu(torch::Tensor x) {
  CHECK_CUDA(x);
  auto y = torch::empty_like(x);
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "relu", [&] {
    relu_kernel<scalar_t><<<1, 256, 0, at::cuda::getCurrentCUDAStream()>>>(x.data_ptr<scalar_t>(), y.data_ptr<scalar_t>(), x.numel());
  });
  return y;
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("relu", &relu); }
"""


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.stem)
def test_example_kernels_are_not_refused(file: Path) -> None:
    """What nvcc builds is never refused."""
    result = check(file.read_text(encoding="utf-8"), file, "sm_90a")
    assert result.verdict != "refused", result.findings


def test_most_example_kernels_are_judged() -> None:
    """Host code, host headers and launches do not make everything unknown."""
    verdicts = [check(file.read_text(encoding="utf-8"), file, "sm_90a").verdict for file in EXAMPLES[::4]]
    assert verdicts.count("accepted") >= len(verdicts) - 1


@pytest.mark.parametrize("text", [LAUNCHER, EXTENSION], ids=["launcher", "extension"])
def test_host_code_does_not_matter(tmp_path: Path, text: str) -> None:
    """A launcher with std:: and a torch extension with its macros are accepted without any of their headers."""
    result = check(text, tmp_path / "k.cu", "sm_90a")
    assert (result.verdict, result.why) == ("accepted", "")


PLANTED = [
    (LAUNCHER, "return x * a;", "return x * factor;", 'identifier "factor" is undefined'),
    (LAUNCHER, "return x * a;", "return x * a", 'expected a ";"'),
    (LAUNCHER, "scaled(shared[threadIdx.x], a)", "scaled(shared[threadIdx.x])", "too few arguments"),
    (LAUNCHER, "scaled(shared[threadIdx.x], a)", "scaled(shared, a)", "incompatible with parameter of type"),
    (LAUNCHER, "if (i < n) y[i]", "if (i < n) y.i", "must have class type"),
    (LAUNCHER, "if (i < n) y[i]", "if (i < m) y[i]", 'identifier "m" is undefined'),
    (LAUNCHER, "const int i = blockIdx.x", "const int n = blockIdx.x", "has already been declared"),
    (LAUNCHER, "__syncthreads();", "__syncthread();", 'identifier "__syncthread" is undefined'),
    (LAUNCHER, "__shared__ float shared[kThreads];", "__shared__ float shared[n];", "constant"),
    (LAUNCHER, "rows.start(blockIdx.x)", "rows.begin(blockIdx.x)", 'has no member "begin"'),
    (LAUNCHER, "y[i] = T(float(x[i]) * a);", "y[i] = T(float(x[i]) * a;", 'expected a ")"'),
    (LAUNCHER, "y[i] = scaled", "x[i] = scaled", "must be a modifiable lvalue"),
    (EXTENSION, "float v = __ldg(x + i);", "float v = x + i;", "cannot be used to initialize"),
    (EXTENSION, "fmaxf(v, 0.f)", "fmaxf(w, 0.f)", 'identifier "w" is undefined'),
    (EXTENSION, "fmaxf(v, 0.f);", "fmaxf(v, 0.f)", 'expected a ";"'),
]


@pytest.mark.parametrize(("text", "old", "new", "message"), PLANTED)
def test_planted_errors(tmp_path: Path, text: str, old: str, new: str, message: str) -> None:
    """A mistake in a device function is refused at its line, or said to be unknown; never accepted."""
    assert old in text
    line = text.count("\n", 0, text.index(old)) + 1
    file = tmp_path / "k.cu"
    result = check(text.replace(old, new, 1), file, "sm_90a")
    assert result.verdict in ("refused", "unknown")
    if result.verdict == "refused":
        assert result.findings[0].file == str(file)
        assert line <= result.findings[0].line <= line + 1
        assert message in result.findings[0].message


def test_most_planted_errors_are_refused(tmp_path: Path) -> None:
    """Of the planted errors at most two in fifteen stay unknown."""
    verdicts = [
        check(text.replace(old, new, 1), tmp_path / "k.cu", "sm_90a").verdict for text, old, new, _ in PLANTED
    ]
    assert verdicts.count("refused") >= len(PLANTED) - 2


@pytest.mark.parametrize(
    ("text", "old", "new"),
    [
        (LAUNCHER, "return x * a;", "return x * FLT_FACTOR_OF_A_HEADER;"),
        (LAUNCHER, "return x * a;", "uint n = 3; return x * n;"),
        (LAUNCHER, "#include <vector>", "#include <vector>\n#include <my/own.h>\n"),
        (EXTENSION, "return x * a;", ""),
        (EXTENSION, "fmaxf(v, 0.f)", "fmaxf(v, at::opmath_type<float>(0))"),
        (EXTENSION, "fmaxf(v, 0.f)", "C10_MAX(v, 0.f)"),
        (EXTENSION, "fmaxf(v, 0.f)", "c10::cuda::compat::max(v, 0.f)"),
        (EXTENSION, "float v =", "at::Half h; float v ="),
    ],
)
def test_what_a_missing_header_could_define_is_unknown(tmp_path: Path, text: str, old: str, new: str) -> None:
    """Names that headers which were not read could define are no errors; all else still compiles."""
    changed = text.replace(old, new, 1)
    if "my/own.h" in new:
        changed = changed.replace("return x * a;", "return x * own_factor;")
    result = check(changed, tmp_path / "k.cu", "sm_90a")
    assert result.verdict == ("unknown" if changed != text else "accepted")


def test_errors_in_a_header_of_the_user(tmp_path: Path) -> None:
    """An error in a header is told with the header's file and line; its host code does not matter."""
    header = tmp_path / "inner/rows.cuh"
    header.parent.mkdir()
    header.write_text(
        "#pragma once\n#include <string>\ninline std::string name(int i) {\n  return std::to_string(i);\n}\n"
        "__device__ int twice(int i) {\n  return 2 * j;\n}\n"
    )
    text = '#include "inner/rows.cuh"\n__global__ void k(int* y) { *y = twice(*y); }\n'
    result = check(text, tmp_path / "k.cu", "sm_80")
    assert result.verdict == "refused"
    assert (result.findings[0].file, result.findings[0].line) == (str(header), 7)
    header.write_text(header.read_text().replace("2 * j", "2 * i"))
    assert check(text, tmp_path / "k.cu", "sm_80").verdict == "accepted"


def test_flags_of_the_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Macros and folders of the flags count; flags that could define more in other ways make it unknown."""
    (tmp_path / "include").mkdir()
    (tmp_path / "include/factor.cuh").write_text("constexpr int kFactor = FACTOR;\n")
    text = "#include <factor.cuh>\n__global__ void k(int* y) { *y *= kFactor; }\n"
    flags = [f"-I{tmp_path}/include", "-DFACTOR=3", "-std=c++20", "--expt-relaxed-constexpr"]
    assert check(text, tmp_path / "k.cu", "sm_80", flags=flags).verdict == "accepted"
    assert check(text, tmp_path / "k.cu", "sm_80", flags=[*flags, "-include", "x.h"]).verdict == "unknown"
    monkeypatch.setenv("NVCC_APPEND_FLAGS", "-O1 -DOTHER=1")
    assert check(text, tmp_path / "k.cu", "sm_80", flags=flags).why == "-DOTHER=1 may define what is missing"


def test_blanking_keeps_lines_and_device_code() -> None:
    """Host functions go, with their lines; device functions, classes, constants and directives stay."""
    code = device_code(LAUNCHER)
    assert code.text.count("\n") == LAUNCHER.count("\n")
    assert "names()" not in code.text
    assert "<<<" not in code.text
    assert "extern" not in code.text
    for kept in ("constexpr int kThreads = 256;", "return x * a;", "struct Rows {", "__global__ void plain("):
        assert kept in code.text
    assert code.removed == {"names", "scale"}
    assert 11 in code.lines
    assert 33 not in code.lines


def test_host_code_with_every_bracket() -> None:
    """Brackets in strings, comments, raw strings and characters do not confuse the scan."""
    text = """\
namespace inner { namespace {
int host(int a = 3) { const char* s = "}{"; char c = '{'; /* } */ // }
  const char* r = R"x(}}})x"; return a; }
__device__ int device(int a) { return '}' + a; }
int table[] = {1, 2, 3};
auto lambda = [](int i) { return i; };
} }
void last() {}
"""
    code = device_code(text)
    assert re.sub(r"\s+", " ", code.text) == (
        "namespace inner { namespace { __device__ int device(int a) { return '}' + a; } int table[] = {1, 2, 3}; "
        "auto lambda = [](int i) { return i; }; } } "
    )
    assert code.removed == {"host", "last"}


@settings(max_examples=200)
@given(st.text(alphabet="{}()<>;=\"'/*#\\\n abR_1,", max_size=80))
def test_any_text_keeps_its_lines(text: str) -> None:
    """Whatever the text, lines and columns stay, and nothing is added."""
    code = device_code(text)
    assert len(code.text) == len(text)
    assert all(a in (b, " ") for a, b in zip(code.text, text, strict=True))
    assert [i for i, c in enumerate(text) if c == "\n"] == [i for i, c in enumerate(code.text) if c == "\n"]
