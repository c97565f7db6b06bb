"""What ptxas reports, read from real logs; resources of a built kernel, read once and kept."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_cgins.building import resources, sass
from pytest_cgins.core.case import KernelResources
from pytest_cgins.core.errors import InfrastructureError
from tests.building.conftest import Project

needs_nvcc = pytest.mark.skipif(not shutil.which("nvcc"), reason="no nvcc")
needs_demangler = pytest.mark.skipif(not shutil.which("c++filt"), reason="no c++filt")

# nvcc 13.0: two functions, a device function that was not inlined, and a second architecture.
REPORT = """\
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function '_Z5scaleIfLi256EEvPT_fi' for 'sm_90a'
ptxas info    : Function properties for _Z5scaleIfLi256EEvPT_fi
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 10 registers, used 1 barriers, 1024 bytes smem
ptxas info    : Compile time = 1.536 ms
ptxas info    : Compiling entry function '_Z1kPf' for 'sm_90a'
ptxas info    : Function properties for _Z1kPf
    13376 bytes stack frame, 13100 bytes spill stores, 31740 bytes spill loads
ptxas info    : Used 32 registers, used 0 barriers, 13376 bytes cumulative stack size
ptxas info    : Compile time = 1374.604 ms
ptxas info    : Function properties for _Z3fooPfi
    0 bytes stack frame, 60 bytes spill stores, 64 bytes spill loads
ptxas info    : 0 bytes gmem
ptxas info    : Overriding maximum register limit 256 for '_Z1kPf' with  24 of maxrregcount option
ptxas info    : Compiling entry function '_Z1kPf' for 'sm_80'
ptxas info    : Function properties for _Z1kPf
    8 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 24 registers, used 0 barriers, 512+0 bytes smem, 360 bytes cmem[0]
"""


def test_report_of_ptxas() -> None:
    """Each function's figures are its own, also of a device function; another architecture's are left out."""
    scale, k, foo = resources.parse(REPORT, "sm_90a")
    assert scale == KernelResources(
        function="_Z5scaleIfLi256EEvPT_fi", arch="sm_90a", registers_per_thread=10, spill_store_nbytes=0,
        spill_load_nbytes=0, stack_nbytes_per_thread=0, static_shared_nbytes_per_block=1024,
    )  # fmt: skip
    assert (k.registers_per_thread, k.spill_store_nbytes, k.spill_load_nbytes) == (32, 13100, 31740)
    assert (k.stack_nbytes_per_thread, k.static_shared_nbytes_per_block) == (13376, 0)
    assert (foo.function, foo.arch, foo.registers_per_thread) == ("_Z3fooPfi", "sm_90a", 0)
    assert (foo.spill_store_nbytes, foo.spill_load_nbytes) == (60, 64)
    (other,) = resources.parse(REPORT, "sm_80")
    assert (other.registers_per_thread, other.static_shared_nbytes_per_block) == (24, 512)
    assert resources.parse(REPORT, "sm_100") == ()


def test_functions_of_one_name_are_all_there() -> None:
    """Static functions of two files have one name, and figures of their own in the order of the files."""
    twice = REPORT + REPORT.replace("Used 10 registers", "Used 40 registers")
    named = [one for one in resources.parse(twice, "sm_90a") if "scale" in one.function]
    assert [one.registers_per_thread for one in named] == [10, 40]


FIGURE = st.integers(0, 2**31)


@pytest.mark.exam
@given(
    functions=st.lists(
        st.tuples(st.from_regex(r"_Z[A-Za-z0-9_]{1,20}", fullmatch=True), *[FIGURE] * 5),
        unique_by=lambda function: function[0],
        max_size=6,
    ),
    noise=st.lists(st.text(alphabet=st.characters(exclude_characters="\n\r"), max_size=40), max_size=3),
)
def test_every_figure_is_found_whatever_stands_between(
    functions: list[tuple[str, int, int, int, int, int]], noise: list[str]
) -> None:
    """What is written into a report is what is read from it, between lines of other tools."""
    between = "".join(f"# {line}\n" for line in noise if "bytes" not in line)
    text = between
    for name, registers, stores, loads, stack, shared in functions:
        text += (
            f"ptxas info    : Compiling entry function '{name}' for 'sm_80'\n{between}"
            f"ptxas info    : Function properties for {name}\n"
            f"    {stack} bytes stack frame, {stores} bytes spill stores, {loads} bytes spill loads\n"
            f"ptxas info    : Used {registers} registers, used 0 barriers, {shared} bytes smem\n{between}"
        )
    assert [
        (
            one.function, one.registers_per_thread, one.spill_store_nbytes, one.spill_load_nbytes,
            one.stack_nbytes_per_thread, one.static_shared_nbytes_per_block,
        )
        for one in resources.parse(text, "sm_80")
    ] == functions  # fmt: skip


@given(text=st.text(alphabet="ptxas info:Used Compilg entryfunc'_Z1k\n0129, bytesmcld", max_size=300))
def test_no_text_makes_the_parser_fail(text: str) -> None:
    """A cut or foreign log is not a report, and no exception."""
    assert all(one.registers_per_thread >= 0 for one in resources.parse(text, "sm_80"))


@needs_demangler
def test_names_as_in_the_source() -> None:
    """Template arguments and parameters are in the name; what nvcc puts before a file's own names is not."""
    names = ["_Z5scaleIfLi256EEvPT_fi", "_ZN33_GLOBAL__N__ecf008fc_4_k_cu_plain4anonEPf", "plain"]
    assert list(resources.demangled(names).values()) == [
        "void scale<float, 256>(float*, float, int)",
        "(anonymous namespace)::anon(float*)",
        "plain",
    ]
    assert resources.demangled([]) == {}


def test_names_without_a_demangler(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are as in the object but for the file's digest, which every edit would change."""
    monkeypatch.setenv("PATH", "")
    name = "_ZN33_GLOBAL__N__{}4_k_cu_plain4anonEPf"
    mangled = name.format("ecf008fc_")
    assert resources.demangled([mangled, "plain"]) == {mangled: name.format(""), "plain": "plain"}


KERNEL = """\
// cgins: f(Tensor x) -> Tensor
#include <cgins.h>
__global__ void add_one(float* x) { x[threadIdx.x] += 1; }
extern "C" int f(const DLTensor* x, DLTensor* out, cgins_stream stream) {
  add_one<<<1, 1, 0, stream>>>(cgins::data<float>(out));
  return 0;
}
"""


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A tiny kernel for sm_80, in a cache of its own."""
    project = Project(tmp_path_factory.mktemp("resources"))
    project.write("f.cu", KERNEL)
    return project.build("{op: torch.relu, source: f.cu, archs: [sm_80]}", cache=project.root / "cache")


@pytest.mark.exam
@needs_nvcc
def test_resources_of_a_build_are_read_once(compiled: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Registers come from the log, opcodes from the machine code; the second time no tool is started."""
    found = resources.of(compiled, "sm_80")
    assert found.notes == ()
    (one,) = found.functions
    assert one.function.startswith("add_one")
    assert 0 < one.registers_per_thread < 20
    opcodes = dict(one.instructions or ())
    assert opcodes["FADD"] == 1
    assert opcodes["EXIT"] == 1
    assert "NOP" not in opcodes
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(sass, "disassembler", lambda: pytest.fail("disassembled twice"))
    assert resources.of(compiled, "sm_80") == found


@pytest.mark.exam
@needs_nvcc
def test_without_a_disassembler_the_registers_are_there(
    compiled: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A note names the remedy, and a tool that comes later is used."""
    copy = tmp_path / "entry"
    shutil.copytree(Path(compiled.library).parent, copy)
    for kept in copy.glob("resources-*.json"):
        kept.unlink()
    moved = replace(compiled, library=str(copy / Path(compiled.library).name))
    monkeypatch.setattr(sass, "disassembler", lambda: None)
    found = resources.of(moved, "sm_80")
    assert found.notes == (f"no opcodes: cuobjdump is not installed ({sass.REMEDY})",)
    assert found.functions[0].registers_per_thread > 0
    assert found.functions[0].instructions is None
    assert resources.of(moved, "sm_80", instructions=False).notes == ()
    monkeypatch.undo()
    assert resources.of(moved, "sm_80").functions[0].instructions


@pytest.mark.exam
@needs_nvcc
def test_a_log_without_report_and_a_record_that_is_gone(compiled: Any, tmp_path: Path) -> None:
    """Where nothing is known, nothing is claimed."""
    library = tmp_path / "kernel.so"
    library.write_bytes(Path(compiled.library).read_bytes())
    moved = replace(compiled, library=str(library))
    with pytest.raises(InfrastructureError, match=r"build\.json"):
        resources.of(moved, "sm_80")
    (tmp_path / "build.json").write_text(json.dumps({"log": "nvcc warning : nothing\n"}))
    assert resources.of(moved, "sm_80") == resources.Found(functions=(), notes=(resources.NO_REPORT,))
    assert not list(tmp_path.glob("resources-*"))
