"""In which language a kernel is written, and what its compiler and habits ask for."""

from __future__ import annotations

import re
from typing import Literal

from pytest_cgins.regenerate.prompts.context import Context

Language = Literal["cpp", "cuda", "device", "triton", "cute", "cute-dsl", "python"]

FENCES: dict[Language, str] = {
    "cpp": "cpp", "cuda": "cuda", "device": "cuda", "triton": "python", "cute": "cuda", "cute-dsl": "python", "python": "python",
}  # fmt: skip
"""Info strings of fences."""

_ADVICE: dict[Language, tuple[str, ...]] = {
    "cpp": (
        ("Compiler: g++ -O3 -std=c++17 -fopenmp -Wall with the flags that -march=native stands for; "
            "no -ffast-math: sums in a plain "
        "loop are not vectorized unless `#pragma omp simd reduction(+:sum)` allows it."),
        ("OpenMP: `#pragma omp parallel for` over independent rows or tiles, with `if (work > 32768)` "
            "so that small tensors start no threads. "
        "int64_t for sizes and offsets. It has as many threads as torch."),
        "cgins::float16 and cgins::bfloat16 are storage types: convert to float, compute in cgins::accumulator<T>.",
    ),
    "cuda": (
        ("Compiler: nvcc -O3 -lineinfo -std=c++17, shared library; no --use_fast_math: use expf, "
            "erff, sqrtf, and __expf only where the "
        "tolerance surely allows it. --expt-relaxed-constexpr and --extended-lambda are not given: "
            "host constexpr functions and lambdas with "
        "__device__ do not compile."),
        ("Launch on `stream` only, `CGINS_LAUNCH_CHECK();` after each launch. No cudaMalloc, no "
            "synchronisation, no host reads of device data."),
        ("`if (n == 0) return 0;` before a launch: a grid of 0 blocks is an error. gridDim.y and .z "
            "are at most 65535. int64_t offsets."),
        ("More than 48 KiB of dynamic shared memory: cudaFuncSetAttribute(kernel, "
            "cudaFuncAttributeMaxDynamicSharedMemorySize, nbytes) first."),
        ("__shfl_*_sync only where all threads that the mask names arrive; __syncthreads() never "
            "inside a branch that threads of a block differ in."),
    ),
    "device": (
        ("Compiler: NVRTC --std=c++17, no host code and no host headers (no <cstring>, <vector>, "
            "<cuda_runtime.h>); `cgins.h` is included "
        "before the first line. int64_t is long long there. What can be included: cuda_fp16.h, cuda_bf16.h, "
            "cuda_fp8.h, mma.h, cooperative_groups.h, cuda/std/…, cub/… (blocks, warps, threads), cute/…, cutlass/…, "
            "<cstdint>, <cmath>, <cfloat>, <climits>, <limits>, <type_traits>, <algorithm>, <utility>, <array>, <tuple>."),
        ("A tensor passed as a plain pointer must be contiguous, unless the launch line looks at its "
            "strides. Use view(x) for any strides."),
        "Nothing is launched where all outputs are empty.",
    ),
    "triton": (
        ("The wrapper is called with the op's own arguments, as named above; it allocates its outputs "
            "with torch.empty or empty_like and "
        "launches. torch may be used for allocation, shapes and views only, not for the arithmetic."),
        ("Each load and store has a mask, and loads have `other=`; -inf for maxima, 0 for sums. Block "
            "sizes are tl.constexpr powers of two: "
        "triton.next_power_of_2(n). Offsets in int64 where a tensor may pass 2^31 elements: "
            "tl.program_id(0).to(tl.int64)."),
        "Load, `.to(tl.float32)`, compute, store `.to(out.dtype.element_ty)`. tl.dot of fp32: input_precision='ieee'.",
        ("A kernel must handle any strides or make its input contiguous first. An empty grid is an "
            "error: return the empty output before it."),
        "No autotuning by benchmark in the wrapper unless the configurations are few: it runs inside the gate.",
    ),
    "cute": (
        ("Compiler: nvcc -O3 -std=c++17 with CUTLASS's headers and --expt-relaxed-constexpr, since "
            "the source includes <cute/…>. Layouts as "
        "static types (cute::Int<128>{}), tiles by local_tile, per-thread pieces by partition_S and "
            "partition_D or local_partition."),
        ("Remainders need predicates: build identity tensors (make_identity_tensor), partition them "
            "alike, compare with the sizes. Tests with other "
        "sizes will find a missing predicate."),
        ("16-bit types in CuTe are cute::half_t and cute::bfloat16_t, of the same layout as "
            "cgins::float16 and cgins::bfloat16: reinterpret_cast pointers."),
        "wgmma and TMA need archs: [sm_90a]; cp.async and ldmatrix run from sm_80 on.",
        ("Launch on `stream` only, CGINS_LAUNCH_CHECK() after each launch; no allocation, no "
            "synchronisation; return 0 before an empty grid."),
    ),
    "cute-dsl": (
        ("CuTe DSL (cutlass.cute): compile once per element type and static shape, keep the compiled "
            "function in a dict, never results."),
        ("The wrapper is called with the op's own arguments; it allocates outputs with "
            "torch.empty_like and launches on torch's current stream."),
        "Remainders need predicates. torch may be used for allocation, shapes and views only.",
    ),
    "python": (
        ("The function is called with the op's own arguments and returns the outputs. torch may be "
            "used for allocation and views; the arithmetic must "
        "be the kernel's own."),
    ),
}  # fmt: skip


def of(context: Context) -> Language:
    """By contract, device, name and text of the sources."""
    implementation = context.implementation
    text = "\n".join(context.files.values())
    name = implementation.name.lower()
    if implementation.contract == "device":
        return "device"
    if implementation.contract == "python":
        if (
            re.search(r"^\s*(?:import|from)\s+triton\b", text, re.MULTILINE)
            or "triton" in name
            or implementation.interpret
        ):
            return "triton"
        if re.search(r"^\s*(?:import|from)\s+cutlass\b", text, re.MULTILINE) or "cute" in name:
            return "cute-dsl"
        return "python"
    if re.search(r"#\s*include\s*<(?:cute|cutlass)/", text) or "cute" in name:
        return "cute"
    is_cuda = context.target.device == "cuda" or any(path.endswith(".cu") for path in context.sources)
    return "cuda" if is_cuda else "cpp"


def fence_of(path: str, language: Language) -> str:
    """Info string of a file's fence, by its suffix where that says more."""
    suffix = path.rpartition(".")[2]
    return {
        "py": "python",
        "cu": "cuda",
        "cuh": "cuda",
        "cpp": "cpp",
        "h": "cpp",
        "hpp": "cpp",
        "cc": "cpp",
        "c": "c",
    }.get(suffix, FENCES[language])


_EXTENSION = {
    "cpp": (
        (
            "torch's headers are included and cgins.h is not: c10::Half and c10::BFloat16 convert to float; compute in "
            "at::opmath_type<scalar_t>."
        ),
        (
            "Contiguous inputs by .contiguous() where the layout does not matter; outputs as torch lays them out "
            "(torch::empty_like keeps channels-last)."
        ),
    ),
    "cuda": (
        (
            "torch's headers are included and cgins.h is not: c10::Half and c10::BFloat16 convert to float; compute in "
            "at::opmath_type<scalar_t>. Implicit conversions of __half are switched off."
        ),
        (
            "No synchronisation and no cudaMalloc: scratch memory is torch::empty. Return before an "
            "empty grid is launched."
        ),
    ),
}
_NAN = {
    "cpp": "A comparison drops NaN or keeps it: `x < 0 ? 0 : x` keeps it, `std::max(0.f, x)` does not.",
    "cuda": "fmaxf and fminf drop NaN: write `x < 0 ? 0 : x`, `!(v <= best)`, where torch keeps it.",
    "triton": "tl.maximum and tl.max drop NaN: tl.where(x < 0, 0, x) keeps it; tl.maximum has "
    "propagate_nan=tl.PropagateNan.ALL.",
}


def advice(context: Context) -> tuple[str, ...]:
    """What matters to who writes a kernel in its language."""
    language = of(context)
    extension = context.implementation.contract == "torch-extension"
    lines = _EXTENSION["cpp" if language == "cpp" else "cuda"] if extension else _ADVICE[language]
    nan = _NAN.get({"device": "cuda", "cute": "cuda"}.get(language, language), "")
    return (*lines, nan) if nan else lines
