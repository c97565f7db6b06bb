"""CUDA's own headers: where they lie for NVRTC, which version they are, and which package brings a missing one."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from pytest_cgins.building.compilers import toolkit
from pytest_cgins.core.text import text_of

# Folders and names at the beginning of an include, and the package of NVIDIA's that has them.
PACKAGES = {
    "crt": "nvidia-cuda-crt", "mma.h": "nvidia-cuda-runtime", "cub": "nvidia-cuda-cccl",
    "thrust": "nvidia-cuda-cccl", "cuda": "nvidia-cuda-cccl", "nv": "nvidia-cuda-cccl",
    "cute": "nvidia-cutlass", "cutlass": "nvidia-cutlass", "curand_kernel.h": "nvidia-curand",
    "cooperative_groups": "nvidia-cuda-runtime", "cooperative_groups.h": "nvidia-cuda-runtime",
    "cuda_fp16.h": "nvidia-cuda-runtime", "cuda_bf16.h": "nvidia-cuda-runtime",
    "cuda_fp8.h": "nvidia-cuda-runtime", "cuda_pipeline.h": "nvidia-cuda-runtime",
    "cuComplex.h": "nvidia-cuda-runtime", "vector_types.h": "nvidia-cuda-runtime",
}  # fmt: skip
FEATURES = {
    "half precision": "cuda_fp16.h",
    "cooperative groups": "cooperative_groups.h",
    "libcu++": "cuda/std/cstdint",
    "cub": "cub/cub.cuh",
    "wmma": "crt/mma.h",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class CudaHeaders:
    """Folders of CUDA's headers."""

    folders: tuple[Path, ...]
    """In the order in which they are searched; all of one CUDA version."""
    version: tuple[int, int]
    """CUDA version, e.g. (13, 0); (0, 0) if there are no headers."""
    identity: str
    """What tells one set of headers from another: the versions of CUDA and of its C++ library."""

    def find(self, name: str) -> Path | None:
        """A header by the name of an include line; None if there is none."""
        return next((folder / name for folder in self.folders if (folder / name).is_file()), None)

    def missing(self) -> dict[str, str]:
        """What kernels cannot use, and the header that is missing for it."""
        return {feature: header for feature, header in FEATURES.items() if self.find(header) is None}


@lru_cache(maxsize=4)
def find(wanted: tuple[int, int] | None = None) -> CudaHeaders:
    """CUDA's headers on this machine.

    Args:
        wanted: version of the compiler; headers of that version are preferred, since others may be refused.
    """
    versions = {folder: found for folder in _places() if (found := _version(folder))}
    if not versions:
        return CudaHeaders(folders=(), version=(0, 0), identity="no CUDA headers")
    chosen = wanted if wanted and wanted in versions.values() else next(iter(versions.values()))
    folders: list[Path] = []
    for folder in (folder for folder, found in versions.items() if found == chosen):
        # CUDA 13 has its C++ library in a folder of its own, CUDA 12's packages in another package.
        packages = [folder.parents[1] / f"{package}/include" for package in ("cuda_cccl", "cuda_nvcc")]
        beside = (folder, folder / "cccl", *packages)
        folders += [place for place in beside if place.is_dir() and place not in folders]
    library = next((text for place in folders if (text := _cccl_version(place))), "none")
    identity = f"CUDA headers {chosen[0]}.{chosen[1]}, CCCL {library}"
    return CudaHeaders(folders=tuple(folders), version=chosen, identity=identity)


def _places() -> list[Path]:
    packages = [*toolkit.packaged("cu[0-9]*/include"), *toolkit.packaged("cuda_runtime/include")]
    return [*(home / "include" for home in toolkit.named()), *packages, toolkit.USUAL / "include"]


def _version(folder: Path) -> tuple[int, int] | None:
    for name, macro in (("cuda.h", "CUDA_VERSION"), ("cuda_runtime_api.h", "CUDART_VERSION")):
        if found := re.search(rf"#define {macro}\s+(\d+)", text_of(folder / name)):
            return int(found[1]) // 1000, int(found[1]) % 1000 // 10
    return None


def _cccl_version(folder: Path) -> str:
    found = re.search(r"#\s*define CCCL_VERSION\s+(\d+)", text_of(folder / "cuda/std/__cccl/version.h"))
    return found[1] if found else ""


def package_of(header: str) -> str:
    """The package for Python that brings a header, by the name of an include line; "" if none is known."""
    return PACKAGES.get(header, PACKAGES.get(header.partition("/")[0], ""))
