"""Names of CUDA architectures, and which a kernel is built for."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from pytest_cgins.building.compilers import architectures, toolchain
from pytest_cgins.core.errors import SourceError
from tests.building.processes import executable

HELP = """
        Allowed values for this option:  'all','all-major','compute_100','compute_100a',
        'lto_90a','native','sm_100','sm_100a','sm_100f','sm_75','sm_80','sm_90','sm_90a'.
"""


def test_known_architectures_are_those_in_the_help() -> None:
    """Machine code only, by number; PTX and other words are left out."""
    known = architectures.known_in(HELP)
    assert known == ("sm_75", "sm_80", "sm_90", "sm_90a", "sm_100", "sm_100a", "sm_100f")
    assert architectures.known_in("no such list") == ()


@pytest.mark.parametrize(
    ("asked", "declared", "built"),
    [
        ("sm_80", (), "sm_80"),
        ("sm_90", ("sm_90a",), "sm_90a"),
        ("sm_90a", ("sm_90",), "sm_90"),
        ("sm_90", ("sm_90a", "sm_90"), "sm_90"),
        ("sm_80", ("sm_90a",), None),
        ("sm_100", ("sm_90a", "sm_100f"), "sm_100f"),
        ("sm_90", ("compute_80",), "sm_90"),
        ("sm_90", ("sm_80", "compute_80"), None),
    ],
)
def test_a_kernel_is_built_for_what_it_names(
    asked: str, declared: tuple[str, ...], built: str | None
) -> None:
    """Of one chip the kernel's own spelling counts; a chip that it does not name is left out."""
    assert architectures.built_as(asked, declared) == built


@pytest.mark.parametrize(
    ("arch", "runs", "does_not"),
    [
        ("sm_80", [(8, 0), (8, 6), (8, 9)], [(7, 5), (9, 0)]),
        ("sm_86", [(8, 6), (8, 9)], [(8, 0)]),
        ("sm_90a", [(9, 0)], [(8, 0), (10, 0)]),
        ("sm_100f", [(10, 0), (10, 3)], [(9, 0), (12, 0)]),
        ("compute_80", [(8, 0), (9, 0), (12, 0)], [(7, 5)]),
        ("compute_90a", [(9, 0)], [(10, 0)]),
    ],
)
def test_which_gpus_run_a_build(
    arch: str, runs: list[tuple[int, int]], does_not: list[tuple[int, int]]
) -> None:
    """Machine code runs on later chips of a generation, PTX on all later ones, `a` on one chip alone."""
    assert all(architectures.runs_on(arch, gpu) for gpu in runs)
    assert not any(architectures.runs_on(arch, gpu) for gpu in does_not)


def test_default_architectures(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel's own, else the environment's, else the common ones that the compiler knows."""
    monkeypatch.setenv("CGINS_CUDA_ARCHS", "sm_75, compute_75")
    known = ("sm_80", "sm_90", "sm_90a")
    assert architectures.ahead(("sm_90a", "compute_90"), known) == ("sm_90a",)
    assert architectures.ahead((), known) == ("sm_75",)
    monkeypatch.delenv("CGINS_CUDA_ARCHS")
    assert architectures.ahead(("compute_80",), known) == ("sm_80", "sm_90a")
    assert architectures.ahead((), ()) == architectures.COMMON


@pytest.mark.skipif(not shutil.which("nvcc"), reason="no nvcc")
def test_what_the_compiler_does_not_know_is_refused_with_what_it_knows() -> None:
    """The remedy lists the names, of machine code and of PTX alike."""
    nvcc = toolchain.nvcc()
    architectures.require_known(["sm_80", "sm_90a", "compute_80"], nvcc)
    for arch in ("sm_13", "compute_13"):
        with pytest.raises(SourceError, match=f"cannot compile for {arch}") as caught:
            architectures.require_known(["sm_80", arch], nvcc)
        assert "it knows sm_" in caught.value.remedy
        assert "sm_90a" in caught.value.remedy
    with pytest.raises(SourceError, match='"hopper" is not a CUDA architecture'):
        architectures.number("hopper")


def test_devices_are_asked_for_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """nvidia-smi is asked again only when the driver tells of other devices; what is no answer is not kept."""
    driver = tmp_path / "driver"
    (driver / "gpus" / "0").mkdir(parents=True)
    (driver / "version").write_text("1")
    (driver / "gpus" / "0" / "information").write_text("H200")
    script = f"#!/bin/sh\necho >> {tmp_path}/asked\ncat {tmp_path}/answer\n"
    executable(tmp_path / "bin" / "nvidia-smi", script)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    monkeypatch.setenv("CGINS_CACHE_DIR", str(tmp_path / "cache"))
    (tmp_path / "answer").write_text("no devices were found\n")
    answers = [architectures._compute_capabilities(driver)]
    (tmp_path / "answer").write_text("9.0\n")
    answers += [architectures._compute_capabilities(driver) for _ in range(3)]
    (driver / "gpus" / "0" / "information").write_text("A100")
    (tmp_path / "answer").write_text("8.0\n")
    answers.append(architectures._compute_capabilities(driver))
    assert answers == ["no devices were found\n", "9.0\n", "9.0\n", "9.0\n", "8.0\n"]
    assert len((tmp_path / "asked").read_text()) == 3
