"""Environments as words tell of them, and builds in another one."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from pytest_cgins.building import other_environment
from pytest_cgins.building.compilers import toolchain
from pytest_cgins.building.contracts import source as sources
from pytest_cgins.config import load
from pytest_cgins.core.case import KernelSource
from pytest_cgins.core.errors import BuildError, CginsError, ConfigError

RELU = """\
// cgins: relu(Tensor input) -> Tensor
#include <cgins.h>
extern "C" int relu(const DLTensor* input, DLTensor* out, cgins_stream) {
  for (int64_t i = 0; i < cgins::numel(input); ++i)
    cgins::data<float>(out)[i] = cgins::data<const float>(input)[i] > 0 ? cgins::data<const float>(input)[i] : 0;
  return BROKEN 0;
}
"""


def compiler(folder: Path, *flags: str) -> Path:
    """A script around the compiler that adds flags, as ccache's and toolchains' wrappers do."""
    script = folder / "cxx"
    script.write_text(f'#!/bin/sh\nexec {" ".join(toolchain.cxx())} "$@" {" ".join(flags)}\n')
    script.chmod(0o755)
    return script


def printed_in(other: other_environment.OtherEnvironment, program: str) -> str:
    """What a program prints there behind our mark."""
    return other_environment._printed(other.command, other.path + program, other.environ(), other.text, 60.0)


def test_words_are_variables_folders_wheels_and_pythons(tmp_path: Path) -> None:
    """A wheel's modules and a folder's come before those that are installed; a variable keeps its blanks."""
    wheel = tmp_path / "kernels-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("kernels_of_the_wheel.py", "VERSION = 1\n")
    (tmp_path / "lib").mkdir()
    other = other_environment.read(
        f"{wheel.name} lib 'NVCC_APPEND_FLAGS=-Xptxas -O1' {sys.executable}", tmp_path
    )
    unpacked, lib = other.variables["PYTHONPATH"].split(os.pathsep)[:2]
    assert (Path(unpacked) / "kernels_of_the_wheel.py").read_text() == "VERSION = 1\n"
    assert lib == str(tmp_path / "lib")
    assert other.variables["NVCC_APPEND_FLAGS"] == "-Xptxas -O1"
    assert other.command == (sys.executable,)
    # Triton knows a compiler by its version alone, which a script around it shares.
    caches = {other_environment.read(text, tmp_path).variables["TRITON_CACHE_DIR"] for text in ("A=1", "A=2")}
    assert len(caches) == 2


def test_an_environment_finds_no_package_of_ours_but_what_it_lacks(tmp_path: Path) -> None:
    """Its own torch and Triton are imported, never this process's: what ours has beside is not in its path."""
    (tmp_path / "torch.py").write_text("HERE = True\n")
    (tmp_path / "pydantic").mkdir()
    (tmp_path / "pydantic/__init__.py").write_text("")
    (tmp_path / "annotated_types.py").write_text("")
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH={tmp_path} exec {sys.executable} -S "$@"\n')
    python.chmod(0o755)
    other = other_environment.read("./python", tmp_path)
    program = "import torch, importlib.util as u; print('cgins-answer', torch.HERE, u.find_spec('numpy'), bool(u.find_spec('pytest_cgins')))"
    assert printed_in(other, program) == "True None True"


@pytest.mark.exam
def test_a_containers_root_is_entered(tmp_path: Path) -> None:
    """Its Python runs in it, and sees our package, the project's folder and devices; this machine's root is one."""
    python = next(name for name in other_environment._PYTHONS_OF_ROOTS if (Path("/") / name).is_file())
    version = subprocess.run([f"/{python}", "--version"], capture_output=True, text=True, check=True).stdout
    if version.split()[1].rpartition(".")[0] != f"{sys.version_info[0]}.{sys.version_info[1]}":
        pytest.skip(f"the system's Python is another than this one: {version}")
    packages = Path(pytest.__file__).parents[1]
    other = other_environment.read(f"/ PYTHONPATH={packages}", tmp_path)
    assert other.command[0] == "unshare"
    assert printed_in(
        other, "import os, torch; print('cgins-answer ' + os.path.realpath('/proc/self/exe'))"
    ).startswith("/usr/")


def test_a_library_takes_the_place_of_the_one_of_its_name(tmp_path: Path) -> None:
    """What a kernel loads is that of the environment, and so is its digest; other names stay."""
    for folder, content in (("old", b"1"), ("new", b"2")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "libops.so").write_bytes(content)
    source = KernelSource(
        kernel="k", implementation="i", op="ops.k", device="cpu", contract="python", entry="ops.ops.k", schema="",
        module="torch", load=(str(tmp_path / "new/libops.so"), "ops.meta"), files=(), digest="d",
    )  # fmt: skip
    built = other_environment.read("old/libops.so", tmp_path).build(source)
    assert built.source.load == (str(tmp_path / "old/libops.so"), "ops.meta")
    assert built.source.digest != source.digest
    assert other_environment.read("A=1", tmp_path).build(source).source == source


@pytest.mark.parametrize(
    ("script", "told", "remedy"),
    [
        ('exec {python} -S "$@"', "has no torch", "-m pip install torch"),
        ("echo 'cgins-answer [[3, 8], []]'", "has Python 3.8", "3.10 is the oldest"),
        (
            "echo 'cgins-answer [[3, 99], [\"torch\"]]'",
            "has Python 3.99 without pydantic",
            "-m pip install pydantic",
        ),
        ("echo lost >&2; exit 3", "its Python ended with 3: lost", "run it by hand"),
    ],
)
def test_an_environment_that_lacks_something_says_what(
    tmp_path: Path, script: str, told: str, remedy: str
) -> None:
    """Before any kernel is built."""
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\n{script.format(python=sys.executable)}\n")
    python.chmod(0o755)
    with pytest.raises(CginsError) as caught:
        other_environment.read(str(python), tmp_path)
    assert told in caught.value.what
    assert remedy in caught.value.remedy


@pytest.mark.parametrize("text", ["", "nothing-here", "'open", "archive.whl"])
def test_words_that_name_nothing_are_refused(tmp_path: Path, text: str) -> None:
    """A misspelt path is no environment."""
    with pytest.raises(ConfigError):
        other_environment.read(text, tmp_path)


@pytest.mark.exam
def test_kernels_are_built_by_the_compiler_of_the_environment(tmp_path: Path) -> None:
    """Flags of a script around it make another build, though its version is the same; its errors are told as ours are."""
    (tmp_path / "relu.cpp").write_text(RELU)
    (tmp_path / "cgins.yaml").write_text(
        "version: 1\ntraces: []\nkernels: {relu: {op: torch.relu, source: relu.cpp, device: cpu}}\n"
    )
    config = load(tmp_path / "cgins.yaml", require_traces=False)
    source = sources.find(config, config.kernels[0], config.kernels[0].implementations[0])
    builds = [
        other_environment.read(f"CXX={compiler(tmp_path, f'-DBROKEN={sign}')}", tmp_path).build(source)
        for sign in ("+", "-")
    ]
    assert builds[0].key != builds[1].key
    wrong = other_environment.read(f"CXX={compiler(tmp_path, '-DBROKEN=!!!')}", tmp_path)
    with pytest.raises(BuildError) as caught:
        other_environment.read("CXX=g++", tmp_path).build(source)
    assert "BROKEN" in caught.value.log
    assert "built in CXX=g++" in caught.value.what
    assert wrong.build(source).library != builds[0].library
