"""Flags that a project may give compilers, and those that would have them start the project's own programs."""

from __future__ import annotations

import shlex
from dataclasses import replace
from typing import Any

import pytest

from pytest_cgins.building import build
from pytest_cgins.building.contracts.flags import refused
from pytest_cgins.core.errors import SourceError

ALLOWED = """
-O0 -Og -Ofast -g -g1 -ggdb -std=c++20 --std=c++17 -DkThreads=(32*2) -D X=1 -UNDEBUG -fopenmp -ffast-math -fno-math-errno
-ffp-contract=off -funroll-loops -flto -fuse-ld=gold -fsanitize=address -ftemplate-depth=2048 -fvisibility=hidden -fopt-info-vec
-march=native -mavx2 -mprefer-vector-width=256 -Wextra -Werror=all -Wno-unused-variable -w -pthread -static-libstdc++
-I include -I../shared -isystem /opt/x -include k.h -L/x/lib -lm -l:libx.a lib/libx.a /abs/libx.so.1 x.o
-Wl,-rpath,/x/lib -Wl,-rpath=/x -Wl,-z,now -Wl,--no-undefined -Wl,--as-needed -Xlinker -rpath -Xlinker /x
--use_fast_math -lineinfo -G -rdc=true -dlto --fmad=false -ftz=true -maxrregcount=64 --maxrregcount 64 -t 0
-gencode arch=compute_80,code=sm_80 -gencode=arch=compute_80,code=[sm_80,compute_80] -arch=sm_90a --expt-relaxed-constexpr
-Xcompiler=-fopenmp,-O3 -Xcompiler -fPIC -Xptxas=-v,-O3 -Xptxas -dlcm=ca -diag-suppress=20012 --pre-include=k.h
-Xcudafe --diag_suppress=177 -Xcudafe --display_error_number -Xfatbin -compress-all -ffile-prefix-map=/a=/b
"""
STARTS_A_PROGRAM = """
'-ccbin=tools/g++' '-ccbin tools' '--compiler-bindir tools' '-B tools' -Btools/ -fplugin=./x.so -fplugin=x -fpass-plugin=x.so
-specs=x '-specs x' --specs=x '-wrapper sh,-c,x' '-fmodule-mapper=|x' -fmodule-mapper=x '-Xclang -load' '-mllvm -load=x'
-fuse-ld=tools/ld --ld-path=tools/ld --gcc-toolchain=tools -iplugindir=tools -no-integrated-cpp -Wl,-plugin,x.so -Wl,--plugin=x
'-Xlinker -plugin' -Xlinker=--plugin=x -Xcompiler=-Btools '-Xcompiler -fplugin=x' -Xcompiler=-O2,-specs=x -run --run
"""
READS_FLAGS = """
@flags '-isystem @flags' '-include @flags' '-D @flags' -I@flags '-Xlinker @flags' -Wl,@flags -Xcompiler=@flags '-Xcompiler @flags'
-optf=x '-optf x' --options-file=x -Xptxas=-optf -Xptxas=--options-file=x --config=x -Wp,@flags -Wa,@flags
'-Xcudafe @flags' '-Xcudafe --gen_c_file_name=/x' '-Xfatbin @flags'
"""
WRITES_ELSEWHERE = """
'-o /x' '-MF /x' -Wp,-MD,/x '-time x' --keep-dir=/x '-dumpdir /x' -save-temps=/x -fdump-tree-all=/x --pch-dir=/x -fprofile-dir=/x
"""


def test_flags_that_choose_code_are_allowed() -> None:
    """Optimization, warnings, macros, search folders, libraries, architectures, in the forms that people write."""
    assert list(refused(shlex.split(ALLOWED))) == []


@pytest.mark.parametrize("flag", shlex.split(STARTS_A_PROGRAM + READS_FLAGS + WRITES_ELSEWHERE))
def test_flags_that_choose_programs_and_files_are_refused(flag: str) -> None:
    """In one word or two, through nvcc to another tool, behind a comma."""
    assert list(refused(["-O2", *flag.split(" "), "-O2"]))


@pytest.mark.parametrize("flag", ["-static-libgcc", "-Xcompiler=-O2,-static-libgcc"])
def test_a_static_unwinder_is_refused_with_what_to_do(project: Any, scale_text: str, flag: str) -> None:
    """It would be built, and then accused of looking around."""
    project.write("k.cpp", scale_text)
    with pytest.raises(SourceError, match=r"libgcc links an unwinder in .* \(_dl_find_object\)") as caught:
        build.build(replace(project.source("{op: torch.mul, source: k.cpp}"), flags=(flag,)))
    assert caught.value.remedy.startswith("leave it out: torch needs libgcc_s.so.1 as well")


def test_a_refused_flag_is_the_kernel_s_error(project: Any, scale_text: str) -> None:
    """No program is started, not to ask its version either, and the message names the flag and what to do."""
    marker = project.root / "ran"
    tool = project.write("tools/as", f"#!/bin/sh\ntouch {marker}\n")
    tool.chmod(0o755)
    project.write("k.cpp", scale_text)
    source = project.source("{op: torch.mul, source: k.cpp}")
    with pytest.raises(
        SourceError, match="it/cpp: the flag -Btools is none that a project may give"
    ) as caught:
        build.build(replace(source, flags=("-O2", f"-B{tool.parent}", "-Btools")[::2]))
    assert caught.value.remedy.startswith("leave it out")
    assert not marker.exists()
