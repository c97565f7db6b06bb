"""Builds for some sizes beside the general one, in one library: which is called when, and that they are kept apart."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from pytest_cgins.building import resources
from pytest_cgins.building.compilers import running
from pytest_cgins.building.loading.callable import load
from pytest_cgins.core.errors import BuildError, LaunchError, SourceError
from pytest_cgins.run.sandbox.builds import BuildFence, sources_of
from pytest_cgins.run.sandbox.sandbox import Sandbox

needs_nvcc = pytest.mark.skipif(not shutil.which("nvcc"), reason="no nvcc")

# Says in its output which build ran; a template and a static of an inline function look at the macros on their way.
TELLS = """\
// cgins: tell(Tensor input, int n=0, int? maybe=None, int[] sizes=[], bool flag=False) -> Tensor
#ifndef COLS
#define COLS 0
#endif
#ifndef N
#define N 0
#endif
template <typename T> __attribute__((noinline)) T told(T) { return T(COLS * 10 + N); }
__attribute__((noinline)) inline int& calls() { static int count = COLS; return ++count; }
extern "C" int64_t tell_workspace(const DLTensor*, int64_t, const int64_t*, const int64_t*, int64_t, bool, DLTensor*) {
  return 8 + COLS;
}
extern "C" int tell(const DLTensor* input, int64_t, const int64_t*, const int64_t*, int64_t, bool, DLTensor* out,
                    void*, int64_t workspace_nbytes, cgins_stream) {
  CGINS_CHECK(cgins::numel(input) != 13, "thirteen, seen by %d", COLS);
  const int64_t length = cgins::numel(out);
  float* y = cgins::data<float>(out);
  for (int64_t i = 0; i < length; ++i) y[i] = told(0.f);
  if (length > 1) y[1] = float(workspace_nbytes);
  if (length > 2) y[2] = float(calls());
  return 0;
}
"""


RELU = """\
// cgins: relu(Tensor input) -> Tensor
#ifndef COLS
#define COLS 0
#endif
extern "C" int relu(const DLTensor* input, DLTensor* out, cgins_stream) {
  for (int64_t i = 0; i < cgins::numel(input); ++i) cgins::data<float>(out)[i] = COLS;
  return 0;
}
"""


def entry(macros: str, builds: str, more: str = "source: kernel.cpp") -> str:
    return f"{{op: torch.tell, {more}, specialize: {{macros: {{{macros}}}, builds: [{builds}]}}}}"


Tell = Callable[..., list[float]]


@pytest.fixture
def tell(metas_of: Any) -> Tell:
    """What a kernel's output is for a call; arguments are bound as those of a function of ours."""
    from pytest_cgins.core.trace import Argument, OpCall
    from pytest_cgins.packs.values import encode

    def called(compiled: Any, x: torch.Tensor, **given: Any) -> list[float]:
        tensors: list[Any] = []
        named = {"input": x, "n": 0, "maybe": None, "sizes": [], "flag": False, **given}
        arguments = tuple(
            Argument(name=name, value=encode(value, tensors), passed="keyword")
            for name, value in named.items()
        )
        call = OpCall(op="torch.tell", arguments=arguments)
        (out,) = load(compiled).bind(call, tensors, metas_of([torch.empty(3)]), "cpu").run()
        return [float(value) for value in out]

    return called


def test_a_call_takes_the_build_of_its_sizes(project: Any, tell: Tell) -> None:
    """Sizes of builds are dispatched on, scratch memory too; any other call gets the general build."""
    project.write("kernel.cpp", TELLS)
    built = project.build(entry("COLS: input.size(-1)", "{COLS: 7}, {COLS: 9}"))
    assert tell(built, torch.ones(2, 7)) == [70, 15, 8]
    assert tell(built, torch.ones(5, 9)) == [90, 17, 10]
    assert tell(built, torch.ones(7, 8)) == [0, 8, 1]
    assert tell(built, torch.ones(())) == [0, 8, 2]


@pytest.mark.parametrize(
    ("size", "value", "met", "unmet"),
    [
        ("n", 3, {"n": 3}, {"n": 4}),
        ("maybe", 3, {"maybe": 3}, {}),
        ("flag", 1, {"flag": True}, {"flag": False}),
        ("'sizes[1]'", 3, {"sizes": [1, 3]}, {"sizes": [3]}),
        ("'sizes[-2]'", 3, {"sizes": [1, 3, 5]}, {"sizes": [3]}),
        ("input.numel()", 12, {}, {"x": torch.ones(3)}),
        ("input.ndim", 2, {}, {"x": torch.ones(3)}),
        ("'input.shape[0]'", 3, {}, {"x": torch.ones(4, 3)}),
        ("input.size(-2)", 3, {}, {"x": torch.ones(3)}),
    ],
)
def test_every_kind_of_size(
    project: Any, tell: Tell, size: str, value: int, met: dict[str, Any], unmet: dict[str, Any]
) -> None:
    """A macro can be a tensor's size, rank or count, an item of a list, a number that may be None, a truth value."""
    project.write("kernel.cpp", TELLS)
    built = project.build(entry(f"N: {size}", f"{{N: {value}}}"))
    x = torch.ones(3, 4)
    assert tell(built, **{"x": x, **met})[0] == value
    assert tell(built, **{"x": x, **unmet})[0] == 0


def test_all_macros_of_a_build_must_be_met(project: Any, tell: Tell) -> None:
    """With several macros a build is taken only where each has its value."""
    project.write("kernel.cpp", TELLS)
    built = project.build(entry("COLS: input.size(-1), N: input.size(0)", "{COLS: 7, N: 2}, {COLS: 7, N: 3}"))
    assert [tell(built, torch.ones(rows, 7))[0] for rows in (2, 3, 4)] == [72, 73, 0]


def test_an_error_of_any_build_is_told(project: Any, tell: Tell) -> None:
    """The message of the last error is the library's, whichever build failed."""
    project.write("kernel.cpp", TELLS)
    built = project.build(entry("COLS: input.size(-1)", "{COLS: 13}"))
    with pytest.raises(LaunchError, match="tell returned 1: thirteen, seen by 13"):
        tell(built, torch.ones(13))
    with pytest.raises(LaunchError, match="thirteen, seen by 0"):
        tell(built, torch.ones(13, 1))


def test_several_sources_know_the_macros_of_their_build(project: Any, tell: Tell) -> None:
    """A helper in another file is compiled for each build, too, and found by its own build's launcher."""
    project.write(
        "kernel.cpp", TELLS.replace("told(0.f)", "helped()").replace("template", "float helped();\ntemplate")
    )
    project.write(
        "helper.cpp", "#ifndef COLS\n#define COLS 0\n#endif\nfloat helped() { return COLS + 0.5f; }\n"
    )
    built = project.build(entry("COLS: input.size(-1)", "{COLS: 7}", "sources: [kernel.cpp, helper.cpp]"))
    assert tell(built, torch.ones(7))[0] == 7.5
    assert tell(built, torch.ones(6))[0] == 0.5


def test_only_the_launcher_is_exported(project: Any) -> None:
    """Nothing of a build can be found from outside, so that two libraries share nothing."""
    project.write("kernel.cpp", TELLS)
    built = project.build(entry("COLS: input.size(-1)", "{COLS: 7}"))
    listed = subprocess.run(
        ["nm", "-D", "--defined-only", built.library], capture_output=True, text=True, check=True
    ).stdout
    names = {line.split()[-1] for line in listed.splitlines()}
    assert {"tell", "tell_workspace", "cgins_last_error"} <= names
    assert not {name for name in names if "told" in name or "calls" in name}


def test_a_compile_error_of_one_build_is_told_with_its_place(project: Any) -> None:
    """What does not compile with the macros alone is refused with file and line of the source."""
    project.write(
        "kernel.cpp",
        TELLS.replace("const int64_t length", "static_assert(COLS != 7);\n  const int64_t length"),
    )
    assert project.build(entry("COLS: input.size(-1)", "{COLS: 9}"))
    with pytest.raises(BuildError, match=r"kernel\.cpp:\d+:\d+: error"):
        project.build(entry("COLS: input.size(-1)", "{COLS: 9}, {COLS: 7}"))


@pytest.mark.exam
def test_keys_and_digests_follow_what_is_specialized(project: Any, cache: Path) -> None:
    """Other macros, sizes or builds make another kernel and another entry in the cache; the same is found again."""
    project.write("kernel.cpp", TELLS)
    kernels = [
        "{op: torch.tell, source: kernel.cpp}",
        entry("COLS: input.size(-1)", "{COLS: 7}"),
        entry("COLS: input.size(-1)", "{COLS: 9}"),
        entry("COLS: input.size(0)", "{COLS: 7}"),
        entry("N: input.size(-1)", "{N: 7}"),
    ]
    built = [project.build(kernel, cache=cache) for kernel in kernels]
    assert len({one.key for one in built}) == len({one.source.digest for one in built}) == len(kernels)
    again = project.build(kernels[1], cache=cache)
    assert (again.cached, again.key) == (True, built[1].key)
    # A header that only one build includes is known to the cache.
    project.write("only.h", "")
    project.write(
        "kernel.cpp", TELLS.replace("#ifndef N", '#if COLS == 7\n#include "only.h"\n#endif\n#ifndef N')
    )
    first = project.build(kernels[1], cache=cache)
    project.write("only.h", "// other\n")
    assert project.build(kernels[1], cache=cache).key != first.key


@pytest.mark.parametrize(
    ("size", "complaint"),
    [
        ("inptu.size(0)", "the schema line has no argument of that name"),
        ("n.size(0)", "and n is int"),
        ("'sizes'", r"and sizes is int\[\]"),
        ("'n[0]'", "and n is int"),
        ("input", "and input is Tensor"),
    ],
)
def test_a_size_that_no_argument_has_is_refused(project: Any, size: str, complaint: str) -> None:
    """What the schema line does not have is refused before anything is compiled, with its place."""
    project.write("kernel.cpp", TELLS)
    with pytest.raises(SourceError, match=rf"kernel\.cpp:1: macro N of specialize is .*{complaint}"):
        project.source(entry(f"N: {size}", "{N: 7}"))


CUDA = """\
// cgins: scale(Tensor input, float other) -> Tensor
#ifndef COLS
#define COLS 0
#endif
template <typename T>
__global__ void scale_each(const T* x, T* y, int64_t n, float factor) {
  __shared__ float held[COLS + 1];
  held[threadIdx.x % (COLS + 1)] = factor;
  __syncthreads();
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < n) y[i] = T(float(x[i]) * held[0]);
}
extern "C" int scale(const DLTensor* input, double other, DLTensor* out, cgins_stream stream) {
  const int64_t n = cgins::numel(input);
  scale_each<<<(n + 255) / 256, 256, 0, stream>>>(cgins::data<float>(input), cgins::data<float>(out), n, float(other));
  CGINS_LAUNCH_CHECK();
  return 0;
}
"""


CUDA_ENTRY = (
    "{op: torch.mul, source: kernel.cu, archs: [sm_90], "
    "specialize: {macros: {COLS: input.size(-1)}, builds: [{COLS: 7}, {COLS: 15}]}}"
)


@pytest.mark.exam
@needs_nvcc
def test_cuda_has_the_machine_code_of_every_build(project: Any) -> None:
    """nvcc compiles a kernel of one name once a build, with that build's constants, into one library."""
    project.write("kernel.cu", CUDA)
    built = project.build(CUDA_ENTRY)
    found = resources.of(built, "sm_90", instructions=False).functions
    assert sorted(one.static_shared_nbytes_per_block for one in found) == [4, 32, 64]
    record = json.loads(Path(built.library).with_name("build.json").read_bytes())
    assert "-DCOLS=15" in record["command"]


@needs_nvcc
def test_cuda_refuses_device_code_that_is_linked(project: Any) -> None:
    """With -rdc all builds' device code would have the same names."""
    project.write("kernel.cu", CUDA)
    with pytest.raises(SourceError, match="specialize cannot go with -rdc=true"):
        project.build(CUDA_ENTRY.replace("[sm_90]", "[sm_90], flags: ['-rdc=true']"))


@pytest.mark.exam
@needs_nvcc
def test_a_cuda_library_chooses_as_well(project: Any, bind: Any) -> None:
    """The function of a CUDA library that callers find takes the build of their sizes; this one tells before it launches."""
    project.write(
        "kernel.cu",
        CUDA.replace("const int64_t n =", 'CGINS_CHECK(false, "built for %d", COLS);\n  const int64_t n ='),
    )
    built = project.build(CUDA_ENTRY)
    for width, seen in ((7, 7), (15, 15), (16, 0)):
        with pytest.raises(LaunchError, match=f"built for {seen}$"):
            bind(built, "torch.mul", torch.ones(2, width), 2.0).run()


@pytest.mark.exam
@pytest.mark.skipif(bool(Sandbox().available()), reason="this host gives no sandbox")
def test_builds_are_made_in_the_sandbox(project: Any, tell: Tell, tmp_path: Path) -> None:
    """Joining and dispatching need no more of the machine than the compiler does."""
    cache = tmp_path / "cache"
    cache.mkdir()
    project.write("kernel.cpp", TELLS)
    kernel = entry("COLS: input.size(-1)", "{COLS: 7}")
    fence = BuildFence(Sandbox())
    fence.show(visible=[cache, *sources_of(project.config(kernel))])
    before = running.current()
    running.use(running.Compilers(fence))
    try:
        built = project.build(kernel, cache=cache)
    finally:
        running.use(before)
    assert tell(built, torch.ones(2, 7))[0] == 70
