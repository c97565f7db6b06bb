"""The CUDA compiler as a library, and its headers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_cgins.building.nvrtc import cuda_headers
from pytest_cgins.doctor import nvrtc
from pytest_cgins.doctor.findings import Finding

OK = Finding(group="CUDA", name="NVRTC", state="ok", version="13.0")


@pytest.fixture(autouse=True)
def fresh_search() -> Iterator[None]:
    """Headers are looked for again in each test, and after the last."""
    cuda_headers.find.cache_clear()
    yield
    cuda_headers.find.cache_clear()


def headers_in(folder: Path, version: int = 13000, *names: str) -> Path:
    """A folder with headers of a CUDA version."""
    include = folder / "include"
    for name in ("cuda.h", *names):
        (include / name).parent.mkdir(parents=True, exist_ok=True)
        (include / name).write_text(f"#define CUDA_VERSION {version}\n" if name == "cuda.h" else "")
    return include


def test_here() -> None:
    """On a machine with the packages, both are found, tried and of one version."""
    library = nvrtc.library()
    assert (library.state, library.detail[:15]) == ("ok", "compiles for sm")
    headers = nvrtc.headers(library)
    assert (headers.state, headers.version) == ("ok", library.version)


def test_broken_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A library that cannot be loaded is told with its place and the loader's reason."""
    (tmp_path / "lib64").mkdir()
    (tmp_path / "lib64/libnvrtc.so.13").write_text("not a library")
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    found = nvrtc.library()
    assert (found.state, found.where) == ("unusable", str(tmp_path / "lib64/libnvrtc.so.13"))
    assert "cannot be loaded" in found.detail
    assert "pip install 'pytest-cgins[nvrtc]'" in found.remedy


def test_no_headers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without headers, the remedy is the extra."""
    monkeypatch.setattr(cuda_headers, "_places", list)
    found = nvrtc.headers(OK)
    assert found.state == "missing"
    assert "pip install 'pytest-cgins[nvrtc]'" in found.remedy


def test_headers_with_gaps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is missing is named, with the packages that bring it."""
    include = headers_in(tmp_path, 13000, "cuda_fp16.h", "cooperative_groups.h", "crt/mma.h")
    monkeypatch.setattr(cuda_headers, "_places", lambda: [include])
    found = nvrtc.headers(OK)
    assert (found.state, found.detail) == ("unusable", "without libcu++, cub")
    assert found.remedy == "pip install nvidia-cuda-cccl"


def test_headers_of_another_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Headers of the library's own version win; where there are none, the difference is told."""
    whole = list(cuda_headers.FEATURES.values())
    old = headers_in(tmp_path / "old", 12080, *whole)
    monkeypatch.setattr(cuda_headers, "_places", lambda: [old])
    found = nvrtc.headers(OK)
    assert (found.state, found.detail) == ("unusable", "of CUDA 12.8, and NVRTC is 13.0")
    assert "nvidia-cuda-runtime==13.0.*" in found.remedy
    same = headers_in(tmp_path / "same", 13000, *whole)
    monkeypatch.setattr(cuda_headers, "_places", lambda: [old, same])
    cuda_headers.find.cache_clear()
    assert (nvrtc.headers(OK).state, nvrtc.headers(OK).where) == ("ok", str(same))
