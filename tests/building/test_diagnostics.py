"""What is shown of a compiler's output: first errors first, with what led to them, in few lines."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_cgins.building.compilers import diagnostics

needs_nvcc = pytest.mark.skipif(not shutil.which("nvcc"), reason="no nvcc")
CHAIN = "".join(
    f"template <class T> struct L{i + 1} {{ static auto go(T t) {{ return L{i}<T>::go(t); }} }};\n"
    for i in range(9)
)
TEMPLATES = f"""struct A {{ int x; }};
template <class T> struct L0 {{ static auto go(T t) {{ return t.missing(); }} }};
{CHAIN}
int g() {{ return L9<A>::go(A{{1}}); }}
"""
SORT = """#include <algorithm>
#include <vector>
struct A { int x; };
int f() { std::vector<A> v; std::sort(v.begin(), v.end()); return 0; }
"""


def printed(folder: Path, command: str) -> str:
    done = subprocess.run(
        command.split(), cwd=folder, capture_output=True, text=True, check=False, env={"PATH": "/usr/local/bin:/usr/bin:/bin", "LC_ALL": "C"}
    )  # fmt: skip
    assert done.returncode != 0
    return done.stdout + done.stderr


def summary(log: str, *files: Path) -> tuple[int, list[str]]:
    count, text = diagnostics.summarize(log, [str(file) for file in files], "")
    return count, text.splitlines()


def test_gcc_keeps_what_was_instantiated_from_where(tmp_path: Path) -> None:
    """Before an error within templates stand its function and, however deep they are nested, the user's line."""
    (tmp_path / "t.cpp").write_text(TEMPLATES)
    count, lines = summary(printed(tmp_path, "g++ -c t.cpp -o t.o"))
    assert count >= 1
    assert lines[0].startswith("t.cpp: In instantiation of 'static auto L0<T>::go(T)")
    assert any("lines …" in line for line in lines)
    where = next(index for index, line in enumerate(lines) if " error: " in line)
    assert lines[where - 1] == "t.cpp:13:27:   required from here"
    assert "t.cpp:2:63: error: 'struct A' has no member named 'missing'" in lines[where]
    assert lines[where + 1].startswith("    2 | template")


def test_gcc_notes_are_bounded(tmp_path: Path) -> None:
    """An error of the standard library names the user's line and few of its candidates."""
    (tmp_path / "s.cpp").write_text(SORT)
    log = printed(tmp_path, "g++ -c s.cpp -o s.o")
    count, lines = summary(log)
    assert count >= 3
    assert (
        len(lines)
        <= 3 * (diagnostics.CONTEXT_LINES + 1 + diagnostics.FOLLOWING_LINES)
        < len(log.splitlines())
    )
    assert "s.cpp:4:38:   required from here" in lines
    assert 3 <= sum(": note: " in line for line in lines) <= 3 * diagnostics.SHOWN_NOTES


def test_linker(tmp_path: Path) -> None:
    """Each undefined reference is one error, after the function that has it; a missing library is one too."""
    (tmp_path / "w.cpp").write_text('int foo(); int bar();\nextern "C" int f() { return foo() + bar(); }\n')
    subprocess.run(["g++", "-c", "w.cpp", "-o", "w.o"], cwd=tmp_path, check=True)
    count, lines = summary(printed(tmp_path, "g++ -shared w.o -Wl,-z,defs -o w.so"))
    assert count == 2
    assert ["in function `f':" in lines[0], "`foo()'" in lines[1], "`bar()'" in lines[2]] == [True] * 3
    count, lines = summary(printed(tmp_path, "g++ -shared w.o -lnothere -o w.so"))
    assert (count, "cannot find -lnothere" in lines[0]) == (1, True)


@pytest.mark.exam
@needs_nvcc
def test_nvcc(tmp_path: Path) -> None:
    """nvcc's front end, ptxas and nvlink are each understood; positions are written as gcc does."""
    (tmp_path / "t.cu").write_text(TEMPLATES)
    count, lines = summary(printed(tmp_path, "nvcc -arch=sm_80 -c t.cu -o t.o"))
    assert count == 1
    assert lines[0] == 't.cu:2: error: class "A" has no member "missing"'
    assert lines[3].strip() == "detected during:"
    assert any("lines …" in line for line in lines)
    assert lines[-1].endswith("at line 13")
    assert len(lines) <= 3 + diagnostics.CONTEXT_LINES
    (tmp_path / "v.cu").write_text(
        "extern __device__ int other(int);\n__global__ void k(int* p) { *p = other(1); }\n"
    )
    count, lines = summary(printed(tmp_path, "nvcc -arch=sm_80 -c v.cu -o v.o"))
    assert (count, lines) == (1, ["ptxas fatal   : Unresolved extern function '_Z5otheri'"])
    subprocess.run(["nvcc", "-arch=sm_80", "-rdc=true", "-c", "v.cu", "-o", "v.o"], cwd=tmp_path, check=True)
    count, lines = summary(printed(tmp_path, "nvcc -arch=sm_80 -shared v.o -o v.so"))
    assert (count, "Undefined reference to '_Z5otheri'" in lines[0]) == (1, True)


@needs_nvcc
def test_unknown_architecture(tmp_path: Path) -> None:
    """An architecture that nvcc does not know is answered by those that it knows and the nearest."""
    (tmp_path / "v.cu").write_text("")
    log = printed(tmp_path, "nvcc -gencode=arch=compute_90x,code=sm_90x -c v.cu -o v.o")
    assert diagnostics.summarize(log, [], "")[0] == 1
    remedy = diagnostics.unknown_architecture(log)
    assert remedy.startswith('did you mean "sm_90')
    assert ", sm_90a, " in remedy
    assert diagnostics.unknown_architecture("v.cu(1): error: no") == ""


@pytest.mark.parametrize(
    ("line", "count"),
    [
        ("kernel.cu(7): error: identifier \"x\" is undefined", 1),  # NVRTC, nvcc
        ("kernel.cu(7): catastrophic error: cannot open source file \"x.h\"", 1),
        ("kernel.cu(7): error #20: identifier \"x\" is undefined", 1),
        ("nvrtc: error: invalid value for --gpu-architecture (-arch)", 1),
        ("a.cpp:3:9: error: use of undeclared identifier 'y'", 1),  # clang
        ("a.cpp:3:9: fatal error: 'x.h' file not found", 1),
        ("a.cpp:3:9: internal compiler error: Segmentation fault", 1),
        ("clang++: error: unknown argument: '-fx'", 1),
        ("g++: error: unrecognized command-line option '-fx'", 1),
        ("ld.lld: error: undefined symbol: foo()", 1),
        ("ptxas /tmp/x.ptx, line 23; error   : Not a name of any known instruction: 'bogus'", 1),
        ("ptxas error   : Entry function 'k' uses too much shared data (0xf4240 bytes, 0xc000 max)", 1),
        ("ptxas fatal   : Ptx assembly aborted due to errors", 0),
        ("ptxas info    : 0 bytes gmem", 0),
        ("clang++: error: linker command failed with exit code 1 (use -v to see invocation)", 0),
        ("collect2: error: ld returned 1 exit status", 0),
        ("/usr/bin/ld: warning: x.o: missing .note.GNU-stack section", 0),
        ("a.cpp:3:9: warning: unused variable 'error' [-Wunused]", 0),
        ("a.cpp:3:9: note: error: no", 0),
        ("    3 | // a.cpp:3:9: error: no", 0),
    ],
)  # fmt: skip
def test_what_is_an_error(line: str, count: int) -> None:
    """The error lines of each compiler are found, and lines that only mention errors are not."""
    assert diagnostics.summarize(f"before\n{line}\nafter", [], "")[0] == count


def test_clang_notes_follow(tmp_path: Path) -> None:
    """clang's notes on instantiation come after its error and stay with it."""
    log = (
        "a.cpp:1:5: error: no member named 'missing' in 'A'\n    1 | x.missing\n      |   ^\n"
        "a.cpp:9:3: note: in instantiation of member function 'I<A>::go' requested here\n    9 | go();\n"
        "a.cpp:3:1: warning: unused\n1 error generated.\n"
    )
    assert summary(log)[1] == log.splitlines()[:5]


def test_paths_are_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files below the current folder are shown from there."""
    monkeypatch.chdir(tmp_path)
    assert summary(f"{tmp_path}/k/a.cu(3): error: no", tmp_path / "k" / "a.cu")[1] == ["k/a.cu:3: error: no"]


LINES = st.sampled_from(
    ["a.cpp:1:2: error: x", "a.cpp: In function 'f':", "a.cpp:1:2:   required from here", "a.cpp:1:2: note: y", "",
     "    1 | x", "          detected during:", "            instantiation of \"f\" at line 3", "ld: x", "\x00", "é" * 400]
)  # fmt: skip


@given(st.lists(LINES, max_size=60))
def test_any_output_is_bounded(lines: list[str]) -> None:
    """Whatever is printed, what is shown is short, and not empty if there is an error."""
    count, text = diagnostics.summarize("\n".join(lines), ["/x/a.cpp"], "")
    assert count == len({"a.cpp:1:2: error: x", "ld: x"}.intersection(lines))
    shown = text.splitlines()
    assert len(shown) <= 3 * (2 * diagnostics.CONTEXT_LINES + 1 + diagnostics.FOLLOWING_LINES)
    assert all(len(line) <= diagnostics.LINE_LENGTH for line in shown)
    assert bool(text.strip()) or count == 0


def test_an_error_is_counted_once() -> None:
    """What the host's front end and the device's both say of a line is one error, the first of them shown."""
    log = 'a.cu(3): error: identifier "x" is undefined\n    x;\n    ^\n\n1 error detected in "a.cu".\n'
    count, text = diagnostics.summarize(log + log, ["/p/a.cu"], "")
    assert count == 1
    assert text.count("is undefined") == 1


@pytest.mark.parametrize(
    "line",
    [
        "x.cpp:1:1: fatal error: error writing to x.s: No space left on device",
        "/tmp/x.s: Fatal error: can't write 12 bytes to section .text of x.o: 'No space left on device'",
        "/usr/bin/ld: final link failed: No space left on device",
        "collect2: fatal error: ld terminated with signal 7 [Bus error], core dumped",
        "collect2: fatal error: ld terminated with signal 7 [Bus error]",
        "ar: libx.a: Disk quota exceeded",
        "as: x.o: No space left on device.",
    ],
)
def test_a_full_disk_is_no_refusal(line: str) -> None:
    """Each way in which compiler, assembler and linker say it; ld dies of it, since it maps what it writes."""
    found = diagnostics.not_the_source(1, f"In file included from x.h\n{line}\ncompilation terminated.\n")
    assert found is not None
    assert "disk space" in found[1]


def test_a_source_that_speaks_of_disks_is_refused() -> None:
    """The words within a line of the user's are none of a tool's."""
    assert (
        diagnostics.not_the_source(1, 'x.cpp:1:9: error: #error "No space left on device" in a header\n')
        is None
    )


def test_a_header_that_torchs_own_lacks_is_the_machines_fault() -> None:
    """A toolkit in parts has no cusparse.h, which torch's headers include; a header that the source lacks is its fault."""
    line = "{}:10:10: fatal error: cusparse.h: No such file or directory\n"
    torchs = line.format("/venv/site-packages/torch/include/ATen/cuda/CUDAContextLight.h")
    told = diagnostics.not_the_source(1, f"In file included from kernels/kernel.cu:2:\n{torchs}")
    assert told is not None
    assert told[0] == "torch's ATen/cuda/CUDAContextLight.h includes cusparse.h, which is not installed"
    assert diagnostics.not_the_source(1, line.format("kernels/kernel.cu")) is None
