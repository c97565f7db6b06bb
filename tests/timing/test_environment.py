"""What a measurement was made with."""

from __future__ import annotations

import platform
from pathlib import Path

import pytest
import torch

from pytest_cgins.core.environment_key import TIMING_PROTOCOL
from pytest_cgins.timing import environment
from pytest_cgins.timing.devices import cpu, cuda
from pytest_cgins.timing.devices.cpu import Cpu


def test_the_host_is_described() -> None:
    """Model, versions and cores of the machine that the test runs on."""
    described = environment.describe("cpu")
    assert described.device == "cpu"
    assert described.device_name == Cpu().model() != ""
    assert described.torch == torch.__version__
    assert described.python == platform.python_version()
    assert described.driver == ""
    assert described.host_cores >= 1
    assert described.protocol == TIMING_PROTOCOL
    assert (described.device_uuid, described.sm_count, described.memory_nbytes) == ("", 0, 0)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("processor\t: 0\nmodel name\t: Fast CPU @ 3 GHz\n", "Fast CPU @ 3 GHz"),
        ("processor\t: 0\nModel\t\t: Raspberry Pi 5\n", "Raspberry Pi 5"),
    ],
)
def test_the_cpu_s_name_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, name: str
) -> None:
    """x86 and ARM kernels write it differently."""
    file = tmp_path / "cpuinfo"
    file.write_text(text)
    monkeypatch.setattr(cpu, "_CPU_INFO", file)
    assert Cpu().model() == name


def test_without_cpuinfo_there_is_still_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The platform's own word is used where the kernel has none."""
    monkeypatch.setattr(cpu, "_CPU_INFO", tmp_path / "absent")
    assert Cpu().model()


def test_the_cpu_has_one_key() -> None:
    """Whatever times on the host excludes each other."""
    assert Cpu().lock_key() == "cpu"


@pytest.fixture
def cpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two cores, and what /sys tells of their clocks: nothing yet."""
    for core in (0, 1):
        (tmp_path / f"cpu{core}" / "cpufreq").mkdir(parents=True)
    monkeypatch.setattr(cpu, "_CPUS", tmp_path)
    monkeypatch.setattr(cpu, "cores", lambda: [0, 1])
    return tmp_path


@pytest.mark.parametrize(
    ("file", "content", "turbo"),
    [
        ("intel_pstate/no_turbo", "1\n", "turbo off"),
        ("intel_pstate/no_turbo", "0\n", "turbo on"),
        ("cpufreq/boost", "1\n", "turbo on"),
        ("cpufreq/boost", "0\n", "turbo off"),
    ],
)
def test_the_cpu_s_clock_policy_is_read(cpus: Path, file: str, content: str, turbo: str) -> None:
    """Intel's driver and the others write the switch the other way round; governors are told once each."""
    for core, governor in enumerate(["performance", "powersave"]):
        (cpus / f"cpu{core}/cpufreq/scaling_governor").write_text(governor + "\n")
    (cpus / file).parent.mkdir(exist_ok=True)
    (cpus / file).write_text(content)
    assert cpu.clock_policy() == f"governor performance/powersave, {turbo}"


def test_a_machine_that_is_not_told_has_no_policy(cpus: Path) -> None:
    """As virtual machines; one that knows the governors alone tells those."""
    assert cpu.clock_policy() == ""
    for core in (0, 1):
        (cpus / f"cpu{core}/cpufreq/scaling_governor").write_text("schedutil\n")
    assert cpu.clock_policy() == "governor schedutil"


@pytest.mark.parametrize(("number", "text"), [(91002, "9.10.2"), (None, "")])
def test_cudnn_s_number_is_a_version(number: int | None, text: str) -> None:
    """Its ninth version changed how it counts."""
    assert cuda._cudnn(number) == text


def test_a_cublas_that_is_not_loaded_has_no_version() -> None:
    """Nor is one loaded to ask it."""
    assert cuda._cublas("") == cuda._cublas("1.0") == ""
