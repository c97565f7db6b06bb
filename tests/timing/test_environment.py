"""What a measurement was made with."""

from __future__ import annotations

import platform
from pathlib import Path

import pytest
import torch

from pytest_cgins.timing import environment


def test_the_host_is_described() -> None:
    """Model, versions and cores of the machine that the test runs on."""
    described = environment.describe("cpu")
    assert described.device == "cpu"
    assert described.device_name == environment.cpu_model() != ""
    assert described.torch == torch.__version__
    assert described.python == platform.python_version()
    assert described.driver == ""
    assert described.host_cores >= 1


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
    monkeypatch.setattr(environment, "_CPU_INFO", file)
    assert environment.cpu_model() == name


def test_without_cpuinfo_there_is_still_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The platform's own word is used where the kernel has none."""
    monkeypatch.setattr(environment, "_CPU_INFO", tmp_path / "absent")
    assert environment.cpu_model()


def test_the_cpu_has_one_key() -> None:
    """Whatever times on the host excludes each other."""
    assert environment.device_key("cpu") == "cpu"
