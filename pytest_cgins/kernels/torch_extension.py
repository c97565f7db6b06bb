"""Torch extensions: a function on `torch::Tensor`, built by torch's `load_inline` in a process of its own.

The parent plans without importing torch. The child (`python -m pytest_cgins.kernels.torch_extension`) runs in
the build folder; `load_inline` imports what it has built, so the child executes the library's initialisers.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import subprocess
import sys
import sysconfig
from importlib.util import find_spec
from pathlib import Path

from pytest_cgins.errors import InfrastructureError, SourceError
from pytest_cgins.kernels import plan as plans
from pytest_cgins.kernels import toolchain
from pytest_cgins.kernels.source import code_of, portable_flags, read
from pytest_cgins.model import KernelSource

# torch's builds have no optimisation flag of their own for C++: without one a CPU timing means nothing.
FLAGS = ("-O3",)
JOB_NBYTES = 3 << 30


def plan(source: KernelSource) -> plans.Plan:
    """How to build a torch extension.

    Raises:
        SourceError: the entry's declaration cannot be read from a CUDA source.
        InfrastructureError: torch, ninja or a compiler is missing.
    """
    compiler = toolchain.cxx()
    archs = (source.archs or toolchain.present_archs()) if source.device == "cuda" else ()
    identity = (
        torch_identity(), toolchain.version(compiler), *FLAGS, *archs, *portable_flags(source.flags),
        *(_cuda_identity() if source.device == "cuda" else ()),
        *plans.environment_identity("CPATH", "CPLUS_INCLUDE_PATH", "LIBRARY_PATH", "NVCC_APPEND_FLAGS"),
    )  # fmt: skip
    texts = [read(Path(file)) for file in source.files]
    module = "cgins_" + hashlib.sha256("\0".join((*identity, *texts)).encode()).hexdigest()[:16]
    order = json.dumps(
        {
            "name": module,
            "entry": source.entry,
            "files": source.files,
            "declaration": declaration(source.files[0], texts[0], source.entry),
            "bind": "PYBIND11_MODULE" not in code_of("\n".join(texts)),
            "flags": [*FLAGS, *source.flags],
        }
    )
    return plans.Plan(
        compiler="torch's load_inline",
        identity=identity,
        roots=plans.header_roots(source),
        commands=lambda _: [[sys.executable, "-m", "pytest_cgins.kernels.torch_extension", order]],
        environment=_environment(compiler, archs),
        module=module,
    )


def torch_identity() -> str:
    """Version, git hash, ABI and CUDA of torch, and Python's own ABI; torch is not imported.

    Raises:
        InfrastructureError: there is no torch.
    """
    spec = find_spec("torch")
    if spec is None or spec.origin is None:
        raise InfrastructureError("torch is not installed", remedy="pip install torch")
    root = Path(spec.origin).parent
    # version.py has version, git hash and CUDA; the CMake file has the C++ ABI.
    files = [root / "version.py", root / "share/cmake/Torch/TorchConfig.cmake"]
    texts = [file.read_text(encoding="utf-8") for file in files if file.is_file()]
    return hashlib.sha256("\0".join([*texts, str(sysconfig.get_config_var("SOABI"))]).encode()).hexdigest()


def _cuda_identity() -> tuple[str, ...]:
    return (toolchain.version(toolchain.nvcc()),)


def declaration(file: str, text: str, entry: str) -> str:
    """What `load_inline` needs besides a CUDA source: the C++ declaration of its entry; "" for C++.

    Raises:
        SourceError: no definition of the entry starts a line of the source.
    """
    if Path(file).suffix != ".cu":
        return ""
    name = re.escape(entry)
    found = re.search(
        rf"^[ \t]*(?P<head>[\w:][\w:<>,&*\s]*?[\s&*>]{name}\s*\([^;{{]*\))\s*\{{", code_of(text), re.MULTILINE
    )
    if found is None:
        raise SourceError(
            f'{file}: no definition of "{entry}" starts a line',
            remedy=f"write torch::Tensor {entry}(torch::Tensor x, …) {{ at the start of a line, or list a .cpp "
            "source first that defines it",
        )
    return " ".join(found["head"].split()) + ";"


def _environment(compiler: tuple[str, ...], archs: tuple[str, ...]) -> dict[str, str]:
    package_root = str(Path(__file__).parents[2])
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    jobs = max(1, min(os.cpu_count() or 1, memory // JOB_NBYTES))
    environment = {
        "CXX": shlex.join(compiler),
        "MAX_JOBS": os.environ.get("MAX_JOBS", str(jobs)),
        "PATH": os.pathsep.join([*_ninja_folder(), os.environ.get("PATH", "")]),
        "PYTHONPATH": os.pathsep.join(filter(None, [package_root, os.environ.get("PYTHONPATH", "")])),
    }
    if archs:
        environment["TORCH_CUDA_ARCH_LIST"] = ";".join(torch_arch(arch) for arch in archs)
    return environment


def torch_arch(arch: str) -> str:
    """Torch's name of an architecture: `sm_90a` is 9.0a, `compute_80` is 8.0+PTX.

    Raises:
        SourceError: the name is neither.
    """
    named = re.fullmatch(r"(sm|compute)_(\d+)(\d[af]?)", arch)
    if named is None:
        raise SourceError(
            f'"{arch}" is not a CUDA architecture', remedy="write sm_90a, or compute_80 for PTX"
        )
    return f"{named[2]}.{named[3]}" + ("+PTX" if named[1] == "compute" else "")


def _ninja_folder() -> list[str]:
    """Folder of the ninja that came with the Python package, which need not be on PATH."""
    if find_spec("ninja") is None:
        return []
    import ninja

    return [str(ninja.BIN_DIR)]


def main(order_text: str) -> None:
    """Build in the current folder, leaving `kernel.so` and the depfile of the user's headers."""
    from torch.utils import cpp_extension

    order = json.loads(order_text)
    folder = Path.cwd()
    texts = {file: f'#line 1 "{file}"\n{Path(file).read_text(encoding="utf-8")}' for file in order["files"]}
    cuda = [text for file, text in texts.items() if file.endswith(".cu")]
    cpp = [text for file, text in texts.items() if not file.endswith(".cu")]
    cpp_extension.load_inline(
        name=order["name"],
        cpp_sources=[*cpp, order["declaration"]],
        cuda_sources=cuda,
        functions=[order["entry"]] if order["bind"] else None,
        extra_cflags=order["flags"],
        extra_cuda_cflags=order["flags"],
        extra_include_paths=sorted({str(Path(file).parent) for file in order["files"]}),
        build_directory=str(folder),
        verbose=True,
    )
    (folder / f"{order['name']}.so").rename(folder / plans.LIBRARY)
    listed = subprocess.run(["ninja", "-t", "deps"], capture_output=True, text=True, check=True).stdout
    headers = {line.strip() for line in listed.splitlines() if line.startswith("    ")}
    # torch's and CUDA's own headers are in the key by version; hashing thousands would cost every lookup.
    toolkits = ["/usr/include", "/usr/lib", sysconfig.get_paths()["include"], *_torch_and_cuda()]
    own = [path for path in sorted(headers) if path[0] == "/" and not path.startswith(tuple(toolkits))]
    (folder / "extension.d").write_text(f"{plans.LIBRARY}: {shlex.join(own)}\n", encoding="utf-8")


def _torch_and_cuda() -> list[str]:
    from torch.utils import cpp_extension

    # Its include paths for CUDA cannot be asked for where there is no CUDA.
    torch_root = Path(cpp_extension.__file__).parents[1]
    return [str(torch_root), *([cpp_extension.CUDA_HOME] if cpp_extension.CUDA_HOME else [])]


if __name__ == "__main__":
    main(sys.argv[1])
