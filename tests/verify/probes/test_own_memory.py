"""NVML's list of processes, from a library that stands in for it."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_cgins.verify.probes import own_memory

STAND_IN = """
#include <cstring>
struct Process { unsigned pid; unsigned long long used; unsigned gpu_instance, compute_instance; };
static int gpu;
extern "C" int nvmlInit_v2() { return BEGUN; }
extern "C" int nvmlDeviceGetHandleByUUID(const char* name, void** handle) {
  if (std::strcmp(name, "MIG-7")) return 6;
  *handle = &gpu;
  return 0;
}
extern "C" int nvmlDeviceGetComputeRunningProcesses_v3(void* handle, unsigned* count, Process* found) {
  if (handle != &gpu || *count < 4) return 7;
  const Process all[] = {{4711, 5ull << 32, 1, 2}, {9, 300, 1, 2}, {4711, 1, 1, 2}, {10, ~0ull, 1, 2}};
  std::memcpy(found, all, sizeof all);
  *count = 4;
  return ANSWER;
}
"""


@pytest.fixture
def nvml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[int, int], None]:
    """Puts a library in the place of NVML that begins and answers with the status that it is told."""
    opened = ctypes.CDLL

    def build(begun: int, answer: int) -> None:
        source, library = tmp_path / "nvml.cpp", tmp_path / "nvml.so"
        source.write_text(STAND_IN)
        defines = [f"-DBEGUN={begun}", f"-DANSWER={answer}"]
        subprocess.run(["g++", "-shared", "-fPIC", *defines, source, "-o", library], check=True)
        monkeypatch.setattr(own_memory.ctypes, "CDLL", lambda _name: opened(str(library)))
        monkeypatch.setattr(own_memory, "_names", lambda _index: ["GPU-7", "MIG-7"])

    return build


def test_processes_are_listed_with_what_they_hold(nvml: Callable[[int, int], None]) -> None:
    """A process's parts are added up, and one whose memory is withheld is left out."""
    nvml(0, 0)
    held = own_memory._listing(0)
    assert held is not None
    assert held() == {4711: (5 << 32) + 1, 9: 300}


def test_a_refusal_is_no_answer(nvml: Callable[[int, int], None]) -> None:
    """A GPU whose processes are not told has none."""
    nvml(0, 3)
    held = own_memory._listing(0)
    assert held is not None
    assert held() == {}


def test_a_library_that_does_not_begin_is_no_answer(nvml: Callable[[int, int], None]) -> None:
    """As without its driver."""
    nvml(9, 0)
    assert own_memory._listing(0) is None


def test_a_gpu_that_nvml_does_not_know_is_no_answer(
    nvml: Callable[[int, int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By none of its names."""
    nvml(0, 0)
    monkeypatch.setattr(own_memory, "_names", lambda _index: ["GPU-8"])
    assert own_memory._listing(0) is None


def test_without_the_library_there_is_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without NVIDIA's driver, or a container without its tools."""

    def absent(_name: str) -> ctypes.CDLL:
        raise OSError("no such file")

    monkeypatch.setattr(own_memory.ctypes, "CDLL", absent)
    assert own_memory._listing(0) is None
