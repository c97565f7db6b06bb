"""Torch extensions on shadow headers: small stand-ins for torch's, which compile in a second or two.

For search only. What the stand-ins lack is an error of the compiler, so a source that they refuse is unknown,
not wrong; and a verdict is only ever given on the real headers: `source.find` never yields "shadow", and
`real` gives the source to accept.
"""

from __future__ import annotations

import hashlib
import re
import sysconfig
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from pytest_cgins.errors import InfrastructureError
from pytest_cgins.kernels import cuda, shadow_operators, toolchain, torch_extension
from pytest_cgins.kernels import plan as plans
from pytest_cgins.kernels.extension_exports import Exports
from pytest_cgins.kernels.extension_torch import torch_package
from pytest_cgins.kernels.process import Outcome, run_stages
from pytest_cgins.kernels.source import extension_texts, portable_flags, read
from pytest_cgins.model import KernelSource

ROOT = plans.INCLUDE / "shadow"
FLAGS = ("-O3", "-std=c++17")
# As torch defines them for its extensions: conversions of __half are explicit.
CUDA_FLAGS = (
    "-D__CUDA_NO_HALF_OPERATORS__", "-D__CUDA_NO_HALF_CONVERSIONS__", "-D__CUDA_NO_BFLOAT16_CONVERSIONS__",
    "-D__CUDA_NO_HALF2_OPERATORS__", "--expt-relaxed-constexpr", "-cudart=static",
)  # fmt: skip
HEADERS = (
    "ATen/ATen.h", "ATen/AccumulateType.h", "ATen/Context.h", "ATen/DeviceGuard.h", "ATen/Dispatch.h",
    "ATen/Functions.h", "ATen/NativeFunctions.h", "ATen/OpMathType.h", "ATen/Parallel.h", "ATen/Tensor.h",
    "ATen/TensorAccessor.h", "ATen/TensorIndexing.h", "ATen/ceil_div.h", "ATen/core/Tensor.h",
    "ATen/core/TensorAccessor.h", "ATen/cuda/Atomic.cuh", "ATen/cuda/CUDAContext.h",
    "ATen/cuda/CUDAContextLight.h", "ATen/cuda/DeviceUtils.cuh", "ATen/cuda/Exceptions.h",
    "ATen/cuda/detail/KernelUtils.h", "ATen/native/cuda/KernelUtils.cuh", "c10/core/Device.h",
    "c10/core/DeviceGuard.h", "c10/core/Scalar.h", "c10/core/ScalarType.h", "c10/core/TensorOptions.h",
    "c10/cuda/CUDAException.h", "c10/cuda/CUDAFunctions.h", "c10/cuda/CUDAGuard.h", "c10/cuda/CUDAMacros.h",
    "c10/cuda/CUDAMathCompat.h", "c10/cuda/CUDAStream.h", "c10/macros/Macros.h", "c10/util/ArrayRef.h",
    "c10/util/BFloat16.h", "c10/util/Exception.h", "c10/util/Half.h", "c10/util/Optional.h",
    "c10/util/irange.h", "pybind11/pybind11.h", "pybind11/stl.h", "torch/all.h", "torch/csrc/utils/pybind.h",
    "torch/cuda.h", "torch/extension.h", "torch/library.h", "torch/python.h", "torch/script.h",
    "torch/torch.h", "torch/types.h",
)  # fmt: skip
"""Headers of torch for which there is a stand-in: each is the whole of them."""
STANDARD = {
    "atomic": "atomic", "chrono": "chrono", "cout": "iostream", "cerr": "iostream", "endl": "iostream",
    "function": "functional", "plus": "functional", "multiplies": "functional", "iota": "numeric",
    "accumulate": "numeric", "inner_product": "numeric", "map": "map", "unordered_map": "unordered_map",
    "unordered_set": "unordered_set", "set": "set", "deque": "deque", "queue": "queue", "list": "list",
    "mutex": "mutex", "lock_guard": "mutex", "once_flag": "mutex", "thread": "thread", "async": "future",
    "unique_ptr": "memory", "shared_ptr": "memory", "make_unique": "memory", "make_shared": "memory",
    "ostringstream": "sstream", "stringstream": "sstream", "istringstream": "sstream", "ostream": "iostream",
    "setprecision": "iomanip", "setw": "iomanip", "complex": "complex", "bitset": "bitset",
    "mt19937": "random", "variant": "variant", "runtime_error": "stdexcept", "invalid_argument": "stdexcept",
    "out_of_range": "stdexcept", "logic_error": "stdexcept", "domain_error": "stdexcept", "memcpy": "cstring",
    "memset": "cstring", "printf": "cstdio", "fprintf": "cstdio", "FLT_MAX": "cfloat", "FLT_MIN": "cfloat",
    "DBL_MAX": "cfloat", "FLT_EPSILON": "cfloat", "assert": "cassert", "index_sequence": "utility",
    "unordered_multimap": "unordered_map", "stack": "stack", "condition_variable": "condition_variable",
}  # fmt: skip
"""Headers of the standard library that torch's own bring along, by the name that needs them."""
UNKNOWN = re.compile(
    r"""
        has\ no\ member\ (?:named\ )?['"‘](?P<member>[^'"’]+)
      | ['"‘](?P<name>[^'"’]+)['"’]\ is\ not\ a\ member\ of
      | ['"‘](?P<plain>[^'"’]+)['"’]\ (?:was\ not\ declared|is\ undefined|does\ not\ name\ a\ type|has\ not\ been\ declared)
      | fatal\ error:\ (?P<header>(?:torch|ATen|c10|caffe2|pybind11)/[^:]+):\ No\ such\ file
      | cannot\ open\ source\ file\ "(?P<source>[^"]+)"
    """,
    re.VERBOSE,
)


def real(source: KernelSource) -> KernelSource:
    """The same source on torch's real headers: what a verdict is about."""
    return replace(source, headers="real")


def plan(source: KernelSource) -> plans.Plan:
    """How to build a torch extension on the shadow headers.

    The library needs no torch to be linked with: it calls torch through Python.

    Raises:
        SourceError: a source is missing or not UTF-8, or an architecture has no such name.
        InfrastructureError: torch, a compiler or Python's headers are missing.
    """
    compiler = toolchain.cxx()
    is_cuda = source.device == "cuda"
    nvcc = toolchain.nvcc() if is_cuda else ()
    archs = (source.archs or toolchain.present_archs()) if is_cuda else ()
    identity = (
        "shadow", _headers_digest(), torch_extension.torch_identity(), toolchain.version(compiler), *FLAGS,
        *archs, *portable_flags(source.flags), *((toolchain.version(nvcc), *CUDA_FLAGS) if is_cuda else ()),
    )  # fmt: skip
    texts = [read(Path(file)) for file in source.files]
    module = "cgins_" + hashlib.sha256("\0".join((*identity, *texts)).encode()).hexdigest()[:16]
    build = _Build(source, module, compiler, nvcc, cuda.code_generation(archs))
    return plans.Plan(
        compiler=f"{'nvcc' if is_cuda else Path(compiler[-1]).name} on the shadow headers",
        identity=identity,
        roots=plans.header_roots(source),
        run=build.run,
        archs=archs,
    )


class _Build:
    """One translation unit a language, as torch's `load_inline` has it, and the runtime beside them."""

    def __init__(
        self,
        source: KernelSource,
        module: str,
        compiler: tuple[str, ...],
        nvcc: tuple[str, ...],
        generation: list[str],
    ) -> None:
        self._source = source
        self._module = module
        texts = extension_texts(source.files, source.flags)
        self._exports = Exports.of(source.files[0], texts)
        self._compiler = compiler
        self._nvcc = nvcc
        self._generation = generation

    def run(self, folder: Path, name: str, deadline: float) -> Outcome:
        """See `plan.Run`."""
        text = self._exports.code
        for file, content in self._generated(text).items():
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            (folder / file).write_text(content, encoding="utf-8")
        outcome = run_stages(self._stages(folder, text), folder, name, deadline)
        return replace(outcome, log=annotate(outcome.log)) if outcome.status else outcome

    def _units(self) -> dict[str, list[str]]:
        """Sources by the file that includes them; the first of these has the binding."""
        units: dict[str, list[str]] = {}
        for file in self._source.files:
            units.setdefault("cuda.cu" if file.endswith(".cu") else "main.cpp", []).append(file)
        return units

    def _generated(self, text: str) -> dict[str, str]:
        identifiers = set(re.findall(r"[A-Za-z_]\w*", text))
        methods, functions = shadow_operators.declarations(identifiers)
        standard = sorted({header for name, header in STANDARD.items() if name in identifiers})
        files = {
            "stand-ins/shadow_methods.h": methods,
            "stand-ins/shadow_functions.h": functions,
            "stand-ins/shadow_standard.h": "".join(f"#include <{header}>\n" for header in standard),
        }
        files |= {f"stand-ins/{header}": "#include <shadow/all.h>\n" for header in HEADERS}
        wanted = self._exports.wants_binding(self._source.entry)
        binding = _binding(self._module, self._source.entry) if wanted else ""
        for unit, sources in self._units().items():
            lines = ["#include <shadow/all.h>", *(f'#include "{Path(file).absolute()}"' for file in sources)]
            files[unit] = "\n".join([*lines, binding if self._source.files[0] in sources else "", ""])
        return files

    def _stages(self, folder: Path, text: str) -> list[list[list[str]]]:
        python = sysconfig.get_paths()["include"]
        if not (Path(python) / "Python.h").is_file():
            raise InfrastructureError(
                f"{python}/Python.h: Python's own headers are missing, and extensions need them",
                remedy="install them (apt install python3-dev, dnf install python3-devel)",
            )
        search = [f"-I{each}" for each in self._folders()] + [
            "-isystem",
            str(folder / "stand-ins"),
            "-isystem",
            str(ROOT),
        ]
        names = [*self._defines(text), *search]
        runtime = [
            *self._compiler, "-O1", "-std=c++17", "-fPIC", *search, "-isystem", python,
            "-c", str(ROOT / "shadow/runtime.cpp"), "-o", "runtime.o",
        ]  # fmt: skip
        compile_each = [self._compile(unit, names) for unit in self._units()]
        objects = [f"{unit}.o" for unit in self._units()]
        libraries = [flag for flag in self._source.flags if flag.startswith(("-l", "-L", "-Wl,"))]
        if self._nvcc:
            libraries = [f"-Xlinker={flag[4:]}" if flag.startswith("-Wl,") else flag for flag in libraries]
            link = [*self._nvcc, "-shared", "-cudart=static", *self._generation]
        else:
            link = [*self._compiler, "-shared", *(flag for flag in self._source.flags if flag == "-fopenmp")]
        return [[*compile_each, runtime], [[*link, *objects, "runtime.o", *libraries, "-o", plans.LIBRARY]]]

    def _compile(self, unit: str, names: list[str]) -> list[str]:
        flags = [
            *FLAGS,
            *names,
            *self._source.flags,
            "-MMD",
            "-MF",
            f"{unit}.d",
            "-c",
            unit,
            "-o",
            f"{unit}.o",
        ]
        if unit.endswith(".cu"):
            return [*self._nvcc, *CUDA_FLAGS, *self._generation, "-Xcompiler=-fPIC", *flags]
        if self._nvcc:
            home = Path(self._nvcc[0]).resolve().parents[1]
            flags = ["-DCGINS_SHADOW_CUDA", "-isystem", str(home / "include"), *flags]
        return [*self._compiler, "-fPIC", *flags]

    def _defines(self, text: str) -> list[str]:
        """Macros: what costs a good part of a second to compile is there only where the source names it."""
        defines = [f"-DTORCH_EXTENSION_NAME={self._module}", "-DTORCH_API_INCLUDE_EXTENSION_H"]
        if not (self._exports.has_module or self._exports.wants_binding(self._source.entry)):
            defines.append("-DCGINS_SHADOW_NO_MODULE")
        if "TORCH_VERSION" in text:
            defines += _version_defines()
        if re.search(r"bf16|bfloat16", text, re.IGNORECASE):
            defines.append("-DCGINS_SHADOW_BFLOAT16")
        if re.search(r"cublas", text, re.IGNORECASE):
            defines.append("-DCGINS_SHADOW_CUBLAS")
        return defines

    def _folders(self) -> list[str]:
        return sorted({str(Path(file).absolute().parent) for file in self._source.files})


def _version_defines() -> list[str]:
    """Torch's version as its own headers have it: undefined, #if TORCH_VERSION_MAJOR >= 2 would be false."""
    include = torch_package().root / "include"
    texts = [include / "torch/headeronly/version.h", include / "torch/csrc/api/include/torch/version.h"]
    numbers = {
        name: value
        for path in texts
        if path.is_file()
        for name, value in re.findall(
            r"#define (TORCH_VERSION_(?:MAJOR|MINOR|PATCH)) (\d+)", path.read_text(encoding="utf-8")
        )
    }
    return [f"-D{name}={value}" for name, value in numbers.items()]


def annotate(log: str) -> str:
    """A compiler's output, with a line behind each error about a name that the shadow headers lack."""
    lines = []
    for line in log.splitlines():
        lines.append(line)
        found = UNKNOWN.search(line) if "error" in line else None
        if found is not None:
            name = next(text for text in found.groups() if text is not None)
            lines.append(f'  "{name}" is not in the shadow headers; build with the real ones')
    return "\n".join(lines)


def _binding(module: str, entry: str) -> str:
    return f'PYBIND11_MODULE({module}_entry, m) {{ m.def("{entry}", &{entry}); }}'


@lru_cache(maxsize=1)
def _headers_digest() -> str:
    digest = hashlib.sha256("\n".join(HEADERS).encode())
    sources = [Path(shadow_operators.__file__), Path(__file__)]
    for file in [*sorted(path for path in ROOT.rglob("*") if path.is_file()), *sources]:
        digest.update(f"{file.name}\0".encode() + file.read_bytes())
    return digest.hexdigest()
