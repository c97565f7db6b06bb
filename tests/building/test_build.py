"""The build cache: what it finds again, what it rebuilds, and how a failed build is told."""

from __future__ import annotations

import ctypes
import json
import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from pytest_cgins.building import build as builds
from pytest_cgins.building.cache.store import Cache
from pytest_cgins.building.compilers import toolchain
from pytest_cgins.building.contracts import schema
from pytest_cgins.core.errors import BuildError, InfrastructureError, SourceError
from tests.building.conftest import Project
from tests.building.processes import holding, python

KERNEL = "{op: torch.mul, source: kernel.cpp}"


def test_second_build_is_a_hit(project: Any, scale_text: str, cache: Path) -> None:
    """An unchanged source is not compiled again, and the entry keeps the command that made it."""
    project.write("kernel.cpp", scale_text)
    first = project.build(KERNEL, cache=cache)
    second = project.build(KERNEL, cache=cache)
    assert (first.cached, second.cached) == (False, True)
    assert (first.key, first.library) == (second.key, second.library)
    assert first.build_seconds > 0 == second.build_seconds
    record = json.loads(Path(first.library).with_name("build.json").read_bytes())
    assert "-O3" in record["command"]
    assert "native" not in record["command"]
    assert sorted(path.name for path in Path(first.library).parent.iterdir()) == ["build.json", "kernel.so"]
    assert not list((cache / "work").iterdir())


def test_touching_is_no_change_and_moving_is_none(
    project: Any, scale_text: str, cache: Path, tmp_path: Path
) -> None:
    """The key follows content: new times or another folder do not compile again."""
    project.write("a/kernel.cpp", '#include "h/own.h"\n' + scale_text)
    project.write("a/h/own.h", "// nothing\n")
    first = project.build("{op: torch.mul, source: a/kernel.cpp, flags: [-Ia/h]}", cache=cache)
    os.utime(tmp_path / "a/kernel.cpp")
    shutil.move(tmp_path / "a", tmp_path / "b")
    second = project.build("{op: torch.mul, source: b/kernel.cpp, flags: [-Ib/h]}", cache=cache)
    assert second.cached
    assert first.source.digest == second.source.digest


@pytest.mark.parametrize(
    ("kernel", "file", "text"),
    [
        (KERNEL, "own.h", "#define FACTOR 3\n"),
        ("{op: torch.mul, source: kernel.cpp, defines: {TILE: 2}}", "own.h", "#define FACTOR 2\n"),
        ("{op: torch.mul, source: kernel.cpp, flags: [-O1]}", "own.h", "#define FACTOR 2\n"),
        (KERNEL, "other.h", ""),
    ],
)
def test_what_changes_the_key(
    project: Any, scale_text: str, cache: Path, kernel: str, file: str, text: str
) -> None:
    """A header's content, a define and a flag are in the key; a header that is not included is not."""
    project.write("kernel.cpp", '#include "own.h"\n' + scale_text)
    project.write("own.h", "#define FACTOR 2\n")
    first = project.build(KERNEL, cache=cache)
    project.write(file, text)
    assert project.build(kernel, cache=cache).cached == (file == "other.h")
    project.write("own.h", "#define FACTOR 2\n")
    assert project.build(KERNEL, cache=cache).key == first.key


@pytest.mark.exam
def test_environment_and_generated_header_are_in_the_key(
    project: Any, scale_text: str, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So are a variable that the compiler reads, and what another version of this package puts before a launcher."""
    project.write("kernel.cpp", scale_text)
    monkeypatch.delenv("CPATH", raising=False)
    keys = [project.build(KERNEL, cache=cache).key]
    monkeypatch.setenv("CPATH", str(project.root))
    keys.append(project.build(KERNEL, cache=cache).key)
    header = schema.header
    monkeypatch.setattr(schema, "header", lambda *given, **named: "#define OWN\n" + header(*given, **named))
    keys.append(project.build(KERNEL, cache=cache).key)
    assert len(set(keys)) == 3


@pytest.mark.exam
@pytest.mark.parametrize("damage", ["truncate", "delete-library", "bad-record", "bad-manifest"])
def test_corrupt_entry_is_rebuilt(project: Any, scale_text: str, cache: Path, damage: str) -> None:
    """A damaged library, record or manifest costs a build and nothing else."""
    project.write("kernel.cpp", scale_text)
    first = project.build(KERNEL, cache=cache)
    library = Path(first.library)
    whole = library.read_bytes()
    if damage == "truncate":
        library.write_bytes(whole[:100])
    elif damage == "delete-library":
        library.unlink()
    elif damage == "bad-record":
        library.with_name("build.json").write_text("{")
    else:
        next((cache / "manifests").iterdir()).write_text('[{"key": 3}]')
    again = project.build(KERNEL, cache=cache)
    assert not again.cached
    assert again.key == first.key
    assert library.read_bytes()[:4] == b"\x7fELF"
    assert project.build(KERNEL, cache=cache).cached


def test_a_library_beyond_all_measure_is_refused(
    project: Any, scale_text: str, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A source of one line can have a library of a gigabyte: it is neither hashed nor kept."""
    project.write("kernel.cpp", scale_text + "\nchar data[1 << 22] = {1};\n")
    monkeypatch.setattr(builds, "MOST_BYTES", 2**20)
    with pytest.raises(BuildError, match=r"left 4,\d{3},\d{3} bytes; 1,048,576 are the limit"):
        project.build(KERNEL, cache=cache)
    assert not list(cache.rglob("*.so"))


def test_several_sources(project: Any, cache: Path) -> None:
    """Sources are compiled apart and linked; all of them see the prototype and one message buffer."""
    project.write("kernel.cpp", "// cgins: f(Tensor input) -> Tensor\nint helper();\n"
                  'extern "C" int f(const DLTensor*, DLTensor*, cgins_stream) { return helper(); }\n')  # fmt: skip
    project.write("helper.cpp", 'int helper() { return cgins_fail("from the helper"); }\n')
    compiled = project.build("{op: torch.neg, sources: [kernel.cpp, helper.cpp]}", cache=cache)
    library = ctypes.CDLL(compiled.library)
    library.cgins_last_error.restype = ctypes.c_char_p
    assert library.f(None, None, None) == 1
    assert library.cgins_last_error() == b"from the helper"


def refusal(project: Any, text: str) -> BuildError:
    project.write("kernel.cpp", text)
    with pytest.raises(BuildError) as caught:
        project.build(KERNEL)
    return caught.value


def test_prototype_mismatch(project: Any, scale_text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A definition that differs from its schema line is refused with both lines of the user's file."""
    monkeypatch.chdir(project.root)
    error = refusal(project, scale_text.replace("double other", "float other"))
    assert error.what.startswith(
        "it/cpp: g++ refused kernel.cpp: 1 error\nkernel.cpp:3:16: error: conflicting"
    )
    assert "\nkernel.cpp:1:5: note: previous declaration" in error.what
    assert "`cgins schema it` prints the prototype" in error.remedy
    log = Path(error.remedy.split(" is in ")[1].split(";")[0])
    assert error.log in log.read_text()


DECLARES = 'the schema line declares "scale", but the file defines no such function'


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("// cgins: scale(Tensor x) -> Tensor\nint scale(float) { return 0; }\n",
         'kernel.cpp:2: "scale" is not the extern "C" function that the schema line declares'),
        ("// cgins: scale(Tensor x) -> Tensor\nint scael() { return 0; }\n",
         f'kernel.cpp:1: {DECLARES}; did you mean "scael" in line 2?'),
        ("\n// cgins: scale(Tensor x) -> Tensor\nint norm() { if (1) {} return 0; }\n", f"kernel.cpp:2: {DECLARES}"),
        ('// cgins: f(Tensor x) -> Tensor\n#include "nope.h"\n', "kernel.cpp:2:10: fatal error: nope.h"),
    ],
)  # fmt: skip
def test_what_is_not_there(project: Any, monkeypatch: pytest.MonkeyPatch, text: str, told: str) -> None:
    """A function without C linkage, none of the schema line's name, and a header are named with their lines."""
    monkeypatch.chdir(project.root)
    what = refusal(project, text).what
    assert told in what
    assert "mean" in told or "did you mean" not in what


def test_errors_are_counted_and_shortened(project: Any) -> None:
    """The first errors come first, with their source lines; the rest is in the log."""
    text = "// cgins: f(Tensor x) -> Tensor\n" + "".join(f"int a{i} = b{i};\n" for i in range(9))
    error = refusal(project, text)
    assert "9 errors" in error.what
    assert "'b0' was not declared" in error.what
    assert "'b5' was not declared" not in error.what
    assert "'b8' was not declared" in error.log


def test_wrong_suffix(project: Any, scale_text: str) -> None:
    """A CUDA file cannot be a CPU launcher."""
    project.write("kernel.cu", scale_text)
    with pytest.raises(SourceError, match=r"a launcher for device cpu cannot be a \.cu file"):
        project.build("{op: torch.mul, source: kernel.cu, device: cpu}")


@pytest.mark.parametrize(
    ("kernel", "file"), [(KERNEL, "kernel.cpp"), (KERNEL.replace("cpp", "cu"), "kernel.cu")]
)
def test_missing_compiler(
    project: Any, scale_text: str, monkeypatch: pytest.MonkeyPatch, kernel: str, file: str
) -> None:
    """Without a compiler the error names what to install; it is not the kernel's fault."""
    project.write(file, scale_text)
    source = project.source(kernel)
    for name in ("PATH", "CXX", "CUDA_HOME", "CUDA_PATH"):
        monkeypatch.setenv(name, "/nonexistent")
    if file == "kernel.cu":
        monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(InfrastructureError) as caught:
        builds.build(source)
    assert "compiler" in caught.value.what
    assert "install" in caught.value.remedy


def test_a_compiler_that_is_not_quoted_well(monkeypatch: pytest.MonkeyPatch) -> None:
    """$CXX with an open quotation mark is named as the trouble."""
    monkeypatch.setenv("CXX", "'g++")
    with pytest.raises(InfrastructureError, match=r"CXX is .*No closing quotation"):
        toolchain.cxx()


HOLDER = "import sys, filelock\nwith filelock.FileLock(sys.argv[1]):\n print(flush=True)\n sys.stdin.read()"


def test_lock_wait_is_bounded(project: Any, scale_text: str, cache: Path) -> None:
    """A build that another process holds is waited for no longer than the limit, and says where the lock is."""
    project.write("kernel.cpp", scale_text)
    source = project.source(KERNEL)
    plan = builds.planner(source)(source)
    base, _ = builds.base_key(source, plan)
    (cache / "locks").mkdir(parents=True)
    told = r"another process has been building it for more than 0\.3 s"
    with (
        holding(HOLDER, cache / "locks" / f"{base}.lock"),
        pytest.raises(InfrastructureError, match=told),
    ):
        builds.build(source, cache=cache, timeout_s=0.3)
    assert not builds.build(source, cache=cache).cached


def test_concurrent_builds_compile_once(project: Any, scale_text: str, cache: Path) -> None:
    """Of many builders at once one compiles, and all get the same library."""
    project.write("kernel.cpp", scale_text)
    source = project.source(KERNEL)
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda _: builds.build(source, cache=cache), range(4)))
    assert len({compiled.library for compiled in results}) == 1
    assert [compiled.cached for compiled in results].count(False) == 1


def test_lookup_does_not_follow_a_stale_path(project: Any, scale_text: str, cache: Path) -> None:
    """A manifest remembers own headers relative to the source: a copy elsewhere is judged by its own headers."""
    for folder, factor in (("a", 2), ("b", 3)):
        project.write(f"{folder}/kernel.cpp", '#include "own.h"\n' + scale_text)
        project.write(f"{folder}/own.h", f"#define FACTOR {factor}\n")
    first = project.build("{op: torch.mul, source: a/kernel.cpp}", cache=cache)
    second = project.build("{op: torch.mul, source: b/kernel.cpp}", cache=cache)
    assert first.key != second.key
    assert not second.cached


def test_lookup_of_nothing(cache: Path) -> None:
    """An empty cache has no entries and is not created by looking."""
    assert Cache(cache).lookup("0" * 64, ()) is None
    assert not cache.exists()


def test_native_flags_are_explicit() -> None:
    """What `-march=native` stands for is asked of the compiler, so that the key can hold it."""
    flags = toolchain.native_flags(toolchain.cxx())
    assert any(flag.startswith("-march=") for flag in flags)
    assert "-march=native" not in flags


@pytest.mark.exam
def test_build_imports_no_torch(project: Any, scale_text: str) -> None:
    """Loading a configuration, finding a source and building it leave torch out of the process."""
    project.write("kernel.cpp", scale_text)
    project.config(KERNEL)
    code = (
        "import sys; from pathlib import Path; from pytest_cgins.config import load\n"
        "from pytest_cgins.building.contracts.source import find; from pytest_cgins.building.build import build\n"
        "config = load(Path('cgins.yaml')); kernel = config.kernels[0]\n"
        "build(find(config, kernel, kernel.implementations[0]))\n"
        "sys.exit('torch' in sys.modules or 'numpy' in sys.modules)\n"
    )
    python(code, cwd=project.root)


def test_headers_that_swap_their_contents_are_a_change(project: Any, cache: Path) -> None:
    """Which header holds which content is part of the key."""
    project.write("a.h", "static const double factor = 2;\n")
    project.write("b.h", "static const double unused = 3;\n")
    text = (
        '// cgins: scale(Tensor input, float other) -> Tensor\n#include "a.h"\n#include "b.h"\n'
        'extern "C" int scale(const DLTensor*, double, DLTensor*, cgins_stream) { return 0; }\n'
    )
    project.write("kernel.cpp", text)
    first = project.build(KERNEL, cache=cache)
    swapped = [(project.root / name).read_text() for name in ("b.h", "a.h")]
    for name, content in zip(("a.h", "b.h"), swapped, strict=True):
        project.write(name, content)
    assert project.build(KERNEL, cache=cache).key != first.key


def test_paths_with_odd_characters(tmp_path: Path, scale_text: str, cache: Path) -> None:
    """A folder with a blank, an apostrophe and a number sign builds, and its headers are watched."""
    odd = Project(tmp_path / "o'brien #1 kernels")
    odd.write("extra.h", "// one\n")
    odd.write("kernel.cpp", scale_text.replace("#include", '#include "extra.h"\n#include', 1))
    assert [odd.build(KERNEL, cache=cache).cached for _ in range(2)] == [False, True]
    odd.write("extra.h", "// two\nstatic const int changed = 1;\n")
    assert not odd.build(KERNEL, cache=cache).cached
