"""Driver and GPUs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_cgins.doctor import gpu

FAKE_NVML = """
import os
class NVMLError(Exception): pass
class NVMLError_LibraryNotFound(NVMLError): pass
def nvmlInit():
    if os.environ["DRIVER"] == "none":
        raise NVMLError_LibraryNotFound("no library")
    if os.environ["DRIVER"] == "broken":
        raise NVMLError("Driver/library version mismatch")
nvmlSystemGetDriverVersion = lambda: "570.86.15"
nvmlSystemGetCudaDriverVersion_v2 = lambda: 12080
nvmlDeviceGetCount = lambda: 1
nvmlDeviceGetHandleByIndex = lambda index: index
nvmlDeviceGetName = lambda device: "NVIDIA H200"
nvmlDeviceGetCudaComputeCapability = lambda device: (9, 0)
"""


FAKE_TORCH = """
from types import SimpleNamespace as N
__version__ = "2.9"
version = N(cuda="12.8", hip=None)
def ones(size, device):
    if device == "cuda:1":
        raise RuntimeError("no kernel image")
    return N(sum=lambda: N(item=lambda: 1))
cuda = N(
    device_count=lambda: 2,
    get_device_properties=lambda i: N(name=("good", "old")[i], major=9, minor=0, total_memory=1),
)
"""


def known(**changes: Any) -> gpu.Driver:
    values: dict[str, Any] = {
        "release": "570.86.15", "cuda": (12, 8), "gpus": (("NVIDIA H200", "9.0"),), "trouble": ""
    }  # fmt: skip
    return gpu.Driver(**(values | changes))


@pytest.fixture
def nvml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """NVIDIA's management library on a machine whose driver is `there`, `broken` or `none`."""
    (tmp_path / "pynvml.py").write_text(FAKE_NVML)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return lambda driver: monkeypatch.setenv("DRIVER", driver)


def test_driver_is_asked(nvml: Callable[[str], None], proc: Callable[..., Path]) -> None:
    """It tells its release, the CUDA version and the GPUs."""
    nvml("there")
    found = gpu.ask_driver(proc=proc())
    assert found == known()
    assert gpu.driver(found).state == "ok"
    assert gpu.driver(found).detail == "supports CUDA 12.8"


def test_no_driver(nvml: Callable[[str], None], proc: Callable[..., Path]) -> None:
    """Nothing of it is there: missing, with the remedy for containers."""
    nvml("none")
    found = gpu.ask_driver(proc=proc())
    assert not found.there
    assert gpu.driver(found).state == "missing"
    assert "--gpus all" in gpu.driver(found).remedy


def test_library_that_fails(nvml: Callable[[str], None], proc: Callable[..., Path]) -> None:
    """It is quoted; /proc gives the release of a driver that is loaded."""
    nvml("broken")
    found = gpu.driver(gpu.ask_driver(proc=proc()))
    assert (found.state, found.detail) == ("unusable", "Driver/library version mismatch")
    version = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.99.01  Tue Mar 4\nGCC version: 12\n"
    found = gpu.driver(gpu.ask_driver(proc=proc(driver__nvidia__version=version)))
    assert (found.state, found.version, found.detail) == (
        "unknown", "570.99.01", "Driver/library version mismatch"
    )  # fmt: skip


@pytest.mark.parametrize(("cuda", "state"), [((12, 0), "ok"), ((11, 8), "too-old"), ((), "unknown")])
def test_driver_versions(cuda: tuple[int, ...], state: str) -> None:
    """CUDA 12.0 or later; what nobody tells is unknown."""
    assert gpu.driver(known(cuda=cuda)).state == state


def test_usable_gpus() -> None:
    """Each that torch can use has a line with capability and memory."""
    torch = {"cuda": "12.8", "devices": [["NVIDIA H200", 9, 0, 150_000_000_000], ["Other", 8, 6, 1 << 30]]}
    first, second = gpu.gpus(known(), torch)
    assert (first.name, first.state, first.version) == ("GPU 0", "ok", "sm_90")
    assert first.detail == "NVIDIA H200, 139.7 GiB"
    assert (second.name, second.version) == ("GPU 1", "sm_86")


def test_one_of_several_gpus_is_not_usable() -> None:
    """The GPU on which torch fails is told beside those that are well, with what torch said."""
    torch = {"cuda": "12.8", "devices": [["NVIDIA H200", 9, 0, 1 << 30]], "trouble": "no kernel image"}
    first, second = gpu.gpus(known(), torch)
    assert (first.name, first.state) == ("GPU 0", "ok")
    assert (second.name, second.state) == ("GPU 1", "unusable")
    assert "no kernel image" in second.detail


def test_a_gpu_is_tried_before_it_is_listed(tmp_path: Path) -> None:
    """The probe does not list a GPU on which torch then fails."""
    (tmp_path / "torch.py").write_text(FAKE_TORCH)
    probe = Path(gpu.__file__).parent / "probes/torch_devices.py"
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run([sys.executable, probe], env=environment, capture_output=True, check=True)
    answer = json.loads(done.stdout)
    assert [name for name, *_ in answer["devices"]] == ["good"]
    assert answer["trouble"] == "no kernel image"


@pytest.mark.parametrize(
    ("torch", "environment", "detail"),
    [
        ({"cuda": None, "devices": []}, {}, "torch is built without CUDA"),
        (
            {"cuda": "13.0", "devices": []},
            {},
            "torch is built for CUDA 13.0 and the driver supports CUDA 12.8",
        ),
        ({"cuda": "12.6", "devices": []}, {"CUDA_VISIBLE_DEVICES": ""}, "CUDA_VISIBLE_DEVICES hides it"),
        (
            {"cuda": "12.6", "devices": [], "trouble": "out of memory"},
            {},
            "torch cannot use it: out of memory",
        ),
    ],
)
def test_gpu_that_torch_cannot_use(
    monkeypatch: pytest.MonkeyPatch, torch: dict[str, Any], environment: dict[str, str], detail: str
) -> None:
    """The driver lists a GPU and torch has none: the reason, and a remedy for it."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    (found,) = gpu.gpus(known(), torch)
    assert (found.state, found.version) == ("unusable", "sm_90")
    assert found.detail == f"NVIDIA H200 is there, but {detail}"
    assert found.remedy


def test_gpu_without_torch() -> None:
    """If torch cannot be asked, whether it can use the GPU is unknown; without any GPU it is missing."""
    assert gpu.gpus(known(), None)[0].state == "unknown"
    assert gpu.gpus(known(gpus=()), None)[0].state == "missing"
