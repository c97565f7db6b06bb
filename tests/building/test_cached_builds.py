"""What the key of a build covers, which refusals are remembered, and caches that cannot be written."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import logging
import os
import shutil
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from pytest_cgins.building import build as builds
from pytest_cgins.building.cache.store import Cache
from pytest_cgins.core.errors import BuildError, InfrastructureError
from tests.building.processes import ended, executable, until

KERNEL = "{op: torch.mul, source: kernel.cpp}"
PLAIN = """// cgins: f(Tensor input) -> Tensor
#include <cgins.h>
%s
extern "C" int f(const DLTensor* input, DLTensor* out, cgins_stream) { return %s; }
"""


@pytest.fixture
def counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A g++ that counts its compilations, and does what `instead` says where that file is there."""
    script = executable(
        tmp_path / "counted-g++",
        f"#!/bin/bash\ncase \"$*\" in *--version*|*-###*) exec g++ \"$@\";; esac\necho >> {tmp_path}/runs\n"
        f"[ ! -f {tmp_path}/instead ] || . {tmp_path}/instead\nexec g++ \"$@\"\n",
    )  # fmt: skip
    monkeypatch.setenv("CXX", str(script))

    def runs() -> int:
        file = tmp_path / "runs"
        return len(file.read_text().splitlines()) if file.exists() else 0

    return runs


def answer(project: Any, cache: Path, kernel: str = KERNEL) -> int:
    """What the built function returns."""
    returned: int = ctypes.CDLL(project.build(kernel, cache=cache).library).f(None, None, None)
    return returned


def refused(project: Any, cache: Path, kernel: str = KERNEL) -> BuildError:
    with pytest.raises(BuildError) as caught:
        project.build(kernel, cache=cache)
    return caught.value


def test_a_refusal_comes_back_without_the_compiler(project: Any, cache: Path, counted: Any) -> None:
    """The same source is refused by the same error, log and command; another one is compiled."""
    project.write("kernel.cpp", PLAIN % ("", "wrong"))
    first = refused(project, cache)
    assert counted() == 1
    second = refused(project, cache)
    assert counted() == 1
    assert (first.what, first.remedy, first.log) == (
        second.what, second.remedy, second.log
    )  # fmt: skip
    log = Path(second.remedy.split(" is in ")[1].split(";")[0])
    assert second.log in log.read_text()
    log.unlink()
    refused(project, cache)
    assert log.is_file()
    project.write("kernel.cpp", PLAIN % ("", "0"))
    assert not project.build(KERNEL, cache=cache).cached


def test_a_refusal_in_another_checkout(
    project: Any, cache: Path, tmp_path: Path, counted: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A refusal from another path is the same error, with the paths of this one."""
    monkeypatch.chdir("/")
    for folder in ("a", "b"):
        project.write(f"{folder}/own.h", "int g() { return nothing; }\n")
        project.write(f"{folder}/kernel.cpp", PLAIN % ('#include "own.h"', "g()"))
    first = refused(project, cache, "{op: torch.mul, source: a/kernel.cpp}")
    second = refused(project, cache, "{op: torch.mul, source: b/kernel.cpp}")
    assert counted() == 1
    assert str(tmp_path / "a/own.h").removeprefix("/") in first.what
    assert second.what == first.what.replace("/a/", "/b/")
    assert "/a/" not in second.log


def test_a_header_mends_a_refusal(project: Any, cache: Path) -> None:
    """A refusal for what a header says, or for a header that is missing, ends when the header does."""
    project.write("kernel.cpp", PLAIN % ('#include "own.h"', "value"))
    assert "own.h" in refused(project, cache).what
    project.write("own.h", "")
    assert "'value' was not declared" in refused(project, cache).what
    project.write("own.h", "const int value = 0;\n")
    assert not project.build(KERNEL, cache=cache).cached


@pytest.mark.parametrize(
    ("instead", "message"),
    [
        ("kill -9 $$", r"it was killed by SIGKILL"),
        ("echo 'x.cpp:1:1: fatal error: error writing to x.s: No space left on device'; exit 1", "No space left"),
        ("echo 'g++: fatal error: Killed signal terminated program cc1plus'; exit 1", "Killed signal terminated"),
        ("exec /nonexistent/part", r"/nonexistent/part is not installed"),
        ("exec g++ -B/nonexistent -no-canonical-prefixes -wrapper no-such-tool \"$@\"", "no-such-tool is not installed"),
    ],
)  # fmt: skip
def test_what_is_not_the_source_s_fault(
    project: Any, cache: Path, tmp_path: Path, counted: Any, instead: str, message: str
) -> None:
    """A compiler that was killed, has no room or lacks a part is no verdict on the kernel, and not remembered."""
    project.write("kernel.cpp", PLAIN % ("", "0"))
    (tmp_path / "instead").write_text(instead)
    with pytest.raises(InfrastructureError, match=message) as caught:
        project.build(KERNEL, cache=cache)
    assert "the whole log is in" in caught.value.remedy
    (tmp_path / "instead").unlink()
    assert not project.build(KERNEL, cache=cache).cached


@pytest.mark.parametrize(
    "instead",
    ["kill -SEGV $$", "touch 0.d; echo 'x.cpp:1:1: internal compiler error: Segmentation fault'; exit 4"],
)
def test_a_crash_is_not_remembered(
    project: Any, cache: Path, tmp_path: Path, counted: Any, instead: str
) -> None:
    """A compiler that crashes has refused the kernel, and is asked again the next time."""
    project.write("kernel.cpp", PLAIN % ("", "0"))
    (tmp_path / "instead").write_text(instead)
    refused(project, cache)
    (tmp_path / "instead").unlink()
    assert not project.build(KERNEL, cache=cache).cached


def test_a_header_that_changes_meanwhile(project: Any, cache: Path, tmp_path: Path, counted: Any) -> None:
    """A header that is written while it is compiled costs another try: nobody knows what the compiler saw."""
    project.write("kernel.cpp", PLAIN % ('#include "own.h"', "value"))
    project.write("own.h", "const int value = 1;\n")
    (tmp_path / "instead").write_text(f"sleep 0.1; echo 'const int value = 2;' > {tmp_path}/own.h")
    with pytest.raises(BuildError, match="a source changed while it was compiled"):
        project.build(KERNEL, cache=cache)
    (tmp_path / "instead").unlink()
    assert answer(project, cache) == 2


def test_a_header_from_a_clock_that_is_ahead(project: Any, cache: Path, tmp_path: Path) -> None:
    """A header whose time is tomorrow, as in an archive from another machine, was not written meanwhile."""
    project.write("kernel.cpp", PLAIN % ('#include "own.h"', "value"))
    project.write("own.h", "const int value = 1;\n")
    tomorrow = time.time() + 86_400
    os.utime(tmp_path / "own.h", (tomorrow, tomorrow))
    assert answer(project, cache) == 1


@pytest.mark.parametrize("searched", ["-I", "-isystem", "-idirafter", "CPATH"])
def test_a_header_that_is_found_earlier(
    project: Any, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, searched: str
) -> None:
    """A new header in a folder that is searched before the one where it was found is another build."""
    project.write("kernel.cpp", PLAIN % ("#include <other.h>", "value"))
    folders = [tmp_path / name for name in ("first", "second")]
    for folder in folders:
        folder.mkdir()
    kernel = KERNEL
    if searched == "CPATH":
        monkeypatch.setenv("CPATH", ":".join(map(str, folders)))
    else:
        kernel = f"{{op: torch.mul, source: kernel.cpp, flags: {[searched + str(one) for one in folders]}}}"
    answers = []
    for value, folder in enumerate(reversed(folders)):
        (folder / "other.h").write_text(f"const int value = {value};\n")
        answers.append(answer(project, cache, kernel))
    assert answers == [0, 1]


@pytest.mark.exam
def test_a_time_out_is_not_remembered(project: Any, cache: Path, tmp_path: Path, counted: Any) -> None:
    """A build that did not end in time is killed with all that it started, and tried again."""
    project.write("kernel.cpp", PLAIN % ("", "0"))
    (tmp_path / "instead").write_text(f"sleep 600 & echo $! > {tmp_path}/child; echo compiling; wait")
    with pytest.raises(BuildError, match=r"counted-g\+\+ was not done after 1 s and was killed"):
        project.build(KERNEL, cache=cache, timeout_s=1)
    until(lambda: ended((tmp_path / "child").read_text().strip()))
    (tmp_path / "instead").unlink()
    assert not project.build(KERNEL, cache=cache).cached


def test_arguments_of_the_compiler_are_in_the_key(
    project: Any, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What $CXX adds to a compiler of the same version is another build."""
    project.write("kernel.cpp", PLAIN % ("", "FACTOR"))
    answers = []
    for factor in (2, 3):
        monkeypatch.setenv("CXX", f"g++ -DFACTOR={factor}")
        answers.append(answer(project, cache))
    assert answers == [2, 3]


@pytest.mark.parametrize(
    ("question", "answer"),
    [("--version", "g++ (Other) 99.1"), ("-###", '" cc1plus" "-march=rocketlake" "-mavx"')],
)
def test_another_compiler_or_processor_is_another_build(
    project: Any, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, question: str, answer: str
) -> None:
    """A cache from a machine with another compiler or processor holds nothing for this one."""
    project.write("kernel.cpp", PLAIN % ("", "0"))
    here = project.build(KERNEL, cache=cache)
    text = (
        f'#!/bin/sh\ncase "$*" in *{question}*) echo \'{answer}\'; exit;; esac\nexec /usr/bin/env g++ "$@"\n'
    )
    other = executable(tmp_path / "g++", text)
    monkeypatch.setenv("CXX", str(other))
    there = builds.base_key(here.source, builds.planner(here.source)(here.source))[0]
    monkeypatch.delenv("CXX")
    assert builds.base_key(here.source, builds.planner(here.source)(here.source))[0] != there
    assert project.build(KERNEL, cache=cache).cached


@pytest.mark.exam
def test_libraries_are_in_the_key(project: Any, cache: Path, tmp_path: Path) -> None:
    """A library of -l is known by content, not by path or time: a new one is linked, a moved one is not."""
    kernel = f"{{op: torch.mul, source: kernel.cpp, flags: [-L{tmp_path}/lib, -lvalue]}}"
    project.write("kernel.cpp", PLAIN % ('extern "C" int value();', "value()"))
    (tmp_path / "lib").mkdir()
    answers = []
    for value in (1, 2):
        project.write("value.c", f"int value() {{ return {value}; }}")
        for command in (["gcc", "-fPIC", "-c", "value.c"], ["ar", "rc", "lib/libvalue.a", "value.o"]):
            subprocess.run(command, cwd=tmp_path, check=True)
        answers.append(answer(project, cache, kernel))
    assert answers == [1, 2]
    shutil.move(tmp_path / "lib", tmp_path / "elsewhere" / "lib")
    assert project.build(kernel.replace(f"{tmp_path}/lib", f"{tmp_path}/elsewhere/lib"), cache=cache).cached


def test_read_only_cache(
    project: Any, scale_text: str, cache: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Where the cache cannot be made, kernels are built for this process, with one warning."""
    project.write("kernel.cpp", scale_text)
    read_only = Path("/sys/cgins-cache")
    with caplog.at_level(logging.WARNING, "pytest_cgins"):
        first = project.build(KERNEL, cache=read_only)
        second = project.build(KERNEL, cache=read_only)
    assert (first.cached, second.cached) == (False, True)
    assert Path(first.library).is_file()
    assert [record.message.partition(": ")[0] for record in caplog.records] == [str(read_only)]


def test_unusable_cache(project: Any, scale_text: str, cache: Path) -> None:
    """A cache that cannot be used for another reason is an error of the machine, with a remedy."""
    project.write("kernel.cpp", scale_text)
    cache.write_text("no folder")
    with pytest.raises(InfrastructureError, match=r"build cache .* cannot be used") as caught:
        project.build(KERNEL, cache=cache)
    assert "cgins cache prune" in caught.value.remedy


def test_last_build_time(project: Any, scale_text: str, cache: Path) -> None:
    """The time of an implementation's last build is told, whatever its source was then."""
    project.write("kernel.cpp", scale_text)
    source = project.source(KERNEL)
    assert Cache(cache).last_seconds("it/cpp") is None
    compiled = builds.build(source, cache=cache)
    project.write("kernel.cpp", scale_text + "wrong\n")
    refused(project, cache)
    assert Cache(cache).last_seconds("it/cpp") == pytest.approx(compiled.build_seconds, abs=1e-3)


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP])
def test_a_file_system_without_locks(
    project: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """Kernels are built, by two at once as well, none waits for ever, and nobody's work is removed."""

    def flock(_: int, __: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", flock)
    project.write("kernel.cpp", PLAIN % ("", "7"))
    source = project.source(KERNEL)
    cache = tmp_path / "cache"
    with Cache(cache).work_folder() as others:
        with ThreadPoolExecutor(2) as pool:
            both = [pool.submit(builds.build, source, cache=cache, wait_s=0.0) for _ in range(2)]
            assert len({one.result().library for one in both}) == 1
        assert others.exists()
    assert builds.build(source, cache=cache).cached
