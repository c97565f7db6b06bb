"""Which compilers are told not to share statics between libraries."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_cgins.building.builders import cuda
from pytest_cgins.building.compilers import toolchain
from tests.building.processes import executable


@pytest.fixture
def compilers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Scripts that say what GNU's compiler and clang say of themselves; the first is g++ on PATH."""
    said = {"g++": "Copyright (C) 2022 Free Software Foundation, Inc.", "clang++": "clang version 18.1.8"}
    for name, text in said.items():
        executable(tmp_path / name, f'#!/bin/sh\necho "{text}"\n')
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    for name in ("NVCC_CCBIN", "NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS"):
        monkeypatch.delenv(name, raising=False)
    toolchain.version.cache_clear()
    return {name: str(tmp_path / name) for name in said}


def test_gnu_alone_has_the_flag(compilers: dict[str, str]) -> None:
    """clang refuses it, and needs none; of a compiler that is not there nothing is known."""
    assert toolchain.own_statics((compilers["g++"],)) == ("-fno-gnu-unique",)
    assert toolchain.own_statics((compilers["clang++"],)) == ()
    assert toolchain.own_statics(("/nowhere/g++",)) == ()


@pytest.mark.parametrize("form", ["-ccbin={}", "-ccbin {}", "--compiler-bindir={}", "--compiler-bindir {}"])
def test_the_host_compiler_of_nvcc_decides(
    compilers: dict[str, str], monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    """It is g++ unless a flag or the environment names another, and the flag goes through nvcc."""
    gnu, clang = ("-Xcompiler=-fno-gnu-unique",), form.format(compilers["clang++"]).split()
    assert cuda.own_statics(()) == cuda.own_statics(("-O3",)) == gnu
    assert cuda.own_statics(clang) == ()
    monkeypatch.setenv("NVCC_APPEND_FLAGS", " ".join(clang))
    assert cuda.own_statics(()) == ()
    monkeypatch.delenv("NVCC_APPEND_FLAGS")
    monkeypatch.setenv("NVCC_CCBIN", compilers["clang++"])
    assert cuda.own_statics(()) == ()
