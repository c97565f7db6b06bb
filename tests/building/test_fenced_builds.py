"""Builds whose compilers run in the sandbox: what a source finds there, and what it leaves."""

from __future__ import annotations

import importlib.util
import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pytest_cgins.building import build
from pytest_cgins.building.builders import nvcc_phases
from pytest_cgins.building.compilers import diagnostics, running, toolchain
from pytest_cgins.building.compilers.process import run_stages
from pytest_cgins.building.compilers.running import Compilers
from pytest_cgins.building.nvrtc import isolated
from pytest_cgins.core.case import CompiledKernel
from pytest_cgins.core.errors import BuildError, InfrastructureError
from pytest_cgins.run.sandbox.builds import BuildFence, sources_of
from pytest_cgins.run.sandbox.sandbox import Sandbox
from tests.building.processes import marked, until

pytestmark = pytest.mark.skipif(bool(Sandbox().available()), reason="this host gives no sandbox")
SECRET = "hush_4711"
CPP = "{op: torch.mul, source: k.cpp}"
CUDA = "{op: torch.mul, source: k.cu, archs: [sm_80]}"
DEVICE = "{op: torch.mul, contract: device, source: k.cu, archs: [sm_80, compute_80]}"
EXTENSION = "{op: torch.mul, contract: torch-extension, source: k.cpp, entry: scale, flags: [-O0]}"
LAUNCHER = """\
// cgins: scale(Tensor input, float other) -> Tensor
#include <cgins.h>
#include "beside.h"
%s
extern "C" int scale(const DLTensor*, double, DLTensor*, cgins_stream) { return BESIDE; }
"""
KERNEL = """\
// cgins: mul(Tensor input, float other) -> Tensor
// cgins-launch: kernel=mul grid=(1) block=(32) args=(input, out, other)
#include "beside.h"
%s
__global__ void mul(const float* x, float* y, float a) { *y = *x * a + BESIDE; }
"""
TORCH = """\
#include <torch/extension.h>
#include "beside.h"
torch::Tensor scale(torch::Tensor input, double other) { return input * (other + BESIDE); }
"""
BOMB = """\
template <int depth, int other> struct bomb { static const int value = bomb<depth - 1, 2 * other>::value
                                                                     + bomb<depth - 1, 2 * other + 1>::value; };
template <int other> struct bomb<0, other> { static const int value = other; };
static_assert(bomb<26, 0>::value == 7);
"""

Built = Callable[..., CompiledKernel]


@pytest.fixture
def secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file in a home folder."""
    home = tmp_path / "home"
    (home / ".ssh").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    file = home / ".ssh/id_ed25519"
    file.write_text(f"{SECRET} is no type;\n")
    return file


@pytest.fixture
def fence(cache: Path) -> BuildFence:
    made = BuildFence(Sandbox())
    cache.mkdir()
    made.show(visible=[cache])
    return made


@pytest.fixture
def as_before() -> Iterator[None]:
    """The thread's compilers are put back."""
    before = running.current()
    yield
    running.use(before)


@pytest.fixture
def built(project: Any, cache: Path, fence: BuildFence, as_before: None) -> Built:
    """Builds a kernel's text in the sandbox, or outside."""

    def make(text: str, kernel: str, *, fenced: bool = True, **options: Any) -> CompiledKernel:
        project.write("beside.h", "#define BESIDE 0\n")
        project.write("k.cpp" if "k.cpp" in kernel else "k.cu", text)
        fence.show(visible=sources_of(project.config(kernel)))
        running.use(Compilers(fence if fenced else None))
        return build.build(project.source(kernel), cache=cache, **options)

    return make


@pytest.fixture(autouse=True)
def project_elsewhere(project: Any, tmp_path: Path) -> None:
    """The project is a folder beside home, not around it."""
    project.root = tmp_path / "project"
    project.root.mkdir()


def refusal(built: Built, text: str, kernel: str) -> str:
    with pytest.raises(BuildError) as caught:
        built(text, kernel)
    return f"{caught.value}\n{caught.value.log}"


@pytest.mark.exam
@pytest.mark.parametrize(
    ("text", "kernel"),
    [(LAUNCHER, CPP), (KERNEL, DEVICE), pytest.param(LAUNCHER, CUDA, marks=pytest.mark.exam)],
    ids=["cpp", "device", "cuda"],
)
def test_a_source_cannot_include_what_is_at_home(built: Built, secret: Path, text: str, kernel: str) -> None:
    """A file of a home folder is not there for a compiler, which without a sandbox shows its lines in an error."""
    if kernel == CUDA and not shutil.which("nvcc"):
        pytest.skip("no nvcc")
    included = text % f'#include "{secret}"'
    found = refusal(built, included, kernel)
    assert SECRET not in found
    assert any(
        words in found for words in ("No such file", "could not open source file", "cannot open source file")
    )
    with pytest.raises(
        BuildError
    ) as caught:  # or the test shows nothing; the fenced refusal was not remembered
        built(included, kernel, fenced=False)
    assert SECRET in caught.value.log


def test_a_source_cannot_take_in_a_files_bytes(built: Built, secret: Path) -> None:
    """`.incbin` finds no file of a home folder."""
    taken = f'asm(".section .rodata\\nstolen: .incbin \\"{secret}\\"\\n.text");'
    found = refusal(built, LAUNCHER % taken, CPP)
    assert "file not found" in found or "No such file" in found
    assert SECRET not in found
    outside = built(LAUNCHER % taken, CPP, fenced=False)
    assert SECRET.encode() in Path(outside.library).read_bytes()


def test_packs_are_hidden(built: Built, fence: BuildFence, project: Any) -> None:
    """What is hidden wins over the project around it."""
    gold = project.write("traces/gold.h", f"int {SECRET} = \n")
    fence.show(visible=(), hidden=[gold.parent])
    found = refusal(built, LAUNCHER % '#include "traces/gold.h"', CPP)
    assert "No such file" in found
    assert SECRET not in found


@pytest.mark.exam
@pytest.mark.parametrize(
    ("text", "kernel"),
    [
        (LAUNCHER % "", CPP),
        (KERNEL % "", DEVICE),
        pytest.param(LAUNCHER % "", CUDA, marks=pytest.mark.exam),
        pytest.param(TORCH, EXTENSION, marks=pytest.mark.exam),
    ],
    ids=["cpp", "device", "cuda", "extension"],
)
def test_a_build_is_the_same_inside_and_outside(built: Built, project: Any, text: str, kernel: str) -> None:
    """The same code, under keys of their own: what was built where a compiler saw less is not taken for the other."""
    if kernel == CUDA and not shutil.which("nvcc"):
        pytest.skip("no nvcc")
    if kernel == EXTENSION and importlib.util.find_spec("torch") is None:
        pytest.skip("no torch")
    inside = built(text, kernel)
    outside = built(text, kernel, fenced=False)
    assert (inside.cached, outside.cached) == (False, False)
    assert inside.key != outside.key
    if kernel != DEVICE:  # line info has the time of a header, which is written anew
        assert inside.sha256 == outside.sha256
    assert (built(text, kernel).cached, built(text, kernel, fenced=False).cached) == (True, True)


def test_nvrtc_gives_the_same_in_a_process_of_its_own(
    fence: BuildFence, tmp_path: Path, as_before: None
) -> None:
    """Code, names and errors are those of this process."""
    text = "template <typename T> __global__ void k(T* x) { *x = 2; }\n"
    fence.show(visible=[tmp_path])
    found = []
    for around in (None, fence):
        running.use(Compilers(around))
        folder = tmp_path / f"build-{around is None}"
        folder.mkdir()
        where: dict[str, Any] = {"deadline": time.monotonic() + 60, "folder": folder, "name": "k"}
        options = ["--ptxas-options=-v"]
        found.append(isolated.compile(text, "/k.cu", "sm_80", options, expressions=["k<float>"], **where))
        refused = isolated.compile("wrong;", "/k.cu", "sm_90", **where)
        assert "/k.cu(1): error: " in refused.log
        assert (refused.cubin, refused.lowered, refused.status) == (None, (), 0)
    inside, outside = found
    assert inside.cubin is not None
    assert (inside.cubin, inside.ptx, inside.lowered) == (outside.cubin, outside.ptx, outside.lowered)


@pytest.mark.exam
@pytest.mark.parametrize(("text", "kernel"), [(LAUNCHER, CPP), (KERNEL, DEVICE)], ids=["cpp", "device"])
def test_the_deadline_ends_a_compiler_in_the_sandbox(
    built: Built, cache: Path, text: str, kernel: str
) -> None:
    """Templates without bounds are killed with all that was started, and nothing is left running."""
    started = time.monotonic()
    with pytest.raises(BuildError, match=r"was not done after 1\.5 s and was killed"):
        built(text % BOMB, kernel, timeout_s=1.5)
    assert time.monotonic() - started < 20
    until(lambda: marked(cache) == [])  # what is killed takes a moment to give its memory back
    assert list((cache / "work").iterdir()) == []


def test_compilers_in_the_sandbox_stand_still_and_go_on(fence: BuildFence, tmp_path: Path) -> None:
    """While something is timed, all processes of a sandbox are stopped; closing kills them."""
    fence.show(visible=[tmp_path])
    made = Compilers(fence)
    counts = "i=0; while :; do i=$((i+1)); echo $i > count; sleep 0.01; done"
    with (tmp_path / "log").open("wb") as log:
        process = made.start(
            ["/bin/sh", "-c", counts], folder=tmp_path, environment=dict(os.environ), log=log
        )
    count = tmp_path / "count"
    until(count.exists)
    with made.suspended():
        time.sleep(0.05)
        before = count.read_text()
        time.sleep(0.1)
        assert count.read_text() == before
    until(lambda: count.read_text() != before)
    made.close()
    assert made.wait(process, time.monotonic() + 20)
    until(lambda: marked(tmp_path) == [])


def test_what_a_command_may_write_and_read(
    fence: BuildFence, cache: Path, tmp_path: Path, as_before: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its working folder; not the builds. It gets what compilers read of the environment, and what it is given."""
    monkeypatch.setenv("HARMLESS", "1")
    monkeypatch.setenv("COMPILER_PATH", "/nowhere")
    monkeypatch.setenv("TOP", "/elsewhere")
    folder = cache / "work"
    folder.mkdir()
    running.use(Compilers(fence))
    script = f"echo made > here; echo x > {cache}/beside; env"
    done = run_stages([[["sh", "-c", script]]], folder, "k", time.monotonic() + 20, {"TOP": "/given"})
    assert (folder / "here").read_text() == "made\n"
    assert "Read-only file system" in done.log or "cannot create" in done.log
    assert not (cache / "beside").exists()
    lines = set(done.log.splitlines())
    assert {"COMPILER_PATH=/nowhere", "TOP=/given", "LC_ALL=C"} <= lines
    assert not {"HARMLESS=1", "TOP=/elsewhere"} & lines


def test_a_link_among_what_a_compiler_leaves_leads_nowhere(
    project: Any, fence: BuildFence, cache: Path, tmp_path: Path, as_before: None
) -> None:
    """A compiler that was taken over cannot have a file that it does not see read, kept or overwritten for it."""
    project.write("k.cpp", LAUNCHER % "")
    project.write("beside.h", "#define BESIDE 0\n")
    target = tmp_path / "target"
    target.write_text(SECRET)
    compiler = project.write(
        "taken.sh",
        '#!/bin/sh\ncase "$*" in *-shared*) ;; *) exec g++ "$@";; esac\n'
        f"for name in kernel.so command0.log x.d build.log; do ln -sf {target} $name; done\nmkfifo y.d\n",
    )
    compiler.chmod(0o755)
    source = project.source(CPP)
    fence.show(visible=sources_of(project.config(CPP)))
    running.use(Compilers(fence))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CXX", str(compiler))
        with pytest.raises(BuildError, match=r"left no file kernel\.so") as caught:
            build.build(source, cache=cache)
    assert SECRET not in f"{caught.value}{caught.value.log}"
    assert target.read_text() == SECRET


def test_results_that_no_compiler_writes(tmp_path: Path) -> None:
    """Whatever the process leaves is a result or an error of that build."""
    file = tmp_path / "result"
    head = isolated.HEADER.pack
    wrong = [
        b"", b"abc", head(1 << 60), head(2) + b"[]", head(4) + b"null", head(3) + b"{}]",
        *(
            head(len(text)) + text
            for text in (
                b'{"log": 1, "lowered": [], "cubin": 0, "ptx": 0}',
                b'{"log": "", "lowered": ["a"], "cubin": 0, "ptx": 0}',
                b'{"log": "", "lowered": [], "cubin": 5, "ptx": -5}',
                b'{"log": "", "lowered": [], "cubin": true, "ptx": 0}',
                b'{"log": "", "lowered": ["a", "Lj%s"], "cubin": 0, "ptx": 0}' % (b"1" * 5000),
                b'{"log": "", "lowered": ["a", "../x"], "cubin": 0, "ptx": 0}',
                b"[" * 100_000,
            )
        ),
    ]  # fmt: skip
    for content in wrong:
        file.write_bytes(content)
        with pytest.raises((ValueError, KeyError, TypeError, RecursionError)):
            isolated._read(file, 2, 0.0)
    file.unlink()
    file.symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere").write_bytes(b"")
    with pytest.raises(OSError, match="symbolic"):
        isolated._read(file, 2, 0.0)
    file.unlink()
    os.mkfifo(file)
    with pytest.raises(ValueError, match="no file"):
        isolated._read(file, 2, 0.0)


def test_a_crash_of_nvrtc_is_a_build_error(
    built: Built, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A process that ends by a signal costs its kernel, with the reason, and is not remembered."""
    monkeypatch.setattr(isolated, "_BOOT", "import os; os.kill(os.getpid(), 11)")
    for _ in range(2):
        assert "NVRTC error: it was ended by SIGSEGV" in refusal(built, KERNEL % "", DEVICE)
    monkeypatch.setattr(isolated, "_BOOT", "print('strange')")
    assert "NVRTC left no result that can be read" in refusal(built, KERNEL % "", DEVICE)
    monkeypatch.undo()
    assert not built(KERNEL % "", DEVICE).cached


def test_what_a_sandbox_says_is_told_apart(
    built: Built, fence: BuildFence, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No sandbox is the host's trouble; more memory than allowed is the source's."""
    assert diagnostics.not_the_source(137, "") is not None
    excess = (
        "pytest-cgins: 9000 MiB of memory in use, 8000 MiB allowed; all processes of the sandbox were killed"
    )
    assert diagnostics.not_the_source(137, excess) is None
    said = "echo 'pytest-cgins: the sandbox could not be set up: no' >&2; exit 125"
    monkeypatch.setattr(fence, "_opening", lambda: ["/bin/sh", "-c", said])
    with pytest.raises(InfrastructureError, match="there is no sandbox for it: no"):
        built(LAUNCHER % "", CPP)


def test_a_compiler_of_the_project_is_asked_in_the_sandbox(
    built: Built, project: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A variable may name a program in the project: its version and its default flags are asked where it compiles."""
    marker = project.root / "ran"
    tool = project.write("g++", f'#!/bin/sh\ntouch {marker}\nexec /usr/bin/g++ "$@"\n')
    tool.chmod(0o755)
    monkeypatch.setenv("CXX", str(tool))
    built(LAUNCHER % "", CPP)
    assert not marker.exists()
    toolchain.version.cache_clear()
    built(LAUNCHER % "", CPP, fenced=False)
    assert marker.exists()  # or the test shows nothing


def test_nvcc_is_asked_for_its_commands_in_the_sandbox(
    fence: BuildFence, project: Any, as_before: None
) -> None:
    """`nvcc --dryrun` starts the host compiler, whose name may be the project's."""
    marker = project.root / "ran"
    tool = project.write("nvcc", f"#!/bin/sh\ntouch {marker}\npwd\n")
    tool.chmod(0o755)
    work = project.root / "work"
    work.mkdir()
    fence.show(visible=[project.root])
    for around, ran in ((fence, False), (None, True)):
        running.use(Compilers(around))
        nvcc_phases.phases([str(tool)], work, "d", temporary=work / "temporary")
        assert marker.exists() == ran
