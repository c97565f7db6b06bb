"""Device kernels: what the compiler checks of their launch lines, what is built, and how a call is bound."""

from __future__ import annotations

import shutil
import subprocess
import sysconfig
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from pytest_cgins.building.builders import device_image
from pytest_cgins.building.builders.device_image import Function, Image
from pytest_cgins.building.loading.device_kernel import DeviceKernel
from pytest_cgins.core.case import CompiledKernel
from pytest_cgins.core.errors import BuildError, ConfigError, ContractError, LaunchError, SourceError

MUL = """\
// cgins: mul(Tensor input, float other) -> Tensor
// cgins-launch: kernel=mul<dtype(input, float32, float16)> grid=(ceil_div(numel(input), kThreads)) block=(kThreads)
//               args=(input, out, numel(input), other)
constexpr int kThreads = 128;
template <typename T>
__global__ void mul(const T* x, T* y, int64_t n, float a) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i < n) y[i] = T(float(x[i]) * a);
}
"""
KERNEL = "{op: torch.mul, contract: device, source: k.cu, archs: [sm_80]}"


def built(project: Any, text: str = MUL, kernel: str = KERNEL) -> CompiledKernel:
    project.write("k.cu", text)
    return project.build(kernel)


Launches = Callable[..., Any]


@pytest.fixture
def settings(op_call: Any, metas_of: Any) -> Launches:
    """Function that gives the launches of a call on CPU tensors: all of binding but the GPU's part."""

    def bound(compiled: CompiledKernel, *args: Any, op: str = "torch.mul", outputs: Any = None) -> Any:
        wanted = metas_of(outputs if outputs is not None else [args[0]])
        functions = device_image.unpack(Path(compiled.library))[0].functions
        kernel = DeviceKernel(compiled)
        return kernel.settings(*op_call(op, *args), wanted, "cpu", functions=functions, sm_count=132)

    return bound


def test_is_built_once(project: Any) -> None:
    """A build is machine code with its kernels' names and parameters; a second one comes from the cache."""
    compiled = built(project)
    assert not compiled.cached
    assert Path(compiled.library).name == "kernel.cubin"
    (image,) = device_image.unpack(Path(compiled.library))
    assert image.arch == "sm_80"
    assert set(image.functions) == {"mul<float>", "mul<cgins::float16>"}
    assert image.functions["mul<float>"] == Function(
        name="_Z3mulIfEvPKT_PS0_xf", parameters=(0x2834, 0x2034, 0x1018, 0x1034)
    )
    assert built(project).cached
    assert not built(project, MUL.replace("128", "256")).cached


def test_disassemblers_take_it(project: Any) -> None:
    """What is kept begins with the machine code, so that cuobjdump reads it."""
    tool = shutil.which("cuobjdump") or Path(sysconfig.get_paths()["purelib"], "nvidia/cu13/bin/cuobjdump")
    ran = subprocess.run([tool, "-sass", built(project).library], capture_output=True, text=True, check=False)
    assert "Function : _Z3mulIfEvPKT_PS0_xf" in ran.stdout, ran.stderr


def test_several_architectures(project: Any) -> None:
    """Machine code for each architecture, and PTX where it is asked for; the device takes the best."""
    compiled = built(project, kernel=KERNEL.replace("[sm_80]", "[sm_80, sm_90a, compute_80]"))
    images = device_image.unpack(Path(compiled.library))
    assert sorted(image.arch for image in images) == ["compute_80", "sm_80", "sm_90a"]
    assert device_image.choose(images, (9, 0), "k").arch == "sm_90a"
    assert device_image.choose(images, (8, 6), "k").arch == "sm_80"
    assert device_image.choose(images, (10, 0), "k").arch == "compute_80"
    with pytest.raises(
        LaunchError, match="built for sm_80, compute_80, sm_90a, which a device sm_75 cannot run"
    ):
        device_image.choose(images, (7, 5), "k")


def test_families_of_architectures() -> None:
    """`a` runs on its device alone, `f` on its family, plain code on later devices of its major version."""

    def chosen(capability: tuple[int, int], *archs: str) -> str:
        images = [Image(arch=arch, code=b"", functions={}) for arch in archs]
        return device_image.choose(images, capability, "k").arch

    assert chosen((10, 3), "sm_100", "sm_100f", "sm_100a", "compute_90") == "sm_100f"
    assert chosen((10, 0), "sm_100", "sm_100f", "sm_100a") == "sm_100a"
    assert chosen((12, 0), "sm_100f", "compute_80", "compute_100") == "compute_100"
    with pytest.raises(LaunchError):
        chosen((9, 0), "sm_100", "sm_80", "compute_80a")


@pytest.mark.exam
@pytest.mark.parametrize(
    ("old", "new", "line", "message"),
    [
        ("y[i] = ", "z[i] = ", 8, 'identifier "z" is undefined'),
        ("kernel=mul<", "kernel=nul<", 2, 'identifier "nul" is undefined'),
        ("input, out, numel(input), other", "input, out, numel(input)", 2, "args= has 3 items"),
        ("input, out, numel", "other, out, numel", 2, "argument 1 of mul<float>, other, is a float"),
        ("numel(input), other)", "input, other)", 2, "argument 3 of mul<float>, input, is a tensor"),
        ("numel(input), other)", "other, numel(input))", 2, "argument 3 of mul<float>, other, is a float"),
        ("T* y,", "const T* y,", 2, "argument 2 of mul<float>, out, is written to"),
        ("__global__ void mul", "__device__ int* mul", 2, "mul<float> is not a __global__ function"),
        ("const T* x", "T (*x)(int)", 2, "must be a pointer to an element type"),
        ("args=(input", "args=(numel(input)", 2, "is a number: its parameter must be an arithmetic type"),
        ("args=(input", "args=(view(input)", 2, "must be a cgins::tensor"),
    ],
)
def test_the_compiler_checks_the_launch_line(
    project: Any, old: str, new: str, line: int, message: str
) -> None:
    """An argument that is not what its parameter is never compiles: the error has the launch line's place."""
    assert old in MUL
    with pytest.raises(BuildError) as caught:
        built(project, MUL.replace(old, new))
    assert f"k.cu:{line}: error" in caught.value.what
    assert message in caught.value.what
    assert caught.value.what.startswith("it/device: NVRTC refused")


def test_an_intermediate_result_is_read(project: Any) -> None:
    """What one launch writes and the next reads may be const there; one kernel may be launched twice."""
    text = MUL.replace("constexpr int kT", "// cgins-launch: kernel=mul<dtype(input)> grid=1 block=32 args=(out, out, 3, 2)\n"
                       "constexpr int kT", 1)  # fmt: skip
    (image,) = device_image.unpack(Path(built(project, text).library))
    assert set(image.functions) == {"mul<float>", "mul<cgins::float16>"}


def test_headers_are_part_of_the_build(project: Any) -> None:
    """A header of the user is found beside the source and under -I, and its change is a new build."""
    project.write("inner/scale.cuh", "#define SCALED(x) (x)\n")
    project.write("outer.cuh", '#include "inner/scale.cuh"\n')
    text = MUL.replace("constexpr", '#include "outer.cuh"\n#include <given.cuh>\nconstexpr', 1).replace(
        "T(float(x[i]) * a)", "T(SCALED(float(x[i])) * GIVEN * a)"
    )
    project.write("include/given.cuh", "#define GIVEN 1\n")
    kernel = KERNEL.replace("archs", "flags: [-I, include], archs")
    assert not built(project, text, kernel).cached
    assert built(project, text, kernel).cached
    project.write("inner/scale.cuh", "#define SCALED(x) (2 * x)\n")
    assert not built(project, text, kernel).cached
    project.write("include/given.cuh", "#define GIVEN 3\n")
    assert not built(project, text, kernel).cached


def test_a_header_behind_what_looks_like_a_comment(project: Any) -> None:
    """The opening of a comment inside a string hides no include; a header that was optional is seen when it is there."""
    text = 'constexpr const char* mark = "/*";\n#include "factor.h"\n#if __has_include("more.h")\n#include "more.h"\n'
    text = MUL + text + "#endif\n/* */\n"
    project.write("factor.h", "#define FACTOR 1\n")
    assert not built(project, text).cached
    project.write("factor.h", "#define FACTOR 2\n")
    assert not built(project, text).cached
    project.write("more.h", "#define MORE 2\n")
    assert not built(project, text).cached


def test_a_missing_header_names_its_package(project: Any) -> None:
    """A header that is not there is an error with the package that brings it, where one is known."""
    with pytest.raises(BuildError) as caught:
        built(project, "#include <cutlass/no_such.h>\n" + MUL)
    assert "k.cu:1: " in caught.value.what
    assert "pip install nvidia-cutlass" in caught.value.log


def test_instructions_of_one_architecture(project: Any) -> None:
    """wgmma on plain sm_90 is refused by ptxas, with the architecture that has it."""
    text = "// cgins: mul() -> ()\n// cgins-launch: kernel=k grid=1 block=1 args=()\n"
    text += '__global__ void k() { asm volatile("wgmma.fence.sync.aligned;"); }\n'
    with pytest.raises(BuildError) as caught:
        built(project, text, KERNEL.replace("sm_80", "sm_90"))
    assert "wgmma.fence" in caught.value.what
    assert "(archs: [sm_90a] in cgins.yaml has" in caught.value.what
    compiled = built(project, text, KERNEL.replace("sm_80", "sm_90a"))
    assert device_image.unpack(Path(compiled.library))[0].functions["k"].parameters == ()


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("#define HEADER <a.h>\n#include HEADER\n" + MUL, "k.cu:2: the include's file is named by a macro: HEADER"),
        (MUL + "void f() { mul<float><<<1, 1>>>(0, 0, 0, 0); }\n", "k.cu:10: <<<…>>> in a device kernel"),
    ],
)  # fmt: skip
def test_what_a_source_may_not_have(project: Any, text: str, told: str) -> None:
    """A header named by a macro could change unseen; host code is a launcher's."""
    with pytest.raises(SourceError, match=told):
        built(project, text)


HEADERS = {
    "half precision": """\
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
*y = __low2float(__hfma2(__floats2half2_rn(x[0], x[1]), __float2half2_rn(x[0]), __float2half2_rn(x[1])));
*y += float(__nv_fp8_e4m3(x[0])) + __bfloat162float(__float2bfloat16(x[1]));""",
    "wmma": """\
#include <mma.h>
using namespace nvcuda::wmma;
fragment<accumulator, 16, 16, 16, float> c;
fill_fragment(c, x[0]);
store_matrix_sync(y, c, 16, mem_row_major);""",
    "wgmma in PTX": """\
asm volatile("wgmma.fence.sync.aligned;");
asm volatile("wgmma.commit_group.sync.aligned;");
asm volatile("wgmma.wait_group.sync.aligned 0;");
*y = *x;""",
    "cooperative groups": """\
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
auto warp = cooperative_groups::tiled_partition<32>(cooperative_groups::this_thread_block());
*y = cooperative_groups::reduce(warp, *x, cooperative_groups::plus<float>());""",
    "cub": """\
#include <cub/cub.cuh>
using Reduce = cub::BlockReduce<float, 32>;
__shared__ typename Reduce::TempStorage shared;
*y = Reduce(shared).Sum(*x);""",
    "the C++ library's usual names": """\
#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cuda_runtime.h>
#include <limits>
#include <type_traits>
static_assert(std::is_same<std::int32_t, int>::value, "");
printf("%d", int(UINT32_MAX));
*y = std::max(*x, std::numeric_limits<float>::lowest()) + std::sqrt(*x) + INFINITY + FLT_MAX + M_PI;""",
    "CuTe": """\
#include <cute/tensor.hpp>
using namespace cute;
*y = make_tensor(make_gmem_ptr(x), make_layout(make_shape(Int<4>{}, Int<8>{})))(1, 2);""",
}


@pytest.mark.exam
@pytest.mark.parametrize("name", HEADERS)
def test_headers_out_of_the_box(project: Any, name: str) -> None:
    """CUDA's, CUB's and CUTLASS's headers can be included without any flag."""
    lines = HEADERS[name].splitlines()
    text = "\n".join([
        "// cgins: mul(Tensor input) -> Tensor",
        "// cgins-launch: kernel=k grid=1 block=32 args=(input, out)",
        *(line for line in lines if line.startswith("#")),
        "__global__ void k(const float* x, float* y) {",
        *(line for line in lines if not line.startswith("#")),
        "}",
    ])  # fmt: skip
    compiled = built(project, text, KERNEL.replace("sm_80", "sm_90a"))
    assert device_image.unpack(Path(compiled.library))[0].functions["k"].parameters == (0x2834, 0x2034)


def test_binding_a_call(project: Any, settings: Launches) -> None:
    """Sizes, pointers and numbers arrive as the parameters have them; the element type chooses the kernel."""
    compiled = built(project)
    for dtype, kernel in ((torch.float32, "mul<float>"), (torch.float16, "mul<cgins::float16>")):
        x = torch.ones(10, 30, dtype=dtype)
        (launch,), packer, (out,) = settings(compiled, x, 2.5)
        assert (launch.kernel, launch.grid, launch.block, launch.shared_nbytes) == (kernel, (3,), (128,), 0)
        assert [one.value for one in launch.arguments] == [x.data_ptr(), out.data_ptr(), 300, 2.5]
        assert [type(one).__name__[2:] for one in launch.arguments] == ["void_p", "void_p", "long", "float"]
        assert packer.overrun() != "", "outputs are poisoned by the bound call"
    assert settings(compiled, torch.ones(0, 3), 2.5)[0] == []


@pytest.mark.parametrize(
    ("old", "new", "x", "message"),
    [
        ("", "", torch.ones(4, dtype=torch.int32), "input is int32; the kernel was built for float32, float16"),
        ("", "", torch.ones(4, 3).t(), r"argument 1 \(input\) is not contiguous: shape \(3, 4\), strides \(1, 3\)"),
        ("(kThreads)\n", "(4 * 512)\n", torch.ones(4), r"block is \(2048\), more than 1024 in x"),
        ("(kThreads)\n", "(64, 32)\n", torch.ones(4), r"block is \(64, 32\), 2048 threads"),
        ("(kThreads)\n", "(numel(input) - 4)\n", torch.ones(4), r"block is \(0\), and an output has elements"),
        ("grid=(", "grid=(1, 70000, ", torch.ones(4), r"grid is \(1, 70000, 1\), more than 65535 in y"),
        ("grid=(ceil_div(numel(input), kThreads))", "grid=(3) cluster=2", torch.ones(4), "multiple of it"),
        ("args=", "smem=-1 args=", torch.ones(4), "smem is -1 bytes"),
        ("args=", "smem=numel(input) / 2 args=", torch.ones(4), "not a whole number"),
        ("args=", "require=(numel(input) % 4 == 1) args=", torch.ones(4), r"requires numel\(input\) % 4 == 1, which"),
        ("args=", "smem=size(input, 3) args=", torch.ones(4), "input has 1 dimension, none with number 3"),
        ("int64_t n", "signed char n", torch.ones(400), r"argument 3 \(numel\(input\)\) is 400, its parameter holds"),
        ("int64_t n", "bool n", torch.ones(4), r"is 4, its parameter holds 0 to 1"),
        ("T(float(x[i]) * a)", "T(0)", torch.ones(4), None),
    ],
)  # fmt: skip
def test_calls_that_a_launch_line_refuses(
    project: Any, settings: Launches, old: str, new: str, x: torch.Tensor, message: str | None
) -> None:
    """What CUDA would not take, or the parameter cannot hold, is an error with the launch line's place."""
    assert old in MUL
    compiled = built(project, MUL.replace(old, new, 1) if old else MUL)
    if message is None:
        assert len(settings(compiled, x, 2.5)[0]) == 1
        return
    with pytest.raises(LaunchError, match=message) as caught:
        settings(compiled, x, 2.5)
    assert "k.cu:2: " in caught.value.what
    assert caught.value.remedy


FIXED = """\
// cgins: linear(Tensor input, Tensor weight, Tensor? bias) -> Tensor
// cgins-launch: kernel=first when=(not has(bias)) grid=1 block=1 args=(view(input), weight, bias, workspace)
//               workspace=numel(input) * 4 + 1
// cgins-launch: kernel=second zero=(out) grid=1 block=1 smem=100 * 1024 cooperative=true
//               args=(data(input), at(workspace, 4), sm_count, numel(input) > 3, out)
__global__ void first(cgins::tensor<const float> x, const float2* weight, const double* bias, void* scratch) {}
__global__ void second(const float* x, float* scratch, unsigned count, bool many, float* out) {}
"""


def test_binding_several_launches(project: Any, settings: Launches) -> None:
    """Views, missing tensors, scratch memory, and memory that is set to 0, in order; `when` leaves one out."""
    op = "torch.nn.functional.linear"
    compiled = built(project, FIXED, KERNEL.replace("torch.mul", op))
    x, weight, bias = torch.ones(4, 6).t()[:, ::2], torch.ones(3, 2), torch.ones(3, dtype=torch.float64)
    launches, packer, (out,) = settings(compiled, x, weight, None, op=op, outputs=[torch.ones(6, 3)])
    first, second = launches
    view = first.arguments[0]
    assert (view.data, view.ndim, list(view.shape)[:2], list(view.strides)[:2]) == (
        x.data_ptr(),
        2,
        [6, 2],
        [1, 12],
    )
    assert first.arguments[2].value is None
    scratch = packer.scratch.data_ptr() + 512
    assert first.arguments[3].value == scratch
    assert [one.value for one in second.arguments] == [x.data_ptr(), scratch + 4, 132, True, out.data_ptr()]
    assert second.zero == ((out.data_ptr(), 18 * 4),)
    assert (second.cooperative, second.shared_nbytes) == (True, 102400)
    launches, _, _ = settings(compiled, x, weight, bias, op=op, outputs=[torch.ones(6, 3)])
    assert [launch.kernel for launch in launches] == ["second"]


def test_element_types_are_checked_without_templates(project: Any, settings: Launches) -> None:
    """A plain pointer is never given another element type than it points to."""
    op = "torch.nn.functional.linear"
    compiled = built(project, FIXED, KERNEL.replace("torch.mul", op))
    x = torch.ones(2, 2, dtype=torch.bfloat16)
    with pytest.raises(LaunchError, match="element type bfloat16, the kernel's parameter points to float32"):
        settings(compiled, x, x, None, op=op)


def test_calls_beyond_the_schema_line(project: Any, settings: Launches) -> None:
    """A value of another type than the schema line declares is outside the contract, as for launchers."""
    with pytest.raises(ContractError, match="'other' is declared as float, the call passes Tensor"):
        settings(built(project), torch.ones(3), torch.ones(3))


def test_not_a_built_kernel(tmp_path: Path) -> None:
    """A file that is no build is refused when it is loaded."""
    image = Image(arch="sm_80", code=b"code", functions={})
    cut = device_image.pack([image])[1:]
    listed = b'[{"arch": "sm_80", "nbytes": 0, "functions": [1]}]'
    hostile = listed + len(listed).to_bytes(8, "little") + device_image.MAGIC
    unfinished = b"{" + (1).to_bytes(8, "little") + device_image.MAGIC
    for content in (b"", b"\x7fELF" * 100, unfinished, cut, hostile):
        (tmp_path / "kernel.cubin").write_bytes(content)
        with pytest.raises(LaunchError, match="not a built device kernel"):
            device_image.unpack(tmp_path / "kernel.cubin")


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        ("{op: torch.mul, contract: device, device: cpu, source: k.cu}", "has contract device and device cpu"),
        ("{op: torch.mul, contract: device, sources: [k.cu, m.cu]}", "has 2 sources; a device kernel is one file"),
        ("{op: torch.mul, contract: device, device: cuda, source: k.cpp}", "cannot be a .cpp file"),
        ("{op: torch.mul, contract: device, source: k.cu, entry: f}", '"entry" has no effect'),
        ("{op: torch.mul, contract: devise, source: k.cu}", '"contract" in .* is "devise"'),
    ],
)  # fmt: skip
def test_configuration(project: Any, kernel: str, message: str) -> None:
    """What NVRTC cannot build is refused where cgins.yaml says so."""
    for name in ("k.cu", "m.cu", "k.cpp"):
        project.write(name, MUL)
    with pytest.raises(ConfigError, match=message):
        project.source(kernel)


def test_flags_and_defines(project: Any, settings: Launches) -> None:
    """Macros of cgins.yaml reach the compiler and the launch line; other flags are NVRTC's."""
    text = MUL.replace("constexpr int kThreads = 128;\n", "")
    compiled = built(
        project, text, KERNEL.replace("archs", "defines: {kThreads: 64}, flags: [--use_fast_math], archs")
    )
    (launch,), _, _ = settings(compiled, torch.ones(100), 2.0)
    assert (launch.grid, launch.block) == ((2,), (64,))
    with pytest.raises(BuildError, match="unrecognized option -fopenmp"):
        built(project, MUL, KERNEL.replace("archs", "flags: [-fopenmp], archs"))
    with pytest.raises(
        SourceError, match=r"--pre-include=k\.h brings headers whose changes would not be seen"
    ):
        built(project, MUL, KERNEL.replace("archs", "flags: [--pre-include=k.h], archs"))


def test_a_macro_that_is_no_plain_number(project: Any, settings: Launches) -> None:
    """A flag's macro is the compiler's: the source's own number for it is not what the launch line has."""
    text = MUL.replace("constexpr int kThreads = 128;", "#ifndef kThreads\n#define kThreads 128\n#endif")
    compiled = built(project, text, KERNEL.replace("archs", "flags: [-DkThreads=0x40], archs"))
    (launch,), _, _ = settings(compiled, torch.ones(100), 2.0)
    assert (launch.grid, launch.block) == ((2,), (64,))
    compiled = built(project, text, KERNEL.replace("archs", "flags: [-DkThreads=(32*2)], archs"))
    with pytest.raises(LaunchError, match="nothing is called 'kThreads'"):
        settings(compiled, torch.ones(100), 2.0)


def test_default_template_arguments(project: Any) -> None:
    """A kernel template whose arguments all have defaults is named with empty brackets."""
    text = MUL.replace("mul<dtype(input, float32, float16)>", "mul<>").replace(
        "typename T>", "typename T = float>"
    )
    assert list(device_image.unpack(Path(built(project, text).library))[0].functions) == ["mul<>"]
