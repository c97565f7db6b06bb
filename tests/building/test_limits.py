"""What a source has its compiler read and write without end, and whose error that is."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

from pytest_cgins.building.builders import includes
from pytest_cgins.building.cache import headers
from pytest_cgins.building.compilers import diagnostics, watched
from pytest_cgins.building.compilers.process import run_stages
from pytest_cgins.building.contracts import cxx
from pytest_cgins.core.errors import BuildError, InfrastructureError, SourceError

CPP = "{op: torch.mul, source: k.cpp}"


@pytest.mark.parametrize(
    ("addition", "said"),
    [
        ('#define DEVICE "/dev/zero"\n#include DEVICE\n', "needed more than the 1 GiB of memory"),
        ('asm(".fill 3000000000,1,0");\n', "wrote more than the 2 GiB that a file of a build may have"),
    ],
    ids=["memory", "file"],
)
def test_a_source_that_takes_without_end_is_the_kernel_s_error(
    project: Any, scale_text: str, monkeypatch: pytest.MonkeyPatch, addition: str, said: str
) -> None:
    """The compiler meets its limit, not the machine's, and it is told which."""
    monkeypatch.setenv(watched.MEMORY_VARIABLE, "1")
    project.write("k.cpp", scale_text + addition)
    with pytest.raises(BuildError, match=said):
        project.build(CPP, cache=project.root / "cache")


INCLUDED = {
    "device": "/dev/zero",
    "device over its folder": "../../../../../../../../../dev/urandom",
    "link": "link.h",
    "pipe": "pipe.h",
    "pipe in a header": "plain.h",
    "kernel's log": "/proc/kmsg",
    "kernel's memory": "/proc/self/mem",
    "own descriptor": "/proc/self/fd/0",
}


@pytest.mark.parametrize("word", ["include", "include_next", "import", "embed"])
def test_each_way_to_name_a_file(project: Any, endless: Path, word: str) -> None:
    """A directive by any of its names, with blanks, in quotes or brackets."""
    for text in (f'#{word} "pipe.h"\n', f" # {word} </dev/zero>\n"):
        assert cxx.endless_include([str(project.write("k.cpp", text))], [])
    assert not cxx.endless_include([str(project.write("k.cpp", f'// #{word} "pipe.h"\n'))], [])


@pytest.fixture
def endless(project: Any) -> Path:
    """A folder with a link to a device, a pipe, and a header that includes the pipe."""
    (project.root / "link.h").symlink_to("/dev/zero")
    os.mkfifo(project.root / "pipe.h")
    project.write("plain.h", '#include "pipe.h"\n')
    return Path(project.root)


@pytest.mark.parametrize("name", INCLUDED.values(), ids=INCLUDED)
def test_what_has_no_end_is_not_read(project: Any, scale_text: str, endless: Path, name: str) -> None:
    """By the kernel's compiler, and by what looks through sources without one."""
    main = project.write("k.cpp", f'#include "{name}"\n' + scale_text)
    with pytest.raises(BuildError, match="a device, a pipe or a file of the system's"):
        project.build(CPP, cache=endless / "cache")
    assert all("#include" in text for text in cxx.own_headers([str(main)], []))
    with pytest.raises(SourceError, match="a device, a pipe or a file of the system's"):
        includes.scan(main, [])


def test_a_device_has_no_digest_and_no_text(endless: Path) -> None:
    """Neither a pipe nor a device is waited for; a plain file in memory is one, wherever that is."""
    assert [headers.file_digest(endless / name) for name in ("pipe.h", "link.h", "nowhere")] == [None] * 3
    assert headers.file_digest(endless / "plain.h")
    assert not cxx.is_endless(endless / "plain.h")
    assert not cxx.is_endless(endless)
    assert not cxx.is_endless(Path("a\0b"))


def test_limits_are_of_the_command_and_its_offspring(tmp_path: Path) -> None:
    """A compiler's parts have them as well."""
    script = 'sh -c "ulimit -v; ulimit -f; ulimit -c"'
    done = run_stages([[["sh", "-c", script]]], tmp_path, "k", time.monotonic() + 20)
    assert done.log.split() == [str(watched.memory_gib() << 20), str(watched.FILE_NBYTES // 512), "0"]


def test_memory_limit_is_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """The variable counts GiB; by default it is enough for large templates, as far as the machine has it."""
    monkeypatch.delenv(watched.MEMORY_VARIABLE, raising=False)
    assert watched.LEAST_MEMORY_GIB <= watched.memory_gib() <= watched.MEMORY_GIB
    monkeypatch.setenv(watched.MEMORY_VARIABLE, "32")
    assert watched.memory_gib() == 32
    monkeypatch.setenv(watched.MEMORY_VARIABLE, "8GiB")
    with pytest.raises(InfrastructureError, match="CGINS_COMPILER_MEMORY is '8GiB'"):
        watched.memory_gib()


def test_a_machine_without_memory_is_not_the_kernel_s_error() -> None:
    """A compiler that could not be started, or was killed by the system, has said nothing of the source."""
    log = "g++: fatal error: cannot execute 'cc1plus': posix_spawn: Cannot allocate memory"
    assert diagnostics.over_limit(1, log) == ""
    assert diagnostics.not_the_source(1, log) is not None
    assert diagnostics.over_limit(137, "g++: fatal error: Killed signal terminated program cc1plus") == ""
