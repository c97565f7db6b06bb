"""The static check of C++ and CUDA: each code with what it catches, and the legal code beside it."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_cgins.regenerate.static_check import check
from pytest_cgins.regenerate.static_check.tokens import read

SOFTMAX = "torch.nn.functional.softmax"


def codes(
    text: str, *, contract: str = "launcher", op: str = SOFTMAX, libraries: bool = False
) -> list[tuple[str, int]]:
    found = check(
        {"kernels/softmax.cu": text, "kernels/rows.cuh": ""},
        op=op,
        contract=contract,
        incumbent={"kernels/before.cu": "#include <cublas_v2.h>"} if libraries else {},
        headers=["kernels/checks.h", "include/shared/math.h"],
    )
    assert all(each.file == "kernels/softmax.cu" and ": " in each.message for each in found)
    return [(each.code, each.line) for each in found]


CAUGHT = {
    "system": ('void f() { system("ls"); }', "process"),
    "joined lines": ('void f() {\n  fop\\\nen("x", "r"); }', "file-access"),
    "joined lines with space": ('void f() {\n  fop\\  \nen("x", "r"); }', "file-access"),
    "macro": ('#define X system\nvoid f() { X("ls"); }', "process"),
    "address": ("auto f = &dlsym;", "process"),
    "alias": ("auto f = getenv;", "environment"),
    "prototype": ('extern "C" int execve(const char*, char**, char**);', "process"),
    "longjmp": ("void f() { longjmp(b, 1); }", "process"),
    "stream of a file": ('void f() { std::ifstream in("x"); }', "file-access"),
    "socket": ("int f() { return socket(2, 1, 0); }", "network"),
    "pthread": ("void f() { pthread_create(0, 0, g, 0); }", "threads"),
    "host function": ("void f() { cudaLaunchHostFunc(s, g, 0); }", "threads"),
    "device reset": ("void f() { cudaDeviceReset(); }", "device-state"),
    "device": ("void f() { cudaSetDevice(0); }", "device-state"),
    "limit": ("void f() { cudaDeviceSetLimit(l, 1); }", "device-state"),
    "incbin": ('asm(".inc" "bin \\"/etc/passwd\\"");', "file-access"),
    "proc": ('const char* f() { return "/proc/self/maps"; }', "file-access"),
    "constructor": ("__attribute__((constructor)) void f() {}", "static-code"),
    "constructor in brackets": ("[[gnu::constructor]] void f() {}", "static-code"),
    "section": ('__attribute__((section(".init_array"))) void* p = f;', "static-code"),
    "pragma": ("#pragma GCC plugin x", "static-code"),
    "torch header": ("#include <torch/extension.h>", "torch-in-launcher"),
    "ATen header": ("#include <ATen/ATen.h>", "torch-in-launcher"),
    "torch name": ("void f() { at::softmax(x, 1); }", "torch-in-launcher"),
    "cuBLAS header": ("#include <cublas_v2.h>", "vendor-library"),
    "Eigen": ("#include <Eigen/Dense>", "vendor-library"),
    "unistd": ("#include <unistd.h>", "process"),
    "dlfcn": ("#include <dlfcn.h>", "process"),
    "fstream": ("#include <fstream>", "file-access"),
    "thread header": ("#include <thread>", "threads"),
    "socket header": ("#include <sys/socket.h>", "process"),
    "digraph": ("%:include <fstream>", "file-access"),
    "space in include": ("  #  include  /* x */ <fstream>", "file-access"),
    "include over lines": ("#inc\\\nlude <fstream>", "file-access"),
    "absolute": ('#include "/etc/passwd"', "include"),
    "leaves the project": ('#include "../../x.h"', "include"),
    "computed include": ("#define H <fstream>\n#include H", "include"),
    "itself": ('#include "softmax.cu"', "include"),
    "by __FILE__": ("#include __FILE__", "include"),
    "include_next": ("#include_next <cmath>", "include"),
    "embed": ('const char x[] = {\n#embed "/etc/passwd"\n};', "file-access"),
    "pytest": ('bool f(const char* s) { return s == "PYTEST_CURRENT_TEST"; }', "self-recognition"),
    "worker": ("bool f() { return cgins_worker_id; }", "self-recognition"),
    "behind a raw string": ('auto s = R"(\n)"; void f() { system("x"); }', "process"),
    "raw string with a joined end": ('auto s = R"()\\\n" )"; void f() { system("x"); }', "process"),
    "behind an odd quote": ("int a = 1'000; void f() { system(0); }", "process"),
    "in a directive": ("#if 1\nvoid f() { system(0); }\n#endif", "process"),
}  # fmt: skip


@pytest.mark.parametrize(("text", "code"), CAUGHT.values(), ids=list(CAUGHT))
def test_caught(text: str, code: str) -> None:
    """What a kernel may not do is found, however it is spelled."""
    assert code in {each for each, _ in codes(text)}


LEGAL = {
    "comment": '// system("ls")\n/* fopen getenv\n#include <fstream>\n*/ int x;',
    "string": 'const char* f() { return "system fopen exit(1) #include <fstream>"; }',
    "raw string": 'const char* f() { return R"x(system(")" getenv)x"; }',
    "joined comment": "// a comment \\\nsystem(0)\nint x;",
    "member": "void f() { gate.open(1); pipe->exit(); x.system = 1; }",
    "own function": "__device__ float read(const float* p) { return *p; }\nvoid f() { read(0); }",
    "own template": "template <typename T>\n__device__ T write(T* p) noexcept { return *p; }\nvoid f() { write(p); }",
    "own lambda": "void f() { auto read = [&](int i) { return i; }; read(1); }",
    "own variable": "void f(int signal, const bool accept) { if (signal && accept) g(signal); }",
    "own struct": "struct pipe { int x; };\nvoid f() { pipe p; }",
    "own macro": "#define read(x) (x)\nvoid f() { read(1); }",
    "other namespace": "void f() { cute::copy(a, b); cutlass::arch::wait(1); thrust::system::cuda::par; }",
    "std::remove": "void f() { std::remove(a, b, 0); std::bind(g); std::accept; }",
    "headers": "#include <cgins.h>\n#include <cmath>\n#include <cuda_fp16.h>\n#include <cub/block/block_reduce.cuh>\n"
    "#include <cute/tensor.hpp>\n#include <mma.h>\n#include <omp.h>\n#include <immintrin.h>\n#include <cuda/barrier>\n"
    "#include <cooperative_groups/reduce.h>\n#include <curand_kernel.h>\n#include <cutlass/gemm/device/gemm.h>\n"
    "#include <cuda_runtime.h>\n#include <cuda_bf16.h>\n#include <algorithm>\n#include <cstdint>\n#include <stdint.h>",
    "own headers": '#include "rows.cuh"\n#include "checks.h"\n#include "../include/shared/math.h"\n#include "shared/math.h"\n'
    '#include "cuda_runtime.h"',
    "OpenMP": "void f() {\n#pragma omp parallel for\n  for (int i = 0; i < 2; ++i) g(i);\n}",
    "unroll": "void f() {\n#pragma unroll 4\n  for (;;) {}\n}\n#pragma once",
    "PTX": 'void f() { asm volatile("cp.async.wait_group 0;\\n" ::: "memory"); asm("trap;"); asm("exit;"); }',
    "inline assembly": 'int f(int x) { asm("rol %0" : "+r"(x)); return x; }',
    "streams and memory": "void f() { cudaStreamCreate(&s); cudaMallocAsync(&p, 1, s); cudaFuncSetAttribute(k, a, 1); }",
    "clock": "__device__ long f() { return clock64(); }",
    "printing": 'void f() { printf("%d", 1); fprintf(stderr, "no"); std::cerr << 1; }',
    "attributes": "__attribute__((always_inline)) inline void f() {}\n__attribute__((aligned(16))) float x[4];\n"
    "struct weak { int alias; };",
    "pasting": "#define CASE(T, name) case T: return launch_##name<T>();\nCASE(float, rows)",
    "cgins": "void f() { CGINS_CHECK(cgins::is_contiguous(x), \"no\"); cgins_fail(\"x\"); }",
    "own softmax": 'extern "C" int softmax(const DLTensor* x) { return softmax_rows(x); }',
    "static with a call": "static const int width = std::max(1, 2);",
    "digit separators": "constexpr int n = 1'000'000; const char c = '\"'; int open_ = 1;",
    "atomics": "void f() { std::atomic<int> a; std::mutex m; atomicAdd(p, 1); }",
    "schema": "// cgins: softmax(Tensor input) -> Tensor\nint x;",
}  # fmt: skip


@pytest.mark.parametrize("text", LEGAL.values(), ids=list(LEGAL))
def test_legal(text: str) -> None:
    """What kernels are made of is no finding."""
    assert codes(text) == []


def test_lines() -> None:
    """A finding has the line of the file, also behind joined lines and raw strings."""
    text = (
        'int a; \\\nint b;\nauto s = R"(\n\n)";\n/*\n*/ void f() { sys\\\ntem(0); }\nvoid g() { fork(); }\n'
    )
    assert codes(text) == [("process", 7), ("process", 9)]


def test_what_to_do_instead() -> None:
    """A finding says what was found and what to do."""
    (found,) = check({"a.cpp": "void f() { cudaDeviceReset(); }"}, op=SOFTMAX, contract="launcher")
    assert found.message.startswith("cudaDeviceReset: leave the device as it is")


def test_libraries_by_leave() -> None:
    """Headers of libraries that compute are legal where they are allowed; calls are judged in what is built."""
    assert codes("#include <cublas_v2.h>", libraries=True) == []


def test_legal_extension() -> None:
    """Allocation, views, checks, parallel loops and a registration of its own are what an extension is made of."""
    text = """#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
torch::Tensor softmax(const torch::Tensor& x, int64_t dim) {
  TORCH_CHECK(x.dim() == 2, "softmax takes two axes");
  const c10::cuda::CUDAGuard guard(x.device());
  auto in = x.contiguous().view({-1, x.size(-1)});
  auto out = torch::empty_like(in);
  auto scratch = at::zeros({2}, x.options());
  at::parallel_for(0, 2, 1, [&](int64_t a, int64_t b) {});
  rows<<<1, 2, 0, at::cuda::getCurrentCUDAStream()>>>(in.data_ptr<float>(), out.data_ptr<float>());
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return out.view_as(x);
}
TORCH_LIBRARY(mine, m) { m.def("softmax(Tensor x, int dim) -> Tensor", &softmax); }
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("softmax", &softmax); }
"""
    assert codes(text, contract="torch-extension") == []


def test_aten_is_not_overridden() -> None:
    """An extension registers nothing for torch's own operators."""
    text = "TORCH_LIBRARY_IMPL(aten, CPU, m) {}"
    assert codes(text, contract="torch-extension") == [("patches-torch", 1)]


def test_examples_of_the_contract() -> None:
    """What the contract's own document shows is legal."""
    document = (Path(__file__).parents[2] / "pytest_cgins" / "building" / "CONTRACT.md").read_text()
    examples = re.findall(r"```(?:c\+\+|cuda)\n(.*?)```", document, re.DOTALL)
    assert len(examples) > 5
    assert [codes(example) for example in examples] == [[]] * len(examples)


@pytest.mark.exam
@pytest.mark.parametrize(
    "text", ["f(", "asm ", "at::", 'R"(', '"\\\n', "\\\n", "/*", "#define a b##c\n", "#"]
)
def test_hostile_sizes(text: str) -> None:
    """Sources made to be slow to read take no long time."""
    begin = time.monotonic()
    for contract in ("launcher", "torch-extension"):
        codes(text * (120_000 // len(text)), contract=contract)
    assert time.monotonic() - begin < 20


@given(st.text(max_size=300))
@settings(max_examples=200, deadline=None)
def test_any_text(text: str) -> None:
    """Any text has tokens, with lines that are in it."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n").count("\n") + 1
    assert all(1 <= token.line <= lines for token in read(text).code)
    codes(text)


@pytest.mark.exam
@given(st.lists(st.sampled_from(["a", "system", '"', "'", "\\", "\n", "/*", "*/", "//", 'R"(', ')"', "#", "define", "##", "(", ")", " ", "asm", "::"]), max_size=40))  # fmt: skip
@settings(max_examples=300, deadline=None)
def test_any_pieces(pieces: list[str]) -> None:
    """Marks in any order are read."""
    codes("".join(pieces))
    codes("".join(pieces), contract="torch-extension")
