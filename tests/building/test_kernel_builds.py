"""Kernels of a cgins.yaml by name: found and built once, their build time told once."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pytest_cgins.building import kernel_builds as supplies
from pytest_cgins.building.kernel_builds import KernelBuilds
from pytest_cgins.core.errors import ConfigError, InfrastructureError, LaunchError, SourceError
from pytest_cgins.run.kernels import KernelCache

if TYPE_CHECKING:
    from conftest import Project

KERNEL = """{op: torch.mul, implementations: [
    {name: cpp, device: cpu, source: kernel.cpp}, {name: cuda, device: cuda, source: gone.cu}]}"""


@pytest.fixture
def kernel_builds(
    project: Project, scale_text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[KernelBuilds]:
    """A kernel in C++ and a broken one in CUDA, on a machine without a driver."""
    monkeypatch.setattr(supplies, "DRIVERS", ())
    project.write("kernel.cpp", scale_text)
    project.write("gone.cu", scale_text)
    made = KernelBuilds(project.config(KERNEL), cache=tmp_path / "cache")
    yield made
    made.close()


def test_a_kernel_that_is_wanted_twice_is_built_once(kernel_builds: KernelBuilds) -> None:
    """Whoever takes it is told how long that took: who reports it is not always who asks first."""
    kernel_builds.build_ahead([("it", "cpp", "cpu")] * 2)
    first, second = (kernel_builds.kernel("it", "cpp", "cpu") for _ in range(2))
    assert first == second
    assert not first.cached
    assert first.build_seconds > 0
    assert kernel_builds.builds.progress().total == 1


def test_kernels_of_an_absent_device_are_not_built(kernel_builds: KernelBuilds) -> None:
    """Without a driver a CUDA kernel is left until torch has found a GPU, and dropped if it finds none."""
    kernel_builds.build_ahead([("it", "cuda", "cuda")])
    assert kernel_builds.builds.progress().total == 0
    kernel_builds.found_devices(["cpu"])
    assert kernel_builds.builds.progress().total == 0
    kernel_builds.build_ahead([("it", "cuda", "cuda")])
    kernel_builds.found_devices(["cpu", "cuda"])
    assert kernel_builds.builds.progress().total == 1


def test_errors_are_those_of_who_asks(kernel_builds: KernelBuilds, tmp_path: Path) -> None:
    """A source that is gone and a name that is wrong spoil no build ahead, and raise when they are asked for."""
    (tmp_path / "gone.cu").unlink()
    kernel_builds.build_ahead([("it", "cuda", "cuda"), ("it", "cp", "cpu"), ("it", "cpp", "cpu")])
    for _ in range(2):
        with pytest.raises(SourceError, match=r"cgins\.yaml:4: no such file: gone\.cu"):
            kernel_builds.kernel("it", "cuda", "cuda")
    with pytest.raises(ConfigError, match="no implementation 'cp' of kernel 'it' for cpu"):
        kernel_builds.kernel("it", "cp", "cpu")
    assert kernel_builds.kernel("it", "cpp", "cpu").library


def test_an_unusable_cache_says_what_to_do(kernel_builds: KernelBuilds, tmp_path: Path) -> None:
    """A file where the cache should be is an infrastructure error that names it."""
    (tmp_path / "cache").write_text("")
    with pytest.raises(
        InfrastructureError, match=rf"the build cache {tmp_path}/cache cannot be used"
    ) as found:
        kernel_builds.kernel("it", "cpp", "cpu")
    assert "CGINS_CACHE_DIR" in found.value.remedy


def test_a_library_that_was_altered_is_built_again(
    kernel_builds: KernelBuilds, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Other bytes of the same size and time, put there during the run or after it, are never handed out."""
    built = kernel_builds.kernel("it", "cpp", "cpu")
    library = Path(built.library)
    genuine = library.read_bytes()
    assert built.sha256 == hashlib.sha256(genuine).hexdigest()

    def overwrite() -> None:
        status = library.stat()
        library.write_bytes(genuine[:-4] + b"evil")
        os.utime(library, ns=(status.st_atime_ns, status.st_mtime_ns))

    overwrite()
    again = kernel_builds.kernel("it", "cpp", "cpu")
    assert Path(again.library).read_bytes()[-4:] != b"evil"
    assert again.sha256 == hashlib.sha256(Path(again.library).read_bytes()).hexdigest()
    assert f"{library} was altered after it was built: it is built again" in caplog.text
    overwrite()
    with closing(KernelBuilds(kernel_builds._config, cache=tmp_path / "cache")) as later:
        other = later.kernel("it", "cpp", "cpu")
    assert not other.cached
    assert Path(other.library).read_bytes()[-4:] != b"evil"


def test_a_worker_loads_nothing_that_was_altered(kernel_builds: KernelBuilds) -> None:
    """What is overwritten on its way to the worker is refused there."""
    built = kernel_builds.kernel("it", "cpp", "cpu")
    Path(built.library).write_bytes(Path(built.library).read_bytes() + b"more")
    with pytest.raises(LaunchError, match="was altered after it was built, and is not loaded"):
        KernelCache().load(built)
