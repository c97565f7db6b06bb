"""Libraries as they were built: what they take of others, and how they leave their own code."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from pytest_cgins.verify.probes import libraries

HONEST = {
    "nothing": 'extern "C" int f(int x) { return x + 1; }',
    "C, C++ and its streams": "#include <cmath>\n#include <cstdio>\n#include <cstring>\n#include <iostream>\n#include <vector>\n"
    'extern "C" int f(char* p) { std::memset(p, 0, 8); char t[9]; std::snprintf(t, 9, "%f", std::exp(p[0])); std::cerr << t;\n'
    "std::vector<float> v(p[0]); return int(v.size()); }",
    "OpenMP": '#include <omp.h>\nextern "C" int f(int* p) {\n#pragma omp parallel for\nfor (int i = 0; i < 9; ++i) p[i] = omp_get_thread_num();\nreturn 0; }',
    "threads": '#include <thread>\nextern "C" int f() { std::thread([] {}).join(); return 0; }',
    "a table made at load": '#include <vector>\n#include <cmath>\nstatic const std::vector<float> t(9, std::exp(2.f));\nextern "C" float f(int i) { return t[i]; }',
    "clones for processors": '__attribute__((target_clones("avx2", "default"))) extern "C" int f(float* p) { for (int i = 0; i < 99; ++i) p[i] *= 2; return 0; }',
    "a barrier of C++20": '#include <barrier>\n#include <thread>\nextern "C" int f() { std::barrier b(2); std::jthread t([&] { b.arrive_and_wait(); }); b.arrive_and_wait(); return 0; }',
    "the bytes across a number's end": 'extern "C" void f() { asm volatile("lea 0x12340000(%%rip), %%rsi; .balign 2; lea 0x0000050f(%%rip), %%rdi; lea 0x0000340f(%%rax), %%rdi" ::: "rsi", "rdi"); }',
    "the bytes in numbers": 'extern "C" unsigned f(unsigned x) { return x * 0x12050f34u + 0x0080cd00u; }',
}


def _built(folder: Path, text: str, *flags: str) -> Path:
    source, library = folder / "f.cpp", folder / "f.so"
    source.write_text(text)
    subprocess.run(
        ["g++", "-O2", "-std=c++20", "-fopenmp", "-shared", "-fPIC", source, *flags, "-o", library],
        check=True,
    )
    return library


@pytest.mark.exam
@pytest.mark.parametrize("text", HONEST.values(), ids=list(HONEST))
def test_honest(tmp_path: Path, text: str) -> None:
    """What kernels are made of, also where it runs as it is loaded or the bytes of a system call are in a number."""
    assert libraries.look_into(_built(tmp_path, text), "launcher", "cpu") == ([], [])


@pytest.mark.exam
@pytest.mark.parametrize("text", HONEST.values(), ids=list(HONEST))
def test_the_run_time_of_cxx_within(tmp_path: Path, text: str) -> None:
    """Where the compiler links it in, its exceptions name the operators of transactions (_ZGTtnam), which nobody gives."""
    thrown = '#include <stdexcept>\nextern "C" void thrown(int i) { if (i) throw std::runtime_error("i"); }\n'
    library = _built(tmp_path, thrown + text, "-static-libstdc++")
    assert libraries.look_into(library, "launcher", "cpu") == ([], [])
    assert libraries.look_into(library, "torch-extension", "cuda") == ([], [])


CUDA = """
#include <cuda_runtime.h>
__global__ void twice(float* x) { x[threadIdx.x] *= 2; }
extern "C" int f(float* x, cudaStream_t stream) { twice<<<1, 32, 0, stream>>>(x); return cudaGetLastError(); }
"""


@pytest.mark.exam
@pytest.mark.skipif(not shutil.which("nvcc"), reason="no nvcc")
def test_the_run_time_of_cuda_is_nobody_s_way_around(tmp_path: Path) -> None:
    """It is linked into each launcher, and reads of /proc what it needs; a launcher for a CPU has no such excuse."""
    (tmp_path / "f.cu").write_text(CUDA)
    library = tmp_path / "f.so"
    command = ["nvcc", "-shared", "-Xcompiler", "-fPIC", "-arch", "sm_90", tmp_path / "f.cu", "-o", library]
    subprocess.run(command, check=True)
    assert libraries.look_into(library, "launcher", "cuda") == ([], [])
    assert "names /proc/self/maps" in libraries.look_into(library, "launcher", "cpu")[1]


def test_a_later_toolkit_s_run_time_may_read_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """13.5 began to name smaps: what the archive beside nvcc names is its own doing, and nothing else is."""
    home = tmp_path / "cuda"
    for name, content in (
        ("bin/nvcc", b"#!/bin/sh\n"),
        ("lib/libcudart_static.a", b"\0/proc/self/numa_maps\0"),
    ):
        (home / name).parent.mkdir(parents=True)
        (home / name).write_bytes(content)
        (home / name).chmod(0o755)
    names = 'extern "C" const char* f() { return "/proc/self/%s"; }'
    later, other = (_built(tmp_path, names % name).rename(tmp_path / name) for name in ("numa_maps", "mem"))
    assert libraries.look_into(later, "launcher", "cuda")[1] == ["names /proc/self/numa_maps"]
    monkeypatch.setenv("CUDA_HOME", str(home))
    assert libraries.look_into(later, "launcher", "cuda")[1] == []
    assert libraries.look_into(other, "launcher", "cuda")[1] == ["names /proc/self/mem"]


TAKES = {
    "cblas": ('extern "C" void cblas_sgemm(); extern "C" void f() { cblas_sgemm(); }', "cblas_sgemm"),
    "Fortran's": ('extern "C" void sgemm_(); auto f = &sgemm_;', "sgemm_"),
    "weakly": ('extern "C" __attribute__((weak)) void dnnl_sgemm(); extern "C" void f() { if (dnnl_sgemm) dnnl_sgemm(); }', "dnnl_sgemm"),
    "torch's shim": ('extern "C" int aoti_torch_cpu_mm_out(); extern "C" int f() { return aoti_torch_cpu_mm_out(); }', "aoti_torch_cpu_mm_out"),
    "by an assembler's name": ('extern "C" int g() asm("cublasSgemm_v2"); extern "C" int f() { return g(); }', "cublasSgemm_v2"),
    "a name to look for": ('extern "C" const char* f() { return "aoti_torch_cpu_mm_out"; }', "aoti_torch_cpu_mm_out"),
}  # fmt: skip


@pytest.mark.parametrize(("text", "name"), TAKES.values(), ids=list(TAKES))
def test_what_others_compute_is_told(tmp_path: Path, text: str, name: str) -> None:
    """However the source spells it."""
    taken, _ = libraries.look_into(_built(tmp_path, text), "launcher", "cpu")
    assert taken == [name]
    assert f"its library takes {name};" in libraries.judge(taken)


BYWAYS = {
    "dlsym": ('#include <dlfcn.h>\nextern "C" void* f() { return dlsym(nullptr, "x"); }', "takes dlsym"),
    "pasted": ('#include <unistd.h>\n#define J(a, b) a##b\nextern "C" int f() { return J(fo, rk)(); }', "takes fork"),
    "the loader's list": ('#include <link.h>\nextern "C" void* f() { return &_r_debug; }', "takes _r_debug"),
    "the loader's own": ('extern "C" char _rtld_global; extern "C" void* f() { return &_rtld_global; }', "takes _rtld_global"),
    "a system call": ('extern "C" long f(long n) { asm volatile("syscall" : "+a"(n) : : "rcx", "r11"); return n; }', "has system calls of its own in its code"),
    "in bytes": ('extern "C" void f() { asm volatile(".byte 0x0f, 0x05"); }', "has system calls of its own in its code"),
    "of 32 bits": ('extern "C" void f() { asm volatile("int $0x80"); }', "has system calls of its own in its code"),
    "the process's memory": ('extern "C" const char* f() { return "/proc/self/maps"; }', "names /proc/self/maps"),
    "Python": ('extern "C" const char* f() { return "PyRun_SimpleString"; }', "names PyRun_SimpleString"),
}  # fmt: skip


@pytest.mark.parametrize(("text", "act"), BYWAYS.values(), ids=list(BYWAYS))
def test_byways_are_seen(tmp_path: Path, text: str, act: str) -> None:
    """Names that macros paste together, and instructions, are what they are once built."""
    _, acts = libraries.look_into(_built(tmp_path, text), "launcher", "cpu")
    assert acts == [act]


@pytest.mark.parametrize(
    ("symbol", "expected"),
    [
        ("_ZN2at3cpu8_softmaxERKNS_6TensorElb", True),
        ("_ZN2at6native14layer_norm_cpuERKNS_6TensorE", True),
        ("_ZN2at4cuda2mmERKNS_6TensorES3_", True),
        ("_ZN2at3cpu5emptyEN3c108ArrayRefIlEE", False),
        ("_ZN2at4cuda20getCurrentCUDAStreamEa", False),
        ("_ZN2at4_ops5empty4callE", False),  # the dispatcher's: seen as it runs
        ("aoti_torch_empty_strided", False),
    ],
)
def test_extensions_may_allocate(symbol: str, expected: bool) -> None:
    """Of torch, what is below the dispatcher and computes is told."""
    assert libraries.is_below_dispatcher(symbol) == expected


def test_extensions_may_take_the_functions_of_torch_s_vectors(tmp_path: Path) -> None:
    """ATen/cpu/vec/vec.h calls Sleef, which torch exports; a launcher takes them from nowhere."""
    text = 'extern "C" int Sleef_expf8_u10(); extern "C" int f() { return Sleef_expf8_u10(); }'
    library = _built(tmp_path, text)
    assert libraries.look_into(library, "torch-extension", "cpu") == ([], [])
    assert libraries.look_into(library, "launcher", "cpu") == (["Sleef_expf8_u10"], [])


def test_a_library_that_hides_its_tables_is_told(tmp_path: Path) -> None:
    """A damaged one as well; no file makes the reader fail otherwise."""
    library = _built(tmp_path, HONEST["nothing"])
    content = library.read_bytes()
    for damaged in (
        b"",
        content[:64],
        content[:40] + b"\xff" * 8 + content[48:],
        content[:60] + b"\0\0" + content[62:],
    ):
        library.write_bytes(damaged)
        assert "cannot be read" in libraries.look_into(library, "launcher", "cpu")[1][0]
