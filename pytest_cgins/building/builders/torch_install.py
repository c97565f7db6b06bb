"""What building against torch needs to know of the installed torch, read from its folder without importing it."""

from __future__ import annotations

import hashlib
import mmap
import re
import sysconfig
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

from pytest_cgins.core.errors import InfrastructureError
from pytest_cgins.core.text import text_of

LIBRARIES = ("c10", "torch_cpu", "torch", "torch_python")
CUDA_LIBRARIES = ("c10", "c10_cuda", "torch_cpu", "torch_cuda", "torch", "torch_python")
# pybind11 keeps its types apart by compiler; up to torch 2.8 torch names its own compiler to extensions.
PYBIND_INTERNALS = re.compile(rb"__pybind11_internals_v\d+(_gcc|_clang|_icc)(_libstdcpp|_libcpp)(_cxxabi\d+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class TorchPackage:
    """An installed torch."""

    root: Path
    """Folder of the package."""
    identity: str
    """Hash of its version, git hash, CUDA, C++ ABI and of Python's own ABI."""
    standard: str
    """The C++ standard that its extensions are compiled with, e.g. `c++17`."""
    defines: tuple[str, ...]
    """Flags that make an extension fit its C++ ABI and its pybind11."""

    @property
    def includes(self) -> tuple[Path, ...]:
        """Folders of headers, in order: torch's own two, then Python's."""
        own = self.root / "include"
        return (own, own / "torch/csrc/api/include", Path(sysconfig.get_path("include")))

    def link_flags(self, *, cuda: bool) -> list[str]:
        """Flags that link an extension.

        A library that this torch lacks is left out, so that a torch for CPUs will do to compile CUDA.
        """
        folder = self.root / "lib"
        names = CUDA_LIBRARIES if cuda else LIBRARIES
        present = [name for name in names if (folder / f"lib{name}.so").exists()]
        return [f"-L{folder}", *(f"-l{name}" for name in present)]


@lru_cache(maxsize=1)
def torch_package() -> TorchPackage:
    """The installed torch.

    Raises:
        InfrastructureError: there is none.
    """
    spec = find_spec("torch")
    if spec is None or spec.origin is None:
        raise InfrastructureError("torch is not installed", remedy="pip install torch")
    root = Path(spec.origin).parent
    # version.py has version, git hash and CUDA; the CMake file has the C++ ABI where there is a choice.
    config = text_of(root / "share/cmake/Torch/TorchConfig.cmake")
    extension = text_of(root / "utils/cpp_extension.py")
    parts = [text_of(root / "version.py"), config, str(sysconfig.get_config_var("SOABI"))]
    standard = re.search(r"'-fPIC', '-std=(c\+\+\d+)'", extension)
    abi = re.search(r"-D_GLIBCXX_USE_CXX11_ABI=\d", config)
    return TorchPackage(
        root=root,
        identity=hashlib.sha256("\0".join(parts).encode()).hexdigest(),
        standard=standard[1] if standard else "c++17",
        defines=((abi[0],) if abi else ())
        + (_pybind_defines(root) if "PYBIND11_BUILD_ABI" in extension else ()),
    )


def _pybind_defines(root: Path) -> tuple[str, ...]:
    """Flags with the compiler that torch's own pybind11 was built by, read from its library's data."""
    found = None
    with suppress(OSError, ValueError), (root / "lib/libtorch_python.so").open("rb") as file:
        found = PYBIND_INTERNALS.search(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    values = zip(("COMPILER_TYPE", "STDLIB", "BUILD_ABI"), found.groups() if found else (), strict=False)
    return tuple(f'-DPYBIND11_{name}="{value.decode()}"' for name, value in values)
